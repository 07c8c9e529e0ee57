"""The mark of what was sent: how many messages have left, counted in the store and in a small file outside of it.

A store that was restored from a backup, or from a snapshot, does not know what was sent since. The file does. A
message is counted in the transaction that records it as in flight; the file follows when that is committed, and before
the message leaves. So the file is ahead of the store only where the store was replaced by an earlier state of itself; a
kill at any instant leaves the file level with the store, or behind it.

The file is written in place, without a sync: what a power failure takes of the last seconds of it makes it lag, never
lead. Several processes may write it: it only grows, under a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, insert, select, update

from publisher.errors import ResourceLimitError, StoreError, StoreFullError, StoreRestoredError
from publisher.store import prepared
from publisher.store.dialect import PRIVATE_FILE_MODE
from publisher.store.schema import sent_mark
from publisher.store.stored_json import read_with
from publisher.text import counted, iso
from publisher.whole_file import sync

_FILE_BYTES: Final = 256
"""The file always has so many: written in place, none of an earlier content is left, and no block is ever added."""
RESTORED_HINT: Final = (
    "First learn what was delivered (docs/how-to/lost-store.md); then `usage-publisher store accept-restored`"
)
_count: Final = prepared.Bulk(
    update(sent_mark)
    .values(messages=sent_mark.c.messages + bindparam("number"), sent_at=bindparam("now"))
    .returning(sent_mark.c.store, sent_mark.c.messages, sent_mark.c.sent_at),
    ("number", "now"),
)


class SentMark(msgspec.Struct, frozen=True):
    """So many messages have left the store of this id, the last of them at `sent_at` (epoch seconds)."""

    store: str
    messages: int
    sent_at: int | None


def of_store(connection: Connection) -> SentMark | None:
    """What the store counted; None before anything was to be sent from it. Raises `StoreCorruptError`."""
    row = connection.execute(select(sent_mark.c.store, sent_mark.c.messages, sent_mark.c.sent_at)).first()
    return None if row is None else _mark_of(row)


def _mark_of(row: Iterable[Any]) -> SentMark:
    values = dict(zip(SentMark.__struct_fields__, row, strict=True))
    return read_with(lambda content: msgspec.convert(content, SentMark), values, "how many messages have left it")


def begin(connection: Connection) -> SentMark:
    """Give a store its id, before anything is sent from it."""
    mark = SentMark(secrets.token_hex(8), 0, None)
    connection.execute(insert(sent_mark), msgspec.structs.asdict(mark))
    return mark


def count_messages(connection: Connection, number: int, now: int) -> SentMark:
    """Count messages, in the transaction that records them as in flight. `Store.mark_sent` is called with the result
    before they leave."""
    return _mark_of(_count.one(connection, (number, now)))


def take_count(connection: Connection, mark: SentMark) -> None:
    """Let the next message be counted after those of a mark."""
    connection.execute(update(sent_mark).values(messages=mark.messages, sent_at=mark.sent_at))


class SentMarkFile:
    """The mark outside of the store. `is_shared`: hosts that share a store have one each, so that a host may have none
    yet of what another one sent."""

    def __init__(self, path: Path, *, is_shared: bool) -> None:
        self.path = path
        self._is_shared = is_shared

    def read(self) -> SentMark | None:
        """What it says; None where it is not there. Raises `StoreError` for a file that cannot be read."""
        try:
            with self._opened(os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
                return self._content(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable("read", error) from error

    def advance(self, mark: SentMark) -> None:
        """Set it to a mark of the same store that is later than its own. Raises `StoreError` and its kinds."""
        try:
            with self._opened(os.O_RDWR, fcntl.LOCK_EX) as descriptor:
                self._advance(descriptor, mark)
        except OSError as error:
            raise self._unusable("written", error) from error

    def make(self, mark: SentMark) -> None:
        """The same, of a file that may be missing, and it is on the disk when this returns."""
        self._write(mark, self._advance)

    def replace(self, mark: SentMark) -> None:
        """Set it to a mark, whatever it says. On the disk when this returns. Raises `StoreError` and its kinds."""
        self._write(mark, lambda descriptor, mark: os.pwrite(descriptor, _encoded(mark), 0))

    def _advance(self, descriptor: int, mark: SentMark) -> None:
        present = self._content(descriptor)
        if present is not None and present.store != mark.store and present.messages:
            raise StoreRestoredError(
                f"the file {self.path} now belongs to another store. Nothing more is sent", hint=RESTORED_HINT
            )
        if present is None or present.store != mark.store or present.messages < mark.messages:
            os.pwrite(descriptor, _encoded(mark), 0)

    def _write(self, mark: SentMark, write: Callable[[int, SentMark], object]) -> None:
        try:
            with self._opened(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as descriptor:
                write(descriptor, mark)
                os.fsync(descriptor)
            sync(self.path.parent)
        except OSError as error:
            raise self._unusable("written", error) from error

    def why_not_latest(self, marked: SentMark | None, stored: SentMark | None, place: str) -> str | None:
        """Why a store may not know of all that was sent; None where it does. `marked` was read before `stored`."""
        if marked is None or (not marked.messages and (stored is None or stored.store != marked.store)):
            if self._is_shared or stored is None or not stored.messages:
                return None
            return (
                f"the store {place} has sent {counted(stored.messages, 'message')}, the last at {_time(stored)}, but "
                f"the file {self.path} that goes with it is missing: the store was restored from a backup, or moved "
                "without that file, and may not know what was sent last"
            )
        if stored is None or stored.store != marked.store:
            own = (
                f"its own last message left at {_time(stored)}" if stored and stored.messages else "it has sent nothing"
            )
            return (
                f"the file {self.path} is of another store, of which the last message left at {_time(marked)}; the "
                f"store {place} may not know what that one sent ({own})"
            )
        if marked.messages <= stored.messages:
            return None
        return (
            f"the store {place} was restored from an earlier state: its last message left at {_time(stored)}, but "
            f"{self.path} has one that left at {_time(marked)}. The store does not know of "
            f"{counted(marked.messages - stored.messages, 'message')} that left in between"
        )

    @contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        descriptor = os.open(self.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE_MODE)
        try:
            fcntl.flock(descriptor, lock)
            yield descriptor
        finally:
            os.close(descriptor)

    def _content(self, descriptor: int) -> SentMark | None:
        content = os.pread(descriptor, _FILE_BYTES, 0)
        if not content.strip(b"\0"):
            return None  # made, and not yet written when the power failed: nothing had been sent
        try:
            return msgspec.json.decode(content, type=SentMark)
        except msgspec.DecodeError:
            raise StoreError(
                f"the file {self.path} records what was sent last, and is damaged. Nothing is sent",
                hint=f"If the store was not restored, remove the file. {RESTORED_HINT}",
            ) from None

    def _unusable(self, what: str, error: OSError) -> StoreError:
        kind = StoreFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
        limit = ResourceLimitError.of(error)
        remedy = (
            limit.hint if limit is not None else "Check owner, mode and space of its folder, or set store.sent_mark"
        )
        return kind(
            f"the file {self.path}, which records what was sent last, cannot be {what}: {error.strerror}",
            hint=f"Nothing is sent without it. {remedy}",
        )


def _encoded(mark: SentMark) -> bytes:
    return msgspec.json.encode(mark).ljust(_FILE_BYTES - 1) + b"\n"


def _time(mark: SentMark) -> str:
    return iso(mark.sent_at) or "an unknown time"
