"""A report as a page: by itself in one file, or with what the server puts around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from publisher.page.drawing import drawing
from publisher.page.markup import markup
from publisher.page.table import table
from publisher.plain_text import safe
from publisher.report.picture.look import interval_told
from publisher.report.result import VIEWS, Plot, Report


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
