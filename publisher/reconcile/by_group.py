"""Compare group by group, if the evidence has sums: from summaries in a directory, or from a file.

What was sent is added up by the fields that the evidence has: a file by month and submit host is compared with what was
sent by month and submit host. A group that is sent again replaces the one at the service. Memory contains the groups of
a month.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from formats.apel.fold import Group, SyncCount, group_without_score
from formats.base import Format
from formats.calendar import Month
from formats.hosts import infrastructure_of
from formats.rule_codes import CannotRenderError
from formats.view import View
from publisher.messages import erased_groups
from publisher.reconcile.confirm import ConfirmedPage, Verdicts
from publisher.reconcile.evidence import DIMENSIONS, SCORES, DimensionValues, EvidenceGroup, Value, folded
from publisher.reconcile.ledger import Ledger, LedgerRun
from publisher.reconcile.result import Difference, MonthFound
from publisher.store import groups, queries
from publisher.store.schema import State
from publisher.targets.base import KeepsMessages

Verdict = Literal["agrees", "missing", "differs", "hours", "foreign", "unclear", "taken"]
"""`differs`: another number of jobs; `hours`: as many jobs, with other hours."""

_LACKING: Final[frozenset[Verdict]] = frozenset({"missing", "differs", "hours"})
_NO_HOST = "none"


class GroupCell(msgspec.Struct):
    """Sums of a cell.

    `keys`: the groups sent from here that are in it. For a part of it: `unclear`: it is unknown whether the service has
    it; `taken`: another program removed the message; `fixed`: it is of an erased person, whom the service has under the
    earlier name, so that sending it again would count twice.
    """

    jobs: int = 0
    wall_s: float | None = 0.0
    cpu_s: float | None = 0.0
    within_s: float = 0.0
    keys: list[str] = []
    unclear: bool = False
    taken: bool = False
    fixed: bool = False

    def add(self, jobs: int, wall_s: float | None, cpu_s: float | None, within_s: float) -> None:
        """Add a group or runs."""
        self.jobs += jobs
        self.wall_s = None if self.wall_s is None or wall_s is None else self.wall_s + wall_s
        self.cpu_s = None if self.cpu_s is None or cpu_s is None else self.cpu_s + cpu_s
        self.within_s += within_s


class ByGroup:
    """Compares one target with the groups of the evidence."""

    def __init__(
        self,
        ledger: Ledger,
        view: View,
        form: Format,
        evidence: Sequence[EvidenceGroup],
        verdicts: Verdicts,
        spool: KeepsMessages | None,
        now: int,
    ) -> None:
        self._ledger = ledger
        self._view = view
        self._format = form
        self._verdicts = verdicts
        self._now = now
        self._spool = spool if spool is not None and spool.taken_away else None
        self._evidence: defaultdict[tuple[str, Month], list[EvidenceGroup]] = defaultdict(list)
        for group in evidence:
            self._evidence[group.kind, group.month].append(group)

    def summaries(self, month: MonthFound, dimensions: tuple[str, ...]) -> None:
        """Compare the jobs of a month in groups by these fields, and confirm or list the runs."""
        evidence = _cells(self._evidence[groups.SUMMARY, month.month], dimensions)
        month.service_jobs = sum(sums.jobs for sums in evidence.values())
        month.service_wall_s = _total(sums.wall_s for sums in evidence.values())
        month.service_cpu_s = _total(sums.cpu_s for sums in evidence.values())
        common = tuple(name for name in dimensions if name not in SCORES)
        if self._format.shape == "summary":
            expected = self._sent_groups(groups.SUMMARY, month.month, dimensions)
            for _entries in self._ledger.counted_pages(month):
                pass
        else:
            expected = self._sent_runs(month, dimensions)
        verdicts = _verdicts(expected, evidence)
        self._count(month, groups.SUMMARY, dimensions, expected, evidence, verdicts)
        places = [dimensions.index(name) for name in common]
        by_run: dict[DimensionValues, set[Verdict]] = defaultdict(set)
        for cell, verdict in verdicts.items():
            by_run[tuple(cell[place] for place in places)].add(verdict)
        short = {
            cell for cell, verdict in verdicts.items() if _is_short(verdict, expected.get(cell), evidence.get(cell))
        }
        if not (month.is_confirmed and set(verdicts.values()) <= {"agrees"}):
            self._follow(month, common, by_run, frozenset() if self._format.shape == "summary" else short)

    def sync(self, month: MonthFound, dimensions: tuple[str, ...]) -> None:
        """Compare the sync counts of a month."""
        evidence = _cells(self._evidence[groups.SYNC, month.month], dimensions)
        expected = self._sent_groups(groups.SYNC, month.month, dimensions)
        self._count(month, groups.SYNC, dimensions, expected, evidence, _verdicts(expected, evidence))

    def _sent_groups(self, kind: str, month: Month, dimensions: tuple[str, ...]) -> dict[DimensionValues, GroupCell]:
        with self._ledger.store.read() as connection:
            rows = groups.of_month(connection, self._ledger.target_id, kind, month.number)
            batches = queries.batches_of_groups(connection, self._ledger.target_id, kind, month.number)
            fixed = erased_groups.fixed(connection, self._ledger.target_id, month, self._view, self._now)
        taken = self._taken_away(batches)
        expected: dict[DimensionValues, GroupCell] = {}
        for key, row in rows.items():
            if kind == groups.SYNC:
                group = EvidenceGroup.of_sync(SyncCount.from_json(row.body))
            else:
                group = EvidenceGroup.of_summary(Group.from_json(row.body))
            sums = expected.setdefault(group.cell(dimensions), GroupCell(keys=[]))
            sums.add(group.jobs, group.wall_s, group.cpu_s, group.within_s)
            sums.keys.append(key)
            sums.unclear = sums.unclear or row.state is not State.ACCEPTED
            sums.taken = sums.taken or key in taken
            sums.fixed = sums.fixed or key in fixed
        return expected

    def _taken_away(self, batches: Mapping[str, int]) -> set[str]:
        if self._spool is None:
            return set()
        receipts = self._ledger.receipts(list(batches.values()))
        names = {batch_id: receipt.get("file", "") for batch_id, receipt in receipts.items()}
        there = {name: self._spool.keeps(name) for name in set(names.values())}
        return {key for key, batch_id in batches.items() if batch_id in names and not there[names[batch_id]]}

    def _sent_runs(self, month: MonthFound, dimensions: tuple[str, ...]) -> dict[DimensionValues, GroupCell]:
        expected: dict[DimensionValues, GroupCell] = {}
        for entries in self._ledger.counted_pages(month):
            for entry in entries:
                cell = self._cell(entry, dimensions) if entry.run.sent else None
                if cell is None:
                    continue
                sums = expected.setdefault(cell, GroupCell(keys=[]))
                if entry.counted:
                    sums.add(1, entry.wall_s, entry.cpu_s, 1.0)
                sums.unclear = sums.unclear or not entry.counted
        return expected

    def _cell(self, entry: LedgerRun, dimensions: tuple[str, ...]) -> DimensionValues | None:
        facts = self._ledger.facts_of(entry)
        try:
            key = group_without_score(facts, Month(1970, 1), self._view, [])
        except CannotRenderError:
            return None
        fields: dict[str, Value] = {name: folded(getattr(key, name)) for name in dimensions}
        if (
            "submit_host" in fields
            and not self._format.names_submit_host_of_local_jobs
            and infrastructure_of(facts) == "local"
        ):
            fields["submit_host"] = _NO_HOST
        return tuple(fields.values())

    def _count(
        self,
        month: MonthFound,
        kind: str,
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
                month.taken += ours.jobs if kind == groups.SUMMARY else 0
            elif verdict == "unclear":
                month.unsettled += 1
            else:
                lacking += ours.keys
                month.missing += verdict == "missing"
                month.differing += verdict in {"differs", "hours"}
                month.other_hours += verdict == "hours"
                month.foreign += verdict == "foreign"
                name = _name(kind, dimensions, cell)
                differences.append(Difference(month.month, verdict, name, _detail(ours, theirs)))
        self._verdicts.groups(kind, month.month.number, agreeing, lacking, differences)

    def _follow(
        self,
        month: MonthFound,
        dimensions: tuple[str, ...],
        by_run: Mapping[DimensionValues, set[Verdict]],
        short: frozenset[DimensionValues] | set[DimensionValues],
    ) -> None:
        """Confirm the runs of groups that agree; those of groups of which the service has less may be sent again."""
        cells: dict[int, DimensionValues | None] = {}
        for entries in self._ledger.pages(month.month):
            page = ConfirmedPage([], [], [], [])
            for entry in entries:
                if not entry.counted:
                    continue
                class_id = entry.run.class_id
                if class_id not in cells:
                    cells[class_id] = self._cell(entry, dimensions)
                cell = cells[class_id]
                verdicts = by_run.get(cell, set()) if cell is not None else set()
                if verdicts == {"agrees"}:
                    page.agrees(entry)
                elif cell in short:
                    page.lacks(entry)
                elif verdicts & _LACKING:
                    page.doubts(entry)
            month.confirmed += self._verdicts.write(page)


def dimensions_of(evidence: Iterable[EvidenceGroup], kind: str) -> tuple[str, ...]:
    """The fields that all groups of a kind have."""
    named_by = [group.fields.keys() for group in evidence if group.kind == kind]
    return tuple(name for name in DIMENSIONS if named_by and all(name in fields for fields in named_by))


def _cells(found: Iterable[EvidenceGroup], dimensions: tuple[str, ...]) -> dict[DimensionValues, GroupCell]:
    cells: dict[DimensionValues, GroupCell] = {}
    for group in found:
        sums = cells.setdefault(group.cell(dimensions), GroupCell(keys=[]))
        sums.add(group.jobs, group.wall_s, group.cpu_s, group.within_s)
    return cells


def _verdicts(
    expected: Mapping[DimensionValues, GroupCell], evidence: Mapping[DimensionValues, GroupCell]
) -> dict[DimensionValues, Verdict]:
    nothing = GroupCell(keys=[])
    return {
        cell: _verdict(expected.get(cell, nothing), evidence.get(cell, nothing), known=cell in evidence)
        for cell in {**expected, **evidence}
    }


def _verdict(ours: GroupCell, theirs: GroupCell, *, known: bool) -> Verdict:
    if ours.unclear:
        return "unclear"
    within_s = ours.within_s + theirs.within_s
    if ours.fixed and not (known and _same(ours, theirs, within_s)):
        return "unclear"
    if not known and ours.jobs:
        return "taken" if ours.taken else "missing"
    if not ours.jobs and not (ours.keys and theirs.jobs):
        return "foreign" if theirs.jobs else "agrees"
    if _same(ours, theirs, within_s):
        return "agrees"
    return "taken" if ours.taken else "hours" if ours.jobs == theirs.jobs else "differs"


def _same(ours: GroupCell, theirs: GroupCell, within_s: float) -> bool:
    pairs = ((ours.wall_s, theirs.wall_s), (ours.cpu_s, theirs.cpu_s))
    return ours.jobs == theirs.jobs and all(
        one is None or other is None or abs(one - other) <= within_s for one, other in pairs
    )


def _is_short(verdict: Verdict, ours: GroupCell | None, theirs: GroupCell | None) -> bool:
    """Whether sending the runs of a cell again can help: the service has fewer jobs, or as many with other times."""
    if ours is None or verdict not in _LACKING:
        return False
    return theirs is None or theirs.jobs <= ours.jobs


def _total(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _name(kind: str, dimensions: tuple[str, ...], cell: DimensionValues) -> str:
    named_by = ", ".join(f"{name} {value}" for name, value in zip(dimensions, cell, strict=True))
    what = "sync" if kind == groups.SYNC else "jobs"
    return f"{what}: {named_by}" if named_by else f"{what} of the month"


def _detail(ours: GroupCell, theirs: GroupCell) -> str:
    parts = [f"{theirs.jobs} jobs, sent {ours.jobs}"]
    for name, one, other in (("wall", ours.wall_s, theirs.wall_s), ("CPU", ours.cpu_s, theirs.cpu_s)):
        if one is not None and other is not None and abs(one - other) > ours.within_s + theirs.within_s:
            parts.append(f"{name} {other:.0f} s, sent {one:.0f} s")
    return "; ".join(parts)
