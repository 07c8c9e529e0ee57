"""A part of a target's deliveries, so that several publishers can work on a large backlog at once.

Parts are told apart by the run's number, so no two publishers read, render or lock the same rows, and none waits for
another. Who holds the lock of a part is alone with it; a lock goes with its process.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import ColumnElement


class Part(msgspec.Struct, frozen=True):
    """The runs whose number leaves `index` when divided by `of`. The default is all of them."""

    index: int = 0
    of: int = 1

    def has(self, run_id: ColumnElement[Any]) -> ColumnElement[bool]:
        """The condition that a run is in it."""
        return run_id % self.of == self.index


WHOLE = Part()
