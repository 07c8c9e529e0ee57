"""SIGTERM, SIGINT, and SIGHUP (a lost terminal): finish the batch, then exit. SIGHUP, for `run --every`: read the
configuration again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Literal

_LONGEST_WAIT_S = 86_400.0
"""The system does not accept a wait of many years."""
_stop = threading.Event()
_reload = threading.Event()
_woken = threading.Event()

Woken = Literal["stop", "reload", "time"]


def interrupt_as_usual() -> None:
    """Let SIGINT raise KeyboardInterrupt from now on, unless the parent process set it to be ignored."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def watch_for_stop() -> Callable[[], bool]:
    """Watch for SIGTERM, SIGINT, and SIGHUP from now on; gives a function that says whether one came.

    A second SIGINT interrupts. SIGHUP keeps its other meaning where it has one: ignored (nohup), or `watch_for_reload`.
    """

    def note(number: int, _frame: FrameType | None) -> None:
        if _stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        _stop.set()
        _woken.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, note)
        signal.signal(signal.SIGINT, note)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            signal.signal(signal.SIGHUP, note)
    return _stop.is_set


def watch_for_reload() -> None:
    """Read the configuration again at SIGHUP from now on, which would otherwise end the program."""

    def note(_number: int, _frame: FrameType | None) -> None:
        _reload.set()
        _woken.set()

    signal.signal(signal.SIGHUP, note)


def wait(seconds: float) -> bool:
    """Pause, unless a signal asks to stop; whether one did."""
    return _stop.wait(seconds)


def rest(seconds: float, step_s: float | None, alive: Callable[[], None]) -> Woken:
    """Pause between two runs, calling `alive` at least every `step_s`; returns what ended the pause."""
    ends = time.monotonic() + seconds
    while not _stop.is_set():
        alive()
        left = ends - time.monotonic()
        if left <= 0:
            return "time"
        _woken.wait(min(left, _LONGEST_WAIT_S if step_s is None else step_s))
        _woken.clear()
        if _reload.is_set():
            _reload.clear()
            return "reload"
    return "stop"
