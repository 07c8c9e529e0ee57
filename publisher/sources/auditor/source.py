"""Source `auditor`: records that AUDITOR's collectors wrote, from its REST interface or its table.

The REST interface cannot be asked for what was stored or changed since, so each reading begins `overlap` before the end
of the last one; what a collector wrote later than that is met by `collect --since`. The table has the time of the last
change, so every late and changed record is met.

AUDITOR deletes records when it archives a month. What is gone before it was read is reported as lost input, so that its
months are not taken for complete.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from formats.job import Job
from publisher.config.auditor_source import AuditorSourceSettings
from publisher.config.sources import SourceSettings
from publisher.errors import ConfigError, SourceError
from publisher.finding import Finding
from publisher.sources.auditor.jobs import RunReader
from publisher.sources.auditor.record import SECOND_US, BadRow, Found, Part, Records, record_of
from publisher.sources.auditor.rest import RestRecords
from publisher.sources.auditor.table import TableRecords
from publisher.sources.base import (
    RAW_BYTES,
    Cursor,
    Outcome,
    Page,
    PageBuilder,
    Recovered,
    Unreadable,
    UnreadableLine,
    Window,
)
from publisher.sources.fields import LineError
from publisher.text import counted, past

_EARLY_S: Final = 1_000_000_000
"""No run ended before September 2001. A collector that knows no end writes 0 (HTCondor: CompletionDate), and such a
record is never within `overlap`."""
_COMMIT_S: Final = 3_600
"""How long a transaction of AUDITOR may take from `updated_at` to its commit, before which nobody sees its rows."""
# The cursor has them: a component that is missing in all records would make it as long as their list.
_MOST_REFUSED: Final = 1_000
_LOOKED_AT: Final = 200


class AuditorSource:
    """The records of one AUDITOR that its settings select. `clock` gives epoch seconds."""

    kind = "auditor"

    def __init__(self, name: str, settings: SourceSettings, clock: Callable[[], float] = time.time) -> None:
        """Raises `ConfigError`, and `MissingExtraError` where the driver of the database is missing."""
        self.name = name
        if settings.auditor is None:
            raise ConfigError("is missing", key=f"sources.{name}.auditor", hint="It has the `url` of AUDITOR")
        self._settings = settings
        self._auditor: AuditorSourceSettings = settings.auditor
        self._clock = clock
        self._place = settings.auditor.place

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """See `Source.pages`."""
        records = self._records()
        try:
            reading = _AuditorReading(self._settings, self._auditor, int(self._clock()), cursor, window)
            yield from reading.window(records) if window is not None else reading.forward(records)
        finally:
            records.close()

    def complete_since(self) -> int | None:
        """The configured time: AUDITOR does not say since when its collectors write."""
        return self._settings.complete_since

    def check(self) -> list[Finding]:
        """Ask for the newest records, and look whether they have what the settings expect."""
        records = self._records()
        try:
            newest = records.newest(_LOOKED_AT)
        except SourceError as error:
            return [Finding(self.name, "red", error.message, error.hint)]
        finally:
            records.close()
        reader = RunReader(self._auditor, self._settings.cluster, int(self._clock()))
        outcomes = [_outcome(reader, each) for each in newest]
        jobs = [outcome for outcome in outcomes if isinstance(outcome, Job)]
        refused = Counter(outcome.reason for outcome in outcomes if isinstance(outcome, UnreadableLine))
        if not jobs and not refused:
            hint = "Check `record_prefix` and `where`, if its collectors wrote any" if newest else ""
            return [Finding(self.name, "yellow", f"{self._place}: no selected record among the newest", hint)]
        findings = [Finding(self.name, "green", f"{self._place}: {counted(len(jobs), 'newest record')} read")]
        for reason, number in refused.items():
            findings.append(Finding(self.name, "yellow", f"{counted(number, 'newest record')} refused: {reason}"))
        findings += self._lacking(newest, jobs)
        return findings

    def _lacking(self, found: Sequence[Found], jobs: Sequence[Job]) -> Iterator[Finding]:
        named = sorted({name for each in found if isinstance(each, dict) for name in _component_names(each)})
        there = f"components of the newest records: {', '.join(named) or 'none'}"
        checked: tuple[tuple[str, int, str], ...] = (
            ("cores", sum(job.cores is None for job in jobs), "such records are held"),
            ("cpu", sum(job.cpu_ms is None for job in jobs), "they are sent without CPU time, or held"),
        )
        for quantity, number, effect in checked:
            if number:
                text = f"{number} of {len(jobs)} newest records have no component for `{quantity}`: {effect}; {there}"
                hint = f"Set sources.{self.name}.auditor.components.{quantity}"
                yield Finding(self.name, "yellow", text, hint)

    def _records(self) -> Records:
        return TableRecords(self._auditor) if self._auditor.is_table else RestRecords(self._auditor, self._clock)


class _AuditorReading:
    """One reading. Its cursor: `until`, when the last whole reading began; `position`, how far this one is, and
    `begun`, when it began; `last_end` of what was read; `refused` ids. Times in epoch seconds, `position` in
    microseconds.
    """

    def __init__(
        self,
        settings: SourceSettings,
        auditor: AuditorSourceSettings,
        now: int,
        cursor: Cursor,
        window: Window | None,
    ) -> None:
        self._place = auditor.place
        self._overlap_s = int(settings.overlap)
        self._now = now
        self._cursor = cursor
        self._window = window or Window()
        self._page = PageBuilder(window)
        self._reader = RunReader(auditor, settings.cluster, now)
        self._last_end = _noted(cursor, "last_end")
        refused = cursor.get("refused")
        self._refused = dict.fromkeys(
            text for text in (refused if isinstance(refused, list) else ()) if isinstance(text, str)
        )
        self._recovered: list[Recovered] = []

    def window(self, records: Records) -> Iterator[Page]:
        """The pages of a window; they carry the given cursor."""
        begin, until = self._window.from_, self._window.until
        for part in records.ended(max(0, begin or 0) * SECOND_US, None if until is None else until * SECOND_US):
            yield self._of_part(part, self._cursor)
        yield self._page.page(self._cursor, at_end=True)

    def forward(self, records: Records) -> Iterator[Page]:
        """The pages from the cursor on."""
        until = past(_noted(self._cursor, "until"), self._now)
        position = _noted(self._cursor, "position")
        begun = past(_noted(self._cursor, "begun"), self._now) if position is not None else None
        if until is not None and begun is None:
            self._page.unreadable += self._archived(records, until)
        is_continued = begun is not None
        begin_us = self._begin_us(until, position, records, is_continued=is_continued)
        if begun is None:
            begun = self._now
        if begin_us > _EARLY_S * SECOND_US and not records.by_change:
            for part in records.ended(0, _EARLY_S * SECOND_US):
                yield self._of_part(part, self._cursor)
        whole: dict[str, Any] = {} if until is None else {"until": until}
        reached = position or 0
        for part in records.since(begin_us):
            reached = max(reached, part.position_us)
            yield self._of_part(part, {**whole, "position": part.position_us, "begun": begun, **self._noted()})
        end: dict[str, Any] = {"until": begun, **self._noted()}
        if records.by_change:
            end["position"] = reached
        if is_continued and not records.by_change:
            # What was stored since the reading began, and ended before the place where it was continued.
            yield self._page.page(end)
            self._cursor = end
            yield from self.forward(records)
        else:
            yield self._page.page(end, at_end=True)

    def _begin_us(self, until: int | None, position: int | None, records: Records, *, is_continued: bool) -> int:
        if records.by_change:
            # AUDITOR's clock, not ours. Its transactions do not become visible in the order of `updated_at`.
            return 0 if position is None else max(0, min(position, self._now * SECOND_US) - _COMMIT_S * SECOND_US)
        if is_continued:
            return position or 0
        # Collectors write late: what ended shortly before the last reading may have been stored after it.
        return 0 if until is None else max(0, until - self._overlap_s) * SECOND_US

    def _archived(self, records: Records, until: int) -> Iterator[Unreadable]:
        """The loss of records that were deleted before they were read: what was read is gone, and so may be more."""
        oldest = records.oldest_us()
        if self._last_end is None or oldest is None or oldest <= until * SECOND_US:
            return
        text = (
            "AUDITOR archived months, and deleted their records, after they were last read: later ones of them are lost"
        )
        yield Unreadable(self._place, None, until, text, b"", unread_from=min(self._last_end, until))

    def _of_part(self, part: Part, cursor: Cursor) -> Page:
        for each in part.found:
            record_id, raw = _id_of(each), _raw(each)
            outcome = _outcome(self._reader, each)
            before = len(self._page.unreadable)
            self._page.add(outcome, partial(self._refusal, raw))
            if len(self._page.unreadable) > before:
                self._refused[record_id] = None
            elif record_id in self._refused:
                del self._refused[record_id]
                self._recovered.append(Recovered(self._place, -1, raw))
            if isinstance(outcome, Job) and outcome.end is not None:
                self._last_end = max(self._last_end or 0, outcome.end)
        recovered, self._recovered = tuple(self._recovered), []
        noted = cursor if cursor is self._cursor else {**cursor, **self._noted()}
        return self._page.page(noted, recovered=recovered)

    def _refusal(self, raw: bytes, refused: UnreadableLine) -> Unreadable:
        return Unreadable(self._place, None, None, refused.reason, raw)

    def _noted(self) -> dict[str, Any]:
        noted: dict[str, Any] = {}
        if self._last_end is not None:
            noted["last_end"] = self._last_end
        if self._refused:
            noted["refused"] = list(self._refused)[-_MOST_REFUSED:]
        return noted


def _outcome(reader: RunReader, found: Found) -> Outcome:
    if isinstance(found, BadRow):
        return UnreadableLine(found.reason)
    try:
        return reader.outcome(record_of(found))
    except LineError as error:
        return UnreadableLine(str(error))


def _id_of(found: Found) -> str:
    given = found.record_id if isinstance(found, BadRow) else found.get("record_id")
    return given if isinstance(given, str) else ""


def _raw(found: Found) -> bytes:
    """What is kept of a refused record: its id, by which it is recognised and can be asked for; else the record."""
    text = _id_of(found) or json.dumps(found if isinstance(found, dict) else "", sort_keys=True)
    return text.encode("utf-8", "backslashreplace")[:RAW_BYTES]


def _component_names(found: dict[str, Any]) -> Iterator[str]:
    components = found.get("components")
    for component in components if isinstance(components, list) else ():
        if isinstance(component, dict) and isinstance(name := component.get("name"), str):
            yield name


def _noted(cursor: Cursor, key: str) -> int | None:
    """A time of the cursor; None: it has none."""
    value = cursor.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
