"""statements: what everybody owes for a month, as documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from formats.calendar import month_bounds, month_of
from publisher.cli import when
from publisher.cli.output import counted, json_object, say
from publisher.cli.session import session

if TYPE_CHECKING:
    from publisher.report.views.statements import Kind


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("statements")(statements)


def statements(
    month: Annotated[str, typer.Argument(metavar="MONTH", help="Of which month: 2026-11.")],
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Written to DIR/MONTH.")],
    form: Annotated[
        Literal["all", "text", "html", "pdf"], typer.Option("--format", help="In which form; all of them.")
    ] = "all",
    by: Annotated[
        str, typer.Option("--by", metavar="KEY", help="Whose: owner, group, project, account, vo. Default: configured.")
    ] = "",
    archive: Annotated[
        Path | None, typer.Option("--archive", metavar="DIR", help="Read runs from an archive, not from the store.")
    ] = None,
) -> None:
    """Write the statement of every user or project for a month: its items, adjustments and total."""
    from publisher.report.request import ReportRequest  # noqa: PLC0415
    from publisher.report.views.charges import notes_on  # noqa: PLC0415
    from publisher.report.views.statements import SUFFIXES  # noqa: PLC0415

    start, stop = month_bounds(month_of(when.moment(month, "MONTH") or 0))
    kinds: tuple[Kind, ...] = tuple(SUFFIXES) if form == "all" else (form,)
    request = ReportRequest(start=start, stop=stop, by=(by,) if by else (), archive=archive)
    with session.publisher() as publisher:
        made, files = publisher.statements(request, output, kinds)
    said = [text for text in (made.nothing, made.purged) if text]
    say(*said, *notes_on(made))
    totals = {statement.payer: str(statement.total) for statement in made.all}
    if session.json:
        json_object(
            {"month": made.month, "currency": made.currency, "totals": totals, "files": [str(file) for file in files]}
        )
    else:
        say(*(f"{payer}: {total} {made.currency}" for payer, total in totals.items()))
        say(f"{counted(len(files), 'file')} written to {output / made.month}" if files else "nothing was written")
