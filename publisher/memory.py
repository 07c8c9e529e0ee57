"""The memory of commands that send, and of processes that work apart: much is made, handed on and soon freed.

The C library gives each thread a store of its own, from which pages and messages that pass from one thread to the next
are not given back for long; and after the first large piece that was freed it takes such pieces from the same store,
between small ones that stay. One store for all threads, and large pieces apart, take a fifth less memory and no more
time (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_LARGE_BYTES: Final = 128 << 10
"""Pieces from this size on are taken from the system and given back to it, each by itself. It is the C library's own
beginning, which it gives up once it is left to itself."""
_OPTIONS: Final = {-8: 1, -3: _LARGE_BYTES, -1: _LARGE_BYTES}
"""`M_ARENA_MAX`, `M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD` of glibc's mallopt."""
ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(_LARGE_BYTES),
        "MALLOC_TRIM_THRESHOLD_": str(_LARGE_BYTES),
    }
)
"""The same for a process that is yet to begin."""


def keep_little() -> None:
    """Have this process keep little of what it frees, and threads that begin from now on take their memory from one
    place, where the C library has a way to ask."""
    import ctypes  # noqa: PLC0415 - some milliseconds, for commands that send alone

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)
