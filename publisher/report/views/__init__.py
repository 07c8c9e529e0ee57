"""The views of `report` by their names."""

from __future__ import annotations

import importlib
from typing import Final, Protocol

import msgspec

from publisher.report.plot.style import limited
from publisher.report.ranking import ranked
from publisher.report.report import IDLE_NODES, Report
from publisher.report.request import ReportRequest, require_cluster
from publisher.report.runs import ReportContext
from publisher.report.view_kind import VIEW_KINDS, ViewKind, view_kind
from publisher.text import counted

_OF_PAYERS: Final = frozenset({"account", "project", "user", "vo"})
"""The keys that a site thinks in; which of them have values depends on its batch system."""

_TO_COME: Final = "The interval begins after now: no job can have run yet."


class ReportView(Protocol):
    """Makes the report of a request. Raises `UsageError`."""

    def __call__(self, context: ReportContext, request: ReportRequest) -> Report:
        """The report."""
        ...


def make(name: str, context: ReportContext, request: ReportRequest) -> Report:
    """The report of a view. Raises `UsageError` for an unknown view, and for options that it does not support."""
    kind = view_kind(name)
    request.require_keys(kind)
    require_cluster(kind, request)
    view: ReportView = importlib.import_module(f"publisher.report.views.{kind.name}").view
    report = _with_unused_keys(ranked(view(context, request), request), kind, request)
    report = _with_sql(report, kind)
    report = with_purged(_with_suspects(report, context), context, request)
    return _with_limits(report, context, request)


def _with_sql(report: Report, kind: ViewKind) -> Report:
    """The report whose SQL says what is computed after it."""
    after = f"-- Computed from these rows, not in SQL: {kind.after_sql}.\n" if report.sql and kind.after_sql else ""
    return msgspec.structs.replace(report, sql=report.sql + after)


def _with_unused_keys(report: Report, kind: ViewKind, request: ReportRequest) -> Report:
    """The report with a note on keys of which no row has a value, as with `project` where the batch system has
    accounts."""
    names = [column.name for column in report.columns]
    of_jobs = [row for row in report.rows if row[0] != IDLE_NODES]
    unused = [
        key for key in request.by if key in names and of_jobs and not any(row[names.index(key)] for row in of_jobs)
    ]
    if not unused:
        return report
    others = ", ".join(key for key in kind.keys if key in _OF_PAYERS and key not in request.by)
    advice = f": group by another key, such as {others}" if others else ""
    note = f"No job has a value for {' or '.join(unused)}{advice}."
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def _with_limits(report: Report, context: ReportContext, request: ReportRequest) -> Report:
    """The report with pictures that end now and know what is incomplete, in the time zone of the request."""
    known_until = context.known_until(request) if VIEW_KINDS[report.view].of_runs else None
    plots = tuple(limited(plot, report.stop, context.now, known_until) for plot in report.plots)
    timezone = request.timezone if report.timezone == "UTC" else report.timezone
    is_to_come = any(whole.x and not plot.x for whole, plot in zip(report.plots, plots, strict=True))
    notes = (*report.notes, _TO_COME) if is_to_come else report.notes
    return msgspec.structs.replace(report, plots=plots, timezone=timezone, notes=notes)


def _with_suspects(report: Report, context: ReportContext) -> Report:
    """The report with a note on the suspect jobs that are not counted."""
    count = context.suspects() if VIEW_KINDS[report.view].of_runs else 0
    if not count:
        return report
    note = (
        f"{counted(count, 'suspect job')} of any time {'is' if count == 1 else 'are'} held and not counted: "
        "`usage-publisher collect --unreadable` lists them."
    )
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def with_purged(report: Report, context: ReportContext, request: ReportRequest) -> Report:
    """The report with a note on the months of its interval that were purged from the store, and how many runs."""
    if not VIEW_KINDS[report.view].of_runs:
        return report
    request = msgspec.structs.replace(request, start=report.start, stop=report.stop)
    gone, note = context.purged(request), context.purged_note(request)
    if not gone:
        return report
    facts = {**report.facts, "purged": {str(month): count for month, count in gone.items()}}
    return msgspec.structs.replace(report, notes=(*report.notes, note), facts=facts)
