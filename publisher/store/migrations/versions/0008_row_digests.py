"""Digests of sources and targets, and check numbers of the states of groups."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

# As in `publisher.store`: a migration does not follow later changes of the program.
_DIGESTED = {
    "sources": ("id", "name", "kind"),
    "targets": ("id", "name", "kind", "filter_settings", "assumes"),
}


def upgrade() -> None:
    """Add and fill them: what is stored counts as right, as there is nothing to compare it with."""
    op.add_column("groups", sa.Column("state_check", sa.SmallInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE groups SET state_check = state * 37 + 11")
    for name, columns in _DIGESTED.items():
        op.add_column(name, sa.Column("row_digest", sa.LargeBinary(), nullable=False, server_default=""))
        _fill(name, columns)


def _fill(name: str, columns: Sequence[str]) -> None:
    table = sa.table(name, sa.column("row_digest"), *map(sa.column, columns))
    connection = op.get_bind()
    for row in connection.execute(sa.select(*(table.c[column] for column in columns))).all():
        digest = blake2b(msgspec.msgpack.encode(tuple(row)), digest_size=16).digest()
        connection.execute(sa.update(table).where(table.c.id == row[0]).values(row_digest=digest))
