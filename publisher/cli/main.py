"""The command `usage-publisher`: options for all commands, and one table of errors to exit codes."""

from __future__ import annotations

import errno
import gc
import io
import itertools
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer

from publisher.cli import exit_code, signals
from publisher.cli.command_group import CommandGroup, OneValueGroup
from publisher.cli.output import OutputClosedError, data, flush, json_object, prepare_streams, say, unwritten
from publisher.cli.session import session
from publisher.errors import MissingExtraError, OutputError, PublisherError, ResourceLimitError
from publisher.former_names import FORMER, FormerNameWarning, present_arguments

_COMMANDS: Final = (
    "init",
    "check",
    "run",
    "collect",
    "publish",
    "republish",
    "render",
    "status",
    "history",
    "jobs",
    "records",
    "reconcile",
    "inspect",
    "report",
    "month",
    "archive",
    "serve",
    "shadow",
    "import",
    "demo",
    "store",
)
"""In the order of `--help`."""


class _Root(OneValueGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as click has it
        return [name for name in _COMMANDS if name in self.commands]


def _show_version(given: bool) -> None:
    if given:
        from importlib.metadata import version as version_of  # noqa: PLC0415

        data(f"usage-publisher {version_of('usage-publisher')}")
        raise typer.Exit


def options(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration. Default: $USAGE_PUBLISHER_CONFIG, else in /etc.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every step.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print problems only.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options for all commands, given before or after the command."""
    session.config = config
    session.json = json
    session.verbose = verbose
    session.quiet = quiet


_HELP: Final = (
    "Reads finished jobs from the site's batch systems, sends usage records to accounting services, and keeps a ledger "
    "of what was delivered where."
)


def command_line(names: Sequence[str] = _COMMANDS) -> CommandGroup:
    """The program with these of its commands: loading all of them takes longer than most commands work."""
    app = CommandGroup(
        cls=_Root,
        name="usage-publisher",
        help=_HELP,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(options)
    for name in names:
        import_module(f"publisher.cli.{name}_cmd").register(app)
    return app


def _named(arguments: Sequence[str]) -> Sequence[str]:
    """The command that is called, if it can be seen before the options are understood; else all."""
    words = iter(arguments)
    for word in words:
        if word == "--config":
            next(words, None)
        elif not word.startswith("-"):
            return (word,) if word in _COMMANDS else _COMMANDS
    return _COMMANDS


_ANYWHERE: Final = frozenset({"--json", "--verbose", "-v", "--quiet", "-q"})


def in_front(arguments: list[str]) -> list[str]:
    """The arguments with the options for all commands moved before the command."""
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


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,  # noqa: ARG001 - as Python calls it
) -> None:  # fmt: skip
    """Show a warning as Python does; that of a former name as one message."""
    if issubclass(category, FormerNameWarning):
        say(f"usage-publisher: {message}")
    else:
        say(*warnings.formatwarning(message, category, filename, lineno, line).splitlines())


def main() -> None:
    """The entry point. Every error is one message and an exit code; a closed pipe is not an error."""
    os.umask(0o077)
    prepare_streams()
    warnings.showwarning = show_warning
    code = _code_of(present_arguments(in_front(sys.argv[1:]), FORMER))
    if "duckdb" not in sys.modules:  # its objects must be freed before Python 3.14 ends, or that ends with an abort
        gc.freeze()  # else everything is searched for cycles once more: a third of the time of `status`
    sys.exit(code)


_CommandLineError: Final[type[Any]] = typer.BadParameter.__mro__[2]
"""What a wrong command line raises: click's class, or that of the copy of click in typer."""
_INTERRUPTED: Final = exit_code.INTERRUPTED
_INTERRUPTED_MESSAGE: Final = "usage-publisher: interrupted"
_DEVICE_ERRORS: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT})
_VALIDATION_PREFIX: Final = "Value error, "
"""What pydantic puts before the messages of our own types."""


def _code_of(arguments: list[str]) -> int:
    """Run the command line; its exit code. With `--json` one object is printed whatever the exit code."""
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
        say(_INTERRUPTED_MESSAGE)
        return _INTERRUPTED
    return code


def _done(arguments: list[str]) -> int:
    """Run the command line; its exit code. Raises `OutputClosedError` and KeyboardInterrupt."""
    try:
        try:
            program = command_line(_named(arguments))
            code = int(program(arguments, prog_name="usage-publisher", standalone_mode=False) or exit_code.DONE)
        except OSError as error:
            flush()  # raises if it was standard output to which typer could not write its help
            if error.filename is None and error.errno in _DEVICE_ERRORS:  # a long help, of which a part was discarded
                raise unwritten(error) from error
            raise
        if code == _INTERRUPTED:  # so typer ends on KeyboardInterrupt
            say(_INTERRUPTED_MESSAGE)
        return code  # noqa: TRY300 - say may raise
    except PublisherError as caught:
        failure = ResourceLimitError.instead_of(caught)
        message = [f"usage-publisher: {line}" for line in failure.lines]
        return _failed(arguments, "\n".join(failure.lines), message, failure.exit_code)
    except _CommandLineError as wrong:
        shown = io.StringIO()
        wrong.show(shown)
        error_text, lines = (
            text.replace(_VALIDATION_PREFIX, "") for text in (wrong.format_message(), shown.getvalue())
        )
        return _failed(arguments, error_text, lines.splitlines(), exit_code.USAGE)
    except typer.Abort as aborted:
        interrupted = isinstance(aborted.__context__, KeyboardInterrupt)  # Ctrl-C at a question
        why, code = ("interrupted", _INTERRUPTED) if interrupted else ("not confirmed", exit_code.USAGE)
        return _failed(arguments, why, [f"usage-publisher: {why}; nothing was done"], code)
    except SystemExit as ended:  # how typer ends when nobody reads the help text
        if isinstance(ended.__context__, BrokenPipeError):
            raise OutputClosedError from None
        raise
    except OutputClosedError:
        raise
    except Exception as error:  # noqa: BLE001 - a message for people whatever happens, never a bare traceback
        missing = MissingExtraError.of(error) if isinstance(error, ImportError) else None
        known = missing or ResourceLimitError.of(error)
        if known is not None:
            return _failed(arguments, str(known), [f"usage-publisher: {known}"], known.exit_code)
        return _internal_error(arguments, error)


def _internal_error(arguments: list[str], error: Exception) -> int:
    """Report an error that is a fault of the program: where it happened, and where to report it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"
    text = f"internal error: {type(error).__name__}: {error} ({place})"
    lines = [
        f"usage-publisher: {text}",
        "This is a fault of the program. Report it as CONTRIBUTING.md says; --verbose adds the traceback.",
    ]
    if session.verbose:
        lines += "".join(traceback.format_exception(error)).splitlines()
    return _failed(arguments, text, lines, exit_code.INTERNAL)


def _failed(arguments: list[str], error: str, message: list[str], code: int) -> int:
    if "--json" in itertools.takewhile(lambda word: word != "--", arguments):
        json_object({"error": error, "exit_code": code})
    say(*message)
    return code
