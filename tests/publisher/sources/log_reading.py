"""Reading a log as the store sees it: runs by record id, the last version of each, finished ones never undone."""

from __future__ import annotations

import json
import random
import re
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from formats.identity import decode, encode
from formats.job import Job
from publisher.sources.base import Line, Outcome, Recovered, Source, Unreadable, UnreadableLine
from publisher.sources.logs.line_parser import LineHolder, LineParser


class Seen(msgspec.Struct):
    """What was read so far."""

    jobs: dict[str, Job] = {}
    unreadable: list[Unreadable] = []
    suspects: dict[str, Job] = {}
    recovered: list[Recovered] = []
    cursor: dict[str, Any] = {}
    at_end: bool = False

    def suspect(self, line: UnreadableLine) -> None:
        if line.suspect is not None:
            self.suspects[line.suspect.record_id] = line.suspect

    def add(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            before = self.jobs.get(job.record_id)
            if before is None or job.finished or not before.finished:
                self.jobs[job.record_id] = job


def read_on(source: Source, seen: Seen) -> Seen:
    """Read to the present end, from a cursor that was stored as JSON."""
    for page in source.pages(json.loads(json.dumps(seen.cursor))):
        seen.add(page.jobs)
        seen.unreadable += page.unreadable
        seen.recovered += page.recovered
        seen.cursor = dict(page.cursor)
        seen.at_end = page.at_end
    return seen


class _NamedJob(Job, frozen=True, array_like=False, gc=False):
    """A run as golden files have it: its facts by their names."""


def golden_jobs(golden: Path) -> list[Job]:
    """The runs of a golden file."""
    found = msgspec.json.decode(golden.read_bytes(), type=list[_NamedJob])
    return [Job(*msgspec.structs.astuple(job)) for job in found]


def compare(golden: Path, jobs: Sequence[Job], *, rewrite: bool) -> None:
    """Compare runs, in the order of the log, with the golden file."""
    text = msgspec.json.format(msgspec.json.encode([job.known() for job in jobs]), indent=1).decode() + "\n"
    if rewrite:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def parse_all(parser: LineParser, lines: Sequence[bytes]) -> tuple[Seen, list[int]]:
    """What a parser makes of lines, and the indices of those it refuses."""
    seen, refused = Seen(), []

    def take(index: int, outcome: Outcome | list[Outcome]) -> None:
        for each in outcome if isinstance(outcome, list) else [outcome]:
            if isinstance(each, Job):
                seen.add([each])
            elif isinstance(each, UnreadableLine):
                assert each.reason
                seen.suspect(each)
                refused.append(index - each.back)
            else:
                assert isinstance(each, Line)

    for index, line in enumerate(lines):
        take(index, parser.parse(line))
    if isinstance(parser, LineHolder):
        take(len(lines), parser.release())
    return seen, refused


def fuzz(parser: LineParser, lines: Sequence[bytes], rounds: int) -> int:
    """Feed mutated lines: no exception, no memory that grows, and every run can be stored. Gives the number of runs."""
    runs = sum(fed(parser, raw) for raw in mutated(lines, rounds))
    released = parser.release() if isinstance(parser, LineHolder) else []
    return runs + sum(map(_is_run, released))


def _is_run(outcome: Outcome) -> bool:
    return isinstance(outcome, Job) or (isinstance(outcome, UnreadableLine) and outcome.suspect is not None)


def fuzz_records(parser: LineParser, records: Sequence[bytes], rounds: int) -> int:
    """As `fuzz`, with records of several lines, each of which is changed and then fed line by line."""
    chance = random.Random(20261121)
    runs = 0
    for _ in watched(rounds):
        runs += sum(fed(parser, raw) for raw in changed(records, chance).split(b"\n"))
    return runs


def fed(parser: LineParser, raw: bytes) -> int:
    """How many runs a line gives; each can be stored."""
    outcome = parser.parse(raw)
    if isinstance(outcome, Line | UnreadableLine):
        return 0
    found = outcome if isinstance(outcome, list) else [outcome]
    for run in found:
        if isinstance(run, Job):
            assert decode(encode(run)) == run
    return sum(map(_is_run, found))


_SPICE = (
    *(b";", b"=", b" ", b'"', b"'", b"+", b"/", b"*", b"-", b"\xff", b"\0", b"9" * 20, b"[", b"]", b"\r", b":", b""),
)
_GROWTH_BYTES = 64 << 20
"""What a parser may come to need between the first tenth of the rounds, when its caches are full, and the last."""


JSON_VALUE: Final = re.compile(rb'(?<=":) ?(?:"[^"]*"|[\w.+-]+|\{\}|\[\])')
_ODD: Final = (
    *(b"null", b"true", b"-1", b"0", b"1e999", b"1e308", b"0.5", b"9" * 30, b'""', b'"x"', b"[]", b"{}", b"[{}]"),
    *(b'{"set": true, "infinite": true, "number": 0}', b'"\\ud800"', b'"1_[0,5]"', b"[null]", b'"' + b"7" * 400 + b'"'),
)


def mutated(lines: Sequence[bytes], rounds: int) -> Iterator[bytes]:
    """A number of lines, each one of these with up to four changes. Watches the memory of the process meanwhile."""
    chance = random.Random(20261121)
    for _ in watched(rounds):
        yield changed(lines, chance).replace(b"\n", b" ")


def changed(pieces: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the pieces with one to four changes: bytes put in, taken out, repeated, or taken from another piece."""
    piece = bytearray(chance.choice(pieces))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(piece) + 1)
        to = min(len(piece), at + chance.choice((0, 1, 1, 2, 30)))
        kind = chance.randrange(4)
        if kind == 0:
            piece[at:to] = chance.choice(_SPICE)
        elif kind == 1:
            piece[at:to] = bytes([chance.randrange(256)])
        elif kind == 2:
            piece[at:at] = piece[to : to + 40]
        else:
            other = chance.choice(pieces)
            begin = chance.randrange(len(other))
            piece[at:to] = other[begin : begin + chance.randrange(60)]
    return bytes(piece)


def odd_value(pieces: Sequence[bytes], chance: random.Random, values: re.Pattern[bytes] = JSON_VALUE) -> bytes:
    """One of the pieces with one of its values another; the piece is as well formed as before."""
    piece = chance.choice(pieces)
    begin, end = chance.choice([match.span() for match in values.finditer(piece)])
    return piece[:begin] + chance.choice(_ODD) + piece[end:]


def watched(rounds: int) -> Iterator[int]:
    """The numbers of the rounds. Fails at the end if the memory of the process has grown meanwhile."""
    settled = 0
    for number in range(rounds):
        if number == rounds // 10:
            settled = _resident_bytes()
        yield number
    assert _resident_bytes() - settled < _GROWTH_BYTES


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
