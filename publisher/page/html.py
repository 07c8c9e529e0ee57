"""The templates: everything that stands in a page is escaped unless it is written in a template.

Style and script stand in the page itself, which the security policy allows by their digests and nothing else: no other
script runs, whatever a job is called.

A report as a page: by itself in one file, or with what the server puts around it.

A report's rows as the page's table shows them.

What was read and what each service has, as a page: `status` for people who are not at the terminal.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version as version_of
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from publisher.page.charts import drawing
from publisher.report.output import grouping_columns, is_text, shown_columns
from publisher.report.plot.style import interval_told
from publisher.report.report import UNKNOWN_NAME, VIEWS, Cell, Column, Kind, Plot, Report
from publisher.status.status import SourceStatus, Status, TargetStatus
from publisher.text import cell_text, counted, future_notes, iso, safe

_FOLDER: Final = "templates"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("publisher.page", _FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["cell_text"] = cell_text
    return environment


@cache
def _part(name: str) -> str:
    return files("publisher.page").joinpath(_FOLDER, name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


@cache
def policy(*, served: bool) -> str:
    """The security policy of a page: only the style and the script that we wrote, no frames, no other hosts."""
    rules = [
        "default-src 'none'",
        f"style-src {_digest(_part('style.css'))}",
        f"script-src {_digest(_part('page.js'))}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'self'" if served else "form-action 'none'",
    ]
    if served:
        rules.append("frame-ancestors 'none'")
    return "; ".join(rules)


def markup(template: str, context: dict[str, Any]) -> str:
    """A template filled in. `title` and `site` are always needed; no `menu` and no `person` is a page by itself."""
    common = {
        "standalone": False, "menu": (), "person": None, "style": Markup(_part("style.css")),  # noqa: S704 - our own
        "script": Markup(_part("page.js")), "policy": policy(served=False), "version": version_of("usage-publisher"),  # noqa: S704
    }  # fmt: skip
    return _environment().get_template(template).render({**common, **context})


MOST_ROWS: Final = 5_000
"""More make a page that browsers are slow with; CSV and JSON have them all."""


class Heading(msgspec.Struct, frozen=True):
    """The head of a column; `number` stands to the right, `instant` in one line."""

    name: str
    unit: str
    number: bool
    instant: bool


class Table(msgspec.Struct, frozen=True):
    """The table: at most `MOST_ROWS` of `count` rows."""

    columns: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    count: int

    @property
    def left_out(self) -> int:
        """Rows that are not shown."""
        return self.count - len(self.rows)


def table(report: Report) -> Table:
    """The table of a report."""
    columns = shown_columns(report)
    heads = tuple(Heading(_name(one), _unit(one), not is_text(one), one.kind == "instant") for one in columns)
    keys = grouping_columns(report)
    places = [(report.columns.index(one), one.kind, one.name in keys) for one in columns]
    rows = tuple(
        tuple(
            UNKNOWN_NAME if key and row[place] in (None, "") else _cell(row[place], kind) for place, kind, key in places
        )
        for row in report.rows[:MOST_ROWS]
    )
    return Table(heads, rows, len(report.rows))


def _name(column: Column) -> str:
    """The name for people: without the unit at its end, which stands beside it."""
    words = safe(column.name).split("_")
    last = column.unit.lower().split()[-1:]
    return " ".join(words[:-1] if len(words) > 1 and words[-1:] == last else words)


def _unit(column: Column) -> str:
    return "%" if column.kind == "ratio" and not column.unit else safe(column.unit)


def _cell(cell: Cell, kind: Kind) -> str:
    return "\N{EN DASH}" if cell is None else cell_text(cell, kind)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is chosen of the pictures when the page opens; all of it can be changed on the page."""

    style: Literal["line", "bar"] = "line"
    measure: Literal["queue", "cpu"] = "queue"
    grid: bool = False
    legend: bool = True

    @property
    def classes(self) -> str:
        """For browsers that cannot change it by themselves."""
        grid, legend = "" if self.grid else " no-grid", "" if self.legend else " no-legend"
        return f"style-{self.style} on-{self.measure}{grid}{legend}"


def report_file(report: Report, choice: Choice) -> bytes:
    """The report as one file that needs nothing else: no network, and no script but its own for comfort."""
    return _encoded(report_page(report, choice, {"standalone": True}))


def report_page(report: Report, choice: Choice, around: Mapping[str, Any]) -> str:
    """The page of a report."""
    kinds = [_measure(plot, report) for plot in report.plots]
    charts = [drawing(plot, report.stop) for plot in report.plots]
    return markup(
        "report.html",
        {
            "title": safe(report.title), "site": safe(report.site), "heading": heading(report),
            "about": about(report), "charts": charts, "kinds": kinds,
            "measures": len(set(kinds)) > 1, "pictured": bool(report.plots), "look": choice,
            "styled": any(chart.kind == "time" for chart in charts),
            "lined": any(chart.kind in {"time", "heat"} for chart in charts),
            "look_class": choice.classes, "notes": [safe(note) for note in report.notes],
            "nothing": safe(report.nothing) if report.nothing else None, "table": table(report), "fields": (),
            "problem": None, "links": (), "prints": (), **around,
        },
    )  # fmt: skip


def problem_page(view: str, title: str, problem: str, choice: Choice, around: Mapping[str, Any]) -> str:
    """The page of a view where there is no report: why, and the form to ask for another."""
    return markup(
        "report.html",
        {
            "title": title, "about": VIEWS[view], "problem": safe(problem), "look": choice,
            "look_class": choice.classes, "pictured": True, "styled": True, "lined": True, **around,
        },
    )  # fmt: skip


def about(report: Report) -> str:
    """A line under the title: what the view is about, and the interval."""
    said = VIEWS.get(report.view, "")
    return f"{said} From {interval_told(report.start, report.stop)}."


def heading(report: Report) -> str:
    """What stands above the table."""
    return f"{safe(report.title)}, {safe(report.site)}, {interval_told(report.start, report.stop)}"


def _measure(plot: Plot, report: Report) -> str:
    """By which of the two measures a picture of utilization is shown: those of CPU are named so."""
    if report.view != "utilization" or len(report.plots) < 2:
        return ""
    return "measure-cpu" if plot.title.startswith("CPU") else "measure-queue"


def _encoded(page: str) -> bytes:
    return page.encode("utf-8", "backslashreplace")


_TARGETS: Final = (
    "target", "accepted", "confirmed", "waiting", "in flight", "rejected", "held", "waived", "superseded",
    "unconfirmed for", "oldest waiting", "sent up to", "complete until", "last success", "certificate days", "trouble",
)  # fmt: skip
_SOURCES: Final = ("source", "jobs", "unreadable", "last read", "last job ended", "read to its end", "trouble")
_NUMBERS: Final = frozenset({*_TARGETS[1:9], "certificate days", "jobs", "unreadable"})


def status_page(status: Status, around: Mapping[str, Any]) -> str:
    """The page."""
    targets = [
        (
            f"{safe(name)} (shadow)" if one.shadow else safe(name), one.accepted, one.confirmed, one.waiting,
            one.in_flight, one.rejected, one.held, one.waived, one.superseded, _unconfirmed_text(one),
            iso(one.oldest_waiting_end_time) or "none", _at(one.last_sent_end_time), _at(one.complete_until),
            _at(one.last_success), "" if one.certificate_days_left is None else one.certificate_days_left,
            safe(_trouble_of(one)),
        )
        for name, one in status.targets.items()
    ]  # fmt: skip
    sources = [
        (
            safe(name), one.jobs, one.unreadable, _at(one.last_collected), _at(one.last_job_end),
            "yes" if one.read_to_end else "no", safe(_trouble(one)),
        )
        for name, one in status.sources.items()
    ]  # fmt: skip
    context = {
        "title": "Publishing", "lead": _lead(status), "targets": targets, "sources": sources,
        "target_columns": _TARGETS, "source_columns": _SOURCES, "numbers": _NUMBERS,
    }  # fmt: skip
    return markup("status.html", {**context, **around})


def _unconfirmed_text(one: TargetStatus) -> str:
    """For how long the oldest accepted job is unconfirmed, or that the service offers no evidence."""
    if one.evidence == "none":
        return "this service offers no evidence"
    return "" if one.unconfirmed_days is None else counted(one.unconfirmed_days, "day")


def _lead(status: Status) -> str:
    if status.delivered:
        return "Everything that was read has been delivered."
    if not status.complete:
        return "Something is still to be read or to be delivered."
    held = sum(one.held for one in status.targets.values() if not one.shadow)
    rejected = sum(one.rejected for one in status.targets.values() if not one.shadow)
    return f"Not everything is delivered: {held:,} records are held, {rejected:,} were rejected."


def _trouble_of(one: TargetStatus) -> str:
    shadow = "a shadow: nothing is sent, and what waits is meant to" if one.shadow else ""
    evidence = f"no evidence of what the service has: {one.evidence_problem}" if one.evidence_problem else ""
    return "; ".join(filter(None, (shadow, one.last_error, *future_notes(one.times_in_future), evidence)))


def _trouble(one: SourceStatus) -> str:
    if one.error:
        return one.error
    if one.ends_in_future:
        return "the last job ends in the future: a clock is wrong"
    silent = "silent for too long" if one.silent else ""
    return "; ".join(filter(None, (silent, *future_notes(one.times_in_future)))) or "; ".join(one.waiting)


def _at(instant: int | None) -> str:
    return iso(instant) or "never"
