"""Compare the sums of source, store, and service, and explain each difference.

For each target and month, and for each VO or user if requested, in jobs, core time, and CPU time:

    source = store + not read + purged + changed + not in source
    store = accepted + not selected + waiting + in flight + held + rejected + waived + superseded
    sent = accepted + earlier versions

Each is added up independently: the source from its files, the store from its runs, and what was sent from the versions
of records, or the groups of summaries, that were last sent. The equations hold to the millisecond; `changed`, `not in
source`, and `earlier versions` may be negative. Memory grows with the cells, not with the runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from formats.calendar import Month, month_bounds
from publisher.collect.collect import TargetPlan
from publisher.collect.enrich import Enrichers
from publisher.config.schema import Config
from publisher.encoded_run import cpu_total_ms
from publisher.publish.context import Tools
from publisher.reconcile.amounts import NOTHING, Amounts, AmountsByKey, By, ClassLabels, SumsKey
from publisher.reconcile.result import Found, MonthFound
from publisher.reconcile.source_sums import SourceReading, SourceSums, source_sums
from publisher.store import groups, runs, sums
from publisher.store.database import Store
from publisher.store.schema import State

NOT_READ: Final = ("not_read", "purged", "changed", "not_in_source")
"""The differences between a source and the store."""
NOT_SENT: Final = (
    "not_selected", *(state.word for state in State if state is not State.ACCEPTED),
)  # fmt: skip
"""The differences between the store and what was accepted."""
COLUMNS: Final = ("source", *NOT_READ, "store", *NOT_SENT, "accepted", "earlier_versions", "sent", "service")


class SumsRow(msgspec.Struct, frozen=True):
    """The sums of a cell of a target, by the names in `COLUMNS`. `month` None: of all months; `of` None: of all runs.

    `service` is None where unknown, and its core time is None where the service has wall time alone. `explained`: every
    difference has a known cause. `purged`: the month was purged, so it is unknown what was sent.
    """

    month: Month | None
    of: str | None
    amounts: dict[str, Amounts]
    service: tuple[int, int | None, int | None] | None = None
    explained: bool = True
    purged: bool = False

    @property
    def stuck(self) -> Amounts:
        """What is held or rejected: it is explained, and stays away from the service until somebody acts."""
        return self.amounts["held"].plus(self.amounts["rejected"])

    @property
    def pending(self) -> Amounts:
        """What waits or is in flight."""
        return self.amounts["waiting"].plus(self.amounts["in_flight"])


class Conservation(msgspec.Struct, frozen=True):
    """The result: how each source was read, and the rows by target: first those that differ, last the total."""

    months: tuple[Month, ...]
    by: By | None
    readings: dict[str, SourceReading]
    targets: dict[str, list[SumsRow]]

    @property
    def agrees(self) -> bool:
        """Whether every source was read to its end, its program agrees, every difference is explained, and nothing is
        held or rejected: that does not settle itself."""
        read = all(reading.error is None and not reading.differing for reading in self.readings.values())
        every = [row for rows in self.targets.values() for row in rows]
        return read and all(row.explained and row.stuck == NOTHING for row in every)


def conservation(
    store: Store,
    config: Config,
    plans: Mapping[str, TargetPlan],
    found: Mapping[str, Found],
    by: By | None,
    tools: Tools,
    *,
    with_tool: bool = False,
) -> Conservation:
    """Compute the sums of the months and targets that were reconciled (`found`, by target).

    `with_tool`: the readings of the sources also have the sums of the batch systems' own programs. Raises `StoreError`
    and `StoppedError`.
    """
    months = sorted({month.month for each in found.values() for month in each.months})
    labels = ClassLabels(store, Enrichers(config), by)
    sources = {name: tools.make_source(name, settings) for name, settings in config.sources.items()}
    if months:
        read = source_sums(store, labels, sources, months, tools.stopping, with_tool=with_tool)
    else:
        read = SourceSums({})
    targets = {
        name: _TargetSums(store, config, name, plans[name].target_id, labels, by).rows(read, each)
        for name, each in found.items()
    }
    return Conservation(tuple(months), by, read.readings, targets)


class _TargetSums:
    """The sums of one target."""

    def __init__(
        self, store: Store, config: Config, name: str, target_id: int, labels: ClassLabels, by: By | None
    ) -> None:
        self._store = store
        self._target_id = target_id
        self._labels = labels
        self._by = by
        totals = config.targets[name].format.totals
        self._totals = totals if totals is not None and totals.usage is not None and by is None else None
        self._sums: defaultdict[str, AmountsByKey] = defaultdict(lambda: defaultdict(Amounts))

    def rows(self, read: SourceSums, found: Found) -> list[SumsRow]:
        """With `by` a row for each cell; then a row for each month; those that differ first. The total comes last."""
        for month in found.months:
            self._add_store(month.month)
            self._add_sent(month.month)
        self._compare(read, {month.month.number for month in found.months})
        by_month = {month.month.number: month for month in found.months}
        cells = sorted({cell for ledger in self._sums.values() for cell in ledger})
        rows = [self._row(cell, by_month[cell.month]) for cell in cells if self._by is not None]
        rows.sort(key=lambda row: row.explained)
        monthly = [self._month(month) for month in found.months]
        monthly.sort(key=lambda row: row.explained)
        return [*rows, *monthly, *([_total(monthly)] if len(monthly) > 1 else [])]

    def _add(self, column: str, cell: SumsKey, amounts: Amounts) -> None:
        self._sums[column][cell] = self._sums[column][cell].plus(amounts)

    def _add_store(self, month: Month) -> None:
        with self._store.read() as connection:
            by_state = list(sums.by_class_and_state(connection, self._target_id, month_bounds(month)))
        labels = self._labels.of([state_sums.class_id for state_sums in by_state])
        for state_sums in by_state:
            whose = labels[state_sums.class_id]
            if whose is None:
                continue
            amounts = Amounts(state_sums.jobs, state_sums.wall_ms * whose[1], state_sums.cpu_ms)
            cell = SumsKey(month.number, whose[0])
            self._add("store", cell, amounts)
            self._add(_place(state_sums.state), cell, amounts)

    def _add_sent(self, month: Month) -> None:
        with self._store.read() as connection:
            if self._totals is not None and self._totals.usage is not None:
                for row in groups.of_month(connection, self._target_id, self._totals.kind, month.number).values():
                    used = self._totals.usage(row.total(self._totals))
                    self._add("sent", SumsKey(month.number), Amounts(used.jobs, used.core_ms, used.cpu_ms))
                return
            earlier = sums.sent_earlier(connection, self._target_id, month_bounds(month))
            labels = self._labels.of([class_id for _, class_id, _ in earlier])
            for run_id, class_id, digest in earlier:
                version, whose = runs.version_of(connection, run_id, digest), labels[class_id]
                if version is not None and version.end is not None and whose is not None:
                    amounts = Amounts(1, (version.wall_ms or 0) * whose[1], cpu_total_ms(version))
                    self._add("earlier_versions", SumsKey(month.number, whose[0]), amounts)

    def _compare(self, read: SourceSums, months: set[int]) -> None:
        """Compute the differences between sources and store, and between accepted and sent."""
        ledgers = (read.all, read.matched, read.stored, read.purged)
        cells = {cell for ledger in (*ledgers, *self._sums.values()) for cell in ledger if cell.month in months}
        for cell in cells:
            every, matched, stored, purged = (ledger.get(cell, NOTHING) for ledger in ledgers)
            self._add("source", cell, every)
            self._add("purged", cell, purged)
            self._add("not_read", cell, every.minus(matched).minus(purged))
            self._add("changed", cell, matched.minus(stored))
            self._add("not_in_source", cell, stored.minus(self._of("store", cell)))
            if self._totals is not None:
                self._add("earlier_versions", cell, self._of("sent", cell).minus(self._of("accepted", cell)))
            else:
                self._add("sent", cell, self._of("accepted", cell).plus(self._of("earlier_versions", cell)))

    def _of(self, column: str, cell: SumsKey) -> Amounts:
        return self._sums[column].get(cell, NOTHING)

    def _row(self, cell: SumsKey, found: MonthFound) -> SumsRow:
        amounts = {column: self._of(column, cell) for column in COLUMNS if column != "service"}
        return SumsRow(found.month, cell.of, amounts, explained=self._is_explained(amounts, found), purged=found.purged)

    def _month(self, found: MonthFound) -> SumsRow:
        """Add up all cells of a month, with what the service has."""
        cells = {cell for ledger in self._sums.values() for cell in ledger if cell.month == found.month.number}
        amounts = {}
        for column in COLUMNS:
            total = NOTHING
            for cell in cells:
                total = total.plus(self._of(column, cell))
            amounts[column] = total
        del amounts["service"]
        service = None
        if found.service_jobs is not None:
            core_ms = _milliseconds(found.service_wall_s) if found.per_core else None
            service = (found.service_jobs, core_ms, _milliseconds(found.service_cpu_s))
        same = (service is None or service[0] == amounts["sent"].jobs) and found.agrees
        return SumsRow(
            found.month, None, amounts, service, same and self._is_explained(amounts, found), purged=found.purged
        )

    def _is_explained(self, amounts: Mapping[str, Amounts], found: MonthFound) -> bool:
        # Exact: both sides are whole milliseconds of the same records, and a tolerance would hide one short job.
        if amounts["not_read"] != NOTHING or amounts["changed"] != NOTHING:
            return False
        # While runs of the month wait, its totals lag behind; of a purged one, what was sent is not known.
        is_open = found.states_open or found.purged
        return not (self._totals is not None and amounts["earlier_versions"] != NOTHING and not is_open)


def _place(state: State | None) -> str:
    return "not_selected" if state is None else state.word


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _total(rows: Sequence[SumsRow]) -> SumsRow:
    amounts = {}
    for column in rows[0].amounts:
        total = NOTHING
        for row in rows:
            total = total.plus(row.amounts[column])
        amounts[column] = total
    service = None
    if all(row.service is not None for row in rows):
        parts = [row.service for row in rows if row.service is not None]
        service = (sum(part[0] for part in parts), _sum([p[1] for p in parts]), _sum([p[2] for p in parts]))
    return SumsRow(None, None, amounts, service, all(row.explained for row in rows), any(row.purged for row in rows))


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
