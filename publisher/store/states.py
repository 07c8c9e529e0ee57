"""The states of a delivery: where a run is on its way to one target. They are disjoint, and there is no other place."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """Stored as its number; the numbers are part of the store's format and never change their meaning."""

    WAITING = 1
    IN_FLIGHT = 2
    ACCEPTED = 3
    """Taken by the service (or assumed to have been, before us); whether it was confirmed stands beside."""
    REJECTED = 4
    HELD = 5
    WAIVED = 6
    SUPERSEDED = 7
    """Changed after the service took an earlier version that it will keep."""

    @property
    def word(self) -> str:
        """The word used in `status --json` and by people."""
        return self.name.lower()


class BatchState(IntEnum):
    """What became of a message."""

    IN_FLIGHT = 1
    ACCEPTED = 2
    NOT_ACCEPTED = 3
    """Refused, split, or put back to wait; its records went on in other batches or wait."""
