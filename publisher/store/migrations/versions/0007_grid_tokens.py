"""Entries of grid logs tell whose token a job was submitted with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("grid_jobs", sa.Column("token_subject", sa.Text()))
    op.add_column("grid_jobs", sa.Column("token_issuer", sa.Text()))
