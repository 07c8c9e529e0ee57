"""What tests of sources with logs and documents share: parsing lines to their end, damage, growth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from formats.job import Job
from publisher.sources.base import Source, UnreadableLine
from publisher.sources.logs.line_parser import EndingParser
from tests.publisher.sources.log_reading import Seen, parse_all, read_on


def parse_to_end(parser: EndingParser, lines: Sequence[bytes]) -> Seen:
    """The results of a parser for lines and the end after them."""
    seen, _ = parse_all(parser, lines)
    for outcome in parser.finish():
        if isinstance(outcome, Job):
            seen.add([outcome])
        else:
            assert isinstance(outcome, UnreadableLine)
            seen.suspect(outcome)
    return seen


def grown(make: Callable[[Path], Source], live: Path, content: bytes, cuts: Sequence[int]) -> Seen:
    """Read a log after each time that it grew."""
    seen = Seen()
    begin = 0
    for cut in [*sorted(cuts), len(content)]:
        with live.open("ab") as stream:
            stream.write(content[begin:cut])
        begin = cut
        read_on(make(live), seen)
    return seen
