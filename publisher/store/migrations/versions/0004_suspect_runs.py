"""Pieces of unreadable input may have a run, which is held until somebody decides whether a user made it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the run, and whether it was met in the first reading of its source."""
    op.add_column("unreadable", sa.Column("run", sa.LargeBinary()))
    op.add_column("unreadable", sa.Column("first_read", sa.SmallInteger()))
