"""run: collect and publish; what the timer calls, or, with --every, what stays."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Annotated, Final

import typer

from publisher import subprocess_worker
from publisher.cli import exit_code, signals, when
from publisher.cli.collect_cmd import collected_json, show_collected, tell_new_store, tell_troubles
from publisher.cli.output import OutputClosedError, flush, json_object, say
from publisher.cli.publish_cmd import delivered_json, show_delivered
from publisher.cli.session import session
from publisher.errors import (
    ConfigError,
    CredentialError,
    OutputError,
    PublisherError,
    SourceError,
    StoreError,
    TargetError,
    UsageError,
)

if TYPE_CHECKING:
    from publisher.cli.watching import Watch
    from publisher.observe.systemd import ServiceManager
    from publisher.publish.circuit import Circuits

_SHORTEST_PAUSE_S: Final = 1.0
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
    from publisher.observe.systemd import ServiceManager  # noqa: PLC0415

    subprocess_worker.keep_little()
    manager = ServiceManager()
    if every is None:
        with _watch(manager, stays=False) as watch:
            raise typer.Exit(_once(watch))
    _stay(_pause_s(every), manager)


def _pause_s(every: str) -> float:
    """Raises `UsageError` for a pause that would be none."""
    pause_s = when.seconds(every, "--every")
    if pause_s < _SHORTEST_PAUSE_S:
        raise UsageError("--every: the time from one run to the next is at least one second", hint="For example 1h")
    return pause_s


def _watch(manager: ServiceManager, *, stays: bool) -> Watch:
    from publisher.cli.watching import Watch  # noqa: PLC0415

    return Watch(session.publisher(), manager, stays=stays)


def _once(watch: Watch, circuits: Circuits | None = None) -> int:
    publisher = watch.publisher
    watch.begin()
    code = 1
    try:
        result = publisher.run(circuits)
        tell_new_store(publisher)
        status = publisher.status(assumed=False)
        contexts = publisher.context_errors()
        code = exit_code.of_run(result.sources.values(), result.targets, status, busy=result.busy, contexts=contexts)
        if result.busy:
            say("another run is collecting")
        tell_troubles(result.sources)
        if session.json:
            json_object({"sources": collected_json(result.sources), "targets": delivered_json(result.targets, status)})
        elif not session.quiet:
            show_collected(result.sources)
            show_delivered(result.targets, status)
    except PublisherError as error:
        code = error.exit_code
        raise
    finally:
        watch.end(code)
    return code


def _stay(pause_s: float, manager: ServiceManager) -> None:
    signals.watch_for_reload()
    watch = _watch(manager, stays=True)
    try:
        while True:
            manager.ready()
            told = _repeat(watch, pause_s, manager)
            if told == "stop":
                manager.stopping()
                return
            manager.reloading()
            watch = _again(watch, manager)
    finally:
        watch.close()


def _again(watch: Watch, manager: ServiceManager) -> Watch:
    """With the configuration as it is now; with the one before where it cannot be used."""
    try:
        session.publisher().close()
    except ConfigError as error:
        say(f"usage-publisher: {error}", "The configuration before stays in force.")
        return watch
    say("The configuration was read anew.")
    watch.close()  # its port may be wanted again
    return _watch(manager, stays=True)


def _repeat(watch: Watch, pause_s: float, manager: ServiceManager) -> signals.Woken:
    """Run after run, until told to stop or to read the configuration anew."""
    from publisher.publish.circuit import Circuits  # noqa: PLC0415

    circuits = Circuits()
    failures = 0
    while True:
        try:
            code = _once(watch, circuits)
            flush()
            failures = 0
            manager.status(f"last run ended with {code}")
        except OutputClosedError:  # who read along has gone; the work goes on
            failures = 0
        except OutputError as error:  # likewise
            say(f"usage-publisher: {error}")
            failures = 0
        except (StoreError, SourceError, TargetError, CredentialError) as error:
            say(f"usage-publisher: {error}")
            manager.status(str(error))
            failures += 1
        factor = min(2 ** max(0, failures - 1), _LONGEST_BACKOFF)
        seconds = pause_s * factor * (1 + random.random() / 20)  # noqa: S311 - spreads sites over the hour
        told = signals.rest(seconds, manager.alive_every_s, manager.alive)
        if told != "time":
            return told
