"""The reports as a library and as messages: what `publisher.api` and `render` offer."""

from __future__ import annotations

from collections.abc import Iterator

from formats.registry import report_format
from formats.view import View
from publisher.config.schema import Config
from publisher.preview.render import HeldPreview, Noted, RenderedMessage
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views.totals import Total, Totals, totals
from publisher.report.views.utilization import Utilization, utilization
from publisher.store.database import Store

__all__ = ["ReportRendering", "Total", "Totals", "Utilization", "totals", "utilization"]


class ReportRendering:
    """A report as the message it would be: what `publisher.preview.render.Rendering` is for records."""

    def __init__(self, store: Store, config: Config, request: ReportRequest, now: int) -> None:
        self._context = ReportContext(store, config, now)
        self._site = config.site.name
        self._request = request
        self.records = 0
        self.cut_otherwise: str | None = None
        """A report is one message, however many bins it has."""
        self.held: list[HeldPreview] = []
        self.notes: list[Noted] = []

    def messages(self) -> Iterator[RenderedMessage]:
        """The one message; its records are its bins. Raises `UsageError`."""
        form = report_format("utilization", View(site=self._site))
        made = utilization(self._context, self._request)
        self.records = len(made.report.bins)
        yield RenderedMessage("utilization", form.name, form.message(made.report), self.records)
