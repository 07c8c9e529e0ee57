"""What a run is given besides its store and its configuration, and what it did for one target."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from publisher.events import Observer, ignore
from publisher.messages.steps import BacklogLimits
from publisher.sources.background import BackgroundReader
from publisher.sources.base import Reader
from publisher.targets import TargetFactory, make_target

Sleep = Callable[[float], object]
"""Pauses for so many seconds, or until the program is interrupted."""


class StopSending(Exception):  # noqa: N818 - ends the run for one target; not an error of anybody
    """Nothing more can be sent to this target in this run; the text says why."""


def wall_clock() -> int:
    """Epoch seconds now."""
    return int(time.time())


class Tools(msgspec.Struct, frozen=True):
    """What a run has besides store and configuration: a clock (epoch seconds), an observer, a way to pause, whether it
    is interrupted, what makes the sources and targets of the configuration from name and settings, and limits."""

    clock: Callable[[], int] = wall_clock
    observer: Observer = ignore
    sleep: Sleep = time.sleep
    stopping: Callable[[], bool] = lambda: False
    make_source: Callable[[str, Any], Reader] = BackgroundReader
    make_target: TargetFactory = make_target
    backlog: BacklogLimits = BacklogLimits()


class DeliveryStats(msgspec.Struct):
    """What a run did for one target, counted in jobs (`groups` counts summaries)."""

    accepted: int = 0
    rejected: int = 0
    held: int = 0
    batches: int = 0
    bytes: int = 0
    groups: int = 0
    paused: str | None = None
    """Why nothing more was sent, if the run stopped before its end."""
    unauthorised: bool = False
    """Our credentials were refused."""


def together(several: Sequence[DeliveryStats]) -> DeliveryStats:
    """What several did, one after the other: sums, and why the last one stopped."""
    return DeliveryStats(
        accepted=sum(each.accepted for each in several),
        rejected=sum(each.rejected for each in several),
        held=sum(each.held for each in several),
        batches=sum(each.batches for each in several),
        bytes=sum(each.bytes for each in several),
        groups=sum(each.groups for each in several),
        paused=several[-1].paused,
        unauthorised=any(each.unauthorised for each in several),
    )
