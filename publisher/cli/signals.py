"""SIGTERM and SIGINT: finish the batch in hand, then leave."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

_stop = threading.Event()


def told_to_stop() -> Callable[[], bool]:
    """Watch for SIGTERM and SIGINT from now on; gives what tells whether one came. A second SIGINT interrupts."""

    def note(number: int, _frame: FrameType | None) -> None:
        if _stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        _stop.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, note)
        signal.signal(signal.SIGINT, note)
    return _stop.is_set


def wait(seconds: float) -> bool:
    """Pause, unless told to stop; True if told."""
    return _stop.wait(seconds)
