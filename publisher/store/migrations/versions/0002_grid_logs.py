"""Grid logs: how far they were read, their entries, and the runs without one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "grid_logs",
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), primary_key=True),
        sa.Column("cursor", sa.Text(), nullable=False),
    )
    op.create_table(
        "grid_jobs",
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("at", sa.BigInteger(), primary_key=True),
        sa.Column("lrms_id", sa.Text(), primary_key=True),
        sa.Column("user_dn", sa.Text()),
        sa.Column("fqans", sa.Text(), nullable=False),
        sa.Column("submit_host", sa.Text()),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "grid_waits",
        sa.Column("run_id", sa.BigInteger(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("end_time", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.SmallInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("grid_waits_key", "grid_waits", ["source_id", "key"])
    op.create_index("grid_waits_held", "grid_waits", ["source_id", "held", "end_time"])
