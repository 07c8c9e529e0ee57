"""The views of `report` by their names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

import msgspec

from publisher.errors import OutputError
from publisher.report.plot.style import limited
from publisher.report.ranking import ranked
from publisher.report.report import IDLE_NODES, Report
from publisher.report.request import ReportRequest, require_cluster
from publisher.report.runs import ReportContext, purged_note
from publisher.report.temporary_files import is_of_memory
from publisher.report.view_kind import ViewKind, view_kind
from publisher.text import counted

_OF_PAYERS: Final = frozenset({"account", "project", "user", "vo"})
"""The keys that a site thinks in; which of them have values depends on its batch system."""

_TO_COME: Final = "The interval begins after now: no job can have run yet."


def make(name: str, context: ReportContext, request: ReportRequest) -> Report:
    """The report of a view. Raises `UsageError` for an unknown view, and for options that it does not support."""
    kind = view_kind(name)
    request.require_keys(kind)
    require_cluster(kind, request)
    view: Callable[[ReportContext, ReportRequest], Report] = importlib.import_module(
        f"publisher.report.views.{kind.name}"
    ).view
    try:
        made = view(context, request)
    except OutputError as error:
        if not is_of_memory(error):
            raise
        made = view(context.with_more_memory(), request)
    report = ranked(made, request)
    purged = context.purged(msgspec.structs.replace(request, start=made.start, stop=made.stop)) if kind.of_runs else {}
    known_until = context.known_until(request) if kind.of_runs else None
    plots = tuple(limited(plot, report.stop, context.now, known_until) for plot in report.plots)
    is_to_come = any(whole.x and not plot.x for whole, plot in zip(report.plots, plots, strict=True))
    also = (
        _unused_note(made, kind, request),
        _suspects_note(context.suspects() if kind.of_runs else 0),
        purged_note(purged),
        _TO_COME if is_to_come else "",
    )
    gone = {"purged": {str(month): count for month, count in purged.items()}} if purged else {}
    after = f"-- Computed from these rows, not in SQL: {kind.after_sql}.\n" if report.sql and kind.after_sql else ""
    return msgspec.structs.replace(
        report,
        timezone=request.timezone if report.timezone == "UTC" else report.timezone,
        plots=plots,
        notes=(*report.notes, *filter(None, also)),
        sql=report.sql + after,
        facts={**report.facts, **gone},
    )


def _unused_note(made: Report, kind: ViewKind, request: ReportRequest) -> str:
    """The note on keys of which no row has a value, as with `project` where the batch system has accounts; empty if
    there are none, or if the view has only the largest rows."""
    of_jobs = [row for row in made.rows if row[0] != IDLE_NODES] if made.total is None else []
    unused = [
        column.key
        for place, column in enumerate(made.columns)
        if column.key in request.by and of_jobs and not any(row[place] for row in of_jobs)
    ]
    if not unused:
        return ""
    others = ", ".join(key for key in kind.keys if key in _OF_PAYERS and key not in request.by)
    advice = f": group by another key, such as {others}" if others else ""
    return f"No job has a value for {' or '.join(unused)}{advice}."


def _suspects_note(count: int) -> str:
    """The note on suspect jobs, which are not counted; empty if there are none."""
    if not count:
        return ""
    return (
        f"{counted(count, 'suspect job')} of any time {'is' if count == 1 else 'are'} held and not counted: "
        "`usage-publisher collect --unreadable` lists them."
    )
