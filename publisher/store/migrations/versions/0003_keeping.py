"""What is known of purged jobs and erased persons, and what spooling contexts have yet to write."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "purged_months",
        sa.Column("month", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("purged_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "purged_runs",
        sa.Column("run", sa.LargeBinary(), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "purged_deliveries",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("month", sa.Integer(), primary_key=True),
        sa.Column("state", sa.SmallInteger(), primary_key=True),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "erased",
        sa.Column("pseudonym", sa.Text(), primary_key=True),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("person", sa.LargeBinary(), nullable=False),
        sa.Column("erased_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "spool_changes",
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("target", sa.Text(), primary_key=True),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
