"""Check numbers of the columns of runs, digests of kept sync counts, and how far the store was checked."""

from __future__ import annotations

from hashlib import blake2b

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

# As in `publisher.store.row_checks`: a migration does not follow later changes of the program.
_SUMS = (
    8_388_593,
    {
        "id": 3_158_977,
        "class_id": 1_289_321,
        "end_time": 5_437_219,
        "wall_ms": 2_476_979,
        "cpu_ms": 6_700_417,
        "incomplete_usage": 4_190_209,
    },
)
_ROW = (32_749, {"id": 12_611, "class_id": 27_449, "stored_at": 5_651, "finished": 19_087})


def upgrade() -> None:
    """Add and fill them; the index that SQLite sums gets one too.

    The triggers of spooling contexts do not see this: they follow the columns that there were.
    """
    in_file = op.get_bind().dialect.name == "sqlite"
    if in_file:
        op.drop_index("runs_by_end", "runs")
    op.add_column("runs", sa.Column("sums_check", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("row_check", sa.SmallInteger(), nullable=False, server_default="0"))
    op.execute(f"UPDATE runs SET sums_check = {_linear(*_SUMS)}, row_check = {_linear(*_ROW)}")  # noqa: S608 - constants
    if in_file:
        summed = ["class_id", "wall_ms", "cpu_ms", "incomplete_usage", "sums_check"]
        op.create_index("runs_by_end", "runs", ["end_time", "id", *summed])
    _add_digests()
    op.create_table(
        "check_progress",
        sa.Column("part", sa.Text(), primary_key=True),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.Column("damaged", sa.Text(), nullable=False),
        sqlite_with_rowid=False,
    )


def _add_digests() -> None:
    op.add_column("purged_sync_counts", sa.Column("digest", sa.LargeBinary(), nullable=False, server_default=""))
    counts = sa.table(
        "purged_sync_counts", sa.column("target_id"), sa.column("month"), sa.column("key"), sa.column("body"),
        sa.column("digest"),
    )  # fmt: skip
    connection = op.get_bind()
    for target_id, month, key, body in connection.execute(sa.select(*list(counts.c)[:4])).all():
        one = (counts.c.target_id == target_id) & (counts.c.month == month) & (counts.c.key == key)
        content = msgspec.json.decode(bytes(body))
        digest = blake2b(msgspec.json.encode((content["spelling"], content.get("jobs", 0))), digest_size=16).digest()
        connection.execute(sa.update(counts).where(one).values(digest=digest))


def _linear(prime: int, factors: dict[str, int]) -> str:
    terms = (
        f"((coalesce({name}, 0) % {prime}) + {prime}) % {prime} * CAST({factor} AS BIGINT)"
        for name, factor in factors.items()
    )
    return f"({' + '.join(terms)}) % {prime}"
