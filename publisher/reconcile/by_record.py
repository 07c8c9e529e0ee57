"""Record by record: where it is known which records a service has. Each is looked up among those, in pages."""

from __future__ import annotations

from typing import Final

from formats.calendar import Month, month_bounds, month_of
from publisher.reason import sentence
from publisher.reconcile.confirm import ConfirmedPage, Verdicts
from publisher.reconcile.evidence import EvidenceDatabase, EvidenceRecord
from publisher.reconcile.ledger import Ledger, LedgerRun, RecordKeys, kept_as
from publisher.reconcile.result import Difference, Found, MonthFound
from publisher.store import queries
from publisher.store.schema import State
from publisher.targets.base import KeepsMessages

_WALL_ROUNDING_S: Final = 1
_CPU_ROUNDING_S: Final = 2
"""User and system time may be rounded each."""

_KEPT: Final = "the service keeps its first version"
_GONE: Final = "the service no longer has its first version"
_NOT_KNOWN: Final = "not known here"
_NOT_WANTED: Final = "known here, and this target does not want it"


class ByRecord:
    """Compares one target. `spool`: where messages are taken away by others, as is meant to happen."""

    def __init__(
        self,
        ledger: Ledger,
        keys: RecordKeys,
        found: Found,
        database: EvidenceDatabase,
        verdicts: Verdicts,
        spool: KeepsMessages | None,
    ) -> None:
        self._ledger = ledger
        self._keys = keys
        self._found = found
        self._database = database
        self._verdicts = verdicts
        self._spool = spool if spool is not None and spool.taken_away else None
        self._there: dict[str, bool] = {}

    def month(self, month: MonthFound) -> None:
        """Compare a month."""
        month.service_jobs, month.service_wall_s, month.service_cpu_s = 0, 0.0, 0.0
        for entries in self._ledger.counted_pages(month):
            keys = self._keys.of([entry.run for entry in entries])
            others = [other for entry in entries if (other := kept_as(entry.run)) is not None]
            evidence = self._database.match(self._found.target, [*keys.values(), *others])
            gone = self._taken_away(entries) if self._spool is not None else frozenset()
            page = ConfirmedPage([], [], [], [])
            for entry in entries:
                at_service = evidence.get(keys.get(entry.run.run_id, "")) or evidence.get(kept_as(entry.run) or "")
                self._compare(month, page, entry, at_service, taken=entry.run.batch_id in gone)
            month.confirmed += self._verdicts.write(page)

    def _compare(
        self, month: MonthFound, page: ConfirmedPage, entry: LedgerRun, theirs: EvidenceRecord | None, *, taken: bool
    ) -> None:
        run, state = entry.run, entry.run.state
        if theirs is not None:
            _add(month, theirs)
            if state is State.SUPERSEDED:
                page.differences.append(
                    Difference(month.month, "superseded", run.record_id, sentence(run.reason) or _KEPT)
                )
            elif state is State.WAIVED and run.sent:
                pass  # superseded, and waived
            elif state is not State.ACCEPTED:
                month.unsettled += 1
                if _difference(entry, theirs) is None:
                    page.has_unsent(entry)
                page.differences.append(Difference(month.month, "unsettled", run.record_id, f"here: {state.word}"))
            elif (difference := _difference(entry, theirs)) is not None:
                month.differing += 1
                month.other_hours += 1
                if self._found.keeps_first:
                    page.doubts(entry)
                else:
                    page.lacks(entry)
                page.differences.append(Difference(month.month, "differs", run.record_id, difference))
            else:
                page.agrees(entry)
        elif taken and entry.counted:
            month.taken += 1
        elif state is State.SUPERSEDED:
            page.again.append((run.run_id, state))
            page.differences.append(Difference(month.month, "superseded", run.record_id, _GONE))
        elif state is State.ACCEPTED:
            month.missing += 1
            page.lacks(entry)
            detail = "delivered before us, as an import said" if run.batch_id is None else ""
            page.differences.append(Difference(month.month, "missing", run.record_id, detail))

    def _taken_away(self, entries: list[LedgerRun]) -> frozenset[int]:
        """The batches of these runs whose message is no longer in the directory."""
        assert self._spool is not None
        of_batches = [entry.run.batch_id for entry in entries if entry.run.batch_id is not None]
        gone = set()
        for batch_id, receipt in self._ledger.receipts(of_batches).items():
            name = receipt.get("file", "")
            if name not in self._there:
                self._there[name] = self._spool.keeps(name)
            if not self._there[name]:
                gone.add(batch_id)
        return frozenset(gone)

    def foreign(self, months: dict[Month, MonthFound]) -> None:
        """What the service has and was not asked for: of these months, or of no known time and not known here."""
        bounds = {month: month_bounds(month) for month in months}
        for page in self._database.unmatched(self._found.target):
            chosen = [one for one in page if one.end is None or month_of(one.end) in bounds]
            with self._ledger.store.read() as connection:
                known = queries.states_of_records(connection, self._ledger.target_id, [one.key for one in chosen])
            differences = []
            for one in chosen:
                month = None if one.end is None else month_of(one.end)
                if known.get(one.key) is not None:
                    continue  # of another month, by our clock or by the service's
                detail = _NOT_WANTED if one.key in known else _NOT_KNOWN
                differences.append(Difference(month, "foreign", one.key, detail))
                if month is None:
                    self._found.foreign += 1
                else:
                    months[month].foreign += 1
                    _add(months[month], one)
            self._database.add_differences(self._found.target, differences)


def _add(month: MonthFound, theirs: EvidenceRecord) -> None:
    assert month.service_jobs is not None  # it begins at 0
    month.service_jobs += 1
    month.service_wall_s = (
        None if month.service_wall_s is None or theirs.wall_s is None else month.service_wall_s + theirs.wall_s
    )
    month.service_cpu_s = (
        None if month.service_cpu_s is None or theirs.cpu_s is None else month.service_cpu_s + theirs.cpu_s
    )


def _difference(entry: LedgerRun, theirs: EvidenceRecord) -> str | None:
    """How the sums of a record differ from those sent, where they do."""
    if not entry.known:
        return None
    parts = []
    if theirs.wall_s is not None and abs(theirs.wall_s - entry.wall_s) > _WALL_ROUNDING_S:
        parts.append(f"wall {theirs.wall_s:g} s, sent {entry.wall_s} s")
    if theirs.cpu_s is not None and abs(theirs.cpu_s - entry.cpu_s) > _CPU_ROUNDING_S:
        parts.append(f"CPU {theirs.cpu_s:g} s, sent {entry.cpu_s} s")
    return "; ".join(parts) or None
