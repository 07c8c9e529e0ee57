"""The memory of a command that sends: many threads, of which one works at a time.

The C library gives each thread a store of its own, from which pages and messages that pass from one thread to the next
are not given back for long. One store for all takes a tenth less memory and no more time (docs/performance.md).
"""

from __future__ import annotations

from typing import Final

_ARENA_MAX: Final = -8
"""`M_ARENA_MAX` of glibc's mallopt."""


def share_among_threads() -> None:
    """Have threads that begin from now on take their memory from one place, where the C library has a way to ask."""
    import ctypes  # noqa: PLC0415 - some milliseconds, for commands that send alone

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
