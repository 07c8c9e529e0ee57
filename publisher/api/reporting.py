"""Reports of what was used, from the store or an archive, and the archive itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from publisher.api.opened import Opened

if TYPE_CHECKING:
    from publisher.report.archive_export import Written
    from publisher.report.message import Totals, Utilization
    from publisher.report.report import Report
    from publisher.report.request import ReportRequest
    from publisher.report.runs import ReportContext
    from publisher.report.views.charges import Statements
    from publisher.report.views.statements import Kind


class Reporting(Opened):
    """See the module."""

    def report(self, request: ReportRequest) -> Utilization:
        """Queue and CPU utilization of an interval, as DQS measures them."""
        from publisher.report.message import utilization  # noqa: PLC0415

        return utilization(self._reporting(request), request)

    def totals(self, request: ReportRequest) -> Totals:
        """What the runs used that ended in an interval, by up to two keys."""
        from publisher.report.message import totals  # noqa: PLC0415

        return totals(self._reporting(request), request)

    def view(self, name: str, request: ReportRequest) -> Report:
        """A report of any view (`publisher.report.report.VIEWS`): columns, rows, and what a picture shows."""
        from publisher.report.views import make  # noqa: PLC0415

        return make(name, self._reporting(request), request)

    def archive(
        self, directory: Path, start: int | None = None, stop: int | None = None, *, shrink: bool = False
    ) -> dict[str, Written]:
        """Write the finished runs of the whole months that an interval touches to an archive; what became of each.

        With `shrink`, months are replaced also where the store has fewer runs than the archive.
        """
        from publisher.report.archive_export import export_month  # noqa: PLC0415 - loads Arrow
        from publisher.report.runs import StoreRuns  # noqa: PLC0415
        from publisher.store.report_queries import months_ended_in  # noqa: PLC0415

        store = self._collected_store()
        with store.read() as connection:
            months = months_ended_in(connection, start, stop)
        runs = StoreRuns(store, self.config)
        written = {str(month): export_month(runs, month, directory, shrink=shrink) for month in months}
        return {month: one for month, one in written.items() if one.entries}

    def statements(
        self, request: ReportRequest, directory: Path, kinds: tuple[Kind, ...]
    ) -> tuple[Statements, list[Path]]:
        """Write the statements of a whole month into a folder: what they say, and the files."""
        from publisher.report.views.charges import statements  # noqa: PLC0415
        from publisher.report.views.statements import write  # noqa: PLC0415

        made = statements(self._reporting(request), request)
        return made, write(made, directory, kinds)

    def _reporting(self, request: ReportRequest) -> ReportContext:
        from publisher.report.runs import ReportContext  # noqa: PLC0415

        store = self._collected_store() if request.archive is None else self._store_if_there()
        return ReportContext(store, self.config, self.tools.clock())
