"""Compare record by record, if the evidence names records. Memory contains a page of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from formats.calendar import Month, month_of
from formats.columns import MISSING, RECORD_COLUMNS, RecordColumns, Value, comparable
from publisher.errors import UsageError
from publisher.reason import sentence
from publisher.reconcile.comparison import MonthComparison
from publisher.reconcile.confirm import ConfirmedPage, Verdicts
from publisher.reconcile.evidence import EvidenceDatabase, EvidenceRecord
from publisher.reconcile.ledger import Ledger, LedgerRun, RecordKeys, kept_as
from publisher.reconcile.result import Difference, Found, MonthFound
from publisher.reconcile.sent_records import SentRecords
from publisher.store import ledger_entries
from publisher.store.ledger_entries import LedgerEntry
from publisher.store.schema import State
from publisher.targets.base import KeepsMessages
from publisher.text import counted, iso

# A service that keeps whole seconds rounds: without a tolerance, a record that arrived would look altered.
_WALL_ROUNDING_S: Final = 1
_CPU_ROUNDING_S: Final = 2
"""User and system time are each rounded."""

_LABELS: Final = {
    "submit_host": "submit host", "local_user": "local user", "vo": "VO", "vo_group": "VO group", "vo_role": "VO role",
    "score_milli": "score", "memory_kib": "memory (KiB)", "memory_virtual_kib": "virtual memory (KiB)",
}  # fmt: skip

_COUNTS: Final = frozenset({"nodes", "processors"})
"""Columns in which 0 is a word for a missing value."""

_KEPT: Final = "the service keeps its first version"
_GONE: Final = "the service no longer has its first version"
_NOT_KNOWN: Final = "not known here"
_NOT_SELECTED: Final = "known here, and this target does not select it"


class ByRecord(MonthComparison):
    """Compares one target. `spool`: a directory from which another program takes messages."""

    def __init__(
        self,
        ledger: Ledger,
        keys: RecordKeys,
        found: Found,
        database: EvidenceDatabase,
        verdicts: Verdicts,
        spool: KeepsMessages | None,
        sent: SentRecords,
    ) -> None:
        """Raises `UsageError` for evidence with keys of both kinds."""
        super().__init__(ledger)
        self._keys = keys
        self._sent = sent
        self._content = database.content(found.target)
        if self._content.has_local_keys and self._content.has_record_ids:
            raise UsageError(
                "some records of the evidence have a record id, and others a LocalJobId alone",
                hint="Give records of one kind",
            )
        self._found = found
        self._database = database
        self._verdicts = verdicts
        self._spool = spool if spool is not None and spool.taken_away else None
        self._there: dict[str, bool] = {}
        self._months: dict[Month, MonthFound] = {}
        self._respelled: set[int] = set()
        self._outdated: Mapping[int, tuple[RecordColumns, RecordColumns]] = {}

    def month(self, month: MonthFound) -> None:
        """See `MonthComparison`."""
        self._months[month.month] = month
        month.service_jobs, month.service_wall_s, month.service_cpu_s = 0, 0.0, 0.0
        for entries in _with_whole_seconds(self._ledger.counted_pages(month)):
            sent: Mapping[int, RecordColumns] = {}
            if self._content.has_local_keys:
                sent = self._sent.of(entries)
                keys = {run_id: record.local_key for run_id, record in sent.items()}
            else:
                keys = self._keys.of([entry.run for entry in entries])
            others = [other for entry in entries if (other := kept_as(entry.run)) is not None]
            evidence = self._database.match(self._found.target, [*keys.values(), *others])
            gone = self._taken_away(entries) if self._spool is not None else frozenset()
            records = [
                evidence.get(keys.get(entry.run.run_id, "")) or evidence.get(kept_as(entry.run) or "")
                for entry in entries
            ]
            if self._content.has_columns and not self._content.has_local_keys:
                sent = self._sent.of(
                    [
                        entry
                        for entry, record in zip(entries, records, strict=True)
                        if record is not None and not record.as_sent
                    ]
                )
            there = [(entry, record) for entry, record in zip(entries, records, strict=True) if record is not None]
            taken = self._as_taken(there, sent)
            sent = {**sent, **taken}
            self._outdated = self._sent.changed_later([entry for entry, _ in there], taken)
            self._respelled = self._match_spellings(entries, records, sent) if self._content.has_local_keys else set()
            page = ConfirmedPage([], [], [], [])
            for entry, at_service in zip(entries, _found_records(entries, records, sent, gone), strict=True):
                self._compare(month, page, entry, at_service)
            month.confirmed += self._verdicts.write(page)

    def _as_taken(
        self, there: Sequence[tuple[LedgerRun, EvidenceRecord]], sent: Mapping[int, RecordColumns]
    ) -> dict[int, RecordColumns]:
        """Of the runs that the service may have as they were made by earlier settings: the records by those, by run id,
        where it has other columns than by the last ones, and the same as by those."""
        unlike = {
            entry.run.run_id: (entry, record)
            for entry, record in there
            if entry.run.version is not None
            and entry.run.version.by_several_settings
            and entry.run.run_id in sent
            and _differing(record.columns, sent[entry.run.run_id].columns, "")
        }
        taken: dict[int, RecordColumns] = {}
        for records in self._sent.by_earlier_settings([entry for entry, _ in unlike.values()]):
            for run_id, made in records.items():
                if run_id not in taken and not _differing(unlike[run_id][1].columns, made.columns, ""):
                    taken[run_id] = made
        return taken

    def _match_spellings(
        self, entries: Sequence[LedgerRun], records: list[EvidenceRecord | None], sent: Mapping[int, RecordColumns]
    ) -> set[int]:
        """Find what an earlier publisher delivered under another spelling of the local id; return these runs, which
        would count twice if they were sent again from here."""
        respelled = set()
        for place, entry in enumerate(entries):
            ours = sent.get(entry.run.run_id)
            if records[place] is None and ours is not None and entry.run.sent and entry.run.batch_id is None:
                records[place] = self._database.match_spelling(self._found.target, ours.local_id, ours.end)
                if records[place] is not None:
                    respelled.add(entry.run.run_id)
        return respelled

    def _compare(self, month: MonthFound, page: ConfirmedPage, entry: LedgerRun, found: _FoundRecord) -> None:
        if found.record is not None:
            _add(month, found.record)
            self._compare_present(month, page, entry, found)
            return
        run, state = entry.run, entry.run.state
        # Taken by the program that the folder is for: called missing, all that it has sent would be sent again.
        if found.taken_away and entry.counted:
            month.taken += 1
        elif state is State.SUPERSEDED:
            # The service no longer keeps the first version: only now would it store the present one.
            page.again.append((run.run_id, state))
            page.differences.append(Difference(month.month, "superseded", run.record_id, _GONE))
        elif state is State.ACCEPTED:
            month.missing += 1
            page.lacks(entry)
            detail = "delivered by an earlier publisher, according to an import" if run.batch_id is None else ""
            page.differences.append(Difference(month.month, "missing", run.record_id, detail))

    def _compare_present(self, month: MonthFound, page: ConfirmedPage, entry: LedgerRun, found: _FoundRecord) -> None:
        run, state = entry.run, entry.run.state
        if state is State.SUPERSEDED:
            detail = sentence(run.reason) or _KEPT
            page.differences.append(Difference(month.month, "superseded", run.record_id, detail))
        elif state is State.WAIVED and run.sent:
            pass  # a person accepted that the service has an earlier version
        # There, though the ledger does not say so: neither missing nor confirmed, until it is sent or taken over.
        elif state is not State.ACCEPTED:
            month.unsettled += 1
            why_not_same = found.difference or found.why_ambiguous
            if why_not_same is None:
                page.has_unsent(entry)
            detail = f"here: {state.word}" + (f"; {why_not_same}" if why_not_same is not None else "")
            page.differences.append(Difference(month.month, "unsettled", run.record_id, detail))
        elif found.difference is not None:
            detail = found.difference
            is_ours = run.run_id not in self._respelled
            month.differing += is_ours
            month.other_hours += is_ours and found.has_other_hours
            if found.record is not None and not is_ours:  # nobody here can change it: an alarm would never end
                page.doubts(entry)
                detail += f"; not sent again: an earlier publisher sent it as {found.record.local_id}"
            # Sent again, it would be accepted and ignored: the difference would stay, and look repaired.
            elif self._found.keeps_first:
                page.doubts(entry)
            else:
                page.lacks(entry)
            page.differences.append(Difference(month.month, "differs", run.record_id, detail))
        elif found.why_ambiguous is not None:  # sending one again would replace the other
            month.differing += 1
            page.doubts(entry)
            page.differences.append(Difference(month.month, "differs", run.record_id, found.why_ambiguous))
        else:
            page.agrees(entry)
            self._note_outdated(month, page, run)

    def _note_outdated(self, month: MonthFound, page: ConfirmedPage, run: LedgerEntry) -> None:
        """List a record that is there as it was sent, and that the present settings would give other values."""
        if run.run_id in self._outdated:
            sent, now = (record.columns for record in self._outdated[run.run_id])
            differing = _differing(sent, now, "by the present settings")
            if differing:
                month.outdated += 1
                page.differences.append(Difference(month.month, "outdated", run.record_id, "; ".join(differing)))

    def _taken_away(self, entries: list[LedgerRun]) -> frozenset[int]:
        """The batches of these runs whose messages are no longer in the directory."""
        assert self._spool is not None
        of_batches = [entry.run.batch_id for entry in entries if entry.run.batch_id is not None]
        gone = set()
        for batch_id, receipt in self._ledger.receipts(of_batches).items():
            names = [name for key, name in receipt.items() if key.split(" ")[0] == "file"]  # a day may have several
            for name in names:
                if name not in self._there:
                    self._there[name] = self._spool.keeps(name)
            if not all(self._there[name] for name in names):
                gone.add(batch_id)
        return frozenset(gone)

    def end(self) -> None:
        """Report what the service has besides, and what the present settings would change."""
        self._report_foreign()
        outdated = sum(month.outdated for month in self._months.values())
        if outdated:
            repeats = "" if self._found.keeps_first else ". `republish` sends them with those"
            self._found.notes.append(
                f"{counted(outdated, 'record')} would have other values by the present settings; the service has what "
                f"was sent{repeats}"
            )

    def _report_foreign(self) -> None:
        """Report the records that no run matched: those that ended in these months, or have no known end."""
        for page in self._database.unmatched(self._found.target):
            chosen = [one for one in page if one.end is None or month_of(one.end) in self._months]
            with self._ledger.store.read() as connection:
                keys = [one.key for one in chosen]
                known = ledger_entries.states_of_records(connection, self._ledger.target_id, keys)
            differences = []
            for one in chosen:
                month = None if one.end is None else month_of(one.end)
                if known.get(one.key) is not None:
                    continue  # the store and the service put it into different months
                detail = _NOT_SELECTED if one.key in known else _NOT_KNOWN
                differences.append(Difference(month, "foreign", one.key, detail))
                if month is None:
                    self._found.foreign += 1
                else:
                    self._months[month].foreign += 1
                    _add(self._months[month], one)
            self._database.add_differences(self._found.target, differences)


class _FoundRecord(msgspec.Struct, frozen=True, gc=False):
    """What the service has of a run. `record`: None if it has none, or if the message was `taken_away` from a folder.

    `difference`: how it differs, in its hours (`has_other_hours`) or in other columns; `why_ambiguous`: other runs have
    the same key there, and it may be one of theirs.
    """

    record: EvidenceRecord | None
    taken_away: bool
    difference: str | None = None
    why_ambiguous: str | None = None
    has_other_hours: bool = False


def _found_records(
    entries: Sequence[LedgerRun],
    records: Sequence[EvidenceRecord | None],
    sent: Mapping[int, RecordColumns],
    gone: frozenset[int],
) -> Iterator[_FoundRecord]:
    """What was found of each run of a page. A record shows that one run was delivered, not several with its key.

    A run that was delivered from here comes before those that were not: the record is of what was sent.
    """
    hours = [None if record is None else _hours(entry, record) for entry, record in zip(entries, records, strict=True)]
    differences = [
        None if record is None else "; ".join([*(in_hours or ()), *_other(entry, record, sent)]) or None
        for entry, record, in_hours in zip(entries, records, hours, strict=True)
    ]
    keys = [record.key for record in records if record is not None]
    equal, delivered = Counter[str](), Counter[str]()
    if len(set(keys)) < len(keys):  # else no record has several runs
        for entry, record, difference in zip(entries, records, differences, strict=True):
            if record is not None and difference is None:
                equal[record.key] += 1
                delivered[record.key] += entry.run.state is State.ACCEPTED
    for entry, record, difference, in_hours in zip(entries, records, differences, hours, strict=True):
        if record is None:
            yield _FoundRecord(None, entry.run.batch_id in gone)
            continue
        sharing = (delivered if entry.run.state is State.ACCEPTED else equal).get(record.key, 0)
        why = f"{sharing} jobs have the key of this one record" if sharing > 1 else None
        yield _FoundRecord(
            record, taken_away=False, difference=difference, why_ambiguous=why, has_other_hours=bool(in_hours)
        )


def _with_whole_seconds(pages: Iterable[list[LedgerRun]]) -> Iterator[list[LedgerRun]]:
    """The same pages, cut so that runs that ended in the same second are in one: runs with one key are together."""
    left: list[LedgerRun] = []
    for page in pages:
        left += page
        cut = len(left)
        while cut and left[cut - 1].run.end == left[-1].run.end:
            cut -= 1
        if cut:
            yield left[:cut]
            left = left[cut:]
    if left:
        yield left


def _add(month: MonthFound, theirs: EvidenceRecord) -> None:
    assert month.service_jobs is not None  # `month` has set it to 0
    month.service_jobs += 1
    month.service_wall_s = (
        None if month.service_wall_s is None or theirs.wall_s is None else month.service_wall_s + theirs.wall_s
    )
    month.service_cpu_s = (
        None if month.service_cpu_s is None or theirs.cpu_s is None else month.service_cpu_s + theirs.cpu_s
    )


def _hours(entry: LedgerRun, theirs: EvidenceRecord) -> list[str]:
    """How the times of a record differ from those of the run, as sent or, if it was not sent, as stored; empty if they
    agree or are unknown."""
    if not entry.known:
        return []
    ours = _ours(entry)
    parts = []
    if theirs.wall_s is not None and abs(theirs.wall_s - entry.wall_s) > _WALL_ROUNDING_S:
        parts.append(f"wall {theirs.wall_s:g} s, {ours} {entry.wall_s} s")
    if theirs.cpu_s is not None and abs(theirs.cpu_s - entry.cpu_s) > _CPU_ROUNDING_S:
        parts.append(f"CPU {theirs.cpu_s:g} s, {ours} {entry.cpu_s} s")
    return parts


def _other(entry: LedgerRun, theirs: EvidenceRecord, sent: Mapping[int, RecordColumns]) -> list[str]:
    """How end and other columns of a record differ: every column that both have.

    Other columns are compared if the record was sent from here. An earlier publisher may have sent others: what is not
    taken over for that would be sent again, and count twice.
    """
    if not entry.known:
        return []
    ours = _ours(entry)
    parts = []
    # Without a tolerance: ends are whole seconds everywhere, and part of APEL's key.
    if theirs.end is not None and theirs.end != entry.end:
        parts.append(f"end {iso(theirs.end)}, {ours} {iso(entry.end)}")
    record = sent.get(entry.run.run_id)  # None also of one with the bytes that were sent
    if record is None or not entry.run.sent or entry.run.batch_id is None:
        return parts
    return parts + _differing(theirs.columns, record.columns, ours)


def _differing(one: Mapping[str, Value], other: Mapping[str, Value], of_other: str) -> list[str]:
    """The columns that both records have, and that differ. `of_other`: where the other value is."""
    return [
        f"{_LABELS.get(name, name)} {_shown(name, one[name])}, {of_other} {_shown(name, other[name])}"
        for name in RECORD_COLUMNS
        if name in one and name in other and _compared(name, one[name]) != _compared(name, other[name])
    ]


def _compared(name: str, value: Value) -> Value:
    return MISSING if name in _COUNTS and value == 0 else comparable(value)


def _ours(entry: LedgerRun) -> str:
    return "sent" if entry.run.sent and entry.run.batch_id is not None else "here"


def _shown(name: str, value: Value) -> str:
    if isinstance(value, int):
        return iso(value) or "" if name == "start" else f"{value / 1000:g}" if name == "score_milli" else str(value)
    return value if comparable(value) != MISSING else MISSING
