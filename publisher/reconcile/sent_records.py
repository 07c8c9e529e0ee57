"""The records as they were sent, with the columns that the service stores: rendered again, and read as it reads them.

What a run had when it was sent is in the ledger. What the configuration adds (VO rules, benchmarks, site) is taken as
it is now: after a change of it, what was sent before differs from what is configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from formats.columns import RecordColumns
from publisher.messages.items import records_of
from publisher.messages.recipient import Recipient
from publisher.plugins import record_format
from publisher.reconcile.ledger import LedgerRun
from publisher.store import runs
from publisher.store.paging import chunks
from publisher.store.queries import PendingDelivery

_AT_ONCE: Final = 500
"""The element tree of a message takes ten times its bytes."""


class SentRecords:
    """The records of runs for one target. `are_readable`: whether its format can be read back."""

    def __init__(self, recipient: Recipient) -> None:
        self._recipient = recipient
        self._read = recipient.format.columns
        self.are_readable = self._read is not None

    def of(self, entries: Sequence[LedgerRun]) -> dict[int, RecordColumns]:
        """By run id, in the version that was sent, else the present one; runs that cannot be rendered any more are left
        out."""
        found: dict[int, RecordColumns] = {}
        for part in chunks(entries, _AT_ONCE):
            found.update(self._of_part(part))
        return found

    def _of_part(self, entries: Sequence[LedgerRun]) -> dict[int, RecordColumns]:
        if self._read is None:
            return {}
        versions = {entry.run.run_id: entry.version for entry in entries if entry.version is not None}
        with self._recipient.store.read() as connection:
            stored = runs.by_ids(connection, [entry.run.run_id for entry in entries])
        pages = [
            PendingDelivery(
                run.job.end or 0,
                msgspec.structs.replace(run, job=version) if (version := versions.get(run.run_id)) else run,
            )
            for run in stored
        ]
        items = records_of(self._recipient, pages, guarded=False).items
        if not items:
            return {}
        form = record_format(self._recipient.format_name, self._recipient.view)
        records = self._read(form.message([item.body for item in items]))
        return {item.members.run_ids[0]: record for item, record in zip(items, records, strict=True)}
