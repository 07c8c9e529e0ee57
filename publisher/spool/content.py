"""The content of a context beside that of the store: all of it written, and objects that somebody removed, added, or
altered.

Objects are compared by a sum of their digests, which is the same in any order, in every layout, and with every version
of Python: exports carry it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from publisher.spool import kinds as spool_kinds
from publisher.spool.base import Kind, Object, SpoolError
from publisher.spool.context import SpoolingContext

_DIGEST_BYTES: Final = 16
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_AS_IS: Final = frozenset({int, str, bytes, type(None)})
_INTEGERS: Final = 2.0**63
"""Whole floats below are the same as ints: not every database distinguishes them."""
_COMMIT_EVERY: Final = 5000


class ObjectCounts(msgspec.Struct, frozen=True):
    """A kind of which a context has other objects than the store: how many each has; as many if some are altered."""

    there: int
    stored: int


Incomplete = dict[str, ObjectCounts]
"""By kind, how a context differs."""


class Summed:
    """Objects that pass through, counted, with the sum of their digests."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._objects = objects
        self.count = 0
        self.sum = 0

    def __iter__(self) -> Iterator[Object]:
        for item in self._objects:
            self.count += 1
            self.sum += _digest(item.key, item.values)
            yield item


def write_all(context: SpoolingContext, kind: Kind, objects: Iterable[Object]) -> None:
    """Write all objects of a kind to a context without any."""
    for written, item in enumerate(objects, start=1):
        context.write_object(kind, kind.of(item))
        if written % _COMMIT_EVERY == 0:
            context.commit()
    context.commit()


def incomplete(connection: Connection, context: SpoolingContext, kinds: Mapping[str, Kind]) -> Incomplete:
    """The kinds of which a context has other objects than the store: all of both are read.

    The context must have every change of this transaction's snapshot, and not be written meanwhile.
    """
    incomplete_objects: Incomplete = {}
    for name, kind in kinds.items():
        there = context.count(kind) if context.has_place(kind) else 0
        stored = spool_kinds.count_of(connection, name)
        if there != stored or not _is_same(connection, context, kind):
            incomplete_objects[name] = ObjectCounts(there, stored)
    return incomplete_objects


def _is_same(connection: Connection, context: SpoolingContext, kind: Kind) -> bool:
    try:
        there = _plain_sum(context.read_list(kind)) if context.has_place(kind) else 0
    except (SpoolError, ValueError, KeyError, IndexError, TypeError, OverflowError):  # a line or file without an object
        return False
    return there == _plain_sum(map(kind.of, spool_kinds.all_of(connection, kind.name)))


def _plain_sum(objects: Iterable[Object]) -> int:
    return sum(_digest(item.key, _plain(item.values)) for item in objects)


def _digest(key: str, values: Any) -> int:
    """Raises `ValueError` and `OverflowError` for values that no store contains."""
    return int.from_bytes(blake2b(_encode((key, values)), digest_size=_DIGEST_BYTES).digest())


def _plain(value: Any) -> Any:
    """The value without what the layout `database` does not distinguish."""
    if type(value) in _AS_IS:
        return value
    if isinstance(value, Mapping):
        return {key: one if type(one) in _AS_IS else _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    is_whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer() and abs(value) < _INTEGERS)
    return int(value) if is_whole else value
