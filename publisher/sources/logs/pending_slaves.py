"""Slave records of parallel jobs until their master's record comes: in the same page, a later one, or another file.

Memory is bounded: the oldest groups are given up first, and are reported.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

# They are in the cursor: slaves of masters whose records never come would make it longer for ever.
MOST_GROUPS: Final = 1_000
MOST_SLAVES: Final = 20_000

SlaveT = TypeVar("SlaveT", bound=msgspec.Struct)


class PendingSlaves(Generic[SlaveT]):
    """Slave records by job, in the order of the jobs' first slaves."""

    def __init__(self, slave_type: type[SlaveT]) -> None:
        self._type = slave_type
        self.groups: dict[str, list[SlaveT]] = {}
        self._slaves = 0

    def add(self, job: str, slave: SlaveT) -> list[tuple[str, list[SlaveT]]]:
        """Keep a slave record of a job. Gives the groups that were given up for it, oldest first."""
        self.groups.setdefault(job, []).append(slave)
        self._slaves += 1
        given_up: list[tuple[str, list[SlaveT]]] = []
        while len(self.groups) > MOST_GROUPS or self._slaves > MOST_SLAVES:
            oldest = next(iter(self.groups))
            given_up.append((oldest, self.take(oldest)))
        return given_up

    def take(self, job: str) -> list[SlaveT]:
        """Remove and give the slave records of a job; empty: there are none."""
        slaves = self.groups.pop(job, [])
        self._slaves -= len(slaves)
        return slaves

    def replace(self, job: str, old: SlaveT, new: SlaveT) -> bool:
        """Replace a slave record of a job; whether it is kept."""
        slaves = self.groups.get(job, [])
        if old not in slaves:
            return False
        slaves[slaves.index(old)] = new
        return True

    def waiting(self) -> str | None:
        """The number of kept records, for people."""
        if not self.groups:
            return None
        jobs = len(self.groups)
        return (
            f"{self._slaves} slave record{'' if self._slaves == 1 else 's'} of {jobs} parallel "
            f"job{'' if jobs == 1 else 's'} without the master's record so far"
        )

    def state(self) -> Any:
        """The kept records, as plain JSON values; None: there are none."""
        return msgspec.to_builtins(self.groups) if self.groups else None

    def resume(self, state: Any) -> None:
        """Restore what `state()` gave; anything else counts as nothing."""
        try:
            self.groups = {} if state is None else msgspec.convert(state, dict[str, list[self._type]])  # type: ignore[name-defined]
        except msgspec.ValidationError:
            self.groups = {}
        self._slaves = sum(map(len, self.groups.values()))
