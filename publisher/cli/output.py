"""Printing: data on standard output, messages on standard error; control characters from outside are escaped."""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TextIO, get_args, get_type_hints

import msgspec

from publisher.errors import OutputError, UsageError
from publisher.text import Instant, iso, safe
from publisher.whole_file import write_whole

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7e]")
_watchers: list[Callable[[], None]] = []


def before_output(clear: Callable[[], None]) -> None:
    """Call `clear` before anything is printed, to clear the progress on the line of the terminal."""
    _watchers.append(clear)


def _make_room() -> None:
    for clear in _watchers:
        clear()


def say(*lines: str) -> None:
    """Print a message on standard error: each argument is one line; line breaks in it are escaped."""
    _make_room()
    try:
        for line in lines:
            print(safe(line), file=sys.stderr)
    except OSError:
        _discard(sys.stderr)  # nobody reads messages; the command goes on


def draw(text: str) -> None:
    """Draw on the line of the terminal that standard error is."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


class OutputClosedError(Exception):
    """The reader of standard output has gone; what is written to it from now on is discarded."""


@contextmanager
def _to_reader() -> Iterator[None]:
    """Raises `OutputClosedError` where the reader has gone, and `OutputError` where output cannot be written.

    What is written to it from then on is discarded.
    """
    try:
        yield
    except BrokenPipeError:
        _discard(sys.stdout)
        raise OutputClosedError from None
    except OSError as error:
        _discard(sys.stdout)
        raise unwritten(error) from error


def unwritten(error: OSError) -> OutputError:
    """That standard output cannot be written."""
    hint = "Free space on the device, or send the output elsewhere"
    return OutputError(f"standard output cannot be written: {error.strerror}", hint=hint)


def _discard(stream: TextIO) -> None:
    """Discard what the stream still holds, and what is written to it from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def prepare_streams() -> None:
    """Make any text printable in any locale, and open /dev/null in place of closed streams."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False))
        else:
            stream.reconfigure(errors="backslashreplace")


def data(text: str) -> None:
    """Text for people, on standard output. Raises `OutputClosedError` and `OutputError`."""
    print_text(_harmless(text) if sys.stdout.isatty() else text)


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
    """Bytes of a picture, on standard output. Raises `OutputClosedError` and `OutputError`."""
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
    print_text(text)


def result_json(result: msgspec.Struct, *omitted: str) -> dict[str, Any]:
    """The fields of a result as `--json` gives them: by their encoded names, instants as text. Without the omitted."""
    instants = _instants_of(type(result))
    return {
        key: _instant_json(value) if name in instants else value
        for (name, value), key in zip(
            msgspec.structs.asdict(result).items(), result.__struct_encode_fields__, strict=True
        )
        if name not in omitted
    }


def _instant_json(value: Any) -> Any:
    return {name: iso(instant) for name, instant in value.items()} if isinstance(value, dict) else iso(value)


@cache
def _instants_of(result: type[msgspec.Struct]) -> frozenset[str]:
    """The fields that are an instant, or instants by name."""
    hints = get_type_hints(result, include_extras=True)
    return frozenset(name for name, hint in hints.items() if Instant in (hint, *get_args(hint)))


def write_output(path: Path, content: bytes) -> None:
    """Write the file of `--output`, whole or not at all. Raises `OutputError`."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}", hint="Name another file") from error


def require_free(path: Path, *, force: bool) -> None:
    """Raise `UsageError` if the file exists and `force` is false."""
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} already exists", hint="Edit it, or replace it with --force")


def write_configuration(path: Path, text: str, *, force: bool) -> None:
    """Write a private file, completely or not at all. Raises `UsageError` if it exists or cannot be written.

    In a folder that gives its group to new files (set-group-ID, as the packages make it), that group may read the file:
    root writes the configuration, and the service has another user.
    """
    require_free(path, force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_of_group = path.parent.stat().st_mode & stat.S_ISGID
        write_whole(path, text.encode(), mode=0o640 if is_of_group else None)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def is_utf8() -> bool:
    """Whether standard output is UTF-8."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name in {"utf-8", "utf-8-sig"}


def encodable(text: str) -> str:
    """Text as standard output can have it: letters that its encoding lacks are spelled out."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def print_text(text: str) -> None:
    """Print text that is already harmless. Raises `OutputClosedError` and `OutputError`."""
    _make_room()
    with _to_reader():
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _harmless(text: str) -> str:
    return "\n".join(safe(line) for line in text.replace("\r\n", "\n").split("\n"))


def _escaped(found: re.Match[str]) -> str:
    """A character in a JSON string as escapes, in UTF-16 (RFC 8259, 7)."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
