"""Compare report by report: each as it was last sent with the one that the service has for the same interval.

A report that is sent again replaces the one at the service. The runs that ended in a period are confirmed if all of its
reports agree. Memory contains the reports of a month.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from formats.calendar import Month, Period, PeriodKind, month_bounds, month_of, period_of, periods_between
from formats.utilization.report import UtilizationReport, read_report
from publisher.reconcile.comparison import MonthComparison
from publisher.reconcile.confirm import ConfirmedPage, Verdicts
from publisher.reconcile.evidence_reports import EvidenceReports, Interval
from publisher.reconcile.ledger import Ledger
from publisher.reconcile.result import Difference, MonthFound
from publisher.store import groups, queries
from publisher.store.groups import GroupRow
from publisher.store.schema import State
from publisher.store.stored_json import decoded
from publisher.targets.base import KeepsMessages
from publisher.text import iso

_MEASURES: Final = ("queue", "cpu_user", "cpu_system", "slots", "jobs")


class ByReport(MonthComparison):
    """Compares one target. `spool`: a directory from which another program takes messages."""

    def __init__(
        self,
        ledger: Ledger,
        kind: PeriodKind,
        evidence: EvidenceReports,
        verdicts: Verdicts,
        spool: KeepsMessages | None,
    ) -> None:
        super().__init__(ledger)
        self._kind = kind
        self._evidence = evidence.reports
        self._verdicts = verdicts
        self._spool = spool if spool is not None and spool.taken_away else None

    def month(self, month: MonthFound) -> None:
        """See `MonthComparison`."""
        agreeing, there, taken = set[Period](), set[Period](), set[Period]()
        for period in periods_between(self._kind, *month_bounds(month.month)):
            with self._ledger.store.read() as connection:
                rows = groups.of_month(connection, self._ledger.target_id, groups.UTILIZATION, period.number)
            verdicts = {key: self._verdict(row) for key, row in rows.items()}
            self._count(month, period, rows, verdicts)
            if rows and set(verdicts.values()) == {"agrees"}:
                agreeing.add(period)
            if set(verdicts.values()) & {"agrees", "differs"}:
                there.add(period)
            elif "taken" in verdicts.values():
                taken.add(period)
        self._follow(month, agreeing, there, taken)

    def _verdict(self, row: GroupRow) -> str:
        """`agrees`; `taken`; `unclear` for one that is not accepted yet; or the kind of difference."""
        if row.state is not State.ACCEPTED:
            return "unclear"
        theirs = self._evidence.get(_interval(row))
        if theirs is None:
            return "taken" if self._is_taken(row) else "missing"
        return "agrees" if theirs == read_report(row.body) else "differs"

    def _is_taken(self, row: GroupRow) -> bool:
        if self._spool is None:
            return False
        with self._ledger.store.read() as connection:
            batches = queries.batches_of_groups(connection, self._ledger.target_id, groups.UTILIZATION, row.month)
        batch_id = batches.get(row.key)
        receipt = self._ledger.receipts([] if batch_id is None else [batch_id]).get(batch_id or 0)
        return receipt is not None and not self._spool.keeps(receipt.get("file", ""))

    def _count(
        self, month: MonthFound, period: Period, rows: Mapping[str, GroupRow], verdicts: Mapping[str, str]
    ) -> None:
        differences = list(self._foreign(month.month, period) if not rows else ())
        month.foreign += len(differences)
        for key, row in sorted(rows.items(), key=lambda item: _interval(item[1])):
            verdict = verdicts[key]
            if verdict == "missing":
                month.missing += 1
                differences.append(Difference(month.month, "missing", _name(_interval(row)), f"{row.jobs} jobs ran"))
            elif verdict == "differs":
                month.differing += 1
                detail = _detail(self._evidence[_interval(row)], read_report(row.body))
                differences.append(Difference(month.month, "differs", _name(_interval(row)), detail))
            elif verdict == "unclear":
                month.unsettled += 1
        agreeing = [key for key, verdict in verdicts.items() if verdict == "agrees"]
        lacking = [key for key, verdict in verdicts.items() if verdict in {"missing", "differs"}]
        self._verdicts.groups(groups.UTILIZATION, period.number, agreeing, lacking, differences)

    def _foreign(self, month: Month, period: Period) -> Iterator[Difference]:
        """Reports that the service has of a period for which none was sent from here."""
        for interval in sorted(self._evidence):
            if period.start <= interval[0] < period.stop and month_of(interval[0]) == month:
                yield Difference(month, "foreign", _name(interval), "no report of it was sent")

    def _follow(self, month: MonthFound, agreeing: set[Period], there: set[Period], taken: set[Period]) -> None:
        """Count the runs of a month, and confirm those that ended in a period whose reports agree."""
        month.service_jobs = 0
        for entries in self._ledger.counted_pages(month):
            page = ConfirmedPage([], [], [], [])
            for entry in entries:
                if not entry.counted:
                    continue
                period = period_of(self._kind, entry.end)
                month.service_jobs += period in there
                month.taken += period in taken
                if period in agreeing:
                    page.agrees(entry)
                else:
                    page.doubts(entry)
            month.confirmed += self._verdicts.write(page)


def _interval(row: GroupRow) -> Interval:
    """The interval of a report, from its key in the ledger."""
    start, stop = decoded(row.key, tuple[int, int], "the interval of a report")
    return start, stop


def _name(interval: Interval) -> str:
    return f"report of {iso(interval[0])} to {iso(interval[1])}"


def _detail(theirs: UtilizationReport, ours: UtilizationReport) -> str:
    for name in ("bin_s", "measure"):
        one, other = getattr(theirs, name), getattr(ours, name)
        if one != other:
            return f"{name} {one}, sent {other}"
    differing = [(one, other) for one, other in zip(theirs.bins, ours.bins, strict=False) if one != other]
    if not differing or len(theirs.bins) != len(ours.bins):
        return f"{len(theirs.bins)} bins, sent {len(ours.bins)}"
    one, other = differing[0]
    values = [
        f"{name} {getattr(one, name):.12g}, sent {getattr(other, name):.12g}"
        for name in _MEASURES
        if getattr(one, name) != getattr(other, name)
    ]
    return f"{len(differing)} of {len(ours.bins)} bins, the first of {iso(other.start)}: {'; '.join(values) or 'means'}"
