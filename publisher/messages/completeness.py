"""Whether an interval is known whole: the one rule by which summaries and reports are held or sent.

A month that is sent in part would replace a complete one, so it is sent only if every source that feeds the target is
known from its first second on. What takes knowledge away (a rotated log, purging, an imported state) is asked for here
and nowhere else.
"""

from __future__ import annotations

from typing import Final

from formats.calendar import Month, month_bounds, month_numbered, month_of
from publisher.config.schema import Config
from publisher.config.schema import Target as TargetSettings
from publisher.store import registry
from publisher.store.admin import purge
from publisher.store.database import Store
from publisher.text import past

NOT_WHOLE: Final = "the month is not known whole: "
"""How the reason begins of a run that is held for this, and is released by itself."""
_MOST_NAMED: Final = 5


def why_not_whole(store: Store, config: Config, settings: TargetSettings, month: Month) -> str | None:
    """Why a month cannot be summarised yet, naming the sources; None if every source knows it from its first second."""
    with store.read() as connection:
        if month.number in purge.months(connection):
            return f"{NOT_WHOLE}jobs of {month} were purged from the store"
    begin, end = month_bounds(month)
    return _why_not_read_from(store, config, settings, begin, str(month), end)


def why_not_known_from(store: Store, config: Config, settings: TargetSettings, first: int, what: str) -> str | None:
    """The same for anything that begins at an instant (epoch seconds) and is made of runs that ended then or later, as
    reports are; `what` names it in the reason."""
    with store.read() as connection:
        gone = max(purge.months(connection), default=0)
    if gone >= month_of(first).number:
        return f"{NOT_WHOLE}jobs of {month_numbered(gone)} were purged from the store, and some may have run in {what}"
    return _why_not_read_from(store, config, settings, first, what)


def _why_not_read_from(
    store: Store, config: Config, settings: TargetSettings, first: int, what: str, until: int | None = None
) -> str | None:
    """All sources that cannot tell are named at once, so that they can be mended at once. `until`: the end of what is
    asked for (exclusive); None: it has none."""
    unsure = []
    for name in fed_by(config, settings):
        with store.read() as connection:
            row = registry.get_source(connection, name)
        if row is None or not row.first_read_done:
            return f"{NOT_WHOLE}source {name} was not yet read to its end"
        with store.read() as connection:
            files = registry.unread_files(connection, row.id)
        unread = [each.file for each in files if each.end >= first and (until is None or each.begin < until)]
        if unread:
            return (
                f"{NOT_WHOLE}of source {name}, {unread[0]} disappeared before it was read to its end, and may have "
                f"held jobs of {what}; `usage-publisher collect --unreadable` tells what to do"
            )
        since = _complete_since(config, name, row)
        if since is None or since > first:
            unsure.append(name)
    if not unsure:
        return None
    if len(unsure) == 1:
        whose, setting = f"source {unsure[0]} cannot tell that it has", f"if it has, set sources.{unsure[0]}"
    else:
        named = ", ".join(unsure[:_MOST_NAMED]) + (" ..." if len(unsure) > _MOST_NAMED else "")
        whose, setting = f"sources {named} cannot tell that they have", "if they have, set sources.NAME"
    return f"{NOT_WHOLE}{whose} every job from {what} on; {setting}.complete_since"


def known_from(store: Store, config: Config, settings: TargetSettings) -> int | None:
    """From when on every source that feeds a target has every job; None where one cannot tell. See `why_not_whole`
    for the months before and since."""
    begins: list[int] = []
    for name in fed_by(config, settings):
        with store.read() as connection:
            since = _complete_since(config, name, registry.get_source(connection, name))
        if since is None:
            return None
        begins.append(since)
    return max(begins, default=None)


def known_until(store: Store, config: Config, settings: TargetSettings, now: int) -> int | None:
    """Up to when every source that feeds a target was read; None as long as one was not read to its present end, or was
    read when the clock was wrong: after the present instant `now`."""
    reads: list[int] = []
    for name in fed_by(config, settings):
        with store.read() as connection:
            row = registry.get_source(connection, name)
        read = past(row.last_collected, now) if row is not None and row.at_end else None
        if read is None:
            return None
        reads.append(read)
    return min(reads, default=None)


def fed_by(config: Config, settings: TargetSettings) -> list[str]:
    """The sources that feed a target, by name."""
    return [name for name in config.sources if not settings.sources or name in settings.sources]


def _complete_since(config: Config, name: str, row: registry.SourceRow | None) -> int | None:
    configured = config.sources[name].complete_since
    return configured if configured is not None or row is None else row.complete_since
