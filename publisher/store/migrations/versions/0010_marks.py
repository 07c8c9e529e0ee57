"""Beside a run stands the mark of what its source has of it, so that it is recognised without being read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column. Marks come when the runs are read again."""
    op.add_column("runs", sa.Column("mark", sa.LargeBinary()))
