"""Which runs each transaction wrote, for what is derived from the store."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the table, with a first row where there are runs: only a store without any row has never had runs."""
    changes = op.create_table(
        "changes",
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("kinds", sa.SmallInteger(), nullable=False),
        sa.Column("token", sa.LargeBinary(), nullable=False),
        sa.Column("runs", sa.LargeBinary(), nullable=False),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    if connection.execute(sa.select(sa.table("runs", sa.column("id"))).limit(1)).first() is not None:
        row = {"number": 1, "kinds": 1, "token": secrets.token_bytes(8), "runs": bytes(4)}
        connection.execute(sa.insert(changes), row)
