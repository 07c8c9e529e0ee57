"""Completeness of an interval: the one rule by which summaries and reports are held or sent.

A partial month would replace a complete one at the service. So a month is sent only if every source that feeds the
target has all its jobs from the first second of the month on. All that makes a period incomplete (a rotated log,
purging, imported state) is decided here.
"""

from __future__ import annotations

from typing import Final

from formats.calendar import Month, month_bounds, month_numbered, month_of
from formats.rule_codes import Reason
from publisher.config.schema import Config
from publisher.config.schema import Target as TargetSettings
from publisher.reason import ReasonCode
from publisher.store import registry, unreadable_input
from publisher.store.admin import purge
from publisher.store.database import Store
from publisher.text import past

_MOST_NAMED: Final = 5


def why_not_whole(store: Store, config: Config, settings: TargetSettings, month: Month) -> Reason | None:
    """Return why a month cannot be summarised yet, with the names of the sources; None if all sources have it
    completely."""
    with store.read() as connection:
        # Before the sources, which may have all of it: summed up from what is left, the total would replace a right
        # one.
        if month.number in purge.months(connection):
            return Reason.of(ReasonCode.MONTH_PURGED, month=str(month))
    begin, end = month_bounds(month)
    return _why_not_read_from(store, config, settings, begin, str(month), end)


def why_not_known_from(store: Store, config: Config, settings: TargetSettings, first: int, what: str) -> Reason | None:
    """The same for an interval that begins at an instant (epoch seconds) and has no end, as for reports; `what`
    names it in the reason."""
    with store.read() as connection:
        gone = max(purge.months(connection), default=0)
    if gone >= month_of(first).number:
        return Reason.of(ReasonCode.PERIOD_PURGED, month=str(month_numbered(gone)), interval=what)
    return _why_not_read_from(store, config, settings, first, what)


def why_not_read(store: Store, config: Config, start: int, stop: int, what: str) -> Reason | None:
    """Return why the sources do not have all of an interval, or the store no longer has it; None if they do."""
    with store.read() as connection:
        gone = purge.months(connection)
    for number in range(month_of(start).number, month_of(stop - 1).number + 1):
        if number in gone:
            return Reason.of(ReasonCode.MONTH_PURGED, month=str(month_numbered(number)))
    return _why_not_read_from(store, config, None, start, what, stop)


def _why_not_read_from(
    store: Store, config: Config, settings: TargetSettings | None, first: int, what: str, until: int | None = None
) -> Reason | None:
    """Return a reason that names all incomplete sources, so that they can be fixed at once; None: all are complete.

    `until`: the end of the interval (exclusive), or None.
    """
    unsure = []
    for name in fed_by(config, settings):
        with store.read() as connection:
            row = registry.get_source(connection, name)
        # A source that was not read to its end once may have more: the total of a part of the month would replace that
        # of all at the service.
        if row is None or not row.first_read_done:
            return Reason.of(ReasonCode.SOURCE_NOT_READ, source=name)
        with store.read() as connection:
            files = unreadable_input.unread_files(connection, row.id)
        # Only where the unread rest may belong: a file that was lost in June must not hold November.
        unread = [left.file for left in files if left.end >= first and (until is None or left.begin < until)]
        if unread:
            return Reason.of(ReasonCode.FILE_DISAPPEARED, source=name, file=unread[0], interval=what)
        since = _complete_since(config, name, row)
        if since is None or since > first:
            unsure.append(name)
    if not unsure:
        return None
    if len(unsure) == 1:
        return Reason.of(ReasonCode.SOURCE_INCOMPLETE, source=unsure[0], interval=what)
    named = ", ".join(unsure[:_MOST_NAMED]) + (" ..." if len(unsure) > _MOST_NAMED else "")
    return Reason.of(ReasonCode.SOURCES_INCOMPLETE, sources=named, interval=what)


def known_from(store: Store, config: Config, settings: TargetSettings) -> int | None:
    """Return the instant from which every source that feeds a target has every job; None if it is unknown for one.
    For the months before and after it see `why_not_whole`."""
    begins: list[int] = []
    for name in fed_by(config, settings):
        with store.read() as connection:
            since = _complete_since(config, name, registry.get_source(connection, name))
        if since is None:
            return None
        begins.append(since)
    return max(begins, default=None)


def known_until(store: Store, config: Config, settings: TargetSettings | None, now: int) -> int | None:
    """Return the instant up to which every source that feeds a target was read, or every source.

    None while one was not read to its present end, or was read with a wrong clock (later than the instant `now`).
    """
    reads: list[int] = []
    for name in fed_by(config, settings):
        # It gives no more jobs: waiting for it to be read, no period would ever be over.
        if config.sources[name].retired:
            reads.append(now)
            continue
        with store.read() as connection:
            row = registry.get_source(connection, name)
        read = past(row.last_collected, now) if row is not None and row.at_end else None
        if read is None:
            return None
        reads.append(read)
    return min(reads, default=None)


def fed_by(config: Config, settings: TargetSettings | None) -> list[str]:
    """The sources that feed a target, by name; without one, all sources."""
    chosen = settings.sources if settings is not None else ()
    return [name for name in config.sources if not chosen or name in chosen]


def _complete_since(config: Config, name: str, row: registry.SourceRow | None) -> int | None:
    configured = config.sources[name].complete_since
    return configured if configured is not None or row is None else row.complete_since
