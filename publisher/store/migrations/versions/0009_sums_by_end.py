"""Sums of runs are read from the index over their ends; runs whose amounts are not told in full are marked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_PAGE: Final = 2000
_runs: Final = sa.table("runs", sa.column("id"), sa.column("job"), sa.column("untold"))


class _Amounts(msgspec.Struct):
    """What is looked at of a stored job, as its first encoding has it."""

    wall_ms: int | None = None
    cpu_ms: int | None = None
    cpu_user_ms: int | None = None
    cpu_system_ms: int | None = None

    @property
    def told(self) -> bool:
        in_parts = self.cpu_user_ms is not None and self.cpu_system_ms is not None
        return self.wall_ms is not None and (self.cpu_ms is not None or in_parts)


_decoder: Final = msgspec.msgpack.Decoder(_Amounts)


def upgrade() -> None:
    """Add the column, mark the runs, make the index wider. Memory does not grow with the runs."""
    op.add_column("runs", sa.Column("untold", sa.SmallInteger(), nullable=False, server_default="0"))
    connection = op.get_bind()
    mark = sa.update(_runs).where(_runs.c.id == sa.bindparam("run")).values(untold=1)
    for lacking in _lacking(connection):
        connection.execute(mark, [{"run": run_id} for run_id in lacking])
    op.drop_index("runs_end_time", "runs")
    op.create_index("runs_by_end", "runs", ["end_time", "id", "class_id", "wall_ms", "cpu_ms", "untold"])


def _lacking(connection: sa.Connection) -> Iterator[list[int]]:
    """The runs whose amounts are not told in full, page by page; those whose record is damaged are looked at later."""
    last = 0
    while True:
        query = sa.select(_runs.c.id, _runs.c.job).where(_runs.c.id > last).order_by(_runs.c.id).limit(_PAGE)
        page = connection.execute(query).all()
        lacking = [run_id for run_id, job in page if not _told(job)]
        if lacking:
            yield lacking
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def _told(job: bytes) -> bool:
    try:
        return _decoder.decode(memoryview(job)[1:]).told
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return False
