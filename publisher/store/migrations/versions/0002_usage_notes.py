"""Runs whose CPU time the source corrected, or doubts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make their table; runs that are stored have no note until they are read again."""
    op.create_table(
        "usage_notes",
        sa.Column("run_id", sa.BigInteger(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), nullable=False),
        sa.Column("note", sa.SmallInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
