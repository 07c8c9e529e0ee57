"""How far each log file of a source was read: a row a file, so that neither memory nor what a page writes grows with
the number of files that were read before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from sqlalchemy import Connection, delete, select

from publisher.sources.base import MarkChange, StoredMarks
from publisher.store import dialect, paging
from publisher.store.database import Store
from publisher.store.schema import file_marks

_PAGE: Final = 1_000


def stored(store: Store, source_id: int) -> StoredMarks:
    """A function that gives the marks of a source as they are stored when it is called."""
    return partial(_texts, store, source_id)


def _texts(store: Store, source_id: int) -> Iterator[str]:
    of_source = select(file_marks.c.file, file_marks.c.mark).where(file_marks.c.source_id == source_id)
    query, last = of_source.order_by(file_marks.c.file).limit(_PAGE), ""
    while True:
        with store.read() as connection:
            rows = connection.execute(query.where(file_marks.c.file > last)).all()
        if not rows:
            return
        last = rows[-1].file
        yield from (row.mark for row in rows)


def change(connection: Connection, source_id: int, changes: Iterable[MarkChange]) -> None:
    """Store the marks that changed with a page, in its transaction: they vouch for what is stored of it."""
    last = {change.file: change.mark for change in changes}
    rows = [{"source_id": source_id, "file": file, "mark": mark} for file, mark in last.items() if mark is not None]
    dialect.upsert(connection, file_marks, rows, keys=("source_id", "file"))
    _remove(connection, source_id, [file for file, mark in last.items() if mark is None])


def _remove(connection: Connection, source_id: int, files: Sequence[str]) -> None:
    of_source = delete(file_marks).where(file_marks.c.source_id == source_id)
    paging.execute_in(connection, of_source, file_marks.c.file, files)
