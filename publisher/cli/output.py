"""Printing: data on standard output, messages on standard error, nothing from outside that a terminal would obey."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from publisher.cli.streams import is_utf8
from publisher.errors import OutputError
from publisher.text import counted, safe
from publisher.whole_file import write_whole

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "OutputClosedError", "before_output", "counted", "data", "draw", "exact", "flush",
    "json_object", "level_text", "make_table", "picture", "safe", "say", "show",
    "write_output",
]  # fmt: skip

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7e]")
_watchers: list[Callable[[], None]] = []


def before_output(clear: Callable[[], None]) -> None:
    """Have this called before anything is printed: progress that stands on a terminal's line makes room."""
    _watchers.append(clear)


def _make_room() -> None:
    for clear in _watchers:
        clear()


def say(*lines: str) -> None:
    """A message for people, on standard error: each argument is one line, whatever it holds."""
    _make_room()
    try:
        for line in lines:
            print(safe(line), file=sys.stderr)
    except OSError:
        _discard(sys.stderr)  # nobody can be told, and what is at work goes on


def draw(text: str) -> None:
    """Draw on the line of the terminal that standard error is."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


class OutputClosedError(Exception):
    """Nobody reads our standard output any more; what is on its way to it is thrown away from now on."""


@contextmanager
def _to_reader() -> Iterator[None]:
    """Raises `OutputClosedError` where the reader has gone, and `OutputError` where output cannot be written.

    What is on its way to it is thrown away from then on.
    """
    try:
        yield
    except BrokenPipeError:
        _discard(sys.stdout)
        raise OutputClosedError from None
    except OSError as error:
        _discard(sys.stdout)
        hint = "Free space on the device, or send the output elsewhere"
        raise OutputError(f"standard output cannot be written: {error.strerror}", hint=hint) from error


def _discard(stream: TextIO) -> None:
    """Throw away what the stream still holds, and what is written to it from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def data(text: str) -> None:
    """Text for people, on standard output. Raises `OutputClosedError` and `OutputError`."""
    _print(_harmless(text) if sys.stdout.isatty() else text)


def exact(content: str | bytes) -> None:
    """Data for programs, on standard output: to the byte, text in UTF-8 whatever the locale; harmless on a terminal.

    Raises `OutputClosedError` and `OutputError`.
    """
    encoded = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    if sys.stdout.isatty():
        data(encoded.decode("utf-8", "backslashreplace"))
        return
    _make_room()
    with _to_reader():
        sys.stdout.flush()
        sys.stdout.buffer.write(encoded if encoded.endswith(b"\n") else encoded + b"\n")


def picture(content: bytes) -> None:
    """Bytes that are no text, on standard output. Raises `OutputClosedError` and `OutputError`."""
    with _to_reader():
        sys.stdout.flush()
        sys.stdout.buffer.write(content)


def flush() -> None:
    """Send out what was printed. Raises `OutputClosedError` and `OutputError`."""
    with _to_reader():
        sys.stdout.flush()


def json_object(value: Any) -> None:
    """One JSON object on standard output: in UTF-8, or with escapes where the stream has another encoding.

    On a terminal what it would obey is escaped. Raises `OutputClosedError` and `OutputError`.
    """
    encoded = msgspec.json.encode(value, enc_hook=str)
    text = msgspec.json.format(encoded, indent=2).decode("utf-8", "backslashreplace")
    if not is_utf8():
        text = _NOT_ASCII.sub(_escaped, text)
    elif sys.stdout.isatty():
        text = _NOT_ASCII.sub(lambda found: found[0] if safe(found[0]) == found[0] else _escaped(found), text)
    _print(text)


def write_output(path: Path, content: bytes) -> None:
    """Write the file of `--output`, whole or not at all. Raises `OutputError`."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}", hint="Name another file") from error


def _print(text: str) -> None:
    _make_room()
    with _to_reader():
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _harmless(text: str) -> str:
    return "\n".join(safe(line) for line in text.replace("\r\n", "\n").split("\n"))


def _escaped(found: re.Match[str]) -> str:
    """A character in a JSON string as escapes, in UTF-16 (RFC 8259, 7)."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def make_table(title: str, columns: list[str], rows: list[list[object]], *, right: set[str] = frozenset()) -> Table:  # type: ignore[assignment]
    """See `publisher.cli.table.make_table`."""
    from publisher.cli import table  # noqa: PLC0415 - rich, which only commands that draw a table need

    return table.make_table(title, columns, rows, right=right)


def show(table: Table) -> None:
    """A table on standard output; on something that is no terminal it is wide rather than folded.

    Where its columns would be too narrow to read, each row is a paragraph instead.

    Raises `OutputClosedError` and `OutputError`.
    """
    from publisher.cli.table import drawn  # noqa: PLC0415 - as above

    _print(drawn(table))


def level_text(level: str, text: str) -> Text:
    """Text in the colour of a level: green, yellow or red."""
    from publisher.cli import table  # noqa: PLC0415 - as above

    return table.level_text(level, text)
