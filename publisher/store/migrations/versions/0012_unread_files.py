"""Unreadable input may be a file that disappeared before it was read to its end: from when on its jobs ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column. What was kept before is no such file."""
    op.add_column("unreadable", sa.Column("unread_from", sa.BigInteger()))
