"""The records as they were sent, with the columns that the service stores: rendered again, and read as it reads them.

What a run had when it was sent is in the ledger. What the configuration adds (VO rules, benchmarks, site) is taken as
it was then (`publisher.reconcile.sent_settings`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import Final

import msgspec

from formats.columns import RecordColumns
from publisher.messages.item import Item
from publisher.messages.items import records_of
from publisher.messages.recipient import Recipient
from publisher.plugins import record_format
from publisher.reconcile.evidence import EvidenceDatabase, EvidenceRecord, SentBody
from publisher.reconcile.ledger import LedgerRun
from publisher.reconcile.sent_settings import SentSettings
from publisher.store import runs
from publisher.store.paging import chunks
from publisher.store.queries import PendingDelivery

_DIGEST_BYTES: Final = 16
_AT_ONCE: Final = 500
"""The element tree of a message takes ten times its bytes."""


class SentRecords:
    """The records of runs for one target. `are_readable`: whether its format can be read back."""

    def __init__(self, settings: SentSettings) -> None:
        self._settings = settings
        self._recipient = settings.present
        self._read = self._recipient.format.columns
        self.are_readable = self._read is not None

    def of(self, entries: Sequence[LedgerRun]) -> dict[int, RecordColumns]:
        """By run id, in the version that was sent, else the present one; runs that cannot be rendered any more are left
        out."""
        records: dict[int, RecordColumns] = {}
        for part in chunks(entries, _AT_ONCE):
            for recipient, some in self._by_recipient(part):
                records.update(self._columns(recipient, some))
        return records

    def by_earlier_settings(self, entries: Sequence[LedgerRun]) -> Iterator[dict[int, RecordColumns]]:
        """The records of these runs, by run id, as they were made by each of the earlier settings by which the service
        may have them: those before the last message's, one after the other."""
        possible = [self._settings.possible(entry.run)[1:] for entry in entries]
        for runs_then in zip_longest(*possible):
            then = zip(entries, runs_then, strict=True)
            yield self.of([msgspec.structs.replace(entry, run=run) for entry, run in then if run is not None])

    def changed_later(
        self, entries: Sequence[LedgerRun], taken: Mapping[int, RecordColumns]
    ) -> dict[int, tuple[RecordColumns, RecordColumns]]:
        """Of those that were made by earlier settings, the columns as they were sent and as they would be sent now, by
        run id, where both can be made. `taken`: those that the service has by earlier settings."""
        earlier = [entry for entry in entries if self._settings.of(entry.run).number or entry.run.run_id in taken]
        versions: dict[int, tuple[RecordColumns, RecordColumns]] = {}
        for part in chunks(earlier, _AT_ONCE):
            now = self._columns(self._recipient, part)
            sent = {**self.of(part), **taken}
            versions.update((run_id, (sent[run_id], now[run_id])) for run_id in now.keys() & sent.keys())
        return versions

    def _by_recipient(self, entries: Sequence[LedgerRun]) -> Iterator[tuple[Recipient, list[LedgerRun]]]:
        by_id = {entry.run.run_id: entry for entry in entries}
        for made_by, some in self._settings.groups([entry.run for entry in entries]):
            if made_by.recipient is not None:
                yield made_by.recipient, [by_id[run.run_id] for run in some]

    def _columns(self, recipient: Recipient, entries: Sequence[LedgerRun]) -> dict[int, RecordColumns]:
        if self._read is None:
            return {}
        items = self._rendered(recipient, entries)
        if not items:
            return {}
        form = record_format(recipient.format_name, recipient.view)
        records = self._read(form.message([item.body for item in items]))
        return {item.members.run_ids[0]: record for item, record in zip(items, records, strict=True)}

    @staticmethod
    def _rendered(recipient: Recipient, entries: Sequence[LedgerRun]) -> Sequence[Item]:
        versions = {entry.run.run_id: entry.version for entry in entries if entry.version is not None}
        with recipient.store.read() as connection:
            stored = runs.by_ids(connection, [entry.run.run_id for entry in entries])
        pages = [
            PendingDelivery(
                run.job.end or 0,
                msgspec.structs.replace(run, job=version) if (version := versions.get(run.run_id)) else run,
            )
            for run in stored
        ]
        return records_of(recipient, pages, guarded=False).items

    def bodies(self, entries: Sequence[LedgerRun]) -> Iterator[SentBody]:
        """Those that were sent from here in a version that is known, by their bytes."""
        for part in chunks(entry for entry in entries if entry.known and entry.run.sent):
            by_id = {entry.run.run_id: entry for entry in part}
            for recipient, some in self._by_recipient(part):
                for item in self._rendered(recipient, some):
                    entry = by_id[item.members.run_ids[0]]
                    yield SentBody(item.key, digest_of(item.body), entry.end, entry.wall_s, entry.cpu_s)

    def as_sent(self, payload: bytes, target: str, database: EvidenceDatabase) -> list[EvidenceRecord] | None:
        """The records of a message whose bytes are those of `EvidenceDatabase.sent_bodies`; None: parse it.

        The columns of the first one are read, since all have the same ones.
        """
        cut = self._recipient.format.pieces
        if cut is None or self._read is None:
            return None
        pieces = cut(payload)
        sent = database.sent_bodies(target, [piece.record_id for piece in pieces])
        form = record_format(self._recipient.format_name, self._recipient.view)
        bodies = [piece.body for piece in pieces]
        if not bodies or any(
            (body := sent.get(piece.record_id)) is None or body.digest != digest_of(piece.body) for piece in pieces
        ):
            return None
        # The records may be ours in a message that is not: what is around them, such as a namespace, decides their
        # meaning.
        if form.message(bodies) != payload:
            return None
        (first,) = self._read(form.message(bodies[:1]))
        bodies_sent = [sent[piece.record_id] for piece in pieces]
        return [
            EvidenceRecord(
                body.key, body.end, body.wall_s, body.cpu_s, first.columns if number == 0 else {}, as_sent=True
            )
            for number, body in enumerate(bodies_sent)
        ]


def digest_of(body: bytes) -> bytes:
    """The digest of the bytes of a record."""
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
