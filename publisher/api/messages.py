"""The messages that publishing would send: themselves, beside what was sent, and why each value stands in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from publisher.api.opened import Opened
from publisher.config.schema import REPORT_KINDS
from publisher.errors import UsageError
from publisher.sources.base import Window

if TYPE_CHECKING:
    from publisher.preview.diff import DiffRendering
    from publisher.preview.explain import Explanation
    from publisher.preview.render import Rendering
    from publisher.report.message import ReportRendering


class Messages(Opened):
    """See the module."""

    def rendering(self, format_name: str, target: str | None, window: Window) -> Rendering | ReportRendering:
        """The messages that publish would send, without sending and without changing anything.

        `utilization` without a target is that of the window, or of the 30 days up to its end, or up to now.
        """
        from publisher.preview.render import Rendering  # noqa: PLC0415

        self._require([target] if target else [], self.config.targets, "target")
        self._require_format(format_name)
        if target is not None:
            self._require_reports(target, format_name)
        elif format_name in REPORT_KINDS:
            from publisher.report.message import ReportRendering  # noqa: PLC0415
            from publisher.report.request import LAST_DAYS_S, ReportRequest  # noqa: PLC0415

            stop = self.tools.clock() if window.until is None else window.until
            start = stop - LAST_DAYS_S if window.from_ is None else window.from_
            request = ReportRequest(start=start, stop=stop)
            return ReportRendering(self._collected_store(), self.config, request, self.tools.clock())
        return Rendering(self._collected_store(), self.config, format_name, target, window, self.tools.clock())

    def comparison(self, format_name: str, target: str, window: Window) -> DiffRendering:
        """The records that publish would send beside those that were last delivered, without changing anything."""
        from publisher.preview.diff import DiffRendering  # noqa: PLC0415

        self._require([target], self.config.targets, "target")
        self._require_format(format_name)
        self._require_reports(target, format_name)
        return DiffRendering(self._collected_store(), self.config, format_name, target, window, self.tools.clock())

    def explanations(self, format_name: str, target: str | None, name: str) -> list[Explanation]:
        """Why each value stands in the records of the runs with this record id, local id or global id."""
        from publisher.preview.explain import explanations  # noqa: PLC0415

        self._require([target] if target else [], self.config.targets, "target")
        self._require_format(format_name)
        now = self.tools.clock()
        return explanations(self._collected_store(), self.config, format_name, target, name, now)

    def _require_reports(self, target: str, format_name: str) -> None:
        """Raises `UsageError` for reports of a target that is not sent reports."""
        if format_name in REPORT_KINDS and self.config.targets[target].records != format_name:
            raise UsageError(
                f"target {target} is not sent reports", hint="Leave --target away to see one of any window"
            )

    @staticmethod
    def _require_format(name: str) -> None:
        from publisher.plugins import require_format  # noqa: PLC0415 - loads the formats, which most commands need not

        require_format(name)
