"""The energy of runs that another program measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "energies",
        sa.Column("run_id", sa.BigInteger(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("energy_mj", sa.BigInteger(), nullable=False),
        sa.Column("method", sa.SmallInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
