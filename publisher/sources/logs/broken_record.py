"""Records of one line that a line feed in a user's text breaks into several lines.

Batch systems that escape nothing (TORQUE, PBS, DQS, Grid Engine's colon file) write a line feed in a job's name or
account unchanged. The text after it may look like a record of another user, so a user could forge one. Therefore a line
that ends within a user's text is held with all lines that follow in the file, up to the line that is the rest of the
record: one that is not a record itself and ends as one does. All of these lines are then one record. Lines between that
would be records by themselves are held as suspect: most likely the user wrote them, but the first line may also have
been cut off by a full disk, and the last be of another record. If no such line comes, the first line was cut off, or
its end is in a line that is a record by itself: runs up to the last line that may have it are suspect, and the lines
after that are read normally.

Memory is bounded, and so is the number of suspects: at most `MAX_HELD_BYTES` are held. Time is proportional to the
lines: a user can write many that are cut off, and the end of the record of each would be searched in all lines held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.sources.base import Line, Outcome, UnreadableLine

# All lines held are other users' jobs too: with more, one broken line would hold more of them, and make the cursor
# longer.
MAX_HELD_BYTES: Final = 1 << 17
SUSPECT: Final = "this line may be text of a user. Its job is counted nowhere until somebody accepts it"
AFTER_CUT: Final = f"after a record that is cut off in a user's text: {SUSPECT}"

_LOOKS_PER_LINE: Final = 16
"""For each line held, so many lines are looked at in the search for the end of a record that was cut off: enough for as
many damaged records as a full disk makes among the lines held. Beyond it, any line may be the end."""

Parse = Callable[[bytes], Outcome | list[Outcome]]


class RecordJoiner:
    """Holds the lines of a broken record for a parser, and joins them.

    The parser passes to `refused` what its `parse` refuses and, while the joiner `holds`, all lines to `take`. `parse`
    is also called with joined records, including their line feeds. `completes(first, line)` says whether a line can be
    the last of the broken record that begins with the first; `is_rest(line)`, whether a line that is not a record ends
    one that does not begin in it. `run_of`: the finished run of a line by itself, without any effect on the parser.
    `ends_any(line)`: whether a line ends a record, whatever its first line is. `may_end(first, line)`: whether another
    line may have the end of the record that begins with the first; without it, any may, since a user's text may have
    all of a record up to that end. `is_open(first, lines)`: whether that end may be in lines after the first at all.
    `doubt`: see `line_parser.MergingParser`.
    """

    def __init__(
        self,
        parse: Parse,
        completes: Callable[[bytes, bytes], bool],
        is_rest: Callable[[bytes], bool] = lambda _line: False,
        run_of: Callable[[bytes], Job | None] = lambda _line: None,
        ends_any: Callable[[bytes], bool] = lambda _line: False,
        may_end: Callable[[bytes, bytes], bool] = lambda _first, _line: True,
        is_open: Callable[[bytes, Iterator[bytes]], bool] = lambda _first, _lines: True,
        doubt: Callable[[bytes], UnreadableLine | None] = lambda _line: None,
    ) -> None:
        self.holds = False
        self._doubt = doubt
        self._ends_any, self._may_end, self._is_open = ends_any, may_end, is_open
        self._is_rest = is_rest
        self._run_of = run_of
        self._parse = parse
        self._completes = completes
        self._held: deque[bytes] = deque()
        self._bytes = 0
        self._looks_left = 0
        self._suspect_left = 0
        """The index of the last held line that ends any record, or may end one that was given up: lines up to it are
        suspect, since another cut line between may be text of that record too."""
        self._deciding = False

    def refused(self, line: bytes, reason: str, *, cut: bool, whole: bool = False) -> Outcome:
        """The outcome of a line that is not a record. `cut`: it ends within a user's text. `whole`: it has the form of
        a record, so it is not the rest of one."""
        # While the joined lines are decided on, nothing is held anew: a refused record would hold itself for ever.
        if not cut or self._deciding:
            return UnreadableLine(reason, cut=cut, is_rest=not whole and self._is_rest(line))
        self._hold(line)
        self.holds = True
        return Line.IGNORED

    def take(self, line: bytes) -> Outcome | list[Outcome]:
        """Hold another line, or give what it completes."""
        self._hold(line)
        with self._decision():
            return self._completed() or self._too_many() or Line.IGNORED

    def release(self) -> list[Outcome]:
        """See `publisher.sources.logs.line_parser.LineHolder`."""
        with self._decision():
            return self._all_given_up(present=0)

    def give_up(self) -> list[Outcome]:
        """The outcome of the held lines before a line that is too long to be held, and may be the rest of any: all of
        their runs are suspect."""
        self._suspect_left = max(0, len(self._held) - 1)
        return self.release()

    def state(self) -> list[str] | None:
        """The lines that are held, one character for each byte; None: there are none."""
        return [line.decode("latin-1") for line in self._held] or None

    def resume(self, state: Any) -> None:
        """Hold what `state()` gave; anything else counts as nothing."""
        self._clear()
        lines = state if isinstance(state, list) and all(isinstance(line, str) for line in state) else []
        try:
            for line in [line.encode("latin-1") for line in lines]:
                self._hold(line)
        except UnicodeEncodeError:
            self._clear()
        self.holds = bool(self._held)

    def _hold(self, line: bytes) -> None:
        self._held.append(line)
        self._bytes += len(line) + 1
        self._looks_left += _LOOKS_PER_LINE
        if self._ends_any(line):
            self._suspect_left = len(self._held) - 1

    def _clear(self) -> None:
        self._held.clear()
        self._bytes = self._looks_left = self._suspect_left = 0

    @contextmanager
    def _decision(self) -> Iterator[None]:
        """Let the parser refuse lines directly in the meantime."""
        self.holds, self._deciding = False, True
        try:
            yield
        finally:
            self.holds, self._deciding = bool(self._held), False

    def _completed(self) -> list[Outcome]:
        """The outcome of the joined lines, if the last is the rest of the first."""
        if not self._completes(self._held[0], self._held[-1]):
            return []
        count, whole = len(self._held), b"\n".join(self._held)
        outcome = self._parse(whole)
        if type(outcome) is UnreadableLine:
            if outcome.cut:
                return self._all_given_up(present=1)
            outcome = UnreadableLine(f"{outcome.reason} (the record has {count} lines)", whole, back=count - 1)
        inner = self._inner()
        self._clear()
        return [*(outcome if isinstance(outcome, list) else [outcome]), *inner]

    def _inner(self) -> list[Outcome]:
        """The held lines between the first and the last that would be records of finished runs."""
        outcomes: list[Outcome] = []
        for index in range(1, len(self._held) - 1):
            run = self._run_of(self._held[index])
            if run is not None:
                why = f"between two parts of a broken record: {SUSPECT}"
                back = len(self._held) - 1 - index
                outcomes.append(UnreadableLine(why, self._held[index], back=back, suspect=run))
        return outcomes

    def _too_many(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while self._bytes > MAX_HELD_BYTES:
            outcomes += self._give_up(present=1)
        return outcomes

    def _all_given_up(self, present: int) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while self._held:
            outcomes += self._give_up(present)
        return outcomes

    def _give_up(self, present: int) -> list[Outcome]:
        """The first held line was cut off; those after it are read normally, up to one that is cut off as well.

        `present`: 1 if the last held line is the present one, 0 if it is the previous one. A run up to a line that may
        be the rest of a record is suspect.
        """
        outcomes: list[Outcome] = []
        first = True
        count, last_suspect = len(self._held), self._last_suspect()
        while self._held:
            line, back = self._held[0], len(self._held) - present
            outcome = self._parse(line)
            if not first and type(outcome) is UnreadableLine and outcome.cut:
                break
            at = count - len(self._held)
            doubted = self._doubt(line) if not first and at <= last_suspect else None
            first = False
            self._held.popleft()
            self._bytes -= len(line) + 1
            for single in outcome if isinstance(outcome, list) else [outcome]:
                if isinstance(single, Job) and single.finished and at <= last_suspect:
                    outcomes.append(UnreadableLine(AFTER_CUT, line, back=back, suspect=single))
                elif isinstance(single, UnreadableLine):
                    raw = line if single.raw is None else single.raw
                    outcomes.append(msgspec.structs.replace(single, raw=raw, back=back, cut=False))
                else:
                    outcomes.append(single)
            if doubted is not None:
                outcomes.append(msgspec.structs.replace(doubted, raw=line, back=back))
        self._suspect_left = max(0, last_suspect - (count - len(self._held)))
        return outcomes

    def _last_suspect(self) -> int:
        """The index of the last held line that may have the end of the record that begins with the first."""
        first = self._held[0]
        last = len(self._held) - 1
        for at, line in zip(range(last, self._suspect_left, -1), reversed(self._held), strict=False):
            self._looks_left -= 1
            if self._looks_left < 0:
                return at
            if self._may_end(first, line):  # if it is not open up to here, it is not up to any line before either
                return at if self._is_open(first, self._lines_to(at)) else self._suspect_left
        return self._suspect_left

    def _lines_to(self, last: int) -> Iterator[bytes]:
        """The held lines after the first."""
        for line in islice(self._held, 1, last + 1):
            self._looks_left -= 1
            yield line
