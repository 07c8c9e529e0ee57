"""How much of a test is run: its short form by `make test`, all of it where `RUN_WHOLE=1` is set, and its exhaustive
form, with all of every other test, by `make test-long`, which sets `RUN_LONG=1`.

The cases of a test are its parameters, and the classes that inherit it. `make test` runs a fifth of the cases of tests
that write files; `.ci/run` sets `RUN_EVERY_CASE=1`, which runs all. All cases run too if files or tests are named,
unless `RUN_EVERY_CASE=0` is set: `.ci/run` sets it for the tests of the base, whose cases ran with another Python."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in {"", "0"}


RUN_LONG: Final = _is_set("RUN_LONG")
RUN_WHOLE: Final = RUN_LONG or _is_set("RUN_WHOLE")


def short_or_whole(short: int, whole: int) -> int:
    """A number of examples."""
    return whole if RUN_WHOLE else short


def every(stride: int, values: Iterable[T], first: int = 0) -> list[T]:
    """All values, or every so many of them in the short form, from the one at `first`: tests that begin at different
    values try all of them together."""
    return list(values)[first % stride :: stride] if not RUN_WHOLE else list(values)


def is_every_case_run(*, named: bool) -> bool:
    """`named`: a file or a test is."""
    return RUN_WHOLE or (_is_set("RUN_EVERY_CASE") if "RUN_EVERY_CASE" in os.environ else named)


def some(test: str, cases: Sequence[T]) -> Sequence[T]:
    """At least one of the cases of a test, and each fifth; tests begin at different ones, so that what many of them
    have in common, such as the kind of store, is tried with every value."""
    return cases[zlib.crc32(test.encode()) % min(5, len(cases)) :: 5]
