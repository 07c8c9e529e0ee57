"""Windows that are being sent again, so that a request which was cut off goes on where it stopped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "resends",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("begins", sa.BigInteger(), nullable=False),
        sa.Column("ends", sa.BigInteger(), nullable=False),
        sa.Column("only_missing", sa.SmallInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
