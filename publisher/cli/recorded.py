"""A command that changes what is stored or delivered, in the history of its store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from publisher.cli import exit_code
from publisher.cli.output import OutputClosedError, say
from publisher.errors import PublisherError, StoreError

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.collect.meters import MeterResult
    from publisher.recording import Recording


@contextmanager
def recorded(publisher: Publisher, command: str) -> Iterator[Recording]:
    """Record the command in its block, with its exit code and its error.

    If the end cannot be written, this is said, and the exit code stays: what was done is in the ledger.
    """
    recording = publisher.history.begin(command)
    code, error = exit_code.INTERNAL, None
    try:
        yield recording
        code = recording.exit_code or exit_code.DONE
    except typer.Exit as ended:
        code = ended.exit_code
        raise
    except OutputClosedError:
        code = exit_code.DONE
        raise
    except (KeyboardInterrupt, typer.Abort):
        code = exit_code.INTERRUPTED
        raise
    except PublisherError as caught:
        code, error = caught.exit_code, str(caught)
        raise
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
        raise
    finally:
        _end(publisher, recording, code, error)


def _end(publisher: Publisher, recording: Recording, code: int, error: str | None) -> None:
    try:
        publisher.history.end(recording, code, error)
    except StoreError as problem:
        say(f"usage-publisher: the end of this run is missing in the history: {problem}")


def noted(
    recording: Recording, contexts: Mapping[str, str], measured: Mapping[str, MeterResult] | None = None
) -> list[str]:
    """Record what went wrong beside sources and targets, and return it: spooling contexts that cannot be written, by
    name, and meters that cannot be read."""
    problems = [f"spool.{name}: {why}" for name, why in contexts.items()]
    problems += [item.error for item in (measured or {}).values() if item.error is not None]
    recording.done = {**recording.done, "problems": problems}
    return problems
