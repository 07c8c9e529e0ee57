"""Records of one line that a line feed in a user's text breaks into several lines.

Batch systems that escape nothing (TORQUE, PBS, DQS, Grid Engine's colon file) write a line feed in a job's name or
account unchanged. The text after it may look like a record of another user, so a user could forge one. Therefore a line
that ends within a user's text is held with all lines that follow in the file, up to the line that is the rest of the
record: one that is not a record itself and ends as one does. All of these lines are then one record and nothing else.
If no such line comes, the first line was cut off, and the lines after it are read normally.

Memory is bounded: at most `MAX_HELD_BYTES` are held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from publisher.sources.base import Line, Outcome, UnreadableLine

MAX_HELD_BYTES: Final = 1 << 17

Parse = Callable[[bytes], Outcome | list[Outcome]]


class RecordJoiner:
    """Holds the lines of a broken record for a parser, and joins them.

    The parser passes to `refused` what its `parse` refuses and, while the joiner `holds`, all lines to `take`. `parse`
    is also called with joined records, including their line feeds. `is_rest(first, line)` says whether a line can be
    the last of the broken record that begins with the first.
    """

    def __init__(self, parse: Parse, is_rest: Callable[[bytes, bytes], bool]) -> None:
        self.holds = False
        self._parse = parse
        self._is_rest = is_rest
        self._held: deque[bytes] = deque()
        self._bytes = 0
        self._deciding = False

    def refused(self, line: bytes, reason: str, *, cut: bool) -> Outcome:
        """The outcome of a line that is not a record. `cut`: it ends within a user's text."""
        if not cut or self._deciding:
            return UnreadableLine(reason, cut=cut)
        self._hold(line)
        self.holds = True
        return Line.IGNORED

    def take(self, line: bytes) -> Outcome | list[Outcome]:
        """Hold another line, or give what it completes."""
        self._hold(line)
        with self._decision():
            return self._completed() or self._too_many() or Line.IGNORED

    def release(self) -> list[Outcome]:
        """See `publisher.sources.logs.lines.LineHolder`."""
        with self._decision():
            return self._all_given_up(present=0)

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

    def _clear(self) -> None:
        self._held.clear()
        self._bytes = 0

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
        if not self._is_rest(self._held[0], self._held[-1]):
            return []
        count, whole = len(self._held), b"\n".join(self._held)
        outcome = self._parse(whole)
        if type(outcome) is UnreadableLine:
            if outcome.cut:
                return self._all_given_up(present=1)
            outcome = UnreadableLine(f"{outcome.reason} (the record has {count} lines)", whole, back=count - 1)
        self._clear()
        return outcome if isinstance(outcome, list) else [outcome]

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

        `present`: 1 if the last held line is the present one, 0 if it is the previous one.
        """
        outcomes: list[Outcome] = []
        first = True
        while self._held:
            line, back = self._held[0], len(self._held) - present
            outcome = self._parse(line)
            if not first and type(outcome) is UnreadableLine and outcome.cut:
                break
            first = False
            self._held.popleft()
            self._bytes -= len(line) + 1
            for each in outcome if isinstance(outcome, list) else [outcome]:
                if isinstance(each, UnreadableLine):
                    outcomes.append(
                        UnreadableLine(each.reason, line if each.raw is None else each.raw, each.hint, back)
                    )
                else:
                    outcomes.append(each)
        return outcomes
