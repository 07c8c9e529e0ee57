"""Input that is not a record: what is kept of it, files that disappeared before they were read to their end, and the
decisions of people about them. Those with a run are suspect (`publisher.store.suspects`)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, case, delete, func, select, update

from publisher.errors import UsageError
from publisher.sources.base import Recovered, Unreadable
from publisher.store import dialect, paging, suspects
from publisher.store.schema import (
    sources,
    unreadable,
)
from publisher.text import Instant, utf8

LISTED: Final = 1000
"""How many pieces of unreadable input are listed, and settled, at a time."""
_DIGEST_BYTES: Final = 16
_MOST_NAMED: Final = 5

KEPT_OF_FILE: Final = 1000
"""How many pieces of unreadable input are kept of a file; further ones are only counted."""


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
    files = [left.file for left in unread_files(connection, source_id)]
    if not files:
        return None
    named = ", ".join(dict.fromkeys(files[:_MOST_NAMED])) + (" ..." if len(files) > _MOST_NAMED else "")
    return (
        f"not read to the end before it was rotated, cut, or removed: {named}. `usage-publisher collect --unreadable` "
        "says where it was looked for; name its folder in `rotated_to`, or settle it"
    )


class UnreadableRow(msgspec.Struct, frozen=True):
    """Input that could not be parsed, as kept."""

    id: int = msgspec.field(name="piece")
    source: str
    file: str
    line: int | None
    offset: int | None
    reason: str
    raw: bytes
    seen_at: int
    unread_from: Instant | None = None
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
