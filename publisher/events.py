"""Events: what the pipeline reports to an observer while it works. Commands draw progress, tests kill at every step.

An observer must not raise and should be quick; it is called in the thread in which the event happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from formats.rule_codes import Reason


class PageStored(msgspec.Struct, frozen=True):
    """A page of a source and its cursor are committed."""

    source: str
    read: int
    new: int
    changed: int
    share: float | None = None
    """About how much of the source is read now, 0 to 1; None: unknown."""


class DeliveryBegun(msgspec.Struct, frozen=True):
    """A run begins to send to a target, for which this many runs wait."""

    target: str
    waiting: int


class BatchInFlight(msgspec.Struct, frozen=True):
    """A batch is committed as in flight and about to be posted."""

    target: str
    batch_id: int
    records: int
    record_ids: tuple[str, ...] = ()


class BatchAnswered(msgspec.Struct, frozen=True):
    """The service answered (or did not); nothing about it is committed yet."""

    target: str
    batch_id: int
    outcome: str


class BatchSettled(msgspec.Struct, frozen=True):
    """The outcome of a batch is committed."""

    target: str
    batch_id: int
    outcome: str
    records: int
    bytes: int


class TargetPaused(msgspec.Struct, frozen=True):
    """Nothing more is sent to a target in this run."""

    target: str
    reason: str


class ContextFilled(msgspec.Struct, frozen=True):
    """Everything that is stored was written to a spooling context. `was_incomplete`: something had been removed from it
    or altered; otherwise it is new, by its settings or as nothing of it is there, or could not be written before."""

    context: str
    was_incomplete: bool


class RecordSettled(msgspec.Struct, frozen=True):
    """A single record was rejected or held; the reason is committed with it."""

    target: str
    record_id: str
    state: str
    reason: Reason


class RetryPlanned(msgspec.Struct, frozen=True):
    """A message will be tried again after a pause."""

    target: str
    batch_id: int
    attempt: int
    pause_s: float
    answer: str


class WorkAdvanced(msgspec.Struct, frozen=True):
    """So many jobs of a longer piece of work are done; `total`: how many it has, None if unknown."""

    work: str
    done: int
    total: int | None = None


Event: TypeAlias = (
    PageStored
    | DeliveryBegun
    | BatchInFlight
    | BatchAnswered
    | BatchSettled
    | TargetPaused
    | ContextFilled
    | RecordSettled
    | RetryPlanned
    | WorkAdvanced
)
Observer: TypeAlias = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The observer that does nothing."""


def several(observers: Sequence[Observer]) -> Observer:
    """One observer that passes each event to each of these, in this order."""

    def notify(event: Event) -> None:
        for observer in observers:
            observer(event)

    return notify
