"""Slave records of parallel jobs, kept until their master's comes: in the same page, a later one, or another file.

Memory is bounded: the oldest groups are given up first, and are then reported, not forgotten.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

MOST_GROUPS: Final = 1_000
MOST_SLAVES: Final = 20_000

SlaveT = TypeVar("SlaveT", bound=msgspec.Struct)


class Waiting(Generic[SlaveT]):
    """Slave records by job, in the order in which the jobs' first slaves came."""

    def __init__(self, slave_type: type[SlaveT]) -> None:
        self._type = slave_type
        self.groups: dict[str, list[SlaveT]] = {}
        self._slaves = 0

    def add(self, job: str, slave: SlaveT) -> list[tuple[str, list[SlaveT]]]:
        """Keep a slave record of a job. The groups that were given up for it, oldest first."""
        self.groups.setdefault(job, []).append(slave)
        self._slaves += 1
        given_up: list[tuple[str, list[SlaveT]]] = []
        while len(self.groups) > MOST_GROUPS or self._slaves > MOST_SLAVES:
            oldest = next(iter(self.groups))
            given_up.append((oldest, self.take(oldest)))
        return given_up

    def take(self, job: str) -> list[SlaveT]:
        """The slave records of a job, which are no longer kept; empty if there are none."""
        slaves = self.groups.pop(job, [])
        self._slaves -= len(slaves)
        return slaves

    def waiting(self) -> str | None:
        """How many are kept, for people."""
        if not self.groups:
            return None
        jobs = len(self.groups)
        return (
            f"{self._slaves} slave record{'' if self._slaves == 1 else 's'} of {jobs} parallel "
            f"job{'' if jobs == 1 else 's'}: the master's record has not come"
        )

    def state(self) -> Any:
        """What is kept, as plain JSON values; None if nothing is."""
        return msgspec.to_builtins(self.groups) if self.groups else None

    def resume(self, state: Any) -> None:
        """Keep what `state()` gave; anything else is taken as nothing."""
        try:
            self.groups = {} if state is None else msgspec.convert(state, dict[str, list[self._type]])  # type: ignore[name-defined]
        except msgspec.ValidationError:
            self.groups = {}
        self._slaves = sum(map(len, self.groups.values()))
