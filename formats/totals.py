"""Totals: the runs of a month, added up by the receiver's key; what formats with such messages have in common.

A total is a snapshot: sent again, it replaces the earlier one with the same key. A run counts in the UTC month of its
end. So that nothing counts twice, runs are grouped by the key as the *receiver* compares it (`key`), and sent as first
spelled (`spelling`). Sync counts are totals too: of numbers of runs alone.

A format describes its totals with a `TotalsKind` in its descriptor; nothing else decides how its runs are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from formats.calendar import Month
from formats.columns import TotalColumns
from formats.job import Job
from formats.rules import INT32
from formats.view import View

LATEST_END: Final = INT32
"""The latest end of a run in a `Sums`, epoch seconds; the earliest is 0."""
LONGEST_MS: Final = INT32 * 1000 + 499
"""The longest wall or CPU time of a run in a `Sums`. A longer one would falsify the sum of its whole group; its fold
decides about it from its record."""


class Sums(msgspec.Struct, frozen=True):
    """The sums of some runs; `earliest` and `latest` are the first and the last of their ends."""

    jobs: int
    wall_ms: int
    cpu_ms: int
    earliest: int
    latest: int

    def plus(self, other: Sums) -> Sums:
        """The sum of both."""
        return Sums(
            self.jobs + other.jobs,
            self.wall_ms + other.wall_ms,
            self.cpu_ms + other.cpu_ms,
            min(self.earliest, other.earliest),
            max(self.latest, other.latest),
        )


class TotalKey(Protocol):
    """The key of a total at the receiver. `formats.calendar.MonthKey` is one to build on."""

    @property
    def text(self) -> str:
        """The key as one line, the same for equal keys only."""
        ...

    @property
    def when(self) -> Month:
        """The month."""
        ...

    def __lt__(self, other: Any, /) -> bool:
        """Keys of one kind are ordered."""
        ...


class MonthTotal(Protocol):
    """The runs of a month with one key, added up."""

    @property
    def key(self) -> TotalKey:
        """The key as the receiver compares it."""
        ...

    @property
    def spelling(self) -> TotalKey:
        """The key as sent. It does not depend on the order of the runs."""
        ...

    @property
    def jobs(self) -> int:
        """Number of runs."""
        ...

    @property
    def latest(self) -> int | None:
        """The last end of its runs, epoch seconds; None if it has none, or does not know."""
        ...

    @property
    def digest(self) -> bytes:
        """Digest (`formats.identity.DIGEST_BYTES`) of everything that is sent."""
        ...

    @property
    def zeroed(self) -> MonthTotal:
        """The same total without runs: it is sent to replace a total that vanished."""
        ...

    def to_json(self) -> bytes:
        """The total for the store."""
        ...


class TotalsFold(Protocol):
    """The totals of one receiver, as runs are added, in any order."""

    def add(self, job: Job) -> TotalKey:
        """Add a run; return the key of its total. Raises `CannotRenderError`, and adds nothing, for a run that cannot
        be in any."""
        ...

    def add_alike(self, facts: Job, sums: Sums, /) -> TotalKey:
        """Add runs of one class that ended in one month; return the key of their total. For totals `from_columns`.

        `facts`: what the runs share, with one of their ends. Their ends and amounts are within `LATEST_END` and
        `LONGEST_MS`. Raises as `add` would for each of them.
        """
        ...

    def merge_group(self, total: Any, /) -> None:
        """Add a total, e.g. one from the store."""
        ...

    def groups(self) -> Iterator[MonthTotal]:
        """All totals, in the order of their keys."""
        ...


class TotalUsage(msgspec.Struct, frozen=True):
    """What the runs of a total used, to be compared with the sums of the sources. `core_ms`: wall time of all cores."""

    jobs: int
    core_ms: int
    cpu_ms: int


class NamedPersons(msgspec.Struct, frozen=True, kw_only=True):
    """How totals name persons: what must change in the ledger when a person is erased."""

    spelled: Callable[[View, str], str]
    """A person's name as the receiver is shown it."""
    names: Callable[[Any], Collection[str]]
    """The names in a total, as spelled."""
    renamed: Callable[[Any, Collection[str], str], Any]
    """The total with another name in place of these, which are in lower case (`str.casefold`)."""


class TotalsKind(msgspec.Struct, frozen=True, kw_only=True):
    """How a format adds up runs, and what becomes of its totals."""

    kind: str
    """The word under which the ledger keeps them. It is stored: it never changes. Formats with the same word read each
    other's totals."""
    fold: Callable[[View], TotalsFold]
    """An empty fold for a receiver."""
    from_json: Callable[[bytes], MonthTotal]
    """The total of its stored form. Raises `msgspec.DecodeError`, `ValueError`, `TypeError`, or `KeyError`."""
    from_columns: bool = True
    """Whether wall and CPU time, the end, and what the runs of a class share suffice, so that the store adds up runs
    without decoding them: user and VO of the grid, status, queue, cluster, endpoint, benchmarks, nodes, cores, slots.
    If a total needs another fact, such as the start, GPUs, or the account of a run that has a grid user, each run is
    folded from its record, which takes about eight times as long."""
    vanished: Literal["zeroed", "forgotten"] = "zeroed"
    """What becomes of a total that has no runs any more: it is sent as `zeroed`, or is forgotten if the receiver drops
    it by itself."""
    following: Callable[[Any, Any, bool], MonthTotal] | None = None
    """A total as it is sent after an earlier one, which is the first argument: such as with 0.00 for each user who is
    no longer in it, if the receiver keeps the value of a user who is not named. The last argument: whether the receiver
    accepted the earlier one; otherwise it may have that one, or one before it. Following itself, a total has the same
    digest. None: it is sent as it is."""
    left_over: Callable[[Any, msgspec.Struct | None, bool], Collection[str]] | None = None
    """The names of a total's amounts, at the service or perhaps there, that the settings of its format (the second
    argument) do not have any more: they are sent as zero with the next version of the total. The last argument: whether
    the receiver accepted it. None: it has none."""
    is_reported: Callable[[str, msgspec.Struct | None], bool] | None = None
    """Whether an amount of `columns` is reported with the settings of its format (the second argument): evidence has no
    others, such as of a component that was removed. None: each is."""
    sync_count: Callable[[Any], MonthTotal] | None = None
    """The sync count that the service got with a total; None if sync counts do not go with totals."""
    persons: NamedPersons | None = None
    """None: totals name no persons."""
    usage: Callable[[Any], TotalUsage] | None = None
    """What the runs of a total used; None: a total does not say it."""
    read: Callable[[bytes], Sequence[MonthTotal]] | None = None
    """Reads the totals of a message, in order. Raises `ValueError`. None: messages are not evidence."""
    columns: Callable[[Any], TotalColumns] | None = None
    """A total as the service stores it, to be compared with evidence; None: it cannot be compared."""
    dimensions: tuple[str, ...] = ()
    """The fields of `columns`."""
    counts_jobs: bool = True
    """Whether the service stores the number of runs of a total. If not, one without amounts is the same as none."""
