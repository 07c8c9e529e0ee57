"""Links from the rows of a report to their jobs: the filters and the interval of each row as an address."""

from __future__ import annotations

from glob import escape
from typing import Final, cast

from formats.utilization.measure import KEYS
from publisher.page.addresses import JOBS, with_query
from publisher.report.calendar import periods, zone_of
from publisher.report.report import EVERYONE, IDLE_NODES, UNKNOWN_NAME, Cell, Report, is_others
from publisher.report.request import ReportRequest
from publisher.report.view_kind import PERIODS, Interval, PeriodLength
from publisher.text import iso

_FILTER_OF: Final = {**{key: key for key in KEYS}, "node": "host"}
"""The filter that selects the jobs of a group, by the key of the group."""
_START, _PERIOD, _CLUSTER = "start", "period", "cluster"
"""Columns of rows of a bin or period; of rows that have no key but their cluster."""


def job_links(report: Report, request: ReportRequest, counted: Interval, hidden: frozenset[str]) -> list[str]:
    """The address of the jobs of each row; empty for rows without jobs of their own, such as sums of others.

    `hidden`: filters that are not part of an address, because they are those of the person.
    """
    keys = [key for key in report.facts.get("by", ()) if key not in PERIODS]
    if not {*keys} <= _FILTER_OF.keys():
        return [""] * len(report.rows)
    places = {column.name: place for place, column in enumerate(report.columns)}
    period = next((name for name in (*PERIODS, _PERIOD) if name in places), None)
    bounds = _bounds(report, request, period)
    base = {name: pattern for name, pattern in request.filters.items() if name not in hidden}

    def link(row: tuple[Cell, ...]) -> str:
        query = dict(base)
        for key in keys:
            name = str(row[places[key]] or "")
            if is_others(name) or name in {EVERYONE, IDLE_NODES} or (key == "complex" and "," in name):
                return ""
            query[_FILTER_OF[key]] = escape(name) if name not in {"", UNKNOWN_NAME} else UNKNOWN_NAME
        if _CLUSTER in places and not keys and row[places[_CLUSTER]]:
            query[_CLUSTER] = escape(str(row[places[_CLUSTER]]))
        start, stop = request.start, request.stop
        if period is not None:
            start, stop = bounds.get(str(row[places[period]]), (start, stop))
        elif _START in places and "bin_s" in report.facts:
            start = int(row[places[_START]] or 0)
            stop = min(start + report.facts["bin_s"], stop)
        moments = {"since": iso(start) or "", "until": iso(stop) or "", "counted": request.interval or counted}
        return with_query(JOBS, {**query, **moments})

    return [link(row) for row in report.rows]


def _bounds(report: Report, request: ReportRequest, period: str | None) -> dict[str, tuple[int, int]]:
    """By name the begin and end of the periods, in the interval of the report."""
    if period is None:
        return {}
    length = request.period if period == _PERIOD else cast("PeriodLength", period)
    return {
        one.name: (one.start, one.stop) for one in periods(report.start, report.stop, length, zone_of(request.timezone))
    }
