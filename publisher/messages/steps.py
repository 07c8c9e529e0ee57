"""What the producer is asked for (`Scope`) and what it gives, one step after the other.

A step is a value; nothing in it has changed the store. Publishing carries each one out before it asks for the next,
except that `Finished` is recorded when nothing before it is undecided; all others look at the sections alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from sqlalchemy import ColumnElement

from formats.calendar import Month, Period
from formats.rule_codes import Reason
from publisher.messages.item import ItemPage, MessageFormat
from publisher.sources.base import Window
from publisher.store.deliveries import WHOLE, Shard
from publisher.store.groups import DueFor
from publisher.store.queries import PendingDelivery


class BacklogLimits(msgspec.Struct, frozen=True):
    """How a long backlog is rendered and sent.

    `worth_runs`: so many must wait before another process renders, since to begin one costs as much as to render some
    ten thousand runs. `runs_here`: so many are rendered here in about the time in which the other process begins.
    `cores`: how many this process may use; None: as many as the system gives it. `loaded`: so many rendered items, and
    at least a batch, are kept loaded.
    """

    worth_runs: int = 20_000
    runs_here: int = 3_000
    cores: int | None = None
    loaded: int = 1000


class Scope(msgspec.Struct, frozen=True):
    """Of which runs items are made. Without a window: what is due, as the next `publish` sends it.

    `window`: end times; of groups the whole months or periods that it touches, and all groups of them, changed or not.
    `only_due`: of the window what is due, as `republish` sends it; of reports all that is due, for the report of one
    period counts runs that ended in others. `as_waiting`: deliveries of which this holds count as waiting, and the
    groups of the window as to be sent again. `part`: of the deliveries of a target. `unchanged_too`: groups that the
    service has as they are as well. `incomplete`: months that are not known whole as well. `runs`: records of these
    runs alone; `guarded`: those of them that would count twice, or replace another job, are held. `backlog`: how many
    runs that wait are rendered where.
    """

    window: Window = Window()
    only_due: bool = False
    as_waiting: ColumnElement[bool] | None = None
    part: Shard = WHOLE
    unchanged_too: bool = False
    incomplete: bool = False
    runs: Sequence[PendingDelivery] | None = None
    guarded: bool = True
    backlog: BacklogLimits = BacklogLimits()

    @property
    def is_due(self) -> bool:
        """Whether it is what is due, at all or in the window."""
        return (self.only_due or self.window == Window()) and self.runs is None

    def touches(self, first: int, stop: int) -> bool:
        """Whether a part of an interval (epoch seconds, the second exclusive) lies in the window."""
        begin, end = self.window.from_, self.window.until
        return (begin is None or begin < stop) and (end is None or end > first)


DUE: Final = Scope(only_due=True)
"""All that is due."""


class Release(msgspec.Struct, frozen=True):
    """Periods that are known whole now: runs that are held because they were not wait again."""

    periods: Sequence[Period]


class Section(msgspec.Struct, frozen=True):
    """Items of one format, of which all are sent before the next step begins, and settled before another format does.

    `pages` can be read once. `kind`: under which the ledger keeps its groups; None for records. `period`: what the
    groups are of; `outdated`: keys of earlier groups of it, in place of which these are sent. `kept`: keys of groups
    that the service has under the name of a person erased since; they stay there as they are. `most`: how many items a
    message takes, where the format says so. `changes_sync`: the sync counts of the period are due with it.
    """

    form: MessageFormat
    pages: Iterator[ItemPage]
    kind: str | None = None
    period: Period | None = None
    outdated: Sequence[str] = ()
    kept: frozenset[str] = frozenset()
    most: int | None = None
    changes_sync: bool = False

    def close(self) -> None:
        """No more pages are asked for."""
        if isinstance(self.pages, Generator):
            self.pages.close()


class NotDue(msgspec.Struct, frozen=True):
    """A period whose runs wait: it cannot be sent yet, and why."""

    period: Period
    reason: Reason


class Finished(msgspec.Struct, frozen=True):
    """What months were due for is done, unless they became due again since: each with how often it was.

    `reaches`: by the period's number, how far back its runs reach, to be remembered (`publisher.messages.reports`).
    """

    purpose: DueFor
    marks: Mapping[Month, int]
    reaches: Mapping[int, bytes] = {}


Step: TypeAlias = Release | Section | NotDue | Finished
