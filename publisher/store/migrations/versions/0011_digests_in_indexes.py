"""Indexes over texts of any length are over digests of them: PostgreSQL takes at most 2,704 bytes in an index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from alembic import op

from formats.identity import MOST_KEY_BYTES, decode, digest, encode, index_key, record_key

revision = "0011"
down_revision = "0010"

_PAGE: Final = 1000
_DIGEST_BYTES: Final = 16


def _table(name: str, *columns: str) -> sa.TableClause:
    return sa.table(name, *map(sa.column, columns))


_classes: Final = _table("classes", "id", "facts", "digest")
_unreadable: Final = _table("unreadable", "id", "file", "line", "offset", "raw", "digest")
_runs: Final = _table("runs", "id", "record_id", "local_id", "global_id", "digest", "job")
_deliveries: Final = _table("deliveries", "run_id", "sent_digest")
_grid_jobs: Final = _table("grid_jobs", "key", "lrms_id")
_grid_waits: Final = _table("grid_waits", "key")


def upgrade() -> None:
    """Give classes and unreadable input their digests, and shorten long ids. Memory does not grow with the rows."""
    _fill(_classes, lambda row: _hash(row.facts))
    _fill(_unreadable, _digest_of_unreadable)
    if op.get_bind().dialect.name != "sqlite":  # its indexes took no long ids
        _index_digest("classes", "classes_facts")
        _index_digest("unreadable", "unreadable_place")
        return
    _rebuild(
        "classes",
        "classes_facts",
        sa.Column("facts", sa.LargeBinary(), nullable=False),
    )
    _rebuild(
        "unreadable",
        "unreadable_place",
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("line", sa.BigInteger()),
        sa.Column("offset", sa.BigInteger()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
    )
    _shorten_ids(op.get_bind())


def _fill(table: sa.TableClause, digest_of: Callable[[Any], bytes]) -> None:
    op.add_column(table.name, sa.Column("digest", sa.LargeBinary()))
    connection = op.get_bind()
    setting = sa.update(table).where(table.c.id == sa.bindparam("row")).values(digest=sa.bindparam("of"))
    for page in _pages(connection, table, sa.true()):
        connection.execute(setting, [{"row": row.id, "of": digest_of(row)} for row in page])


def _index_digest(table: str, constraint: str) -> None:
    op.alter_column(table, "digest", nullable=False)
    op.drop_constraint(constraint, table)
    op.create_unique_constraint(constraint, table, ["source_id", "digest"])


def _rebuild(table: str, constraint: str, *columns: sa.Column[Any]) -> None:
    """SQLite changes no constraint of a table: it is made anew."""
    new = f"{table}_new"
    names = ", ".join(f'"{name}"' for name in ("id", "source_id", *(column.name for column in columns), "digest"))
    op.create_table(
        new,
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("source_id", sa.BigInteger(), sa.ForeignKey("sources.id"), nullable=False),
        *columns,
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("source_id", "digest", name=constraint),
    )
    op.execute(f"INSERT INTO {new} ({names}) SELECT {names} FROM {table} ORDER BY id")  # noqa: S608 - our own words
    op.drop_table(table)
    op.rename_table(new, table)


def _shorten_ids(connection: sa.Connection) -> None:
    """Let stored ids be those that runs and entries have when they are read now. A record id so long was never sent."""
    runs = _runs.c
    known = (sa.func.length(column) * 4 > MOST_KEY_BYTES for column in (runs.local_id, runs.global_id, runs.record_id))
    for page in _pages(connection, _runs, sa.or_(*known)):
        for row in page:
            _shorten_run(connection, row)
    for table, name in ((_grid_jobs, "key"), (_grid_jobs, "lrms_id"), (_grid_waits, "key")):
        column = table.c[name]
        long = sa.select(column).where(sa.func.length(column) * 4 > MOST_KEY_BYTES).distinct()
        for text in connection.execute(long).scalars().all():
            connection.execute(sa.update(table).where(column == text).values({name: index_key(text)}))


def _shorten_run(connection: sa.Connection, row: Any) -> None:
    values = {
        "local_id": row.local_id and index_key(row.local_id),
        "global_id": row.global_id and index_key(row.global_id),
    }
    record_id = record_key(row.record_id)
    if record_id != row.record_id:
        stored = encode(msgspec.structs.replace(decode(row.job), record_id=record_id))
        values |= {"record_id": record_id, "job": stored, "digest": digest(stored)}
        same = (_deliveries.c.run_id == row.id, _deliveries.c.sent_digest == row.digest)
        connection.execute(sa.update(_deliveries).where(*same).values(sent_digest=values["digest"]))
    connection.execute(sa.update(_runs).where(_runs.c.id == row.id).values(values))


def _digest_of_unreadable(row: Any) -> bytes:
    line, offset = (None if number == -1 else number for number in (row.line, row.offset))
    return _hash(msgspec.msgpack.encode((row.file, line, offset, bytes(row.raw))))


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _pages(connection: sa.Connection, table: sa.TableClause, chosen: sa.ColumnElement[bool]) -> Iterator[Sequence[Any]]:
    """The rows that are chosen, by their ids; a page may be changed before the next is asked for."""
    last = 0
    while True:
        query = sa.select(table).where(table.c.id > last, chosen).order_by(table.c.id).limit(_PAGE)
        page = connection.execute(query).all()
        if page:
            yield page
        if len(page) < _PAGE:
            return
        last = page[-1].id
