"""When a summary or sync count was last seen at the service as it was sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column."""
    op.add_column("groups", sa.Column("confirmed_at", sa.BigInteger()))
