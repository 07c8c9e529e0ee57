"""The views of `report` by their names."""

from __future__ import annotations

import importlib
from typing import Final, Protocol

from publisher.errors import UsageError
from publisher.report.reading import Context
from publisher.report.request import ReportRequest
from publisher.report.result import VIEWS, Report


class View(Protocol):
    """What makes a report of a request. Raises `UsageError`."""

    def __call__(self, context: Context, request: ReportRequest) -> Report:
        """The report."""
        ...


_MODULES: Final = {name: f"publisher.report.{name}" for name in VIEWS}


def make(name: str, context: Context, request: ReportRequest) -> Report:
    """The report of a view. Raises `UsageError` for one that there is not, and for what the view cannot do."""
    if name not in _MODULES:
        raise UsageError(f"there is no view {name!r}; there are: {', '.join(VIEWS)}")
    view: View = importlib.import_module(_MODULES[name]).view
    return view(context, request)
