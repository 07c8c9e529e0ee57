"""SQLite databases other than the store: temporary ones, and those of other programs, which are only read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from publisher.errors import PublisherError

_AT_ONCE: Final = 500
_SETTINGS: Final = "PRAGMA cache_size = -8192; PRAGMA journal_mode = OFF;"


def open_read_only(path: Path, busy_timeout_s: float = 5.0) -> sqlite3.Connection:
    """Another program's database, in which nothing can be changed. Raises `sqlite3.Error`."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=busy_timeout_s, isolation_level=None)


class TemporaryDatabase:
    """A database for what is too much for memory. Close it, or use it in a `with` statement.

    It is a file without a name in the directory for temporary files (`TMPDIR`), private to this process and gone with
    it, and needs 8 MiB of memory. A million rows of a record each take some 100 MiB there.
    """

    def __init__(self, tables: str, purpose: str, error: type[PublisherError]) -> None:
        """`tables`: the statements that make them. `purpose`: what the file is for, in messages.

        Every method raises `error` where the file cannot be used, as a rule because there is no room for it.
        """
        self._purpose = purpose
        self._error = error
        with self._explained():
            self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._connection.executescript(f"{_SETTINGS}{tables}; BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Delete everything."""
        self._connection.close()

    def change(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Execute a statement with the values of each row; gives how many rows of its table were changed."""
        before = self._connection.total_changes
        with self._explained():
            self._connection.executemany(statement, rows)
        return self._connection.total_changes - before

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """All that a query finds."""
        with self._explained():
            return self._connection.execute(query, values).fetchall()

    def row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        """The first row that a query finds."""
        with self._explained():
            row: tuple[Any, ...] | None = self._connection.execute(query, values).fetchone()
        return row

    def each(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """What a query finds, row by row. What it looks at must not be changed meanwhile."""
        with self._explained():
            yield from self._connection.execute(query, values)

    def pages(
        self, query: str, *values: object, after: object, limit: int | None = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """What a query finds, in pages, which may be changed in between; at most `limit` rows.

        The query ends with `key > ? ORDER BY key LIMIT ?`, and its first column is the key, which begins after `after`.
        """
        left = limit
        while left is None or left > 0:
            page = self.rows(query, *values, after, _AT_ONCE if left is None else min(left, _AT_ONCE))
            if not page:
                return
            yield page
            after = page[-1][0]
            left = None if left is None else left - len(page)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(
                f"the temporary file for {self._purpose} cannot be used: {error}",
                hint="Free space in the directory for temporary files, or set TMPDIR to one with free space",
            ) from error
