"""What a run is given besides its store and its configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
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
