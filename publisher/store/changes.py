"""Which runs each transaction wrote: by this, columns of reports are brought up to date in proportion to what changed.

Every writing transaction that touches runs or classes appends one row, last before its commit. Writers are serialised
(`Store.write`), on a server as well, so the order of the numbers is that of the commits.

Each row has a random token. Who derived something from the state after row n remembers n and its token: a store that
was restored from a backup and went on has another token there, or no row, and what was derived is made anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final
from zlib import crc32

import msgspec
from sqlalchemy import Connection, delete, insert, select

from publisher.store import dialect, prepared
from publisher.store.schema import changes

_COLLECTED: Final = "publisher.changed_runs"
_TOKEN_BYTES: Final = 8
_CHECK_BYTES: Final = 4
KEPT: Final = 20_000
"""Rows; what is older is removed, and who has not looked since then begins anew."""
_PRUNED_EVERY: Final = 256
_append: Final = prepared.Bulk(insert(changes), dialect.column_names(changes.c))
_CLASSES, _ERASED = 1, 2
Ranges = list[tuple[int, int]]
"""First id and the one after the last, ascending."""


class ChangesLostError(Exception):
    """The changes since a mark are not known: what was derived from the store is made anew."""


class ChangeMark(msgspec.Struct, frozen=True):
    """A state of the store: the number of its last change, and the token of that."""

    number: int
    token: bytes


NOTHING: Final = ChangeMark(0, b"")
"""The mark of a store into which no run was ever written."""


class ChangesSince(msgspec.Struct, frozen=True):
    """What happened since a mark. `runs`: written, given another class, or removed; `classes`: whether classes that
    were there are others now; `erased`: what derived files have of these runs must not stay in them."""

    runs: Ranges
    classes: bool
    erased: bool


class ChangedRuns:
    """Collects what one transaction changes."""

    def __init__(self) -> None:
        self.run_ids: set[int] = set()
        self.classes = False
        self.erased = False


def collect_on(connection: Connection) -> ChangedRuns:
    """Begin to collect what the transaction of this connection changes."""
    changed = ChangedRuns()
    connection.execution_options(**{_COLLECTED: changed})
    return changed


def note_runs(connection: Connection, run_ids: Iterable[int]) -> None:
    """Note that these runs were inserted, changed, given another class, or removed."""
    _collected(connection).run_ids.update(run_ids)


def note_classes(connection: Connection) -> None:
    """Note that classes were changed or removed; new ones need no note."""
    _collected(connection).classes = True


def note_erased(connection: Connection) -> None:
    """Note that what was derived from the noted runs before must not be kept."""
    _collected(connection).erased = True


def _collected(connection: Connection) -> ChangedRuns:
    changed: ChangedRuns = connection.get_execution_options()[_COLLECTED]
    return changed


def append(connection: Connection, changed: ChangedRuns, kept: int = KEPT) -> None:
    """Append the row of a transaction that changed something; called last before its commit. `kept`: rows that stay."""
    if not (changed.run_ids or changed.classes or changed.erased):
        return
    number = mark_of(connection).number + 1
    kinds = _CLASSES * changed.classes + _ERASED * changed.erased
    _append.run(connection, [(number, kinds, secrets.token_bytes(_TOKEN_BYTES), pack(changed.run_ids))])
    if number % _PRUNED_EVERY == 0:
        connection.execute(delete(changes).where(changes.c.number <= number - kept))


_last: Final = select(changes.c.number, changes.c.token).order_by(changes.c.number.desc()).limit(1)


def mark_of(connection: Connection) -> ChangeMark:
    """The mark of the present state."""
    row = connection.execute(_last).first()
    return NOTHING if row is None else ChangeMark(row[0], bytes(row[1]))


def since(connection: Connection, mark: ChangeMark) -> ChangesSince:
    """What happened since a mark. Raises `ChangesLostError` if the store does not know it."""
    if mark != NOTHING:
        token = connection.execute(select(changes.c.token).where(changes.c.number == mark.number)).scalar()
        if token is None or bytes(token) != mark.token:
            raise ChangesLostError
    query = select(changes.c.number, changes.c.kinds, changes.c.runs).where(changes.c.number > mark.number)
    ranges: Ranges = []
    kinds, expected = 0, mark.number
    for number, kind, packed in connection.execute(query.order_by(changes.c.number)):
        expected += 1
        if number != expected:  # removed, as there were many
            raise ChangesLostError
        kinds |= kind
        ranges += unpack(bytes(packed))
    return ChangesSince(_joined(ranges), bool(kinds & _CLASSES), bool(kinds & _ERASED))


def _joined(ranges: Ranges) -> Ranges:
    joined: Ranges = []
    for first, stop in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((first, stop))
    return joined


def pack(run_ids: Iterable[int]) -> bytes:
    """Ids as distances and lengths of their ranges, each a number of 7 bits a byte, after a check number."""
    ids = sorted(run_ids)
    packed = bytearray()
    if ids:
        ends = [place for place, (one, after) in enumerate(pairwise(ids), 1) if after != one + 1]
        before = 0
        for begin, end in pairwise((0, *ends, len(ids))):
            _put(packed, ids[begin] - before)
            _put(packed, end - begin)
            before = ids[begin] + end - begin
    return crc32(packed).to_bytes(_CHECK_BYTES, "big") + bytes(packed)


def _put(packed: bytearray, number: int) -> None:
    while number >= 0x80:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def unpack(stored: bytes) -> Ranges:
    """The ranges of packed ids. Raises `ChangesLostError` if they are damaged."""
    check, packed = stored[:_CHECK_BYTES], stored[_CHECK_BYTES:]
    if crc32(packed).to_bytes(_CHECK_BYTES, "big") != check:
        raise ChangesLostError
    numbers = list(_numbers(packed))
    ranges: Ranges = []
    last = 0
    for distance, length in zip(numbers[::2], numbers[1::2], strict=True):
        first = last + distance
        last = first + length
        ranges.append((first, last))
    return ranges


def _numbers(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
