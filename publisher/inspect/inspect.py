"""Inspects every message of files, folders, or standard input; each file is read up to a limit."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from formats.base import Violation
from formats.check.message import Inspection, inspect_message
from formats.xml.read import MAX_BYTES
from publisher.errors import UsageError
from publisher.inspect.unwrap import DecryptionKeys, MessageLayer, unwrap
from publisher.plugins import formats_that_inspect


def contents(paths: Sequence[Path]) -> Iterator[tuple[str, bytes | str]]:
    """Label and content of each file; if it cannot be read, the reason (text) instead of the content.

    `-` is standard input. In a folder all regular files are read, in order of their names, without following links. At
    most one byte more than the limit is read. Raises `UsageError` for a path that does not exist, before anything is
    read.
    """
    for path in paths:
        if str(path) != "-" and not os.path.lexists(path):
            raise UsageError(f"{path} does not exist", hint="Name files, folders, or - for standard input")
    for path in paths:
        if str(path) == "-":
            yield "standard input", sys.stdin.buffer.read(MAX_BYTES + 1)
        elif path.is_dir():
            for folder, folders, names in os.walk(path):
                folders.sort()
                for name in sorted(names):
                    file = Path(folder) / name
                    if not file.is_symlink():
                        yield str(file), _content(file)
        else:
            yield str(path), _content(path)


def _content(file: Path) -> bytes | str:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return "not a regular file"
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


class Inspected(msgspec.Struct, frozen=True):
    """A message: its place, the layers around it, and its inspection."""

    label: str
    layers: tuple[MessageLayer, ...]
    inspection: Inspection


def inspect_files(paths: Sequence[Path], keys: DecryptionKeys, now: int) -> Iterator[Inspected]:
    """The messages of these files, folders, or standard input (`-`).

    `now`: epoch seconds, for rules that depend on the clock. Raises `UsageError` for a path that does not exist; the
    content of a file raises nothing.
    """
    for label, content in contents(paths):
        if isinstance(content, str):
            yield Inspected(label, (), _nothing(content))
        else:
            yield from inspect_content(label, content, keys, now)


def inspect_content(label: str, content: bytes, keys: DecryptionKeys, now: int) -> Iterator[Inspected]:
    """The messages in these bytes."""
    added = formats_that_inspect()
    for unwrapped in unwrap(label, content, keys, now):
        if unwrapped.payload is None:
            title = "a message that could not be opened" if unwrapped.violations else "no messages"
            inspection = Inspection("", title, "", (), unwrapped.violations)
        else:
            inspection = inspect_message(unwrapped.payload, now, added)
            if unwrapped.violations:
                violations = (*unwrapped.violations, *inspection.violations)
                inspection = msgspec.structs.replace(inspection, violations=violations)
        yield Inspected(unwrapped.label, unwrapped.layers, inspection)


def _nothing(reason: str) -> Inspection:
    return Inspection("", "a file that could not be read", "", (), (Violation("error", 0, "", reason, ""),))
