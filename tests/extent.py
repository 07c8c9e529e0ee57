"""How much of a test is run: its short form by `make test`, all of it where `RUN_WHOLE=1` is set, and its exhaustive
form, with all of every other test, by `make test-long`, which sets `RUN_LONG=1`.

Of the cases of a test that writes files (its parameters, and the classes that inherit it), `make test` runs a fifth,
and `.ci/run`, which sets `RUN_EVERY_CASE=1`, all. Whoever names a file or a test gets all of it, unless
`RUN_EVERY_CASE=0` is set, as `.ci/run` does for the tests of the base, which ran with another Python before."""

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
