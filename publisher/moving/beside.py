"""A target beside the publisher that was there before: record by record, or group by group, with reasons.

What the other sent is read from its messages: a folder of archived usage records, an outgoing queue of SSM, files. What
we would send is rendered from the store. Nothing is changed; `publisher.pipeline.take_over` does that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from formats.month import Month, month_bounds, months_between
from formats.record import CannotRenderError
from formats.record_fields import Fields, each_fields_of, fields_of
from formats.registry import summary_format
from formats.summary import Fold
from publisher.config import Config
from publisher.forms import record_format
from publisher.moving.old_records import SUMMARIES, OldRecord, OldRecords
from publisher.moving.reasons import reason_of, same_value
from publisher.pipeline.demand import Demand
from publisher.pipeline.viewing import view_of
from publisher.store import deliveries, ledger, registry, runs
from publisher.store.database import Store
from publisher.store.ledger import Waiting
from publisher.store.states import State

_PAGE: Final = 500
_TOTAL: Final = re.compile(r"(?<=\[)total,?|,total(?=[,\]])")

Kind = Literal["same", "differs", "only here", "only there"]


class FieldDifference(msgspec.Struct, frozen=True):
    """A field that differs: their value, ours (None: it is not there), and why, where that is known."""

    field: str
    theirs: str | None
    ours: str | None
    reason: str


class Beside(msgspec.Struct, frozen=True):
    """A record or group: how it stands on both sides. `reason`: why it is on one side alone."""

    record: str
    kind: Kind
    fields: tuple[FieldDifference, ...] = ()
    reason: str = ""
    run_id: int | None = None

    @property
    def is_on_both_sides(self) -> bool:
        """Whether both have it, alike or not."""
        return self.kind in {"same", "differs"}

    @property
    def explained(self) -> bool:
        """Whether every difference of the fields has a reason that is known."""
        return all(field.reason for field in self.fields)


class Comparison:
    """One target beside what another publisher sent, in a window of end times (`until` exclusive)."""

    def __init__(self, store: Store, config: Config, target: str, old: OldRecords, window: tuple[int, int]) -> None:
        self._store = store
        self._config = config
        self._name = target
        self._settings = config.targets[target]
        self._view = view_of(self._settings, config)
        self._demand = Demand(config, self._settings)
        self._old = old
        self._window = window
        self.counts: Counter[Kind] = Counter()

    def records(self) -> Iterator[Beside]:
        """Every record of both sides, each once: ours in the order of their ends, then those that are theirs alone."""
        found = self._of_groups() if self._settings.records in SUMMARIES else self._of_runs()
        for each in found:
            self.counts[each.kind] += 1
            yield each
        for old in self._old.unmatched():
            if old.end is None or self._window[0] <= old.end < self._window[1]:
                self.counts["only there"] += 1
                name = old.name if old.name[:1] != "[" else _group_name(old.fields)
                yield Beside(name, "only there", reason=self._why_not_here(old))

    # --- jobs

    def _deliveries(self, bounds: tuple[int, int]) -> Iterator[tuple[State, Waiting]]:
        with self._store.read() as connection:
            row = registry.get_target(connection, self._name)
        after: tuple[int, int] | None = None
        while row is not None:
            with self._store.read() as connection:
                page, after = ledger.ended_in(connection, row.id, bounds, after, _PAGE)
            yield from page
            if after is None:
                return

    def _of_runs(self) -> Iterator[Beside]:
        form = record_format(self._settings.records, self._view)
        for _state, delivery in self._deliveries(self._window):
            run = delivery.run
            try:
                body = form.record(self._demand.meet(run), run.stored_at).body
            except CannotRenderError as error:
                yield Beside(run.record_id, "only here", reason=f"it would be held: {error}", run_id=run.run_id)
                continue
            ours = fields_of(self._settings.records, form.message([body]))
            old = self._old.match(ours)
            if old is None:
                yield Beside(run.record_id, "only here", reason="the other did not send it", run_id=run.run_id)
            else:
                yield _compared(run.record_id, old.fields, ours, run.run_id)

    # --- summaries

    def _of_groups(self) -> Iterator[Beside]:
        form = summary_format(self._settings.records, self._view)
        for month in months_between(*self._window):
            fold = self._fold(month, normalised=form.normalised)
            for group in fold.groups():
                (ours,) = each_fields_of(self._settings.records, form.message([form.record(group).body]))
                old = self._old.match(ours)
                name = _group_name(ours)
                if old is None:
                    yield Beside(name, "only here", reason=self._other_key(ours))
                else:
                    yield _compared(name, old.fields, ours, None)

    def _fold(self, month: Month, *, normalised: bool) -> Fold:
        fold = Fold(self._view, normalised=normalised)
        for state, delivery in self._deliveries(month_bounds(month)):
            if state in {State.WAIVED, State.SUPERSEDED}:
                continue
            try:
                fold.add(self._demand.meet(delivery.run))
            except CannotRenderError:
                continue
        return fold

    def _other_key(self, ours: Fields) -> str:
        """Why a group has no counterpart: another one has the same jobs under a key that is spelled otherwise."""
        same = ("Year", "Month", "NumberOfJobs", "WallDuration", "CpuDuration")
        for old in self._old.unmatched():
            if all(old.fields.get(name) == ours.get(name) for name in same):
                self._old.see(old.name)
                spelled = ", ".join(
                    f"{each.field} {each.theirs!r} there, {each.ours!r} here"
                    for each in _differences(old.fields, ours)
                    if each.field not in {"EarliestEndTime", "LatestEndTime"}
                )
                return f"the same jobs under another key, which APEL would count again: {spelled}"
        return "the other did not send it"

    # --- theirs alone

    def _why_not_here(self, old: OldRecord) -> str:
        if self._settings.records in SUMMARIES:
            return "no job here makes this group"
        names = [
            values[0]
            for name in ("RecordIdentity@recordId", "JobIdentity/GlobalJobId", "JobIdentity/LocalJobId", "LocalJobId")
            if (values := old.fields.get(name))
        ]
        with self._store.read() as connection:
            row = registry.get_target(connection, self._name)
            for name in names:
                found = [run for run in runs.find(connection, name) if not run.job.slave]
                if not found:
                    continue
                states = deliveries.states_of(connection, row.id, [found[0].run_id]) if row is not None else {}
                if found[0].run_id not in states:
                    status = found[0].job.status
                    return f"it is known ({status}), and not wanted here: see vo, statuses, since and local_jobs"
                return "it is known with another end or id; `usage-publisher jobs` shows it"
        return "no source here has it"


def _group_name(fields: Fields) -> str:
    """A group, for people."""
    shown = ("Year", "Month", "VO", "VOGroup", "VORole", "SubmitHost", "GlobalUserName", "Processors", "ServiceLevel")
    return " ".join(_text(fields.get(name)) for name in shown if fields.get(name))


def _usual(fields: Fields) -> Fields:
    """With the attribute that an element has anyway left out of the names: the metric `total`."""
    return {_TOTAL.sub("", name).replace("[]", ""): values for name, values in fields.items()}


def _text(values: tuple[str, ...] | None) -> str:
    return ", ".join(values or ())


def _compared(record: str, theirs: Fields, ours: Fields, run_id: int | None) -> Beside:
    fields = tuple(_differences(_usual(theirs), _usual(ours)))
    return Beside(record, "differs" if fields else "same", fields, run_id=run_id)


def _same(theirs: Sequence[str], ours: Sequence[str]) -> bool:
    return len(theirs) == len(ours) and all(map(same_value, theirs, ours))


def _differences(
    theirs: Mapping[str, tuple[str, ...]], ours: Mapping[str, tuple[str, ...]]
) -> Iterator[FieldDifference]:
    for name in dict.fromkeys([*theirs, *ours]):
        there, here = theirs.get(name), ours.get(name)
        if there == here:
            continue
        if there is not None and here is not None and _same(there, here):
            continue
        before = None if there is None else _text(there)
        after = None if here is None else _text(here)
        yield FieldDifference(name, before, after, reason_of(name, before, after))
