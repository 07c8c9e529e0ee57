"""The local users and groups of the runs of classes that do not have them, as their source knows the grid identities.

A grid identity is mapped to one local user, or to few: by these pairs a pattern is decided for nearly all classes, and
only the runs of the others are decoded. A class has the pairs of all its runs, and of earlier ones until a purge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, select

from publisher.errors import StoreCorruptError
from publisher.store import dialect, paging, prepared
from publisher.store.schema import class_users
from publisher.store.stored_json import read_with
from publisher.store.stored_values import bytes_of


class LocalUser(msgspec.Struct, frozen=True, array_like=True):
    """The local user and group of runs whose class does not have them."""

    local_user: str | None
    local_group: str | None


_DIGEST_BYTES: Final = 8
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(LocalUser).decode
_digests: Final = prepared.Lookup((class_users.c.digest,), class_users.c.class_id)
_all: Final = select(class_users)
_MOST_REMEMBERED: Final = 20_000
ClassUser = tuple[int, bytes]
"""A class, and a local user and group as `publisher.encoded_run.local_user_of` gives them."""


@lru_cache(maxsize=_MOST_REMEMBERED)
def digest_of(class_id: int, user: bytes) -> bytes:
    """The digest of a pair."""
    return blake2b(_encode((class_id, user)), digest_size=_DIGEST_BYTES).digest()


def record(connection: Connection, pairs: Iterable[ClassUser]) -> int:
    """Record pairs; return how many were not recorded before."""
    rows = [(class_id, digest_of(class_id, user), user) for class_id, user in sorted(pairs)]
    return dialect.insert_missing_rows(connection, class_users, rows)


def by_class(connection: Connection) -> dict[int, list[LocalUser]]:
    """The local users of each class. Empty if one is damaged: it may be of any class, and only the runs decide."""
    users: defaultdict[int, list[LocalUser]] = defaultdict(list)
    try:
        for class_id, digest, user in connection.execute(_all):
            users[class_id].append(_verified(class_id, digest, user))
    except StoreCorruptError:
        return {}
    return dict(users)


def wrong(connection: Connection) -> Iterator[str]:
    """What is wrong with each that is damaged."""
    for class_id, digest, user in connection.execute(_all):
        try:
            _verified(class_id, digest, user)
        except StoreCorruptError as error:
            yield error.message


def _verified(class_id: int, digest: Any, user: Any) -> LocalUser:
    what = f"a local user of class {class_id}"
    stored = bytes_of(user, what)
    if digest_of(class_id, stored) != bytes_of(digest, what):
        raise StoreCorruptError(f"the store is damaged: {what} is not what was stored")
    return read_with(_decode, stored, what)


def digests_of(connection: Connection, class_ids: Iterable[int]) -> frozenset[bytes]:
    """The digests of the pairs of these classes, without those that are of another type."""
    rows = _digests.rows(connection, list(class_ids))
    return frozenset(bytes(digest) for (digest,) in rows if isinstance(digest, bytes | memoryview))


def replace(connection: Connection, class_ids: Iterable[int], pairs: Iterable[ClassUser]) -> None:
    """Record these pairs in place of all that these classes have."""
    paging.execute_in(connection, delete(class_users), class_users.c.class_id, class_ids)
    record(connection, pairs)
