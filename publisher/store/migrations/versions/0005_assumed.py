"""Deliveries that an earlier publisher made are marked, and of which sources a target assumes them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column and the index; mark what was accepted without ever having been sent."""
    op.add_column("targets", sa.Column("assumes", sa.Text()))
    op.execute("UPDATE deliveries SET reason = 'assumed' WHERE state = 3 AND batch_id IS NULL AND sent_digest IS NULL")
    assumed = sa.text("reason = 'assumed'")
    op.create_index("deliveries_assumed", "deliveries", ["target_id"], sqlite_where=assumed, postgresql_where=assumed)
