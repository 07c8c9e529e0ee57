"""Compare sums, if a service gives no more: by some columns of the records and a period, as its kind states
(`publisher.config.target_kind.SumsKind`).

If jobs, wall time, and CPU time of a user and VO, say, agree for a day of a machine, all their jobs of that day are
confirmed. If not, some of these jobs are missing: those that may have the missing hours (`lost_jobs`) may be sent
again, since the service ignores or replaces those it has. Values that only one side has are compared by their sums,
because the service may spell them differently. Memory contains a sum for each cell, and the jobs of those of which a
few are missing; it does not grow with the jobs.

Numbers of jobs are exact. Sums of hours agree within the rounding that the service states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, Literal

import msgspec

from formats.base import Format
from formats.calendar import SECONDS_A_DAY, month_bounds
from formats.columns import Value
from formats.rule_codes import CannotRenderError
from publisher.config.target_kind import SumsKind, TargetKind, spelling_of
from publisher.reason import sentence
from publisher.reconcile.comparison import MonthComparison
from publisher.reconcile.confirm import ConfirmedPage, Verdicts
from publisher.reconcile.ledger import Ledger, LedgerRun
from publisher.reconcile.lost_jobs import JobHours, may_be_tested, possibly_missing
from publisher.reconcile.result import ALL_MEASURES, Difference, Found, MonthFound
from publisher.reconcile.sent_records import SentRecords
from publisher.store import queries
from publisher.store.schema import State
from publisher.targets.base import EvidenceUnavailable, GivesSums, PeriodSum, SumsLag
from publisher.text import counted, iso, past

# The service's clock is not ours: with a smaller one, a difference of clocks would look like a restored service.
_CLOCK_TOLERANCE_S: Final = 300
_UNROUNDED_S: Final = 1.0
"""Tolerance where the service does not round: a sum of seconds is converted to hours and back."""
_RELATIVE: Final = 1e-9
"""Tolerance for sums of floating-point numbers in this program."""

Verdict = Literal["agrees", "empty", "short", "hours", "over", "unclear"]
"""`hours`: as many jobs as were sent, with other hours."""
_SPELLING_EXPLAINS: Final = frozenset[Verdict]({"agrees", "unclear"})
"""Verdicts on a sum that allow its cells to differ in their names alone."""


class CellKey(msgspec.Struct, frozen=True, order=True):
    """The values of the columns by which the service adds up, as it spells them, and the first day of the period of
    the runs' ends (days since 1970)."""

    values: tuple[str, ...]
    day: int

    @property
    def asked(self) -> str:
        """The value for which the service is asked."""
        return self.values[0] if self.values else ""

    def text(self, kind: SumsKind) -> str:
        """The cell for people."""
        named = zip(self.values, kind.key, strict=True)
        values = [value or f"(no {column.replace('_', ' ')})" for value, column in named]
        return " ".join([kind.period_text(self.day), *values])


class SumsCell(msgspec.Struct):
    """Sums of a cell. `perhaps`: jobs of which it is unknown whether the service has them; they are not in the sums.
    `within_s`: by how much each sum of seconds may differ because of rounding.
    """

    jobs: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    perhaps: int = 0
    within_s: float = 0.0

    def plus(self, other: SumsCell) -> None:
        """Add the sums of another cell."""
        self.jobs += other.jobs
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.perhaps += other.perhaps
        self.within_s += other.within_s


class SumsDifference(msgspec.Struct, frozen=True):
    """What was sent, and what the service has, of a cell or of several cells of one answer and period (`text`)."""

    verdict: Verdict
    text: str
    sent: SumsCell
    has: SumsCell

    @property
    def may_be_narrowed(self) -> bool:
        """Whether the hours may show which of its jobs are missing."""
        return not self.sent.perhaps and may_be_tested(self.sent.jobs, self.sent.jobs - self.has.jobs)


class _JoinedCells:
    """Cells that are compared by their sum: the service has a run in one of them, and it is unknown in which."""

    def __init__(self) -> None:
        self._joined_to: dict[CellKey, CellKey] = {}

    @property
    def cells(self) -> Iterable[CellKey]:
        """Those that were joined to others."""
        return self._joined_to.keys()

    def of(self, cell: CellKey) -> CellKey:
        """The cell that stands for all those to which this one is joined."""
        while cell in self._joined_to:
            cell = self._joined_to[cell]
        return cell

    def join(self, cells: Sequence[CellKey]) -> None:
        """Join these cells."""
        first = self.of(cells[0])
        for cell in map(self.of, cells[1:]):
            if cell != first:
                self._joined_to[cell] = first

    def added(self, sums: Mapping[CellKey, SumsCell]) -> dict[CellKey, SumsCell]:
        """The sums by the cells that stand for others."""
        cells: dict[CellKey, SumsCell] = {}
        for cell, each in sums.items():
            cells.setdefault(self.of(cell), SumsCell()).plus(each)
        return cells


class _Suspects(msgspec.Struct, frozen=True):
    """The runs of a cell, or of cells with one finding, of which some are missing."""

    difference: SumsDifference
    runs: list[LedgerRun]


def _suspect(month: MonthFound, one: SumsDifference, record_id: str) -> Difference:
    detail = f"{one.sent.jobs - one.has.jobs} of the {one.sent.jobs} jobs of {one.text} are missing"
    return Difference(month.month, "suspect", record_id, detail)


class BySums(MonthComparison):
    """Compares one target."""

    def __init__(
        self,
        ledger: Ledger,
        kind: TargetKind,
        form: Format,
        service: GivesSums,
        found: Found,
        verdicts: Verdicts,
        sent: SentRecords,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(ledger)
        self._clock = clock
        self._kind = kind.sums
        self._spelt = spelling_of(kind)
        self._format = form
        self._service = service
        self._found = found
        self._verdicts = verdicts
        self._sent = sent
        self._values: dict[tuple[int, int], tuple[str, ...] | None] = {}
        self._joined = _JoinedCells()

    def month(self, month: MonthFound) -> EvidenceUnavailable | None:
        """See `MonthComparison`."""
        now = self._clock()
        self._joined = _JoinedCells()
        expected, recent = self._expected(month, now)
        first, stop = (bound // SECONDS_A_DAY for bound in month_bounds(month.month))
        evidence: dict[CellKey, SumsCell] = {}
        for asked in sorted({cell.asked for cell in (*expected, *recent, *self._joined.cells)}):
            answer = self._service.usage(asked, first, stop)
            if isinstance(answer, EvidenceUnavailable):
                return answer
            evidence |= self._by_cell(answer)
            registered = self._service.last_registration_s(asked)
            if isinstance(registered, float):
                self._found.registered[asked] = int(now - registered)
        month.service_jobs = sum(sums.jobs for sums in evidence.values())
        month.service_wall_s = sum(sums.wall_s for sums in evidence.values()) if self._kind.has_wall else None
        month.service_cpu_s = sum(sums.cpu_s for sums in evidence.values()) if self._kind.has_cpu else None
        evidence = self._joined.added(evidence)
        self._settle_recent(expected, recent, evidence)
        within = {cell: sums for cell, sums in expected.items() if first <= cell.day < stop}
        findings = compare_cells(self._kind, within, evidence)
        self._count(month, {id(finding): finding for finding in findings.values()}.values())
        if not (month.is_confirmed and all(finding.verdict == "agrees" for finding in findings.values())):
            self._follow(month, findings, now)
        if month.sent.jobs:
            amounts = {"jobs", *self._kind.amounts}
            self._found.compared = tuple(measure for measure in ALL_MEASURES if measure in amounts)
        return None

    def end(self) -> None:
        """Add a note if the service's last registration is older than what it accepted last: it may have lost data."""
        with self._ledger.store.read() as connection:
            taken = queries.last_taken(connection, self._ledger.target_id)
        taken = past(taken, self._clock())
        if self._found.too_recent:
            jobs, minutes = counted(self._found.too_recent, "job"), self._kind.lag_s // 60
            self._found.notes.append(
                f"accepted in the last {minutes} minutes, and perhaps not in the service's sums yet: {jobs}. "
                "They are neither missing nor confirmed; compare again later, as the next `run` does"
            )
        last = max(self._found.registered.values(), default=None)
        if taken is not None and last is not None and last < taken - _CLOCK_TOLERANCE_S:
            self._found.notes.append(
                f"the service's last registration is at {iso(last)}, but it accepted records at {iso(taken)}: it may "
                "have been restored from an earlier state. Ask its administrator"
            )

    def _settle_recent(
        self,
        expected: dict[CellKey, SumsCell],
        recent: Mapping[CellKey, SumsCell],
        evidence: Mapping[CellKey, SumsCell],
    ) -> None:
        """Add what was accepted recently: to what the service must have or, if its sums may be older, to what it may
        have, unless it has it. Else every delivery would be missing until the service has counted it."""
        lags = isinstance(self._service, SumsLag) and self._service.sums_lag
        for cell, sums in recent.items():
            whole = msgspec.structs.replace(expected.get(cell) or SumsCell())
            whole.plus(sums)
            if lags and (cell not in evidence or verdict_on(whole, evidence[cell]) != "agrees"):
                expected.setdefault(cell, SumsCell()).perhaps += sums.jobs
                self._found.too_recent += sums.jobs
            else:
                expected[cell] = whole

    def _expected(self, month: MonthFound, now: int) -> tuple[dict[CellKey, SumsCell], dict[CellKey, SumsCell]]:
        """The cells of what was sent, and those of what was accepted so recently that its sums may lack it."""
        expected: defaultdict[CellKey, SumsCell] = defaultdict(SumsCell)
        recent: defaultdict[CellKey, SumsCell] = defaultdict(SumsCell)
        for entries in chain(self._ledger.counted_pages(month), [self._ledger.moved_out(month.month)]):
            uncertain = self._ledger.perhaps_never_sent(entries)
            for entry in entries:
                cells = self._cells(entry) if entry.run.sent and not entry.is_ambiguous else []
                if not cells:
                    continue
                self._joined.join(cells)
                if entry.counted and entry.run.run_id not in uncertain:
                    hours = self._hours(entry)
                    sums = recent if self._is_recent(entry, now) else expected
                    sums[cells[0]].plus(SumsCell(1, hours.wall_s, hours.cpu_s))
                else:
                    expected[cells[0]].perhaps += 1
        first, stop = (bound // SECONDS_A_DAY for bound in month_bounds(month.month))
        for cell in self._possible_cells():
            if first <= cell.day < stop:
                expected[cell].perhaps += 1
        return self._joined.added(expected), self._joined.added(recent)

    def _possible_cells(self) -> Iterator[CellKey]:
        """For each ambiguous run the cells in which the service may have it, in any month: its versions may have ended
        on other days, or been of other users."""
        for versions in self._ledger.ambiguous_versions():
            cells: defaultdict[int, set[CellKey]] = defaultdict(set)
            for entry in versions:
                cells[entry.run.run_id].update(map(self._joined.of, self._cells(entry)))
            yield from chain.from_iterable(cells.values())

    def _hours(self, entry: LedgerRun) -> JobHours:
        """The amounts of a run as the service adds them up; 0 for those that it does not have."""
        wall_s = entry.wall_s * (self._ledger.processors_of(entry) if self._kind.per_core else 1)
        return JobHours(wall_s if self._kind.has_wall else 0, entry.cpu_s if self._kind.has_cpu else 0)

    def _cells(self, entry: LedgerRun) -> list[CellKey]:
        """The cells in which the service may count a run in this version, first that of its last message: several if it
        may have it as it was made by earlier settings."""
        possible = map(self._cell, self._ledger.possibly_sent(entry))
        return [cell for cell in possible if cell is not None]

    def _cell(self, entry: LedgerRun) -> CellKey | None:
        kind = self._ledger.kind_of(entry)
        if entry.version is not None:
            values = self._values_of(entry)
        elif kind in self._values:
            values = self._values[kind]
        else:
            values = self._values[kind] = self._values_of(entry)
        return None if values is None else CellKey(values, self._kind.first_day(entry.end // SECONDS_A_DAY))

    def _values_of(self, entry: LedgerRun) -> tuple[str, ...] | None:
        """The values by which the service counts a run: as its record has them, in which names may be shortened or
        omitted; None if the run cannot be rendered any more, nor its values be known otherwise."""
        record = self._sent.of([entry]).get(entry.run.run_id) if self._sent.are_readable else None
        columns: Mapping[str, Value] | None = None
        if record is not None:
            columns = record.columns
        elif self._format.summed_columns is not None:
            with suppress(CannotRenderError):
                columns = self._format.summed_columns(self._ledger.facts_of(entry), self._ledger.view_of(entry))
        if columns is None:
            return None
        return tuple(self._spelt(name, str(columns.get(name, ""))) for name in self._kind.key)

    def _is_recent(self, entry: LedgerRun, now: int) -> bool:
        """Whether a run was accepted so recently that the service may not have counted it."""
        run = entry.run
        return run.state is State.ACCEPTED and not run.confirmed and run.changed_at > now - self._kind.lag_s

    def _by_cell(self, answer: Iterable[PeriodSum]) -> dict[CellKey, SumsCell]:
        cells: defaultdict[CellKey, SumsCell] = defaultdict(SumsCell)
        for line in answer:
            wall_s, cpu_s = line.wall_s * self._kind.has_wall, line.cpu_s * self._kind.has_cpu
            cells[CellKey(line.values, self._kind.first_day(line.day))].plus(
                SumsCell(line.jobs, wall_s, cpu_s, within_s=line.within_s)
            )
        return cells

    def _count(self, month: MonthFound, findings: Iterable[SumsDifference]) -> None:
        """Count what does not agree, and list the differences that name no single job."""
        page = ConfirmedPage([], [], [], [])
        for finding in findings:
            sent, has = finding.sent, finding.has
            if finding.verdict in {"empty", "short"}:
                month.missing += sent.jobs - has.jobs
            elif finding.verdict == "over":
                more = has.jobs - sent.jobs - sent.perhaps
                month.foreign += more
                page.differences.append(
                    Difference(month.month, "foreign", finding.text, f"{more} more jobs than were sent")
                )
            elif finding.verdict == "hours":
                month.differing += sent.jobs
                month.other_hours += sent.jobs
                detail = (
                    f"{sent.jobs} jobs; wall {has.wall_s:.0f} s, sent {sent.wall_s:.0f} s; "
                    f"CPU {has.cpu_s:.0f} s, sent {sent.cpu_s:.0f} s; rounding explains {has.within_s:.0f} s"
                )
                page.differences.append(Difference(month.month, "hours", finding.text, detail))
        self._verdicts.write(page)

    def _follow(self, month: MonthFound, by_cell: Mapping[CellKey, SumsDifference], now: int) -> None:
        """Confirm each run, or list it as missing or suspect."""
        suspects: dict[int, _Suspects] = {}
        for entries in self._ledger.pages(month.month):
            page = ConfirmedPage([], [], [], [])
            for entry in entries:
                if not entry.counted or (entry.is_ambiguous and entry.run.state is not State.SUPERSEDED):
                    continue  # an ambiguous one may be in another cell
                record_id = entry.run.record_id
                if entry.run.state is State.SUPERSEDED:
                    reason = sentence(entry.run.reason)
                    page.differences.append(Difference(month.month, "superseded", record_id, reason))
                    continue
                cell = self._cell(entry)
                one = by_cell.get(self._joined.of(cell)) if cell is not None else None
                if one is None or (one.sent.perhaps and self._is_recent(entry, now)):
                    continue
                if one.verdict == "agrees":
                    page.agrees(entry)
                elif one.verdict in {"empty", "hours"}:
                    page.lacks(entry)
                if one.verdict == "empty":
                    page.differences.append(Difference(month.month, "missing", record_id))
                elif one.verdict == "short" and one.may_be_narrowed:
                    suspects.setdefault(id(one), _Suspects(one, [])).runs.append(entry)
                elif one.verdict == "short":
                    page.lacks(entry)
                    page.differences.append(_suspect(month, one, record_id))
            month.confirmed += self._verdicts.write(page)
        page = ConfirmedPage([], [], [], [])
        for suspect in suspects.values():
            self._narrow(month, page, suspect)
        month.confirmed += self._verdicts.write(page)

    def _narrow(self, month: MonthFound, page: ConfirmedPage, found: _Suspects) -> None:
        """Confirm the jobs of a cell that cannot be the missing ones, because of the hours that the service lacks."""
        one = found.difference
        jobs = [self._hours(run) for run in found.runs]
        lacks = JobHours(one.sent.wall_s - one.has.wall_s, one.sent.cpu_s - one.has.cpu_s)
        missing = one.sent.jobs - one.has.jobs
        are_all = len(jobs) == one.sent.jobs  # else some of its jobs are superseded, and one of them may be missing
        possible = set(range(len(jobs)))
        if are_all:
            possible = possibly_missing(jobs, missing, lacks, _within(one.sent, one.has))
        for place, run in enumerate(found.runs):
            if place not in possible:
                page.agrees(run)
                continue
            page.lacks(run)
            if are_all and len(possible) == missing:
                page.differences.append(Difference(month.month, "missing", run.run.record_id))
            else:
                page.differences.append(_suspect(month, one, run.run.record_id))


def compare_cells(
    kind: SumsKind, expected: Mapping[CellKey, SumsCell], evidence: Mapping[CellKey, SumsCell]
) -> dict[CellKey, SumsDifference]:
    """Return a finding for every cell of both sides.

    Cells with the same values on both sides are compared one by one: a job that is missing for one user is not balanced
    by one too many of another. The service may spell the other values of an answer and period differently, so these
    cells are compared by their sum (`_respelled`). If the sums differ, they are compared one by one or, if the period
    has no value in common, as a whole.
    """
    periods: defaultdict[CellKey, list[CellKey]] = defaultdict(list)
    for cell in {**expected, **evidence}:
        periods[CellKey(cell.values[:1], cell.day)].append(cell)
    differences: dict[CellKey, SumsDifference] = {}
    for period, cells in sorted(periods.items()):
        text = " ".join([kind.period_text(period.day), *period.values])
        each = {cell: _finding(expected, evidence, [cell], cell.text(kind)) for cell in sorted(cells)}
        other_names = [cell for cell in each if not (cell in expected and cell in evidence)]
        differences |= each
        if not other_names:
            continue
        whole = _finding(expected, evidence, cells, text)
        if len(other_names) == len(cells) and whole.sent.jobs and whole.has.jobs:
            differences |= dict.fromkeys(cells, whole)
        else:
            differences |= _respelled(expected, evidence, each, other_names, text)
    return differences


def _respelled(
    expected: Mapping[CellKey, SumsCell],
    evidence: Mapping[CellKey, SumsCell],
    each: Mapping[CellKey, SumsDifference],
    names: list[CellKey],
    text: str,
) -> dict[CellKey, SumsDifference]:
    """Return one finding for the cells of a day that differ in the spelling of names alone; none if more differs.

    `names`: the cells with a name that only one side has. Their jobs may be counted under a name that both sides have:
    at the service, if it has more jobs of that name than were sent; here, if it has fewer.
    """
    alone = _finding(expected, evidence, names, text)
    if alone.verdict in _SPELLING_EXPLAINS:
        return dict.fromkeys(names, alone)
    opposite = {"short"} if alone.verdict == "over" else {"over"}
    merged = [*names, *(cell for cell, one in each.items() if cell not in names and one.verdict in opposite)]
    together = _finding(expected, evidence, merged, text)
    return dict.fromkeys(merged, together) if together.verdict in _SPELLING_EXPLAINS else {}


def verdict_on(sent: SumsCell, has: SumsCell) -> Verdict:
    """Compare the sums of one cell."""
    if has.jobs < sent.jobs:
        return "short" if has.jobs else "empty"
    if has.jobs > sent.jobs + sent.perhaps:
        return "over"
    # The hours of jobs that may be there are in neither sum: compared, they would look like altered jobs.
    if sent.perhaps:
        return "unclear"
    within = _within(sent, has)
    same = abs(has.wall_s - sent.wall_s) <= within.wall_s and abs(has.cpu_s - sent.cpu_s) <= within.cpu_s
    return "agrees" if same else "hours"


def _within(sent: SumsCell, has: SumsCell) -> JobHours:
    """By how much the sums of a cell may differ because of rounding."""
    # Too small, it shows rounding as altered jobs; too large, it hides that a job of a few seconds is missing.
    rounded_s = max(_UNROUNDED_S, has.within_s)
    wall_s = rounded_s + _RELATIVE * sent.wall_s
    return JobHours(wall_s, rounded_s + sent.jobs + _RELATIVE * sent.cpu_s)  # user and system time may be rounded each


def _finding(
    expected: Mapping[CellKey, SumsCell], evidence: Mapping[CellKey, SumsCell], cells: Sequence[CellKey], text: str
) -> SumsDifference:
    sent, has = _sum(expected, cells), _sum(evidence, cells)
    return SumsDifference(verdict_on(sent, has), text, sent, has)


def _sum(sums: Mapping[CellKey, SumsCell], cells: Iterable[CellKey]) -> SumsCell:
    total = SumsCell()
    for cell in cells:
        if cell in sums:
            total.plus(sums[cell])
    return total
