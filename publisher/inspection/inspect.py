"""Inspecting: every message of the files named, one answer each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from formats.inspection import Inspection, inspect_message
from formats.violation import Violation
from publisher.inspection.files import contents
from publisher.inspection.keys import Keys
from publisher.inspection.unwrap import Layer, unwrap


class Inspected(msgspec.Struct, frozen=True):
    """A message: where it was, what it was wrapped in, and what it is."""

    label: str
    layers: tuple[Layer, ...]
    inspection: Inspection


def inspect_files(paths: Sequence[Path], keys: Keys, now: int) -> Iterator[Inspected]:
    """The messages of these files, folders, or standard input (`-`). `now`: epoch seconds, for rules of the clock.

    Raises `UsageError` for a path where there is nothing; whatever a file holds raises nothing.
    """
    for label, content in contents(paths):
        if isinstance(content, str):
            yield Inspected(label, (), _nothing(content))
        else:
            yield from inspect_content(label, content, keys, now)


def inspect_content(label: str, content: bytes, keys: Keys, now: int) -> Iterator[Inspected]:
    """The messages in these bytes."""
    for unwrapped in unwrap(label, content, keys, now):
        if unwrapped.payload is None:
            title = "a message that could not be opened" if unwrapped.violations else "no messages"
            inspection = Inspection("", title, "", (), unwrapped.violations)
        else:
            inspection = inspect_message(unwrapped.payload, now)
            if unwrapped.violations:
                violations = (*unwrapped.violations, *inspection.violations)
                inspection = msgspec.structs.replace(inspection, violations=violations)
        yield Inspected(unwrapped.label, unwrapped.layers, inspection)


def _nothing(reason: str) -> Inspection:
    return Inspection("", "a file that could not be read", "", (), (Violation("error", 0, "", reason, ""),))
