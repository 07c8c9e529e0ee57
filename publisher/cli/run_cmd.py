"""run: collect and publish; what the timer calls, or, with --every, what stays."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Annotated, Final

import typer

from publisher.cli import exit_code, signals, when
from publisher.cli.collect_cmd import collected_json, show_collected, tell_troubles
from publisher.cli.output import OutputClosedError, flush, json_object, say
from publisher.cli.publish_cmd import delivered_json, show_delivered
from publisher.cli.session import session
from publisher.errors import CredentialError, SourceError, StoreError, TargetError

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.pipeline.circuit import Circuits

_LONGEST_BACKOFF: Final = 8
"""When nothing can be done at all the pause between runs grows to at most this many times `--every`."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Stay, and run again after each such time: 1h, 30m.")
    ] = None,
) -> None:
    """Collect from all sources, publish to all targets; then leave or wait for the next time."""
    pause_s = when.seconds(every, "--every") if every is not None else None
    with session.publisher() as publisher:
        if pause_s is None:
            raise typer.Exit(_once(publisher))
        _stay(publisher, pause_s)


def _once(publisher: Publisher, circuits: Circuits | None = None) -> int:
    result = publisher.run(circuits)
    status = publisher.status()
    if result.busy:
        say("another run is collecting")
    tell_troubles(result.sources)
    if session.json:
        json_object({"sources": collected_json(result.sources), "targets": delivered_json(result.targets, status)})
    elif not session.quiet:
        show_collected(result.sources)
        show_delivered(result.targets, status)
    return exit_code.of_run(result.sources.values(), result.targets.values(), status, busy=result.busy)


def _stay(publisher: Publisher, pause_s: float) -> None:
    from publisher.pipeline.circuit import Circuits  # noqa: PLC0415

    circuits = Circuits()
    failures = 0
    while True:
        try:
            _once(publisher, circuits)
            flush()
            failures = 0
        except OutputClosedError:  # who read along has gone; the work goes on
            failures = 0
        except (StoreError, SourceError, TargetError, CredentialError) as error:
            say(f"usage-publisher: {error}")
            failures += 1
        factor = min(2 ** max(0, failures - 1), _LONGEST_BACKOFF)
        if signals.wait(pause_s * factor * (1 + random.random() / 20)):  # noqa: S311 - spreads sites over the hour
            return
