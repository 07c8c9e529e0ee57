"""Of which troubles somebody was told by mail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "notices",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("told_at", sa.BigInteger(), nullable=False),
        sqlite_with_rowid=False,
    )
