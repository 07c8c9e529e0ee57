"""archive: finished runs as Parquet, for reports over years."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from publisher.cli import completion, options
from publisher.cli.output import json_object, say
from publisher.cli.session import session
from publisher.text import counted


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("archive")(archive)


def archive(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the archive.")],
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="MONTH",
            help="First month (inclusive). Default: that of the first job.",
            autocompletion=completion.months,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="MONTH",
            help="Last month (exclusive). Default: the next month.",
            autocompletion=completion.months,
        ),
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Also replace months for which the store has fewer jobs than the archive.")
    ] = False,
) -> None:
    """Write the finished jobs of whole months as Parquet for `report VIEW --archive DIR`. Replaces existing months."""
    start, stop = options.window_bounds(since, until)
    with session.publisher() as publisher:
        written = publisher.archive(directory, start, stop, shrink=shrink)
    refused = {month: one.refused for month, one in written.items() if one.refused is not None}
    say(
        *(
            f"{month}: not replaced; the archive has {counted(written[month].entries, 'job')}, the store only {has:,} "
            "(purged?). --shrink replaces it"
            for month, has in refused.items()
        )
    )
    done = {month: one.entries for month, one in written.items() if month not in refused}
    if session.json:
        json_object({"months": done, "runs": sum(done.values()), "left": refused})
    elif not written:
        say("no job ended in these months; nothing was written")
    else:
        say(*(f"{month}: {counted(runs, 'job')}" for month, runs in done.items()))
