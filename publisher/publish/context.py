"""What a run is given besides its store and its configuration."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from publisher.events import Observer

Sleep = Callable[[float], object]
"""Pauses for so many seconds, or until the program is interrupted."""


class StopSending(Exception):  # noqa: N818 - ends the run for one target; not an error of anybody
    """Nothing more can be sent to this target in this run; the text says why."""


class Tools(msgspec.Struct, frozen=True):
    """What a run has besides store and configuration: a clock (epoch seconds), an observer, a way to pause, and a way
    to be told to stop."""

    clock: Callable[[], int]
    observer: Observer
    sleep: Sleep = time.sleep
    stopping: Callable[[], bool] = lambda: False
