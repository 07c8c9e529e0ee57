"""How much of a test is run: its short form by `make test`, all of it where `RUN_WHOLE=1` is set, and its exhaustive
form, with all of every other test, by `make test-long`, which sets `RUN_LONG=1`.

Of the tests that pass on either store, `make test` runs a third on PostgreSQL too, and `.ci/run`, which sets
`RUN_EITHER_STORE=1`, all."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in {"", "0"}


RUN_LONG: Final = _is_set("RUN_LONG")
RUN_WHOLE: Final = RUN_LONG or _is_set("RUN_WHOLE")
_RUN_EITHER_STORE: Final = RUN_WHOLE or _is_set("RUN_EITHER_STORE")


def short_or_whole(short: int, whole: int) -> int:
    """A number of examples."""
    return whole if RUN_WHOLE else short


def every(stride: int, values: Iterable[T], first: int = 0) -> list[T]:
    """All values, or every so many of them in the short form, from the one at `first`: tests that begin at different
    values try all of them together."""
    return list(values)[first % stride :: stride] if not RUN_WHOLE else list(values)


def is_run_on_postgresql(test: str) -> bool:
    """Whether a test of this name that passes on either store is run on PostgreSQL too."""
    return _RUN_EITHER_STORE or zlib.crc32(test.encode()) % 3 == 0
