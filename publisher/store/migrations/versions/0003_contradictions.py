"""What the last reconciliation found missing and differing, which `run` and `check` report until it is settled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns: 0 until the next reconciliation."""
    for name in ("missing", "differing"):
        op.add_column("reconciliations", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
