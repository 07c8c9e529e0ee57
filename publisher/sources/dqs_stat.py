"""DQS' stat_file: samples of the queues, for reports of queues in use. It has nothing about single jobs.

One line for each queue at every interval (ten minutes by default), eight fields between colons. (DQS accounting manual,
"Statistics".)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from publisher.sources.base import Unreadable
from publisher.sources.logs.reader import LineBlock, LogReader
from publisher.sources.logs.sniff import KINDS, looks_like

STATES: Final = {
    "a": "alarm", "c": "suspended on complex", "d": "disabled", "e": "enabled", "h": "held", "m": "migrating",
    "q": "queued", "r": "running", "s": "suspended", "t": "in transit", "u": "unknown", "w": "waiting", "x": "exiting",
}  # fmt: skip
"""Letters of a queue's states and what they mean."""

_HINT: Final = "Give the stat_file of DQS, which has samples of its queues in eight fields between colons"
_FIELDS: Final = 8
_MOST_DIGITS: Final = 15


class StatError(ValueError):
    """A line is not a line of a stat_file; the message is the reason."""


class QueueSample(msgspec.Struct, frozen=True):
    """The state of a kind of queue at an instant: `at` epoch seconds UTC, `queues` of this name, `active` ones with
    jobs.

    `load` is the load average as the file has it, a whole number of undocumented scale.
    """

    at: int
    host: str
    queue: str
    load: int
    queues: int
    active: int
    complexes: tuple[str, ...]
    states: frozenset[str]


def parse_sample(line: bytes) -> QueueSample:
    """A line of the stat_file without its line feed. Raises `StatError`."""
    fields = line.decode(errors="backslashreplace").rstrip("\r").split(":")
    if len(fields) != _FIELDS:
        raise StatError(f"a line of a stat_file has {_FIELDS} fields, this one has {len(fields)}")
    at, load, queues, active = (_count(fields, place) for place in (0, 3, 4, 5))
    unknown = set(fields[7]) - set(STATES)
    if unknown:
        raise StatError("field 8 has letters that are not states of a queue")
    if active > queues:
        raise StatError("the number of active queues is larger than the number of queues")
    complexes = tuple(part.strip() for part in fields[6].split(",") if part.strip())
    return QueueSample(at, fields[1], fields[2], load, queues, active, complexes, frozenset(fields[7]))


def read_samples(path: Path) -> Iterator[QueueSample | Unreadable]:
    """The samples of a stat_file and its rotated copies in the order of writing; for other lines the reason.

    Raises `SourceError`s, at the end, for files that could not be read to their end or have no sample in all of their
    first lines.
    """
    reading = LogReader(path).read({})
    for chunk in reading:
        samples = list(_found(chunk))
        if chunk.line == 1 and samples and all(isinstance(sample, Unreadable) for sample in samples):
            kind = looks_like(chunk.lines[:50])
            seems = (
                f"this looks like {KINDS[kind]}" if kind not in {None, "dqs-stat"} else "this is not a stat_file of DQS"
            )
            reading.refuse(f"{chunk.file}: {seems}, and no line of it is a sample", _HINT)
            continue
        yield from chunk.set_aside
        yield from samples
    if reading.problems:
        raise reading.problems[0]


def _found(chunk: LineBlock) -> Iterator[QueueSample | Unreadable]:
    for index, line in enumerate(chunk.lines):
        if line.strip():
            try:
                yield parse_sample(line)
            except StatError as error:
                yield chunk.unreadable(index, str(error))


def _count(fields: list[str], place: int) -> int:
    digits = fields[place]
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
        raise StatError(f"field {place + 1} should be a whole number that is not negative")
    return int(digits)
