"""The entry point of the command: Ctrl-C while the program is loading ends it as it does later."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType

_INTERRUPTED = 130
_OBJECTS = 200_000
"""More objects than loading makes: to search them for cycles takes a tenth of the time of a short command."""


def main() -> None:
    """Load the program, and run it."""
    # Otherwise the parent process set it to be ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    gc.set_threshold(_OBJECTS)
    from publisher.cli.main import main as run  # noqa: PLC0415

    run()


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"usage-publisher: interrupted\n")
    os._exit(_INTERRUPTED)
