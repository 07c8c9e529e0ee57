"""Closed months: their statements, what each run was charged for, and the series of numbers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the tables."""
    row_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "closings",
        sa.Column("id", row_id, primary_key=True),
        sa.Column("month", sa.Integer(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=False),
        sa.Column("successor", sa.BigInteger()),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "closed_statements",
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("closing_id", sa.BigInteger(), sa.ForeignKey("closings.id"), nullable=False),
        sa.Column("cancels", sa.BigInteger()),
        sa.Column("label", sa.Text(), nullable=False, unique=True),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_table(
        "closed_lines",
        sa.Column("closing_id", sa.BigInteger(), sa.ForeignKey("closings.id"), primary_key=True),
        sa.Column("line", sa.Integer(), primary_key=True),
        sa.Column("body", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "closed_runs",
        sa.Column("closing_id", sa.BigInteger(), sa.ForeignKey("closings.id"), primary_key=True),
        sa.Column("run", sa.LargeBinary(), primary_key=True),
        sa.Column("line", sa.Integer(), primary_key=True),
        sa.Column("issued_in", sa.BigInteger(), sa.ForeignKey("closings.id"), primary_key=True),
        sa.Column("usage", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "closed_texts",
        sa.Column("token", sa.Text(), primary_key=True),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "number_series",
        sa.Column("series", sa.Text(), primary_key=True),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
