"""demo: the whole path from jobs to services, on this machine."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from publisher.cli.output import data, flush
from publisher.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory", metavar="DIR", help="Keep everything in this new folder. Default: a temporary folder."
        ),
    ] = None,
) -> None:
    """Show the whole path on this machine only: certificates, simulated services, jobs, delivery, status."""
    from publisher.demo.play import play, writing  # noqa: PLC0415

    if directory is not None:
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise UsageError(f"{directory} is not empty", hint="Name a new folder, or remove it")
        raise typer.Exit(play(directory.absolute(), _say, kept=True))
    temporary = Path(tempfile.mkdtemp(prefix="usage-publisher-demo-"))
    try:
        code = play(temporary, _say, kept=False)
    finally:
        shutil.rmtree(temporary)
    raise typer.Exit(code)


def _say(text: str) -> None:
    data(text)
    flush()  # the commands that are shown write by themselves, to the same place
