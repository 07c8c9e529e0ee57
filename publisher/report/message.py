"""A utilization report of any window as the message it would be, for `render`."""

from __future__ import annotations

from collections.abc import Iterator

from formats.registry import report_format
from formats.view import View
from publisher.config.schema import Config
from publisher.preview.render import HeldPreview, Noted, RenderedMessage
from publisher.report.request import LAST_DAYS_S, ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views.utilization import utilization
from publisher.sources.base import Window
from publisher.store.database import Store


class ReportRendering:
    """A report as the message it would be: what `publisher.preview.render.Rendering` is for records."""

    def __init__(self, store: Store, config: Config, window: Window, now: int) -> None:
        """A `window` without a beginning is that of the 30 days up to its end; without an end, up to `now`."""
        stop = now if window.until is None else window.until
        start = stop - LAST_DAYS_S if window.from_ is None else window.from_
        self._context = ReportContext(store, config, now)
        self._site = config.site.name
        self._request = ReportRequest(start=start, stop=stop)
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
