"""Sources and targets by name: cursors, counters, the settings that deliveries follow, the last attempt.

The audit log: actions of people (republish, retry, waive, purge, import ...) with who, when, and to what. Notices: the
problems about which a mail was sent, so that one mail is sent about each.
"""

from __future__ import annotations

import getpass
import hashlib
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, select, update

from publisher.errors import UsageError
from publisher.sources.base import Cursor, Recovered, Unreadable, cursor_of, text_of
from publisher.store import dialect, named_rows, paging, suspects
from publisher.store.schema import (
    audit,
    batches,
    classes,
    earlier_settings,
    notices,
    runs,
    sources,
    targets,
    unreadable,
)
from publisher.store.stored_json import decoded, read_with
from publisher.text import Instant, utf8

LISTED: Final = 1000
"""How many pieces of unreadable input are listed, and settled, at a time."""
_DIGEST_BYTES: Final = 16
_MOST_NAMED: Final = 5

KEPT_OF_FILE: Final = 1000
"""How many pieces of unreadable input are kept of a file; further ones are only counted."""


class SourceRow(msgspec.Struct, frozen=True):
    """A source: where reading stopped, and counters of what was read."""

    id: int
    name: str
    kind: str
    cursor: Cursor
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
    found = get_source(connection, name)
    if found is None:
        connection.execute(insert(sources).values(name=name, kind=kind))
        named_rows.seal(connection, sources, name)
        found = get_source(connection, name)
        assert found is not None  # it was inserted in this transaction
    return found


def get_source(connection: Connection, name: str) -> SourceRow | None:
    """Return the source with this name, if it was ever read. Raises `StoreCorruptError`."""
    row = named_rows.find(connection, sources, name)
    if row is None:
        return None
    values = dict(row)
    del values["row_digest"]
    values["cursor"] = read_with(cursor_of, values["cursor"], f"how far source {name} was read")
    return SourceRow(**values | {"at_end": bool(row["at_end"]), "first_read_done": bool(row["first_read_done"])})


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
    found: int | None = connection.execute(query).scalar()
    return found


def advance(
    connection: Connection,
    source_id: int,
    jobs: int,
    skipped: int,
    unreadable_new: int,
    last_job_end: int | None,
    *,
    cursor: Cursor,
    at_end: bool,
    complete_since: int | None,
    now: int,
) -> None:
    """Move a source's cursor past a page that was stored in this transaction."""
    values = _counted(jobs, skipped, unreadable_new, last_job_end) | {
        "cursor": text_of(cursor),
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


def keep_unreadable(
    connection: Connection,
    source_id: int,
    items: Sequence[Unreadable],
    now: int,
    *,
    again: bool = False,
    first_read: bool = False,
) -> int:
    """Keep input that cannot be parsed, `KEPT_OF_FILE` pieces of each file; return how much of it is to be counted.

    Counted are pieces that were not known yet, and pieces beyond the limit. The latter are not recognised when they are
    read again: with `again`, for a window that is read again, they are not counted. A file that disappeared is always
    kept, and so is a piece with a suspect run. `first_read`: of the source, for such runs.
    """
    known = _known_digests(connection, source_id, Counter(utf8(item.file) for item in items))
    rows: list[dict[str, Any]] = []
    beyond = 0
    for item in items:
        file, digest = utf8(item.file), _digest_of(item)
        digests = known.get(file)
        if item.unread_from is not None:  # read again at the same place, and not settled so far
            same = (*_unread_at(source_id, item), unreadable.c.digest == digest)
            connection.execute(update(unreadable).where(*same).values(seen_at=now))
        elif digests is not None and item.suspect is None:
            if digest in digests:
                continue
            if len(digests) >= KEPT_OF_FILE:
                beyond += 1
                continue
            digests.add(digest)
        rows.append({
            "source_id": source_id,
            "file": file,
            "line": item.line if item.line is not None else -1,
            "offset": item.offset if item.offset is not None else -1,
            "reason": item.reason,
            "raw": item.raw,
            "seen_at": now,
            "digest": digest,
            "unread_from": item.unread_from,
            "run": suspects.stored_form(item),
            "first_read": int(first_read) if item.suspect is not None else None,
        })  # fmt: skip
    return dialect.insert_missing(connection, unreadable, rows) + (0 if again else beyond)


def _known_digests(connection: Connection, source_id: int, met: Mapping[str, int]) -> dict[str, set[bytes]]:
    """Digests of what is kept of the files with more pieces than may be kept. Suspects, which are always kept, are not
    among them: they would take the place of input whose text is needed.
    """
    if not met:
        return {}
    of_source = (unreadable.c.source_id == source_id) & unreadable.c.run.is_(None)
    counts = select(unreadable.c.file, func.count()).where(of_source).group_by(unreadable.c.file)
    kept = {str(file): int(count) for file, count in paging.rows_in(connection, counts, unreadable.c.file, met)}
    full = {file: set[bytes]() for file, more in met.items() if kept.get(file, 0) + more > KEPT_OF_FILE}
    query = select(unreadable.c.file, unreadable.c.digest).where(of_source)
    for file, digest in paging.rows_in(connection, query, unreadable.c.file, full):
        full[file].add(bytes(digest))
    return full


def _digest_of(item: Unreadable) -> bytes:
    """Digest of its place and content, by which it is recognised even after a person's name was removed from it."""
    identity = (item.identity,) if item.identity else ()
    place = msgspec.msgpack.encode((utf8(item.file), item.line, item.offset, item.raw, *identity))
    return hashlib.blake2b(place, digest_size=_DIGEST_BYTES).digest()


def _unread_at(source_id: int, item: Unreadable | Recovered) -> tuple[ColumnElement[bool], ...]:
    if isinstance(item, Recovered) and item.raw is not None:
        of_file = unreadable.c.source_id == source_id, unreadable.c.file == utf8(item.file)
        return *of_file, unreadable.c.raw == item.raw, unreadable.c.unread_from.is_(None), unreadable.c.run.is_(None)
    return (
        unreadable.c.source_id == source_id,
        unreadable.c.file == utf8(item.file),
        unreadable.c.offset == item.offset,
        unreadable.c.unread_from.is_not(None),
    )


def drop_recovered(connection: Connection, source_id: int, items: Sequence[Recovered]) -> None:
    """Remove files "not read to the end" that were found again, and pieces that are complete now."""
    for item in items:
        gone = connection.execute(delete(unreadable).where(*_unread_at(source_id, item))).rowcount
        lower = update(sources).where(sources.c.id == source_id).values(unreadable=sources.c.unreadable - gone)
        connection.execute(lower)


class UnreadFile(msgspec.Struct, frozen=True):
    """A file that disappeared before it was read to its end: its unread jobs ended in between, epoch seconds, both
    inclusive."""

    file: str
    begin: int
    end: int


def unread_files(connection: Connection, source_id: int) -> list[UnreadFile]:
    """The files of a source that disappeared before they were read to their end, and are not settled; oldest first."""
    query = (
        select(unreadable.c.file, unreadable.c.unread_from, unreadable.c.seen_at)
        .where(unreadable.c.source_id == source_id, unreadable.c.unread_from.is_not(None))
        .order_by(unreadable.c.id)
    )
    return [UnreadFile(*row) for row in connection.execute(query)]


def unread_error(connection: Connection, source_id: int) -> str | None:
    """Return which files of a source disappeared before they were read to their end, for people; None if none did."""
    files = [each.file for each in unread_files(connection, source_id)]
    if not files:
        return None
    named = ", ".join(dict.fromkeys(files[:_MOST_NAMED])) + (" ..." if len(files) > _MOST_NAMED else "")
    return (
        f"not read to the end before it was rotated, cut, or removed: {named}. `usage-publisher collect --unreadable` "
        "says where it was looked for; name its folder in `rotated_to`, or settle it"
    )


class UnreadableRow(msgspec.Struct, frozen=True):
    """Input that could not be parsed, as kept."""

    id: int
    source: str
    file: str
    line: int | None
    offset: int | None
    reason: str
    raw: bytes
    seen_at: int
    unread_from: int | None = None
    """Of a file that disappeared before it was read to its end: the jobs of it that were not read ended then, epoch
    seconds, or later."""
    is_suspect: bool = False
    """Whether it has a run, which is held until somebody decides (`publisher.store.suspects`)."""

    @property
    def place(self) -> str:
        """The file, with the line if it is known."""
        return f"{self.file}:{self.line}" if self.line is not None else self.file


def require_pieces(given: Collection[int], found: Collection[int]) -> None:
    """Raises `UsageError` if a piece of unreadable input was given that was not found."""
    if missing := sorted({*given}.difference(found)):
        named = ", ".join(map(str, missing))
        raise UsageError(
            f"piece {named} is not among what can be decided on; nothing was changed",
            hint="`usage-publisher collect --unreadable` lists the pieces; only suspect jobs can be accepted",
        )


def list_unreadable(
    connection: Connection,
    limit: int | None = LISTED,
    names: Sequence[str] = (),
    chosen: suspects.PieceFilter = suspects.ALL_PIECES,
) -> list[UnreadableRow]:
    """Unreadable input of the named sources, or of all, including sources no longer configured: first the files that
    disappeared before they were read to their end, then the newest. `limit` None: all of it; `chosen`: only these,
    of any user."""
    query = (
        select(
            unreadable.c.id,
            sources.c.name,
            unreadable.c.file,
            unreadable.c.line,
            unreadable.c.offset,
            unreadable.c.reason,
            unreadable.c.raw,
            unreadable.c.seen_at,
            unreadable.c.unread_from,
            unreadable.c.run.is_not(None),
        )
        .join(sources)
        .order_by(unreadable.c.unread_from.is_(None), unreadable.c.id.desc())
        .limit(limit)
    )
    if names:
        query = query.where(sources.c.name.in_(names))
    query = query.where(*chosen.conditions())
    if chosen.pieces:
        query = query.where(unreadable.c.id.in_(chosen.pieces))
    return [
        UnreadableRow(
            key, name, file, line if line >= 0 else None, offset if offset >= 0 else None, reason, bytes(raw),
            seen_at, unread_from, bool(has_run),
        )
        for key, name, file, line, offset, reason, raw, seen_at, unread_from, has_run in connection.execute(query)
    ]  # fmt: skip


def count_unreadable(connection: Connection, names: Sequence[str] = ()) -> int:
    """How much unreadable input there is, of the named sources or of all. Not all of it need be kept."""
    query = select(func.coalesce(func.sum(sources.c.unreadable), 0))
    return int(connection.execute(query.where(sources.c.name.in_(names)) if names else query).scalar_one())


def drop_unreadable(connection: Connection, name: str, items: Sequence[UnreadableRow]) -> None:
    """Remove unreadable input of one source, and no longer count it. If it is read again it is kept again, as new.

    With the last kept piece, the pieces that were only counted are removed too.
    """
    drop_pieces(connection, name, [item.id for item in items])


def drop_pieces(connection: Connection, name: str, pieces: Sequence[int]) -> None:
    """The same for pieces by their ids."""
    gone = paging.execute_in(connection, delete(unreadable), unreadable.c.id, pieces)
    left = select(unreadable.c.id).where(unreadable.c.source_id == sources.c.id).exists()
    counted = case((left, sources.c.unreadable - gone), else_=0)
    connection.execute(update(sources).where(sources.c.name == name).values(unreadable=counted))


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
    found = get_target(connection, name)
    assert found is not None  # it was inserted in this transaction
    return found


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
