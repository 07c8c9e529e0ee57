"""The command `usage-publisher`: options for all commands, and one table of errors to exit codes."""

from __future__ import annotations

import io
import itertools
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from publisher.cli import (
    archive_cmd,
    audit_cmd,
    check_cmd,
    collect_cmd,
    decisions_cmd,
    demo_cmd,
    exit_code,
    import_cmd,
    init_cmd,
    inspect_cmd,
    jobs_cmd,
    publish_cmd,
    reconcile_cmd,
    render_cmd,
    report_cmd,
    republish_cmd,
    run_cmd,
    serve_cmd,
    shadow_cmd,
    signals,
    statements_cmd,
    status_cmd,
    store_cmd,
)
from publisher.cli.command_group import CommandGroup
from publisher.cli.output import OutputClosedError, data, flush, json_object, say
from publisher.cli.session import session
from publisher.cli.streams import prepare_streams
from publisher.errors import OutputError, PublisherError

app = CommandGroup(
    name="usage-publisher",
    help="Accounts for finished batch jobs: reads them from the site's batch systems, sends them to accounting "
    "services, and knows of each what became of it.",
    add_completion=True,
    pretty_exceptions_enable=False,
)

for module in (
    init_cmd,
    import_cmd,
    run_cmd,
    collect_cmd,
    publish_cmd,
    republish_cmd,
    shadow_cmd,
    reconcile_cmd,
    render_cmd,
    report_cmd,
    statements_cmd,
    archive_cmd,
    serve_cmd,
    jobs_cmd,
    status_cmd,
    decisions_cmd,
    check_cmd,
    audit_cmd,
    inspect_cmd,
    store_cmd,
    demo_cmd,
):
    module.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version as version_of  # noqa: PLC0415

        data(f"usage-publisher {version_of('usage-publisher')}")
        raise typer.Exit


@app.callback()
def options(
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Configuration. Default: $USAGE_PUBLISHER_CONFIG, then /etc."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell every step.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Tell only trouble.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Options for all commands; they may also stand behind the command."""
    session.config = config
    session.json = json
    session.verbose = verbose
    session.quiet = quiet


_ANYWHERE: Final = frozenset({"--json", "--verbose", "-v", "--quiet", "-q"})


def in_front(arguments: list[str]) -> list[str]:
    """The arguments with the options for all commands before the command, wherever they stood."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _ANYWHERE or word.startswith("--config="):
            front.append(word)
        elif word == "--config":
            front += [word, *([following] if (following := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return front + rest


def main() -> None:
    """The entry point. Every error of ours is one message and its exit code; a closed pipe is no error."""
    os.umask(0o077)
    prepare_streams()
    sys.exit(_code_of(in_front(sys.argv[1:])))


_CommandLineError: Final[type[Any]] = typer.BadParameter.__mro__[2]
"""What a wrong command line raises: click's class, or typer's own where typer has click inside."""
_INTERRUPTED: Final = 130
_OF_A_TYPE: Final = "Value error, "
"""What is put before the messages of our own types."""


def _code_of(arguments: list[str]) -> int:
    """Do what the command line says; its exit code. With `--json` there is an object whatever that is."""
    code = exit_code.DONE
    try:
        signals.interrupt_as_usual()
        code = _done(arguments)
        flush()
    except OutputError as error:
        say(f"usage-publisher: {error}")
        return code if code == exit_code.STORE else error.exit_code
    except OutputClosedError:
        return exit_code.DONE
    except KeyboardInterrupt:
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        say("usage-publisher: interrupted")
    return code


def _done(arguments: list[str]) -> int:
    """Do what the command line says; its exit code. Raises `OutputClosedError` and KeyboardInterrupt."""
    try:
        try:
            return int(app(arguments, prog_name="usage-publisher", standalone_mode=False) or exit_code.DONE)
        except OSError:
            flush()  # tells whether it is standard output that typer could not write its help to
            raise
    except PublisherError as error:
        return _failed(arguments, str(error), [f"usage-publisher: {error}"], error.exit_code)
    except _CommandLineError as wrong:
        shown = io.StringIO()
        wrong.show(shown)
        said, lines = (text.replace(_OF_A_TYPE, "") for text in (wrong.format_message(), shown.getvalue()))
        return _failed(arguments, said, lines.splitlines(), exit_code.USAGE)
    except typer.Abort:
        return _failed(arguments, "not confirmed", ["usage-publisher: nothing was done"], exit_code.USAGE)
    except SystemExit as left:  # how typer leaves when nobody reads the help text
        if isinstance(left.__context__, BrokenPipeError):
            raise OutputClosedError from None
        raise


def _failed(arguments: list[str], error: str, message: list[str], code: int) -> int:
    if "--json" in itertools.takewhile(lambda word: word != "--", arguments):
        json_object({"error": error, "exit_code": code})
    say(*message)
    return code
