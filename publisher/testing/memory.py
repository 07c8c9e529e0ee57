"""A source in memory."""

from __future__ import annotations

from collections.abc import Iterator

from formats.job import Job
from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.sources.base import Cursor, Page, Unreadable, Window


class ListSource:
    """A source that gives what was appended to its log since it was last read, `page` jobs at a time."""

    kind = "arc"

    def __init__(self, name: str, *, page: int = 100, complete_since: int | None = 0) -> None:
        self.name = name
        self.log: list[Job | Unreadable] = []
        self.page = page
        self.fails: str | None = None
        """Why it cannot be read to its end: reported after the first page."""
        self._complete_since = complete_since

    def add(self, *jobs: Job | Unreadable) -> None:
        """Append."""
        self.log += jobs

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """See `publisher.sources.base.Source`."""
        if window is not None:
            again = [job for job in self.log if isinstance(job, Job) and window.holds(job.end)]
            yield Page(tuple(again), cursor, len(again), at_end=True)
            return
        offset = int(cursor.get("at", 0))
        while True:
            items = self.log[offset : offset + self.page]
            offset += len(items)
            at_end = offset >= len(self.log)
            jobs = tuple(item for item in items if isinstance(item, Job))
            bad = tuple(item for item in items if isinstance(item, Unreadable))
            yield Page(jobs, {"at": offset}, len(items), unreadable=bad, at_end=at_end and self.fails is None)
            if self.fails is not None:
                raise SourceError(self.fails)
            if at_end:
                return

    def complete_since(self) -> int | None:
        """The given time."""
        return self._complete_since

    def check(self) -> list[Finding]:
        """No findings."""
        return []
