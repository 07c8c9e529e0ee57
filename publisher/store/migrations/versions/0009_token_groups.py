"""Groups of the user's token in entries of grid logs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column; entries that are stored have no groups."""
    op.add_column("grid_jobs", sa.Column("token_groups", sa.Text()))
