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

_LONGEST_BACKOFF: Final = 8
"""After repeated failure the pause between runs grows to at most this many times `--every`."""


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


def _once(publisher: Publisher) -> int:
    result = publisher.run()
    status = publisher.status()
    if result.busy:
        say("another run is collecting")
    tell_troubles(result.sources)
    if session.json:
        json_object({"sources": collected_json(result.sources), "targets": delivered_json(result.targets, status)})
    elif not session.quiet:
        show_collected(result.sources)
        show_delivered(result.targets, status)
    return exit_code.of_run(result.sources.values(), result.targets.values(), status)


def _stay(publisher: Publisher, pause_s: float) -> None:
    failures = 0
    while True:
        try:
            code = _once(publisher)
            flush()
        except OutputClosedError:  # who read along has gone; the work goes on
            code = exit_code.DONE
        except (StoreError, SourceError, TargetError, CredentialError) as error:
            say(f"usage-publisher: {error}")
            code = error.exit_code
        failures = failures + 1 if code not in {exit_code.DONE, exit_code.REJECTED} else 0
        factor = min(2 ** max(0, failures - 1), _LONGEST_BACKOFF)
        if signals.wait(pause_s * factor * (1 + random.random() / 20)):  # noqa: S311 - spreads sites over the hour
            return
