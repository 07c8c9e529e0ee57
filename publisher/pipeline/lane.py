"""A lane: the deliveries of one target, or a part of them, as one run sends them; what its workers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from sqlalchemy import Connection

from formats.record import RecordFormat
from publisher.observe.events import Observer
from publisher.pipeline.sent import Sent
from publisher.store import groups
from publisher.store.database import Store
from publisher.store.part import Part


class Lane(msgspec.Struct, frozen=True):
    """`keeps_first`: the service keeps the first version of a record. `syncs`: sync messages go with the records.

    `sent` is what the run did so far; the one thing here that changes.
    """

    store: Store
    target: str
    target_id: int
    part: Part
    record_format: RecordFormat
    keeps_first: bool
    syncs: bool
    clock: Callable[[], int]
    observer: Observer
    sent: Sent

    def mark_due(self, connection: Connection, end_times: Iterable[int]) -> None:
        """Let the sync of the months with these ends be made anew."""
        if self.syncs:
            groups.mark(connection, self.target_id, groups.DUE, end_times, self.clock())
