"""What a rendering gives back, and the shape of every format that renders one record for each run.

A rule that a message breaks, as the checks of all formats say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from formats.job import Job


class Note(msgspec.Struct, frozen=True):
    """A value that had to be altered to fit: the field, the rule with its source, what it was and what was sent.

    `after` is None where the value was left out.
    """

    field: str
    rule: str
    before: str
    after: str | None


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """One record as it will stand in a message, ASCII bytes, with notes on what was altered.

    `record_id` is the id under which the receiver will know it; empty for formats whose records have none.
    """

    body: bytes
    notes: tuple[Note, ...] = ()
    record_id: str = ""


class RecordFormat(Protocol):
    """A format with one record a run. An instance is bound to a view; it holds no other state."""

    name: str
    content_type: str

    def record(self, job: Job, created: int) -> Rendered:
        """Render one run. `created`: epoch seconds at which this version of the run was first stored (createTime).

        Raises `CannotRenderError` where a mandatory value cannot be given.
        """
        ...

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these records: their bytes, separators between them, and `overhead_bytes`."""
        ...

    @property
    def overhead_bytes(self) -> int:
        """Bytes of a message around its records."""
        ...

    @property
    def separator_bytes(self) -> int:
        """Bytes between two records of a message."""
        ...


Level = Literal["error", "warning"]


class Violation(msgspec.Struct, frozen=True):
    """A rule that a message breaks, and where the rule comes from.

    An *error* makes the service refuse the message; a *warning* is something that it alters or ignores, or that the
    standard forbids and the service does not mind. `record` counts from 1 and is 0 for the message as a whole.
    """

    level: Level
    record: int
    field: str
    rule: str
    source: str
