"""Pages as HTML: templates filled in, the security policy of a page, and a report as a page.

Templates escape every value: markup, and control characters and direction marks (`safe`). Style and script are inside
the page, and the security policy allows them by their digests: no other script runs, whatever a job is called.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version as version_of
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from publisher.page.addresses import JOBS, with_query
from publisher.page.charts import chart_of
from publisher.reason import sentence
from publisher.report.output import heading as column_heading
from publisher.report.output import is_text, shown_columns, text_rows
from publisher.report.plot.style import interval_text, shortened
from publisher.report.report import Plot, Report
from publisher.report.view_kind import VIEW_KINDS
from publisher.text import cell_text, counted, iso, safe

_FOLDER: Final = "templates"
_LIBRARY: Final = "uplot"
"""uPlot, which draws plots (https://github.com/leeoniya/uPlot), unchanged, with its licence."""
_CODE: Final = re.compile("`([^`]+)`")
_ID_LENGTH: Final = 32
"""Characters of an id or distinguished name that a page shows; of a longer one it shows both ends."""
_MOST_LETTERS: Final = 20_000
"""Characters of a message, or of an answer of a service, that a page shows."""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("publisher.page", _FOLDER), autoescape=True, finalize=_safe, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        cell_text=cell_text, counted=counted, long=long_text, at=instant_text, code=code_text, lines=lines_text,
        sentence=sentence, job_href=job_href,
    )  # fmt: skip
    return environment


def _safe(value: object) -> str:
    """A value as the templates show it, which then escape it. Markup stays as it is, also that of the filter `e`: for
    what a form sends back, and JSON."""
    return value if isinstance(value, Markup) else safe(value)


def _part(folder: str, name: str) -> str:
    return files("publisher.page").joinpath(folder, name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return _part(_LIBRARY, "uPlot.min.css") + _part(_FOLDER, "style.css")


@cache
def _script() -> str:
    return _part(_FOLDER, "page.js")


@cache
def _library() -> str:
    """uPlot with its licence, which each copy must contain: a page is one."""
    return f"/*!\n{_part(_LIBRARY, 'LICENSE.txt')}\n*/\n{_part(_LIBRARY, 'uPlot.iife.min.js')}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


@cache
def policy(*, served: bool) -> str:
    """The security policy of a page: our style and our script only, no frames, no other hosts."""
    rules = [
        "default-src 'none'",
        f"style-src {_digest(_style())}",
        f"script-src {_digest(_library())} {_digest(_script())}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'self'" if served else "form-action 'none'",
    ]
    if served:
        rules.append("frame-ancestors 'none'")
    return "; ".join(rules)


def markup(template: str, context: Mapping[str, Any]) -> str:
    """Fill in a template. `title` and `site` are always needed; a page without `menu` and `person` has no menu."""
    common = {
        "standalone": False, "menu": (), "person": None, "search": False, "periods": (), "charts": (),
        "style": Markup(_style()),  # noqa: S704 - our own
        "scripts": (Markup(_library()), Markup(_script())), "policy": policy(served=False),  # noqa: S704
        "version": version_of("usage-publisher"),
    }  # fmt: skip
    return _environment().get_template(template).render({**common, **context})


def long_text(text: str) -> str:
    """A text of a table, a long id without its middle. The page holds all of it: for the clipboard and screen readers.

    Ids have no spaces, and distinguished names begin with a slash; other text breaks into lines.
    """
    text = safe(text)
    if len(text) <= _ID_LENGTH or (" " in text and not text.startswith("/")):
        return text
    return Markup('<span class="long" title="{0}" data-short="{1}"><span>{0}</span></span>').format(
        text, shortened(text, _ID_LENGTH)
    )


def code_text(text: str) -> Markup:
    """A message in which `commands` are marked."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(safe(text)))))  # noqa: S704 - escaped before


def lines_text(text: str) -> Markup:
    """Text of many lines from outside, of bounded length."""
    shown = "\n".join(safe(line) for line in text[:_MOST_LETTERS].splitlines())
    return escape(shown if len(text) <= _MOST_LETTERS else f"{shown}\n… ({len(text):,} characters)")


def job_href(record_id: str) -> str:
    """The address of the job of a record."""
    return with_query(JOBS, {"job": record_id})


def instant_text(instant: int | None, none: str = "never") -> str:
    """An instant to the minute, as 2026-11-23 01:48 (a page is in UTC); `none` for None."""
    text = iso(instant)
    return none if text is None else text[:16].replace("T", " ")


MOST_ROWS: Final = 5_000
"""More rows make a page that browsers are slow with; CSV and JSON have all of them."""


class Heading(msgspec.Struct, frozen=True):
    """The heading of a column; a `number` is aligned right, an `instant` is not broken into lines."""

    name: str
    number: bool
    instant: bool


class Table(msgspec.Struct, frozen=True):
    """The table: at most `MOST_ROWS` of `count` rows."""

    columns: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    count: int
    hrefs: tuple[str, ...] = ()
    """By row the address of its jobs, also of that of the total; empty if it has none."""

    @property
    def left_out(self) -> int:
        """Rows that are not shown."""
        return self.count - len(self.rows)


def table(report: Report, hrefs: Sequence[str] = ()) -> Table:
    """The table of a report."""
    heads = tuple(
        Heading(column_heading(shown_column), not is_text(shown_column), shown_column.kind == "instant")
        for shown_column in shown_columns(report)
    )
    texts = text_rows(msgspec.structs.replace(report, rows=report.rows[:MOST_ROWS]))
    # Safe before the template asks how long they are.
    rows = tuple(tuple(safe(cell) or "\N{EN DASH}" for cell in row) for row in texts)
    footers = 1 if report.footer and rows else 0
    return Table(heads, rows, len(report.rows) + footers, tuple(hrefs))


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The look of the plots when the page opens; all of it can be changed on the page."""

    style: Literal["line", "bar"] | None = None
    """None: that of the first plot."""
    measure: Literal["queue", "cpu"] = "queue"
    grid: bool = False
    legend: bool = True

    @property
    def classes(self) -> str:
        """CSS classes for browsers without `:has()`, in which it cannot be changed on the page."""
        grid, legend = "" if self.grid else " no-grid", "" if self.legend else " no-legend"
        return f"style-{self.style} on-{self.measure}{grid}{legend}"


def report_file(report: Report, choice: Choice) -> bytes:
    """The report as one file that loads nothing else."""
    return report_page(report, choice, {"standalone": True, "about": about(report)}).encode()


def report_page(report: Report, choice: Choice, around: Mapping[str, Any], hrefs: Sequence[str] = ()) -> str:
    """The page of a report, with what the server adds `around` it, and the address of the jobs of each row."""
    kinds = [_measure(plot, report) for plot in report.plots]
    if choice.style is None:
        bars = any(plot.style == "bar" for plot in report.plots)
        choice = msgspec.structs.replace(choice, style="bar" if bars else "line")
    charts = [chart_of(plot, report.stop, report.timezone) for plot in report.plots]
    return markup(
        "report.html",
        {
            "title": report.title, "site": report.site, "heading": heading(report),
            "about": VIEW_KINDS[report.view].question,
            "interval": interval_text(report.start, report.stop, report.timezone),
            "charts": charts, "kinds": kinds,
            "measures": len(set(kinds)) > 1, "pictured": bool(report.plots), "look": choice,
            "styled": any(chart.kind == "time" for chart in charts),
            "lined": any(chart.kind in {"time", "heat"} for chart in charts),
            "named": any(len(plot.series) > 1 or plot.by for plot in report.plots),
            "look_class": choice.classes, "notes": report.notes,
            "nothing": report.nothing, "table": table(report, hrefs), "fields": (), "files": (), "statements": (),
            "statement_hint": "", "prints": (), **around,
        },
    )  # fmt: skip


def form_page(view: str, title: str, problem: str | None, around: Mapping[str, Any]) -> str:
    """The form of a view without a report: why there is none, if that is a `problem`."""
    context = {"title": title, "about": VIEW_KINDS[view].summary, "interval": "", "problem": problem}
    return markup("form_page.html", {**context, **around})


def about(report: Report) -> str:
    """A line under the title: what the view shows, and the interval."""
    said = VIEW_KINDS[report.view].summary
    return f"{said} From {interval_text(report.start, report.stop, report.timezone)}."


def heading(report: Report) -> str:
    """The caption of the table."""
    return f"{report.title}, {report.site}, {interval_text(report.start, report.stop, report.timezone)}"


def _measure(plot: Plot, report: Report) -> str:
    """The class of a plot of one of utilization's two measures: titles of plots of CPU utilization begin with CPU."""
    if "measure" not in VIEW_KINDS[report.view].options or len(report.plots) < 2:
        return ""
    return "measure-cpu" if plot.title.startswith("CPU") else "measure-queue"
