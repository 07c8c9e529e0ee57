"""Compare group by group, if the evidence has sums: from summaries in a directory, or from a file.

What was sent is added up by the fields that the evidence has: a file by month and submit host is compared with what was
sent by month and submit host. A group that is sent again replaces the one at the service. Memory contains the groups of
a month.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Final, Literal

import msgspec

from formats.base import Format
from formats.benchmark import normalised_from, require_benchmark
from formats.calendar import Month
from formats.columns import MISSING, TOTAL_DIMENSIONS, TotalColumns, Value, comparable
from formats.job import Benchmark
from formats.rule_codes import CannotRenderError
from formats.totals import TotalsKind
from formats.view import View
from publisher.messages import erased_groups
from publisher.plugins import format_of
from publisher.reconcile.comparison import MonthComparison
from publisher.reconcile.confirm import ConfirmedPage, Verdicts
from publisher.reconcile.evidence import (
    DURATIONS,
    ENDS,
    SCORES,
    DimensionValues,
    EvidenceGroup,
    EvidenceSums,
    GroupKind,
)
from publisher.reconcile.ledger import Ledger, LedgerRun
from publisher.reconcile.result import Difference, MonthFound
from publisher.store import groups, queries
from publisher.store.schema import State
from publisher.targets.base import KeepsMessages
from publisher.text import iso

Verdict = Literal["agrees", "missing", "differs", "hours", "foreign", "unclear", "taken"]
"""`differs`: another number of jobs, or other ends; `hours`: as many jobs, with other hours."""

_NO_SCORE: Final[dict[str, Value]] = {"benchmark": MISSING, "score_milli": 0}
# A group that is sent again replaces the one at the service; what is foreign there, sending ours does not remove.
_LACKING: Final[frozenset[Verdict]] = frozenset({"missing", "differs", "hours"})


class GroupCell(msgspec.Struct):
    """Sums of a cell; `sums` None: it has no jobs. `amounts`: by name, without zeros. `counts_jobs`: whether the
    service has the number of jobs; else it has amounts.

    `keys`: the groups sent from here that are in it. For a part of it: `unclear`: it is unknown whether the service has
    it; `taken`: another program removed the message; `fixed`: it is of an erased person, whom the service has under the
    earlier name, so that sending it again would count twice.
    """

    jobs: int = 0
    sums: EvidenceSums | None = None
    within_s: float = 0.0
    keys: list[str] = []
    amounts: dict[str, Decimal] = {}
    counts_jobs: bool = True
    unclear: bool = False
    taken: bool = False
    fixed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the service needs to have nothing of it."""
        return not (self.jobs if self.counts_jobs else self.amounts)

    def add_group(self, group: EvidenceGroup) -> None:
        """Add a group."""
        self.add(group.jobs, group.sums, group.within_s)
        self.amounts = {
            name: self.amounts.get(name, Decimal(0)) + group.amounts.get(name, Decimal(0))
            for name in {**self.amounts, **group.amounts}
        }

    def add(self, jobs: int, sums: EvidenceSums, within_s: float) -> None:
        """Add runs."""
        if self.sums is None or not self.jobs:
            self.sums = sums
        elif jobs:  # one without jobs has no ends
            self.sums = self.sums.plus(sums)
        self.jobs += jobs
        self.within_s += within_s


class ByGroup(MonthComparison):
    """Compares the jobs of one target with the groups of the evidence, by their fields `dimensions`."""

    def __init__(
        self,
        ledger: Ledger,
        view: View,
        form: Format,
        evidence: Sequence[EvidenceGroup],
        verdicts: Verdicts,
        spool: KeepsMessages | None,
        now: int,
        dimensions: tuple[str, ...],
    ) -> None:
        super().__init__(ledger)
        self._dimensions = dimensions
        self._view = view
        self._format = form
        self._totals = form.totals
        self._fields: dict[tuple[int, int], dict[str, Value] | None] = {}
        self._verdicts = verdicts
        self._now = now
        self._spool = spool if spool is not None and spool.taken_away else None
        self._evidence: defaultdict[tuple[GroupKind, Month], list[EvidenceGroup]] = defaultdict(list)
        for group in evidence:
            self._evidence[group.kind, group.month].append(group)

    def month(self, month: MonthFound) -> None:
        """See `MonthComparison`; the runs are confirmed or listed."""
        dimensions = self._dimensions
        found = self._evidence["jobs", month.month]
        if self._totals is not None:
            sent = self._groups("jobs", self._totals, month.month)
            dimensions = _sent_dimensions(dimensions, self._totals, sent)
            expected = self._sent_groups(self._totals, month.month, sent, dimensions)
            super().month(month)
        else:
            expected = self._sent_runs(month, dimensions, found)
        counts = month.counts_jobs = self._totals is None or self._totals.counts_jobs
        evidence = _cells(found, dimensions, counts_jobs=counts)
        totals = _totals(evidence.values())
        month.service_wall_s, month.service_cpu_s = totals.wall_s, totals.cpu_s
        common = tuple(name for name in dimensions if name not in SCORES)
        verdicts = _verdicts(expected, evidence, counts_jobs=counts)
        month.service_jobs = _service_jobs(expected, evidence, verdicts)
        self._count(month, "jobs", dimensions, expected, evidence, verdicts)
        places = [dimensions.index(name) for name in common]
        by_run: dict[DimensionValues, set[Verdict]] = defaultdict(set)
        short: set[DimensionValues] = set()
        for cell, verdict in verdicts.items():
            by_run[tuple(cell[place] for place in places)].add(verdict)
            if self._totals is None and _is_short(verdict, expected.get(cell), evidence.get(cell)):
                short.add(tuple(cell[place] for place in places))
        if not (month.is_confirmed and set(verdicts.values()) <= {"agrees"}):
            self._follow(month, common, by_run, short)

    def _groups(self, kind: GroupKind, totals: TotalsKind, month: Month) -> dict[str, tuple[State, EvidenceGroup]]:
        """The groups that were sent of a month, with their states, by their keys, without those that cannot be
        compared."""
        if totals.columns is None:
            return {}
        with self._ledger.store.read() as connection:
            rows = groups.of_month(connection, self._ledger.target_id, totals.kind, month.number)
        sent: dict[str, tuple[State, EvidenceGroup]] = {}
        for key, row in rows.items():
            columns = totals.columns(row.total(totals))
            reported = self._reported(totals, columns)
            if reported.amounts or not columns.amounts:  # else nothing would confirm it
                sent[key] = row.state, EvidenceGroup.of_columns(kind, reported)
        return sent

    def _reported(self, totals: TotalsKind, columns: TotalColumns) -> TotalColumns:
        """The columns of a total that evidence may have: no amounts that later settings no longer report."""
        if totals.is_reported is None:
            return columns
        options = self._view.options
        amounts = {name: each for name, each in columns.amounts.items() if totals.is_reported(name, options)}
        return msgspec.structs.replace(columns, amounts=amounts)

    def _sent_groups(
        self,
        totals: TotalsKind,
        month: Month,
        sent: Mapping[str, tuple[State, EvidenceGroup]],
        dimensions: tuple[str, ...],
    ) -> dict[DimensionValues, GroupCell]:
        with self._ledger.store.read() as connection:
            batches = queries.batches_of_groups(connection, self._ledger.target_id, totals.kind, month.number)
            fixed = erased_groups.fixed(connection, self._ledger.target_id, totals, month, self._view, self._now)
        taken = self._taken_away(batches)
        expected: dict[DimensionValues, GroupCell] = {}
        for key, (state, group) in sent.items():
            cell = expected.setdefault(group.cell(dimensions), GroupCell(keys=[], counts_jobs=totals.counts_jobs))
            cell.add_group(group)
            cell.keys.append(key)
            cell.unclear = cell.unclear or state is not State.ACCEPTED
            cell.taken = cell.taken or key in taken
            cell.fixed = cell.fixed or key in fixed
        return expected

    def _taken_away(self, batches: Mapping[str, int]) -> set[str]:
        if self._spool is None:
            return set()
        receipts = self._ledger.receipts(list(batches.values()))
        names = {batch_id: receipt.get("file", "") for batch_id, receipt in receipts.items()}
        there = {name: self._spool.keeps(name) for name in set(names.values())}
        return {key for key, batch_id in batches.items() if batch_id in names and not there[names[batch_id]]}

    def _sent_runs(
        self, month: MonthFound, dimensions: tuple[str, ...], found: Sequence[EvidenceGroup]
    ) -> dict[DimensionValues, GroupCell]:
        expected: dict[DimensionValues, GroupCell] = {}
        is_normalised = any(
            group.sums.normalised_wall_s is not None or group.sums.normalised_cpu_s is not None for group in found
        )
        needs_score = is_normalised or not SCORES.isdisjoint(dimensions)
        for entries in self._ledger.counted_pages(month):
            for entry in entries:
                score = self._score(entry) if needs_score and entry.run.sent else None
                values = self._cell(entry, dimensions, score) if entry.run.sent else None
                if values is None:
                    continue
                cell = expected.setdefault(values, GroupCell(keys=[]))
                if entry.counted:
                    wall_s, cpu_s = float(entry.wall_s), float(entry.cpu_s)
                    normalised = [None if score is None else _normalised(seconds, score) for seconds in (wall_s, cpu_s)]
                    cell.add(1, EvidenceSums(wall_s, cpu_s, normalised[0], normalised[1], entry.end, entry.end), 0.0)
                cell.unclear = cell.unclear or not entry.counted
        return expected

    def _score(self, entry: LedgerRun) -> Benchmark | None:
        """The score with which a run was sent; None if it has none any more."""
        try:
            return require_benchmark(self._ledger.facts_at_end(entry), self._ledger.view_of(entry), [])
        except CannotRenderError:
            return None

    def _cell(
        self, entry: LedgerRun, dimensions: tuple[str, ...], score: Benchmark | None = None
    ) -> DimensionValues | None:
        fields = self._fields_of(entry)
        if fields is None:
            return None
        scores = _NO_SCORE
        if score is not None:
            scores = {"benchmark": comparable(score.type), "score_milli": round(score.value * 1000)}
        return tuple((fields | scores).get(name, MISSING) for name in dimensions)

    def _fields_of(self, entry: LedgerRun) -> dict[str, Value] | None:
        """The fields by which a run is added up; None if it has none. Decided once for a class."""
        kind = self._ledger.kind_of(entry) if entry.version is None else None
        if kind is not None and kind in self._fields:
            return self._fields[kind]
        fields: dict[str, Value] | None = None
        if self._format.dimensions is not None:
            with suppress(CannotRenderError):
                fields = self._format.dimensions(self._ledger.facts_of(entry), self._ledger.view_of(entry))
        if kind is not None:
            self._fields[kind] = fields
        return fields

    def _count(
        self,
        month: MonthFound,
        kind: GroupKind,
        dimensions: tuple[str, ...],
        expected: Mapping[DimensionValues, GroupCell],
        evidence: Mapping[DimensionValues, GroupCell],
        verdicts: Mapping[DimensionValues, Verdict],
    ) -> None:
        agreeing: list[str] = []
        lacking: list[str] = []
        differences: list[Difference] = []
        nothing = GroupCell(keys=[])
        for cell, verdict in sorted(verdicts.items(), key=lambda item: str(item[0])):
            ours, theirs = expected.get(cell, nothing), evidence.get(cell, nothing)
            if verdict == "agrees":
                agreeing += ours.keys
            elif verdict == "taken":
                month.taken += ours.jobs if kind == "jobs" else 0
            elif verdict == "unclear":
                month.unsettled += 1
                month.totals_open += 1
            else:
                lacking += ours.keys
                month.missing += verdict == "missing"
                month.differing += verdict in {"differs", "hours"}
                month.other_hours += verdict == "hours"
                month.foreign += verdict == "foreign"
                name = _name(kind, dimensions, cell)
                differences.append(Difference(month.month, verdict, name, _detail(ours, theirs)))
        self._verdicts.groups(self._stored_kind(kind), month.month.number, agreeing, lacking, differences)

    def _stored_kind(self, kind: GroupKind) -> str:
        """The word under which the ledger keeps the groups of this kind; records have none."""
        if kind == "sync":
            return groups.SYNC
        return "" if self._totals is None else self._totals.kind

    def _follow(
        self,
        month: MonthFound,
        dimensions: tuple[str, ...],
        by_run: Mapping[DimensionValues, set[Verdict]],
        short: set[DimensionValues],
    ) -> None:
        """Confirm the runs of groups that agree; those of groups of which the service has less may be sent again."""
        cells: dict[tuple[int, int], DimensionValues | None] = {}
        reads_records = self._totals is not None and not self._totals.from_columns
        for entries in self._ledger.pages(month.month):
            page = ConfirmedPage([], [], [], [])
            for entry in self._ledger.with_facts(entries) if reads_records else entries:
                if not entry.counted:
                    continue
                kind = self._ledger.kind_of(entry)
                if reads_records or kind not in cells:
                    cells[kind] = self._cell(entry, dimensions)
                cell = cells[kind]
                verdicts = by_run.get(cell, set()) if cell is not None else set()
                if verdicts == {"agrees"}:
                    page.agrees(entry)
                elif cell in short:
                    page.lacks(entry)
                elif verdicts & _LACKING:
                    page.doubts(entry)
            month.confirmed += self._verdicts.write(page)


class BySyncCount(ByGroup):
    """Compares the sync counts of one target."""

    def month(self, month: MonthFound) -> None:
        """See `MonthComparison`."""
        totals, dimensions = format_of(self._format.sync).required_totals, self._dimensions
        evidence = _cells(self._evidence["sync", month.month], dimensions, counts_jobs=True)
        sent = self._groups("sync", totals, month.month)
        expected = self._sent_groups(totals, month.month, sent, dimensions)
        self._count(month, "sync", dimensions, expected, evidence, _verdicts(expected, evidence, counts_jobs=True))


def dimensions_of(evidence: Iterable[EvidenceGroup], kind: GroupKind) -> tuple[str, ...]:
    """The fields that all groups of a kind have."""
    named_by = [group.fields.keys() for group in evidence if group.kind == kind]
    names = dict.fromkeys([*TOTAL_DIMENSIONS, *(name for fields in named_by[:1] for name in fields)])
    return tuple(name for name in names if named_by and all(name in fields for fields in named_by))


def compared_of(evidence: Sequence[EvidenceGroup]) -> tuple[str, ...]:
    """What can be compared with groups of jobs: their numbers, sums, and fields, for people and `--json`."""
    listed = [group for group in evidence if group.kind == "jobs"]
    if not listed:
        return ("sync",) if evidence else ()
    sums_listed = [group.sums for group in listed]
    counts = ("amounts",) if any(group.amounts for group in listed) else ("jobs",)
    sums = [
        name.removesuffix("_s")
        for name in (*DURATIONS, *ENDS)
        if any(getattr(each, name) is not None for each in sums_listed)
    ]
    has_sync = any(group.kind == "sync" for group in evidence)
    return (*counts, *sums, *dimensions_of(evidence, "jobs"), *(("sync",) if has_sync else ()))


def _sent_dimensions(
    dimensions: tuple[str, ...], totals: TotalsKind, sent: Mapping[str, tuple[State, EvidenceGroup]]
) -> tuple[str, ...]:
    """The fields among these that the totals have, without those of the benchmark that the messages do not have: the
    service has its own word there."""
    every = [group.fields for _, group in sent.values()]
    not_sent = {name for name in SCORES if any(fields.get(name) in {MISSING, 0} for fields in every)}
    return tuple(name for name in dimensions if name in totals.dimensions and name not in not_sent)


def _normalised(seconds: float, score: Benchmark) -> float:
    return normalised_from(seconds, score.type, round(score.value * 1000))


def _cells(
    found: Iterable[EvidenceGroup], dimensions: tuple[str, ...], *, counts_jobs: bool
) -> dict[DimensionValues, GroupCell]:
    cells: dict[DimensionValues, GroupCell] = {}
    for group in found:
        cell = cells.setdefault(group.cell(dimensions), GroupCell(keys=[], counts_jobs=counts_jobs))
        cell.add_group(group)
    return cells


def _verdicts(
    expected: Mapping[DimensionValues, GroupCell],
    evidence: Mapping[DimensionValues, GroupCell],
    *,
    counts_jobs: bool,
) -> dict[DimensionValues, Verdict]:
    nothing = GroupCell(keys=[], counts_jobs=counts_jobs)
    return {
        cell: _verdict(expected.get(cell, nothing), evidence.get(cell, nothing), known=cell in evidence)
        for cell in {**expected, **evidence}
    }


def _verdict(ours: GroupCell, theirs: GroupCell, *, known: bool) -> Verdict:
    # Before any difference: what is not accepted yet may be in the service's sums or not, and would seem missing.
    if ours.unclear:
        return "unclear"
    difference = _difference(ours, theirs)
    if ours.fixed and not (known and difference is None):
        return "unclear"
    if not known and not ours.is_empty:
        return "taken" if ours.taken else "missing"
    if ours.is_empty and not (ours.keys and not theirs.is_empty):
        return "agrees" if theirs.is_empty else "foreign"
    if difference is None:
        return "agrees"
    return "taken" if ours.taken else difference


def _difference(ours: GroupCell, theirs: GroupCell) -> Verdict | None:
    """How two cells differ; None if they have the same jobs, sums, and ends, as far as both are known."""
    if (ours.counts_jobs and ours.jobs != theirs.jobs) or ours.amounts != theirs.amounts:
        return "differs"
    names = [name for name, *_ in _differing(ours, theirs)]
    return None if not names else "hours" if any(name in DURATIONS for name in names) else "differs"


def _differing(ours: GroupCell, theirs: GroupCell) -> Iterator[tuple[str, float, float]]:
    """The sums and ends that both have and that differ: name, ours, theirs."""
    if ours.sums is None or theirs.sums is None:
        return
    # Evidence is rounded, each row by half of its last digit: without this tolerance, hours with one decimal would
    # differ in every group. Ends are never rounded: with one, a group could agree without its last job.
    within_s = ours.within_s + theirs.within_s
    for name in (*DURATIONS, *ENDS):
        one, other = getattr(ours.sums, name), getattr(theirs.sums, name)
        if one is not None and other is not None and abs(one - other) > (within_s if name in DURATIONS else 0):
            yield name, one, other


def _is_short(verdict: Verdict, ours: GroupCell | None, theirs: GroupCell | None) -> bool:
    """Whether sending the runs of a cell again can help: the service has fewer jobs, or as many with other times."""
    if ours is None or verdict not in _LACKING:
        return False
    # With more jobs there than were sent, others are among them: sending ours again removes none.
    return theirs is None or theirs.jobs <= ours.jobs


def _service_jobs(
    expected: Mapping[DimensionValues, GroupCell],
    evidence: Mapping[DimensionValues, GroupCell],
    verdicts: Mapping[DimensionValues, Verdict],
) -> int:
    """The jobs of a month at the service; where it does not count them, those of the totals that it has as sent."""
    counted = sum(cell.jobs for cell in evidence.values())
    return counted + sum(
        cell.jobs for values, cell in expected.items() if not cell.counts_jobs and verdicts[values] == "agrees"
    )


def _totals(cells: Iterable[GroupCell]) -> EvidenceSums:
    total: EvidenceSums | None = None
    for cell in cells:
        if cell.sums is not None:
            total = cell.sums if total is None else total.plus(cell.sums)
    return total or EvidenceSums(0.0, 0.0)


def _name(kind: GroupKind, dimensions: tuple[str, ...], cell: DimensionValues) -> str:
    named_by = ", ".join(
        f"{name.removesuffix('_milli')} {value / 1000:g}" if name == "score_milli" and isinstance(value, int)
        else f"{name} {value}"
        for name, value in zip(dimensions, cell, strict=True)
    )  # fmt: skip
    return f"{kind}: {named_by}" if named_by else f"{kind} of the month"


def _detail(ours: GroupCell, theirs: GroupCell) -> str:
    parts = [f"{theirs.jobs} jobs, sent {ours.jobs}"] if ours.counts_jobs and theirs.counts_jobs else []
    parts += [
        f"{name} {theirs.amounts.get(name, 0)}, sent {ours.amounts.get(name, 0)}"
        for name in sorted({**ours.amounts, **theirs.amounts})
        if ours.amounts.get(name) != theirs.amounts.get(name)
    ]
    for name, one, other in _differing(ours, theirs):
        if name in DURATIONS:
            parts.append(f"{_LABELS[name]} {other:.0f} s, sent {one:.0f} s")
        elif ours.jobs == theirs.jobs:
            parts.append(f"{_LABELS[name]} {iso(int(other))}, sent {iso(int(one))}")
    return "; ".join(parts)


_LABELS: Final = {
    "wall_s": "wall", "cpu_s": "CPU", "normalised_wall_s": "normalised wall", "normalised_cpu_s": "normalised CPU",
    "earliest": "earliest end", "latest": "latest end",
}  # fmt: skip
