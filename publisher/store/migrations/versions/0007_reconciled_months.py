"""What a reconciliation found is kept by month: comparing one month again settles nothing of the others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
_COUNTS = ("differences", "missing", "differing")


def upgrade() -> None:
    """Add the table; what was found until now is in no known month, which the next complete comparison replaces."""
    op.create_table(
        "reconciled_months",
        sa.Column("target_id", sa.BigInteger(), sa.ForeignKey("targets.id"), primary_key=True),
        sa.Column("month", sa.Integer(), primary_key=True),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _COUNTS),
        sqlite_with_rowid=False,
    )
    names = ", ".join(_COUNTS)
    op.execute(
        f"INSERT INTO reconciled_months (target_id, month, {names}) "  # noqa: S608 - names of columns
        f"SELECT target_id, 0, {names} FROM reconciliations WHERE differences + missing + differing > 0"
    )
