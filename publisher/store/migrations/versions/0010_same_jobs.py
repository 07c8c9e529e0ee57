"""Pairs of runs of different sources that are one job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the table. Runs that are stored get into it when the other run of their job is read."""
    op.create_table(
        "same_jobs",
        sa.Column("run_id", sa.BigInteger(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("other_key", sa.LargeBinary(), primary_key=True),
        sqlite_with_rowid=False,
    )
