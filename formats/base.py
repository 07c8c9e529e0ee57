"""What a rendering gives back, and the shape of every format that renders one record for each run.

A rule that a message breaks, as the checks of all formats say it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Literal, Protocol

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


class CannotRenderError(ValueError):
    """A run lacks, or has unusable, a value that the format cannot do without. The record is held with this reason."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


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


CACHED_FRAGMENTS: Final = 8192
"""Per kind of fragment; when it is full it is emptied, which costs less than keeping an order of use."""


class FragmentCache(dict[Hashable, str]):
    """Fragments by the facts of a job that they depend on. What was altered in is not kept: its notes are due again."""

    def __init__(self, make: Callable[[Job, list[Note]], str]) -> None:
        super().__init__()
        self._make = make

    def of(self, key: Hashable, job: Job, notes: list[Note]) -> str:
        """The fragment of a job, kept or rendered now; `key` as for `render`."""
        kept = self.get(key)
        return self.render(key, job, notes) if kept is None else kept

    def render(self, key: Hashable, job: Job, notes: list[Note]) -> str:
        """The fragment of a job that is not kept yet; `key` holds every fact of the job that it depends on."""
        altered: list[Note] = []
        fragment = self._make(job, altered)
        if altered:
            notes += altered
            return fragment
        if len(self) >= CACHED_FRAGMENTS:
            self.clear()
        self[key] = fragment
        return fragment
