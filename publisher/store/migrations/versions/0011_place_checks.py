"""Check numbers of the places of groups, and of what was recorded of messages before they left."""

from __future__ import annotations

from hashlib import blake2b

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

# As in `publisher.store.row_checks`: a migration does not follow later changes of the program.
_PRIME = 31_907
_RECORDED = ("target_id", "uid", "format", "records", "bytes", "latest_end", "created_at")
_PAGE = 1_000


def upgrade() -> None:
    """Fill them: what is stored counts as right, as there is nothing to compare it with, but for a wrong state."""
    connection = op.get_bind()
    kinds = sa.text("SELECT DISTINCT kind FROM groups")
    for kind in connection.execute(kinds).scalars().all():
        name = kind.encode("utf-8", "surrogateescape")
        term = int.from_bytes(blake2b(name, digest_size=2).digest()) % _PRIME
        place = f"({term} + CAST(month AS BIGINT) % {_PRIME} * 21221 + target_id % {_PRIME} * 9403) % {_PRIME}"
        right = "state_check = state * 37 + 11"
        filled = f"UPDATE groups SET state_check = {place} + state * 37 + 11 WHERE kind = :kind AND {right}"  # noqa: S608
        connection.execute(sa.text(filled), {"kind": kind})
    op.add_column("batches", sa.Column("row_check", sa.Integer(), nullable=False, server_default="0"))
    # Nobody else can change batches now. Triggers of spooling contexts would note each of them as changed.
    changes = sa.table("spool_changes", *map(sa.column, ("kind", "key", "target", "times")))
    noted = connection.execute(sa.select(changes).where(changes.c.kind == "messages")).mappings().all()
    table = sa.table("batches", sa.column("id"), sa.column("row_check"), *map(sa.column, _RECORDED))
    query = sa.select(table.c.id, *(table.c[name] for name in _RECORDED)).order_by(table.c.id).limit(_PAGE)
    filled_row = sa.update(table).where(table.c.id == sa.bindparam("batch")).values(row_check=sa.bindparam("check"))
    rows = connection.execute(query).all()
    while rows:
        checks = [{"batch": batch_id, "check": _check(tuple(values))} for batch_id, *values in rows]
        connection.execute(filled_row, checks)
        rows = connection.execute(query.where(table.c.id > rows[-1][0])).all()
    connection.execute(sa.delete(changes).where(changes.c.kind == "messages"))
    if noted:
        connection.execute(sa.insert(changes), [dict(row) for row in noted])


def _check(values: tuple[object, ...]) -> int:
    return int.from_bytes(blake2b(msgspec.msgpack.encode(values), digest_size=4).digest()) >> 1
