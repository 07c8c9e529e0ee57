"""The views of `report` by their names."""

from __future__ import annotations

import importlib
from typing import Final, Protocol

import msgspec

from publisher.errors import UsageError
from publisher.report.ranking import ranked
from publisher.report.report import VIEWS, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.text import counted, unknown_name


class ReportView(Protocol):
    """Makes the report of a request. Raises `UsageError`."""

    def __call__(self, context: ReportContext, request: ReportRequest) -> Report:
        """The report."""
        ...


_OF_NO_RUNS: Final = frozenset({"load"})
"""Views of samples instead of runs."""
_MODULES: Final = {name: f"publisher.report.views.{name}" for name in VIEWS}


def make(name: str, context: ReportContext, request: ReportRequest) -> Report:
    """The report of a view. Raises `UsageError` for an unknown view, and for options that it does not support."""
    if name not in _MODULES:
        raise UsageError(unknown_name("view", name, VIEWS))
    view: ReportView = importlib.import_module(_MODULES[name]).view
    return with_purged(_with_suspects(ranked(view(context, request), request), context), context, request)


def _with_suspects(report: Report, context: ReportContext) -> Report:
    """The report with a note on the suspect jobs that are not counted."""
    count = 0 if report.view in _OF_NO_RUNS else context.suspects()
    if not count:
        return report
    note = (
        f"{counted(count, 'suspect job')} of any time {'is' if count == 1 else 'are'} held and not counted: "
        "`usage-publisher collect --unreadable` lists them."
    )
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def with_purged(report: Report, context: ReportContext, request: ReportRequest) -> Report:
    """The report with a note on the months of its interval that were purged from the store, and how many runs."""
    if report.view in _OF_NO_RUNS:
        return report
    gone, note = context.purged(request), context.purged_note(request)
    if not gone:
        return report
    facts = {**report.facts, "purged": {str(month): count for month, count in gone.items()}}
    return msgspec.structs.replace(report, notes=(*report.notes, note), facts=facts)
