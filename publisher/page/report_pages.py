"""Pages of reports, and reports as files. They need NumPy, and plots matplotlib: the rest of the page does without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from glob import escape
from threading import BoundedSemaphore
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from publisher.errors import UsageError
from publisher.page import query as page_query
from publisher.page.addresses import answered, path_of, with_query
from publisher.page.auth import Person
from publisher.page.html import MOST_ROWS, form_page, report_page
from publisher.page.overview import RecentUsage, UsageRow
from publisher.page.row_links import job_links
from publisher.report import output
from publisher.report.matching import known_keys
from publisher.report.plot.style import interval_text, look_of
from publisher.report.report import UNKNOWN_NAME, Report, is_others, keys_text
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.files import Kind, document
from publisher.report.view_kind import CHARGES, JOB, TOTALS, VIEW_KINDS, ViewKind
from publisher.report.views import make
from publisher.report.views.charges import statements
from publisher.text import iso

_AT_A_TIME: Final = 2
"""Reports and plots that are made at a time; the rest wait."""
_PLOTS: Final = {
    "ps": ("PostScript", "application/postscript"),
    "pdf": ("PDF", "application/pdf"),
    "png": ("PNG", "image/png"),
    "svg": ("SVG", "image/svg+xml"),
}
"""Files of plots, by the ending of their address: label and content type."""
_TABLES: Final = {"csv": ("CSV", "text/csv; charset=utf-8"), "json": ("JSON", "application/json")}
_STATEMENTS: Final[dict[str, tuple[Kind, str, str]]] = {
    "pdf": ("pdf", "PDF", "application/pdf"),
    "html": ("html", "HTML", "text/html; charset=utf-8"),
    "txt": ("text", "text", "text/plain; charset=utf-8"),
}
"""The statement of a payer, by the ending of its address: its kind, label, and content type."""
_MOST_NAMES: Final = 10
"""Rows of usage on the first page; the rest are one row."""


class ReportPages:
    """The pages. A query that makes no sense raises `UsageError`, an address that does not exist `HTTPException`."""

    def __init__(
        self, context: Callable[[], ReportContext], say: Callable[[str], None], clock: Callable[[], int]
    ) -> None:
        """`context`: of now; raises `StoreMissingError` as long as nothing was collected. `say`: report to the
        administrator of the server what its users should not know. `clock`: epoch seconds."""
        self._context = context
        self._say = say
        self._clock = clock
        self._busy = BoundedSemaphore(_AT_A_TIME)

    def view(self, view: str, query: Mapping[str, str], person: Person, around: Mapping[str, Any]) -> Response:
        """The page of a view: its form, and the report."""
        kind = VIEW_KINDS[view]
        query = self._grouped(kind, query, person)
        form = page_query.fields(kind, query, self._clock(), person)
        around = {
            **around, "fields": form, "chosen": page_query.chosen(form), "action": path_of(view),
            "measures": "measure" in kind.options,
            "periods": () if kind.interval == "all" else page_query.periods(
                path_of(view), query, self._clock(), self._ends(), months=kind.interval == "month"
            ),
        }  # fmt: skip
        if not all(map(query.get, kind.required)):
            return HTMLResponse(form_page(view, kind.title, None, around))
        try:
            asked = self._parsed(view, query, person)
            report = self._report(view, asked.request, person)
        except UsageError as error:
            return HTMLResponse(form_page(view, kind.title, page_query.in_its_terms(str(error), form), around), 400)
        files = [(label, with_query(f"/{view}.{form}", query)) for form, (label, _kind) in _TABLES.items()]
        links, hint = _statements(report, asked.request, query) if kind.statements else ([], "")
        context = {"files": files, "statements": links, "statement_hint": hint, "prints": _prints(kind, report)}
        hrefs = self._hrefs(kind, report, asked.request, person)
        notes = tuple(page_query.in_its_terms(note, form) for note in report.notes)
        shown = msgspec.structs.replace(report, notes=notes)
        return HTMLResponse(report_page(shown, asked.choice, {**around, **context}, hrefs))

    @staticmethod
    def _hrefs(kind: ViewKind, report: Report, asked: ReportRequest, person: Person) -> list[str]:
        if kind.row_jobs.none or report.nothing or not person.may(JOB.name):
            return []
        shown = msgspec.structs.replace(report, rows=report.rows[:MOST_ROWS])
        hidden = frozenset() if person.owner is None else frozenset({"user"})
        return job_links(shown, asked, kind, hidden)

    def statement(self, form: str, query: Mapping[str, str], person: Person) -> Response:
        """The statement of a payer as a file; users get their own."""
        if form not in _STATEMENTS:
            raise HTTPException(404)
        asked = self._parsed(CHARGES.name, query, person).request
        with self._busy:
            made = statements(self._context(), asked)
            if not asked.filters.keys() <= {made.by}:
                raise UsageError(f"a statement contains all jobs of a {made.by}", hint="Remove the other filters")
            if len(made.all) != 1:
                count = f"{len(made.all):,} payers have one" if made.all else "nobody has one for this month"
                raise UsageError(f"a statement is for one {made.by}: {count}", hint=f"Filter by {made.by}")
            kind, _label, content_type = _STATEMENTS[form]
            content = document(made, made.all[0], kind)
        return _file(content, f"statement-{made.month}.{form}", content_type)

    def download(self, view: str, form: str, query: Mapping[str, str], person: Person) -> Response:
        """A view as a plot, CSV, or JSON."""
        if form not in _PLOTS and form not in _TABLES:
            raise HTTPException(404)
        asked = self._parsed(view, self._grouped(VIEW_KINDS[view], query, person), person)
        report = self._report(view, asked.request, person)
        if form in _TABLES:
            text = output.to_csv(report) if form == "csv" else output.to_json(report)
            return _file(text.encode("utf-8", "backslashreplace"), f"{view}.{form}", _TABLES[form][1])
        return _file(self._plot(report, asked, form), f"{view}.{form}", _PLOTS[form][1])

    def _plot(self, report: Report, asked: page_query.PageQuery, form: str) -> bytes:
        from publisher.report.plot.draw import draw  # noqa: PLC0415 - loads matplotlib

        plot_number = page_query.plot_number(asked.query)
        if plot_number >= len(report.plots):
            raise UsageError(f"plot: the view has {len(report.plots)} plots")
        choice = asked.choice
        look = look_of(report, style=choice.style, grid=choice.grid, legend=choice.legend)
        with self._busy:
            return draw(
                report.plots[plot_number], report.stop, look, form,  # type: ignore[arg-type]
                start=report.start, say=self._say,
            )  # fmt: skip

    def usage(self, person: Person) -> RecentUsage:
        """The core hours of the last 30 days for the first page, by the first key that any job has."""
        keys = ("project", "account", "vo", "user" if person.owner is None else "queue")
        by = self._first_key(keys, self._parsed(TOTALS.name, {}, person).request)
        query = {"by": by, "sort": "core_h"}
        asked = self._parsed(TOTALS.name, {**query, "top": str(_MOST_NAMES)}, person)
        report = self._report(TOTALS.name, asked.request, person)
        return RecentUsage(
            by=keys_text((by,)),
            interval=interval_text(report.start, report.stop),
            rows=_usage_rows(report, by),
            href=with_query(path_of(TOTALS.name), query),
            mine=person.owner is not None,
            problem=report.nothing,
        )

    def has_jobs(self) -> bool:
        """Whether any run was collected."""
        return self._ends()[1] is not None

    def _grouped(self, kind: ViewKind, query: Mapping[str, str], person: Person) -> Mapping[str, str]:
        """A query with the key by which the page groups where it selects none."""
        if "by" in query or len(kind.page_keys) < 2:
            return query
        with suppress(UsageError):  # the page shows it
            return {**query, "by": self._first_key(kind.page_keys, self._parsed(kind.name, query, person).request)}
        return query

    def _first_key(self, keys: Sequence[str], asked: ReportRequest) -> str:
        """The first key that any job has; the last if none has one."""
        with self._busy:
            of_jobs = known_keys(self._context(), asked, keys)
        return next((key for key in keys if key in of_jobs), keys[-1])

    def _parsed(self, view: str, query: Mapping[str, str], person: Person) -> page_query.PageQuery:
        return page_query.parse(VIEW_KINDS[view], query, self._clock(), self._ends(), person)

    def _ends(self) -> tuple[int | None, int | None]:
        return self._context().ends()

    def _report(self, view: str, asked: ReportRequest, person: Person) -> Report:
        with self._busy:
            report = make(view, self._context(), asked)
        if person.owner is not None and report.nothing:
            # The message of the view names what other users have.
            return msgspec.structs.replace(report, nothing="None of your jobs match.")
        return report


def _usage_rows(report: Report, by: str) -> tuple[UsageRow, ...]:
    places = {column.name: place for place, column in enumerate(report.columns)}
    amounts: list[tuple[str, Any, Any]] = [
        (str(row[0] or UNKNOWN_NAME), row[places["jobs"]], row[places["core_h"]] or 0.0) for row in report.rows
    ]
    most = max((core_h for _name, _jobs, core_h in amounts), default=0.0) or 1.0

    def href(name: str) -> str:
        if name == UNKNOWN_NAME or is_others(name):
            return ""
        pattern = escape(name)
        if len(pattern) > page_query.MOST_LETTERS:
            return ""
        return answered(with_query(path_of(TOTALS.name), {"by": "project" if by == "user" else "user", by: pattern}))

    return tuple(
        UsageRow(name, jobs, core_h, round(core_h / most * 100, 2), href(name)) for name, jobs, core_h in amounts
    )


def _file(content: bytes, name: str, content_type: str) -> Response:
    return Response(content, 200, {"Content-Disposition": f'attachment; filename="{name}"'}, content_type)


def _prints(kind: ViewKind, report: Report) -> list[dict[str, Any]]:
    """The files of each plot; of utilization, the one of the measure that the form selects."""
    forms = [(f"/{kind.name}.{form}", label) for form, (label, _kind) in _PLOTS.items()]
    if len(report.plots) < 2 or "measure" in kind.options:
        return [{"title": "Plot", "plot": None, "forms": forms}] if report.plots else []
    return [{"title": plot.title, "plot": place, "forms": forms} for place, plot in enumerate(report.plots, start=1)]


def _statements(report: Report, asked: ReportRequest, query: Mapping[str, str]) -> tuple[list[tuple[str, str]], str]:
    """The statement as links, where the charges are those of one payer and of all of its jobs; else what to select."""
    by = report.facts["by"]
    if len(report.facts.get("totals", ())) == 1 and asked.filters.keys() <= set(by):
        month = (iso(asked.start) or "")[:7]
        of_month = {"month": month, **query}
        return [
            (label, with_query(f"/statement.{form}", of_month)) for form, (_, label, _kind) in _STATEMENTS.items()
        ], ""
    if not report.rows:
        return [], ""
    return [], f"For a statement, filter by one {by[0]} and by nothing else."
