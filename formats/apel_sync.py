"""APEL's sync messages, version 0.1, both ways: how many runs the site owes for a month and submit host.

The service compares the number with what it holds for the same Site, SubmitHost and month (facts on formats, 4.6), so
the submit host is the very string of the records and summaries.
"""

from __future__ import annotations

from collections.abc import Sequence

from formats import apel_values as values
from formats.apel_rules import SUMMARY_NUMBERS, SYNC_01
from formats.apel_text import NULL, SEPARATOR, TextMessage, TextRecord, body, whole
from formats.record import Rendered
from formats.sync_count import SyncCount, SyncKey
from formats.view import View


class SyncFormat:
    """Renders sync counts."""

    name = SYNC_01.name
    content_type = "text/plain; charset=us-ascii"
    separator_bytes = len(SEPARATOR)
    type = SYNC_01

    def __init__(self, view: View) -> None:
        """There is one version; `view.version` is that of the records or summaries beside it."""
        self._view = view
        self._message = TextMessage(SYNC_01.kind, SYNC_01.version)

    @property
    def overhead_bytes(self) -> int:
        """Bytes of the header line."""
        return self._message.overhead_bytes

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these counts."""
        return self._message.of(bodies)

    def record(self, count: SyncCount) -> Rendered:
        """Render one count; raises `CannotRenderError` for a number beyond what the server's column holds."""
        key = count.spelling
        return Rendered(
            body(
                (
                    ("Site", key.site),
                    ("SubmitHost", key.submit_host),
                    ("NumberOfJobs", values.needed(SUMMARY_NUMBERS["NumberOfJobs"], count.jobs)),
                    ("Month", values.needed(SUMMARY_NUMBERS["Month"], key.month)),
                    ("Year", values.needed(SUMMARY_NUMBERS["Year"], key.year)),
                )
            )
        )


def read_count(record: TextRecord) -> SyncCount:
    """The count of a sync record; what is missing or unreadable is `None` or 0."""
    get = record.get
    spelling = SyncKey(
        get("Site") or NULL, (whole(get("Year")) or 0), (whole(get("Month")) or 0), get("SubmitHost") or NULL
    )
    return SyncCount(spelling.folded(), spelling, (whole(get("NumberOfJobs")) or 0))
