"""Helpers of the tests of source `arc`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from formats.job import Job
from publisher.config import schema
from publisher.sources.arc.source import ArcSource
from publisher.sources.base import Cursor, Page, Unreadable, Window

NOW = 1_795_200_000
"""A while after the last job that the generator makes: 2026-11-20T18:40:00Z."""


def source(path: Path, *, now: float = NOW, page_rows: int = 2_000, **settings: Any) -> ArcSource:
    """The source of a database, at a fixed time."""
    return ArcSource(
        "ce1", schema.SourceSettings(type="arc", path=path, **settings), clock=lambda: now, page_rows=page_rows
    )


class Read:
    """All pages of one read: the last version of every job, what was unreadable, the last cursor."""

    def __init__(self, reader: ArcSource, cursor: Cursor | None = None, window: Window | None = None) -> None:
        self.pages: list[Page] = list(reader.pages(cursor or {}, window))
        self.given: list[Job] = [job for page in self.pages for job in page.jobs]
        self.jobs: dict[str, Job] = {job.record_id: job for job in self.given}
        self.unreadable: list[Unreadable] = [one for page in self.pages for one in page.unreadable]
        self.cursor = self.pages[-1].cursor
