"""The request to the producer of items (`Scope`), and the steps that it yields.

A step is a value; nothing in it has changed the store. Publishing carries out each step before it asks for the next,
except that `Finished` is recorded once nothing before it is undecided; all other readers use the sections only.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from sqlalchemy import ColumnElement

from formats.base import MessageFormat
from formats.calendar import Month, Period
from formats.rule_codes import Reason
from publisher.messages.item import ItemPage
from publisher.sources.base import Window
from publisher.store.deliveries import WHOLE, Shard
from publisher.store.groups import DueFor
from publisher.store.queries import PendingDelivery
from publisher.store.schema import State


class BacklogLimits(msgspec.Struct, frozen=True):
    """How a long backlog is rendered and sent.

    `worth_runs`: at least this many runs must wait before a second process renders, since starting it costs as much as
    rendering about ten thousand runs. `runs_here`: this many are rendered here while the other process starts. `cores`:
    how many this process may use; None: as many as the system allows. `loaded`: at least this many rendered items, and
    at least a batch, are kept in memory.
    """

    worth_runs: int = 20_000
    runs_here: int = 3_000
    cores: int | None = None
    loaded: int = 1000


class Scope(msgspec.Struct, frozen=True):
    """The runs that items are made of. Without a window: what is due, as the next `publish` sends it.

    `window`: end times; for groups the whole months or periods that it touches, and all their groups, changed or not.
    `only_due`: the part of the window that is due, as `republish` sends it; for reports all that is due, since the
    report of one period counts runs that ended in others. `as_waiting`: a condition on deliveries that count as
    waiting; `resends_groups`: all groups of the window that the service has count as waiting. `part`: of the deliveries
    of a target. `unchanged_too`: also groups that the service has in the same form. `incomplete`: also incomplete
    months. `runs`: only records of these runs; `guarded`: those that would count twice, or replace another job, are
    held. `backlog`: how many waiting runs are rendered where.
    """

    window: Window = Window()
    only_due: bool = False
    as_waiting: ColumnElement[bool] | None = None
    resends_groups: bool = False
    part: Shard = WHOLE
    unchanged_too: bool = False
    incomplete: bool = False
    runs: Sequence[PendingDelivery] | None = None
    guarded: bool = True
    backlog: BacklogLimits = BacklogLimits()

    @property
    def is_due(self) -> bool:
        """Whether it asks for what is due, at all or in the window."""
        return (self.only_due or self.window == Window()) and self.runs is None

    def touches(self, first: int, stop: int) -> bool:
        """Whether an interval (epoch seconds, the second exclusive) overlaps the window."""
        begin, end = self.window.from_, self.window.until
        return (begin is None or begin < stop) and (end is None or end > first)


DUE: Final = Scope(only_due=True)
"""All that is due."""


class Release(msgspec.Struct, frozen=True):
    """Periods that are complete now: runs that were held as incomplete wait again."""

    periods: Sequence[Period]


class Section(msgspec.Struct, frozen=True):
    """Items of one format. All of them are sent before the next step begins, and settled before another format follows.

    `pages` can be read once. `kind`: of its groups in the ledger; None for records. `period`: of the groups.
    `outdated`: keys of earlier groups of the period, which these replace. `kept`: keys of groups that the service has
    under the name of a person who was erased later; they stay unchanged there. `most`: the maximum number of items in a
    message, if the format has one. `changes_sync`: the sync counts of the period are due too. `resends`: the
    states of runs of the period that wait first, since the groups they are in now are sent, or are as the service has
    them (`publisher.store.deliveries.resent`).
    """

    form: MessageFormat
    pages: Iterator[ItemPage]
    kind: str | None = None
    period: Period | None = None
    outdated: Sequence[str] = ()
    kept: frozenset[str] = frozenset()
    most: int | None = None
    changes_sync: bool = False
    resends: Sequence[State] = ()

    def close(self) -> None:
        """Stop reading pages."""
        if isinstance(self.pages, Generator):
            self.pages.close()


class NotDue(msgspec.Struct, frozen=True):
    """A period with waiting runs that cannot be sent yet, and why."""

    period: Period
    reason: Reason


class Finished(msgspec.Struct, frozen=True):
    """Months that are finished, unless they became due again since: each with how often it was due.

    `reaches`: by the number of a period, the first second that its runs used, to be stored
    (`publisher.messages.reports`).
    """

    purpose: DueFor
    marks: Mapping[Month, int]
    reaches: Mapping[int, bytes] = {}


Step: TypeAlias = Release | Section | NotDue | Finished
