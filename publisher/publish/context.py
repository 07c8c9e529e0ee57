"""The tools of a run besides its store and configuration, and its statistics for one target."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from publisher.events import Observer, ignore
from publisher.messages.steps import BacklogLimits
from publisher.sources.base import Reader
from publisher.targets import TargetFactory, make_target

Sleep = Callable[[float], object]
"""Pauses for this many seconds, or until the program is interrupted."""


class StopSending(Exception):  # noqa: N818 - ends the run for one target; it is not an error
    """Nothing more can be sent to this target in this run; the text says why."""


def wall_clock() -> int:
    """Return the present time in epoch seconds."""
    return int(time.time())


def make_source(name: str, settings: Any) -> Reader:
    """Make a source whose long readings are done by a worker process. Raises `ConfigError`."""
    from publisher.sources.background import BackgroundReader  # noqa: PLC0415 - most commands read no source

    return BackgroundReader(name, settings)


class Tools(msgspec.Struct, frozen=True):
    """The tools of a run besides its store and configuration: a clock (epoch seconds), an observer, a way to pause,
    a check for interruption, factories that make sources and targets from a name and settings, and limits."""

    clock: Callable[[], int] = wall_clock
    observer: Observer = ignore
    sleep: Sleep = time.sleep
    stopping: Callable[[], bool] = lambda: False
    make_source: Callable[[str, Any], Reader] = make_source
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
    tried_again: int = 0
    """Runs that this run released although they were held for a state of the service, and that are not held again."""
    paused: str | None = None
    """Why the run stopped early, if it did."""
    unauthorised: bool = False
    """The service refused our credentials."""


def together(several: Sequence[DeliveryStats]) -> DeliveryStats:
    """Add up the statistics of consecutive parts; the reason to stop is that of the last part."""
    return DeliveryStats(
        accepted=sum(stats.accepted for stats in several),
        rejected=sum(stats.rejected for stats in several),
        held=sum(stats.held for stats in several),
        batches=sum(stats.batches for stats in several),
        bytes=sum(stats.bytes for stats in several),
        groups=sum(stats.groups for stats in several),
        paused=several[-1].paused,
        unauthorised=any(stats.unauthorised for stats in several),
    )
