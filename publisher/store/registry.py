"""Sources and targets by name: cursors, counters, the settings that deliveries follow, the last attempt.

The audit log: actions of people (republish, retry, waive, purge, import ...) with who, when, and to what. Notices: the
problems about which a mail was sent, so that one mail is sent about each.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, case, delete, func, insert, select, update

from publisher.sources.base import Cursor, cursor_of, waiting_of
from publisher.store import dialect, named_rows, paging
from publisher.store.schema import (
    audit,
    batches,
    classes,
    earlier_settings,
    notices,
    runs,
    sources,
    targets,
)
from publisher.store.stored_json import decoded, read_with
from publisher.text import Instant


class SourceRow(msgspec.Struct, frozen=True):
    """A source: its incomplete input in words, and counters of what was read."""

    id: int
    name: str
    kind: str
    waiting: tuple[str, ...]
    at_end: bool
    first_read_done: bool
    complete_since: int | None
    jobs: int
    skipped: int
    unreadable: int
    last_collected: int | None
    last_job_end: int | None
    last_error: str | None


class TargetRow(msgspec.Struct, frozen=True):
    """A target: the text of the settings that its deliveries follow, and its last attempt."""

    id: int
    name: str
    kind: str
    filter_settings: str
    last_attempt: int | None
    last_success: int | None
    last_error: str | None
    assumes: tuple[str, ...] | None = None
    """The sources whose jobs up to `delivered_until` count as delivered by an earlier publisher; None: all."""


def source(connection: Connection, name: str, kind: str) -> SourceRow:
    """Return the source with this name, recorded if it is new. Needs a writing transaction. Raises as `get_source`."""
    row = get_source(connection, name)
    if row is None:
        connection.execute(insert(sources).values(name=name, kind=kind))
        named_rows.seal(connection, sources, name)
        row = get_source(connection, name)
        assert row is not None  # it was inserted in this transaction
    return row


def get_source(connection: Connection, name: str) -> SourceRow | None:
    """Return the source with this name, if it was ever read. Raises `StoreCorruptError`."""
    row = named_rows.find(connection, sources, name)
    if row is None:
        return None
    values = dict(row)
    del values["row_digest"]
    values["waiting"] = read_with(waiting_of, values.pop("cursor"), f"how far source {name} was read")
    return SourceRow(**values | {"at_end": bool(row["at_end"]), "first_read_done": bool(row["first_read_done"])})


def cursor(connection: Connection, source: SourceRow) -> Cursor:
    """Return where reading a source stopped. Raises `StoreCorruptError`."""
    text = connection.execute(select(sources.c.cursor).where(sources.c.id == source.id)).scalar_one()
    return read_with(cursor_of, text, f"how far source {source.name} was read")


class SourceCount(msgspec.Struct, frozen=True):
    """How many jobs of a source were ever stored, purged ones too, and when the last of them ended."""

    jobs: int
    last_job_end: Instant | None


def count_by_source(connection: Connection) -> dict[str, SourceCount]:
    """The jobs of each source, also of those that the configuration does not name any more."""
    query = select(sources.c.name, sources.c.jobs, sources.c.last_job_end).order_by(sources.c.name)
    return {name: SourceCount(jobs, last_job_end) for name, jobs, last_job_end in connection.execute(query)}


def has_several_sources(connection: Connection) -> bool:
    """Whether runs of more than one source may be stored."""
    return len(connection.execute(select(sources.c.id).limit(2)).all()) > 1


def last_end_before(connection: Connection, source_id: int, instant: int) -> int | None:
    """The latest end of a run of a source that ended at an instant or before."""
    query = (
        select(runs.c.end_time)
        .join(classes, runs.c.class_id == classes.c.id)
        .where(classes.c.source_id == source_id, runs.c.end_time <= instant)
        .order_by(runs.c.end_time.desc())
        .limit(1)
    )
    end: int | None = connection.execute(query).scalar()
    return end


def advance(
    connection: Connection,
    source_id: int,
    jobs: int,
    skipped: int,
    unreadable_new: int,
    last_job_end: int | None,
    *,
    cursor: str,
    at_end: bool,
    complete_since: int | None,
    now: int,
) -> None:
    """Move a source's cursor, in its stored form, past a page that was stored in this transaction."""
    values = _counted(jobs, skipped, unreadable_new, last_job_end) | {
        "cursor": cursor,
        "at_end": int(at_end),
        "complete_since": complete_since,
        "last_collected": now,
        "last_error": None,
    }
    if at_end:
        values["first_read_done"] = 1
    connection.execute(update(sources).where(sources.c.id == source_id).values(values))


def count_window(
    connection: Connection, source_id: int, jobs: int, skipped: int, unreadable_new: int, last_job_end: int | None
) -> None:
    """Count a page of a window that was read again and stored in this transaction; the cursor does not move."""
    values = _counted(jobs, skipped, unreadable_new, last_job_end)
    connection.execute(update(sources).where(sources.c.id == source_id).values(values))


def _counted(jobs: int, skipped: int, unreadable_new: int, last_job_end: int | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "jobs": sources.c.jobs + jobs,
        "skipped": sources.c.skipped + skipped,
        "unreadable": sources.c.unreadable + unreadable_new,
    }
    if last_job_end is not None:
        known = func.coalesce(sources.c.last_job_end, last_job_end)
        values["last_job_end"] = case((known < last_job_end, last_job_end), else_=known)
    return values


def record_failure(connection: Connection, source_id: int, message: str) -> None:
    """Record that a source could not be read to its end, and why: the text is only shown, never compared."""
    connection.execute(update(sources).where(sources.c.id == source_id).values(at_end=0, last_error=message))


def target_ids(connection: Connection) -> dict[str, int]:
    """The ids of all targets for which deliveries were ever planned, by their names."""
    query = select(targets.c.name, targets.c.id).order_by(targets.c.name)
    return {row.name: row.id for row in connection.execute(query)}


def get_target(connection: Connection, name: str) -> TargetRow | None:
    """Return the target with this name, if deliveries were ever planned for it. Raises `StoreCorruptError`."""
    row = named_rows.find(connection, targets, name)
    if row is None:
        return None
    values = dict(row)
    del values["row_digest"]
    assumes = row["assumes"]
    return TargetRow(
        **values | {"assumes": None if assumes is None else decoded(assumes, tuple[str, ...], f"target {name}")}
    )


def new_target(connection: Connection, name: str, kind: str, filter_settings: str, assumes: Sequence[str]) -> TargetRow:
    """Record a new target. `assumes`: the sources from which an earlier publisher may have delivered."""
    values = {"name": name, "kind": kind, "filter_settings": filter_settings}
    connection.execute(insert(targets).values(**values, assumes=msgspec.json.encode(list(assumes)).decode()))
    named_rows.seal(connection, targets, name)
    row = get_target(connection, name)
    assert row is not None  # it was inserted in this transaction
    return row


def set_filter_settings(connection: Connection, name: str, kind: str, filter_settings: str) -> None:
    """Record the settings that the deliveries of a target now follow; the ones before stay with the messages that were
    made by them."""
    last = (
        select(targets.c.id, func.max(batches.c.id), targets.c.filter_settings)
        .join(batches, batches.c.target_id == targets.c.id)
        .where(targets.c.name == name)
        .group_by(targets.c.id, targets.c.filter_settings)
    )
    rows = [dict(zip(earlier_settings.c.keys(), row, strict=True)) for row in connection.execute(last)]
    dialect.insert_missing(connection, earlier_settings, rows)  # there is one if no message was made by these
    values = {"kind": kind, "filter_settings": filter_settings}
    connection.execute(update(targets).where(targets.c.name == name).values(values))
    named_rows.seal(connection, targets, name)


def settings_before(connection: Connection, target_id: int) -> list[tuple[int, str]]:
    """The earlier settings of a target, oldest first, each with the id of the last batch that was made by them."""
    query = select(earlier_settings.c.last_batch_id, earlier_settings.c.settings)
    mine = query.where(earlier_settings.c.target_id == target_id).order_by(earlier_settings.c.last_batch_id)
    return [(row[0], row[1]) for row in connection.execute(mine)]


def record_attempt(connection: Connection, target_id: int, *, success: bool, error: str | None, now: int) -> None:
    """Record an attempt to deliver. `error` is only shown, never compared."""
    values: dict[str, int | str | None] = {"last_attempt": now, "last_error": error}
    if success:
        values["last_success"] = now
    connection.execute(update(targets).where(targets.c.id == target_id).values(values))


LOG_IN: Final = "log in"
"""To the page: what changes nothing in the store."""


class AuditEntry(msgspec.Struct, frozen=True):
    """An action of a person."""

    at: int
    who: str
    action: str
    subject: str
    detail: str


def who() -> str:
    """The user who runs the program, and the one who called `sudo`, if any."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    sudo_user = os.environ.get("SUDO_USER")
    return f"{user} (as {sudo_user})" if sudo_user and sudo_user != user else user


def record_action(connection: Connection, action: str, subject: str, detail: str, now: int) -> None:
    """Record an action, in the transaction that performs it."""
    connection.execute(insert(audit).values(at=now, who=who(), action=action, subject=subject, detail=detail))


def count_actions(connection: Connection) -> int:
    """How many actions are recorded."""
    return connection.execute(select(func.count()).select_from(audit)).scalar_one()


def actions(connection: Connection, limit: int | None = 1000) -> list[AuditEntry]:
    """The latest actions, newest first; None: all."""
    query = (
        select(audit.c.at, audit.c.who, audit.c.action, audit.c.subject, audit.c.detail)
        .order_by(audit.c.id.desc())
        .limit(limit)
    )
    return [AuditEntry(*row) for row in connection.execute(query)]


def notified(connection: Connection) -> dict[str, int]:
    """When a mail was sent about each continuing problem, by its key."""
    return {row.key: row.notified_at for row in connection.execute(select(notices).order_by(notices.c.notified_at))}


def record_notices(connection: Connection, keys: Sequence[str], now: int) -> None:
    """Record that a mail about these problems is sent now."""
    dialect.insert_missing(connection, notices, [{"key": key, "notified_at": now} for key in keys])


def forget_notices(connection: Connection, keys: Sequence[str]) -> None:
    """Record that these problems are over."""
    paging.execute_in(connection, delete(notices), notices.c.key, keys)
