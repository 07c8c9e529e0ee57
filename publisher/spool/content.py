"""The content of a context beside that of the store: all of it written, and objects that somebody removed, added, or
altered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from publisher.spool import kinds as spool_kinds
from publisher.spool.base import Kind, Object, SpoolError
from publisher.spool.context import SpoolingContext

_DIGEST_BYTES: Final = 16
_COMMIT_EVERY: Final = 5000


class ObjectCounts(msgspec.Struct, frozen=True):
    """A kind of which a context has other objects than the store: how many each has; as many if some are altered."""

    there: int
    stored: int


Incomplete = dict[str, ObjectCounts]
"""By kind, how a context differs."""


def write_all(connection: Connection, context: SpoolingContext, kind: Kind) -> int:
    """Write all objects of a kind to a context without any; return how many."""
    written = 0
    for written, item in enumerate(spool_kinds.all_of(connection, kind.name), start=1):
        context.write_object(kind, kind.of(item))
        if written % _COMMIT_EVERY == 0:
            context.commit()
    context.commit()
    return written


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
        there = _sum(context.read_list(kind)) if context.has_place(kind) else 0
    except (SpoolError, ValueError, KeyError, IndexError, TypeError):  # a line or file that is none of an object
        return False
    return there == _sum(map(kind.of, spool_kinds.all_of(connection, kind.name)))


def _sum(objects: Iterable[Object]) -> int:
    """The sum of the digests of objects, in any order."""
    total = 0
    for item in objects:
        content = repr((item.key, _ordered(item.values))).encode("utf-8", "surrogatepass")
        total += int.from_bytes(blake2b(content, digest_size=_DIGEST_BYTES).digest())
    return total


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((key, _ordered(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in value]
    return int(value) if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()) else value
