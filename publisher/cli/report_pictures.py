"""report as a picture or a page: what is chosen of them, and where the bytes go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from publisher.cli.output import picture, say, write_output
from publisher.errors import UsageError

if TYPE_CHECKING:
    from publisher.report.plot.draw import Form
    from publisher.report.report import Report

PICTURED: Final = frozenset({"png", "svg", "pdf", "ps", "html"})


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen on the command line. `legend` None: where there is something to tell apart."""

    style: Literal["line", "bar"] | None
    grid: bool
    legend: bool | None
    title: str | None
    plot: int | None


def require_drawn(form: str, drawn: Drawn) -> None:
    """Raises `UsageError` for what was chosen of a picture where there will be none."""
    if drawn.plot is not None and form == "html":
        raise UsageError("--plot chooses one picture, and a page has them all", hint="Leave it away")
    told = {"style": drawn.style, "grid": drawn.grid or None, "legend": drawn.legend, "title": drawn.title,
            "plot": drawn.plot}  # fmt: skip
    if form not in PICTURED and (given := [name for name, value in told.items() if value is not None]):
        raise UsageError(
            f"--{given[0]} is for pictures and pages, and --format {form} is text",
            hint="Leave it away, or choose --format png, svg, pdf, ps or html",
        )


def give_picture(made: Report, form: str, drawn: Drawn, output: Path | None) -> None:
    """Write a report as a picture or a page. Raises `UsageError` and `PublisherError`."""
    if output is None and sys.stdout.isatty():
        raise UsageError(f"{form} is no text for a terminal", hint="Name a file with --output")
    content = _page(made, drawn) if form == "html" else _picture(made, cast("Form", form), drawn)
    if output is None:
        picture(content)
        return
    write_output(output, content)


def _page(made: Report, drawn: Drawn) -> bytes:
    from publisher.page.html import Choice, report_file  # noqa: PLC0415

    measure: Literal["queue", "cpu"] = "cpu" if made.facts.get("measure") == "cpu" else "queue"
    choice = Choice(style=drawn.style or "line", measure=measure, grid=drawn.grid, legend=drawn.legend is not False)
    titled = made if drawn.title is None else msgspec.structs.replace(made, title=drawn.title)
    return report_file(titled, choice)


def _picture(made: Report, form: Form, drawn: Drawn) -> bytes:
    from publisher.report.plot.draw import draw  # noqa: PLC0415
    from publisher.report.plot.style import Look  # noqa: PLC0415

    if not made.plots:
        if made.nothing:
            raise UsageError("there is nothing to draw", hint="Select other runs, or another interval")
        told = " --by KEY," if made.view in {"totals", "waiting"} else ""
        raise UsageError(f"the view {made.view} has no picture as asked", hint=f"Add{told} or choose another --format")
    number = 1 if drawn.plot is None else drawn.plot
    if not 1 <= number <= len(made.plots):
        raise UsageError(f"--plot: there are {len(made.plots)}: {'; '.join(plot.title for plot in made.plots)}")
    plot = made.plots[number - 1]
    legend = len(plot.series) > 1 or plot.style == "heat" if drawn.legend is None else drawn.legend
    look = Look(style=drawn.style, grid=drawn.grid, legend=legend, title=drawn.title, note=made.site)
    return draw(plot, made.stop, look, form, start=made.start, say=say)
