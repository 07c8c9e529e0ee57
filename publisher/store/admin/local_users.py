"""The local users of classes (`publisher.store.class_users`), read from the runs again.

After a purge or an erasure no other name stays; and damaged ones are replaced.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing, suppress
from typing import Final

from sqlalchemy import Connection, delete, func, select

from publisher.encoded_run import class_needs_local_user, local_user_of
from publisher.errors import StoreCorruptError
from publisher.store import class_users, dialect, paging, registry
from publisher.store.class_users import ClassUser
from publisher.store.classes import all_classes, decode
from publisher.store.prepared import Listed, listed
from publisher.store.schema import class_users as class_users_table
from publisher.store.schema import classes, runs

_PAGE: Final = 1000


def rebuild(connection: Connection, class_ids: Collection[int]) -> None:
    """Let each of these classes have the local users of its present runs, and no others."""
    class_users.replace(connection, class_ids, _pairs(connection, class_ids))


def drop_unused(connection: Connection) -> None:
    """Remove local users of which no run is left. The only one of a class is that of its runs."""
    several = select(class_users_table.c.class_id).group_by(class_users_table.c.class_id).having(func.count() > 1)
    rebuild(connection, connection.execute(several).scalars().all())


def repair(connection: Connection, now: int) -> None:
    """Record those that are missing, and all if one is damaged."""
    damaged = len(list(class_users.wrong(connection)))
    if damaged:
        connection.execute(delete(class_users_table))
    pairs = _pairs(
        connection,
        [job_class.id for job_class in all_classes(connection) if not class_needs_local_user(job_class.facts)],
    )
    missing = class_users.record(connection, pairs)
    if missing:
        text = f"{damaged} damaged, {missing} recorded again"
        registry.record_action(connection, "repair", "local users", text, now)


def _pairs(connection: Connection, class_ids: Collection[int]) -> set[ClassUser]:
    """The pairs of the runs of these classes, without those that are damaged: read again, they get into the table."""
    query = select(classes.c.id, classes.c.facts)
    facts = {class_id: bytes(blob) for class_id, blob in paging.rows_in(connection, query, classes.c.id, class_ids)}
    of_classes = select(runs.c.class_id, runs.c.record_id, runs.c.job).where(
        runs.c.class_id.bool_op("IN")(Listed("classes"))
    )
    pairs: set[ClassUser] = set()
    with closing(dialect.streamed(connection, of_classes, _PAGE, {"classes": listed(facts)})) as pages:
        for page in pages:
            for class_id, record_id, blob in page:
                with suppress(StoreCorruptError):
                    pairs.add((class_id, local_user_of(decode(blob, facts[class_id], record_id))))
    return pairs
