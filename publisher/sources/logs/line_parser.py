"""What a log needs of a parser of its lines: `LineParser`, and what some parsers can do besides.

A parser is pure: it takes the bytes of a line and gives an outcome.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from formats.job import Job
from publisher.sources.base import Outcome, Recovered, UnreadableLine


class LineParser(Protocol):
    """Understands the lines of one kind of log. One parser is used for one pass over the files of the log."""

    reads: frozenset[str]
    """The kinds of log that this parser understands, as `sniff.looks_like` names them.

    A parser with an attribute `joins_lines` that is False makes a run of one line, which bounds the run's texts. One
    with `gives_late` that is True gives a run with a later line, since steps of it may follow. One with `has_header`
    that is False never refuses a header (`UnreadableLine.hint`).
    """

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """The outcome of a line. Never raises, for any bytes; time and memory are proportional to their number."""
        ...

    def file_begins(self, file: str) -> None:
        """The next line is from another file than the previous one."""
        ...

    def state(self) -> Any:
        """The state of the parser, as plain JSON values of bounded size; None: empty."""
        ...

    def resume(self, state: Any) -> None:
        """Restore what `state()` gave. Anything else counts as empty."""
        ...

    def waiting(self) -> str | None:
        """What waits for later lines, and should not wait for long: a sentence for people."""
        ...


@runtime_checkable
class LineHolder(Protocol):
    """A parser that holds lines until a later line of the same file shows their meaning."""

    def release(self) -> list[Outcome]:
        """The outcome of held lines without a later line: the file has no more lines at present."""
        ...


@runtime_checkable
class RunParser(LineParser, Protocol):
    """A parser of lines that make runs by themselves."""

    def alone(self, line: bytes) -> Job | None:
        """The finished run of a line by itself, without any effect on the parser; None: it has none."""
        ...

    def after_too_long(self, first: bytes, last: bytes) -> list[Outcome] | None:
        """What was held before a line that is too long to be read, if that may end a broken record; None: it does not.

        `first` and `last`: its first and last bytes.
        """
        ...


@runtime_checkable
class MergingParser(LineParser, Protocol):
    """A parser that adds what some lines have to the run of another line."""

    def doubt(self, line: bytes) -> UnreadableLine | None:
        """A line that was parsed may be text of a user: what it adds to a run that is not given yet is doubtful. Gives
        it, to be shown; None: it adds nothing, or was given.
        """
        ...


@runtime_checkable
class CompletingParser(LineParser, Protocol):
    """A parser that gives the beginning of a record as unreadable, which later lines may complete."""

    def completed(self) -> list[Recovered]:
        """What was given as unreadable and is complete now; each once."""
        ...


@runtime_checkable
class EndingParser(LineParser, Protocol):
    """A parser that keeps runs until the end of the input."""

    def finish(self) -> list[Outcome]:
        """The runs that were kept, and what is incomplete so far; each once."""
        ...


class Roles(NamedTuple):
    """The parser of a log in the roles that it has, beside that of a `LineParser`; None: it has not this one."""

    holder: LineHolder | None
    of_runs: RunParser | None
    merging: MergingParser | None


def roles_of(parser: LineParser) -> Roles:
    """The roles of a parser. To be asked once for a log: for each chunk, this took as long as parsing its lines."""
    return Roles(
        parser if isinstance(parser, LineHolder) else None,
        parser if isinstance(parser, RunParser) else None,
        parser if isinstance(parser, MergingParser) else None,
    )
