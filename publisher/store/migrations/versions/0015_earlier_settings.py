"""The settings by which earlier messages of a target were made."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the table; of messages that were sent before, only the present settings are known."""
    op.create_table(
        "earlier_settings",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("last_batch_id", sa.BigInteger(), primary_key=True),
        sa.Column("settings", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
