"""Folding runs into sync counts: how many runs a site owes for a month and submit host.

Grouped, as summaries are, by the primary key of the receiver's table as its database compares it (facts on formats, 4.6
and 4.8); associative and in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from formats import apel_values as values
from formats.apel_rules import JOB_NUMBERS, compared
from formats.identity import DIGEST_BYTES
from formats.job import Job
from formats.month import month_of
from formats.month_key import MonthKey
from formats.record import Note
from formats.view import View


class SyncKey(MonthKey, frozen=True, order=True):
    """The primary key of a sync count at the receiver."""

    submit_host: str

    def folded(self) -> SyncKey:
        """The key as the receiver's database compares it."""
        return SyncKey(compared(self.site), self.year, self.month, compared(self.submit_host))


class SyncCount(msgspec.Struct, frozen=True):
    """How many runs a site owes for a month and submit host. `key` as compared, `spelling` as sent."""

    key: SyncKey
    spelling: SyncKey
    jobs: int = 0

    @property
    def digest(self) -> bytes:
        """16 bytes over all that is sent."""
        return hashlib.blake2b(msgspec.json.encode((self.spelling, self.jobs)), digest_size=DIGEST_BYTES).digest()

    @property
    def zeroed(self) -> SyncCount:
        """The same count of no runs."""
        return SyncCount(self.key, self.spelling)

    def plus(self, other: SyncCount) -> SyncCount:
        """Both counts together; their keys must be equal."""
        return SyncCount(self.key, min(self.spelling, other.spelling), self.jobs + other.jobs)

    def to_json(self) -> bytes:
        """The count for the store."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_json(stored: bytes) -> SyncCount:
        """The count of its stored form. Raises `msgspec.DecodeError` or `msgspec.ValidationError`."""
        return _sync_decoder.decode(stored)


_sync_decoder = msgspec.json.Decoder(SyncCount)


class SyncFold:
    """Sync counts of one receiver in the making: by month and submit host as rendered (facts on formats, 4.6)."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._counts: dict[SyncKey, SyncCount] = {}

    def add(self, job: Job) -> SyncKey:
        """Count a run, held or not; raises `CannotRenderError` for one without a usable end, site or submit host."""
        values.finished(job)
        notes: list[Note] = []
        month = month_of(values.needed(JOB_NUMBERS["EndTime"], job.end))
        site = values.required("Site", job.site or self._view.site, notes)
        spelling = SyncKey(site, month.year, month.month, values.submit_host(job, self._view, notes))
        key = spelling.folded()
        self.merge_count(SyncCount(key, spelling, 1))
        return key

    def merge(self, other: SyncFold) -> None:
        """Add all that another fold of the same view has counted."""
        for count in other.counts():
            self.merge_count(count)

    def merge_count(self, count: SyncCount) -> None:
        """Add a count, e.g. one from the store."""
        held = self._counts.get(count.key)
        self._counts[count.key] = count if held is None else held.plus(count)

    def counts(self) -> Iterator[SyncCount]:
        """All counts, in the order of their keys."""
        for key in sorted(self._counts):
            yield self._counts[key]
