"""The runs of a store as views read them."""

from __future__ import annotations

from publisher.api import Publisher
from publisher.report.frame import Runs
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext


def runs_of(publisher: Publisher) -> Runs:
    """The runs of its store."""
    return ReportContext(publisher.store, publisher.config, 0).runs(ReportRequest(start=0, stop=1))
