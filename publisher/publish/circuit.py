"""A circuit breaker for each target of a long-running program: a failing service is tried less often.

Closed: each round sends. Repeated failures open it: rounds are skipped, more with each failure. Then it is half open:
the next round tries its first message once, which closes the circuit or opens it for longer. It counts rounds, not
time, so a wrong clock cannot block a target. A command that runs once has no circuit and tries every target.
"""

from __future__ import annotations

from typing import Final

_FAILURES: Final = 3
"""Consecutive failed rounds that open the circuit."""
# With more, a service that works again would get nothing for most of a day where runs are an hour apart.
_LONGEST: Final = 8
"""A service is tried at least once in this many rounds."""


class Circuit:
    """The circuit of one target."""

    def __init__(self) -> None:
        self.failures = 0
        self.rounds_left = 0

    def admits(self) -> bool:
        """Return whether this round may send. Call it once a round."""
        if self.rounds_left == 0:
            return True
        self.rounds_left -= 1
        return False

    @property
    def half_open(self) -> bool:
        """Whether the next message is a test."""
        return self.failures >= _FAILURES

    def record(self, *, succeeded: bool) -> None:
        """Record the outcome of a round."""
        if succeeded:
            self.failures = self.rounds_left = 0
            return
        self.failures += 1
        if self.half_open:
            self.rounds_left = min(2 ** (self.failures - _FAILURES + 1), _LONGEST) - 1


class Circuits:
    """The circuits of all targets."""

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}

    def of(self, target: str) -> Circuit:
        """Return the circuit of a target; a new one is closed."""
        return self._circuits.setdefault(target, Circuit())
