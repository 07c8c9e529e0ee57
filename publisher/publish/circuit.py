"""A circuit for each target of a program that stays: a service that keeps failing is asked less often.

Closed: every round sends. Repeated failure opens it: rounds are left out, more with each failure. Then it is half open:
the next round sends with a single try of its first message, which closes the circuit or opens it for longer. Counted in
rounds, so that no clock can hold a target back. A command that runs once has none: it tries every target.
"""

from __future__ import annotations

from typing import Final

_FAILURES: Final = 3
"""Rounds that fail, one after the other, until the circuit opens."""
_LONGEST: Final = 8
"""A service is asked at least every so many rounds."""


class Circuit:
    """Of one target."""

    def __init__(self) -> None:
        self.failures = 0
        self.rounds_left = 0

    def admits(self) -> bool:
        """Whether this round may send; asked once a round."""
        if self.rounds_left == 0:
            return True
        self.rounds_left -= 1
        return False

    @property
    def half_open(self) -> bool:
        """Whether the next message is a test."""
        return self.failures >= _FAILURES

    def record(self, *, succeeded: bool) -> None:
        """Record how a round went."""
        if succeeded:
            self.failures = self.rounds_left = 0
            return
        self.failures += 1
        if self.half_open:
            self.rounds_left = min(2 ** (self.failures - _FAILURES + 1), _LONGEST) - 1


class Circuits:
    """Those of all targets."""

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}

    def of(self, target: str) -> Circuit:
        """A target's, closed where it is new."""
        return self._circuits.setdefault(target, Circuit())
