"""Links from the rows of a report to their jobs: the filters, the interval, and the selection of each as an address.

Which they are is said by the descriptor of the view (`RowJobs`). A filter is used where it means the same as the key of
the row, so that people can change it; else the selection has the value of the key.
"""

from __future__ import annotations

from glob import escape
from typing import Final, cast

import msgspec

from formats.utilization.measure import KEYS
from publisher.page.addresses import JOBS, answered, with_query
from publisher.report.calendar import periods, zone_of
from publisher.report.report import UNKNOWN_NAME, Cell, Report, is_others
from publisher.report.request import ReportRequest
from publisher.report.row_jobs import RowSelection
from publisher.report.view_kind import ViewKind
from publisher.report.view_option import PERIODS, PeriodLength
from publisher.text import iso

_OF_SEVERAL: Final = frozenset({"host", "complex", "reservation", "job", "task"})
"""Keys whose filter also selects runs that count under another value: on several hosts, with several resources."""
_START, _PERIOD, _RESOURCE, _JOBS = "start", "period", "resource", "jobs"
"""Columns of rows of a bin or period; of what nodes have; of how many jobs a row counts."""
_OF_NODES: Final = {"cluster": "node_cluster"}
"""Words of the selection that are not named as the key, where rows are of nodes."""


def job_links(report: Report, request: ReportRequest, kind: ViewKind, hidden: frozenset[str]) -> list[str]:
    """The address of the jobs of each row, and last that of the row of the total, if there is one; empty for rows
    without jobs of their own, such as sums of others, or groups that had jobs in the compared interval only.

    `hidden`: filters that are not part of an address, because they are those of the person.
    """
    links = _RowLinks(report, request, kind, hidden)
    return [*map(links.of, report.rows), *([links.of_all(report.footer)] if report.footer else [])]


class _RowLinks:
    def __init__(self, report: Report, request: ReportRequest, kind: ViewKind, hidden: frozenset[str]) -> None:
        self._report = report
        self._request = request
        self._rule = kind.row_jobs
        self._interval = request.interval or self._rule.interval or kind.counts or "ended"
        self._base = {name: pattern for name, pattern in request.filters.items() if name not in hidden}
        self._places = {column.name: place for place, column in enumerate(report.columns)}
        self._period = next((name for name in (*PERIODS, _PERIOD) if name in self._places), None)
        self._bounds = self._periods()
        self._columns = {column.name: column.key for column in report.columns if column.key}
        """The key of each column that rows are grouped by."""

    def of_all(self, footer: tuple[Cell, ...]) -> str:
        """The address of all jobs of the report."""
        if self._counts_none(footer):
            return ""
        return self._address({}, {}, (self._report.start, self._report.stop))

    def of(self, row: tuple[Cell, ...]) -> str:
        """The address of the jobs of a row."""
        if self._rule.none or self._counts_none(row):
            return ""
        filters: dict[str, str] = {}
        words: dict[str, str] = {}
        named = [*self._columns.items(), *((column, name) for column, name in self._rule.filters.items())]
        for column, key in named:
            if column not in self._places:
                continue
            name = str(row[self._places[column]] or "")
            if column in self._columns and ((name and name == self._rule.nobody) or self._is_sum(name)):
                return ""
            if name and name == self._rule.everyone and row is self._report.rows[-1]:
                continue  # a payer may have this name too
            self._add(key, name, filters, words)
        return self._address(filters, words, self._bounds_of(row))

    def _counts_none(self, row: tuple[Cell, ...]) -> bool:
        return _JOBS in self._places and row[self._places[_JOBS]] == 0

    def _is_sum(self, name: str) -> bool:
        return self._request.top is not None and is_others(name)

    def _add(self, key: str, name: str, filters: dict[str, str], words: dict[str, str]) -> None:
        """Add the value of a key: as a filter, if it selects the same runs."""
        if self._rule.by_node:
            words[_OF_NODES.get(key, key)] = name
        elif key in PERIODS and not self._has_rule_on_jobs:
            return  # its bounds are the interval
        elif name in {"", self._rule.unknown} and key in KEYS and key not in words and not self._has_rule_on_jobs:
            filters[key] = UNKNOWN_NAME
        elif name == UNKNOWN_NAME or not self._is_filter(key):
            words[key] = name
        else:
            filters[key] = escape(name)

    def _is_filter(self, key: str) -> bool:
        if key in self._rule.filters.values():
            return key in KEYS
        return key in KEYS and key not in _OF_SEVERAL and not self._has_rule_on_jobs

    @property
    def _has_rule_on_jobs(self) -> bool:
        """Whether which run of a job counts is decided among all runs of the report: so a filter would change it."""
        return self._rule.runs in {"first", "last"}

    def _address(self, filters: dict[str, str], words: dict[str, str], bounds: tuple[int, int]) -> str:
        if self._rule.by_node:
            words.setdefault(_RESOURCE, str(self._report.facts.get(_RESOURCE, "cores")))
            words |= {"held_on": "first"} if self._rule.by_node == "first" else {}
        selection = RowSelection(self._rule.runs, words)
        row = {} if selection == RowSelection() else {"row": msgspec.json.encode(selection).decode()}
        begin, end = bounds
        moments = {"since": iso(begin) or "", "until": iso(end) or "", "counted": self._interval}
        return answered(with_query(JOBS, {**self._base, **filters, **moments, **row}))

    def _bounds_of(self, row: tuple[Cell, ...]) -> tuple[int, int]:
        report, rule = self._report, self._rule
        if rule.times is not None:
            begin, end = (row[self._places[name]] for name in rule.times)
            return int(begin or 0), int(end or 0)
        if self._period is not None and not (self._has_rule_on_jobs and self._period != _PERIOD):
            return self._bounds.get(str(row[self._places[self._period]]), (report.start, report.stop))
        if _START in self._places and "bin_s" in report.facts:
            start = int(row[self._places[_START]] or 0)
            return start, min(start + report.facts["bin_s"], report.stop)
        return report.start, report.stop

    def _periods(self) -> dict[str, tuple[int, int]]:
        """By name the begin and end of the periods, in the interval of the report."""
        if self._period is None:
            return {}
        length = self._request.period if self._period == _PERIOD else cast("PeriodLength", self._period)
        cut = periods(self._report.start, self._report.stop, length, zone_of(self._request.timezone))
        return {period.name: (period.start, period.stop) for period in cut}
