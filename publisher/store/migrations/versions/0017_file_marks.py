"""How far each log file was read, a row a file."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add the table. The next reading of a source takes its marks out of the cursor, and stores both at once."""
    op.create_table(
        "file_marks",
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), primary_key=True),
        sa.Column("file", sa.Text(), primary_key=True),
        sa.Column("mark", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )
