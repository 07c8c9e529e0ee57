"""Temporary databases, and those of other programs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from publisher.errors import SourceError
from publisher.sqlite_file import TemporaryDatabase, open_read_only

TABLE = "CREATE TABLE numbers (number INTEGER PRIMARY KEY, text TEXT)"


def numbers(count: int) -> TemporaryDatabase:
    """A database with the numbers from 0 on."""
    database = TemporaryDatabase(TABLE, "tests", SourceError)
    database.change("INSERT INTO numbers VALUES (?, ?)", ((number, str(number)) for number in range(count)))
    return database


def test_what_is_put_in_is_found() -> None:
    with numbers(3) as database:
        assert database.row("SELECT text FROM numbers WHERE number = ?", 1) == ("1",)
        assert database.row("SELECT text FROM numbers WHERE number = ?", 9) is None
        assert database.rows("SELECT number FROM numbers ORDER BY number") == [(0,), (1,), (2,)]
        assert list(database.each("SELECT number FROM numbers ORDER BY number")) == [(0,), (1,), (2,)]


def test_a_change_gives_how_many_rows_it_changed() -> None:
    with numbers(3) as database:
        assert database.change("INSERT OR IGNORE INTO numbers VALUES (?, ?)", [(2, "2"), (3, "3")]) == 1


@pytest.mark.parametrize("count", [0, 1, 500, 501, 1200])
def test_pages_have_every_row_once_though_rows_are_changed_in_between(count: int) -> None:
    found: list[int] = []
    with numbers(count) as database:
        query = "SELECT number FROM numbers WHERE text != ? AND number > ? ORDER BY number LIMIT ?"
        for page in database.pages(query, "gone", after=-1):
            found += [number for (number,) in page]
            database.change("UPDATE numbers SET text = 'gone' WHERE number = ?", page)
    assert found == list(range(count))


@pytest.mark.parametrize(("limit", "expected"), [(0, 0), (3, 3), (700, 700), (2000, 1200)])
def test_pages_end_at_the_limit(limit: int, expected: int) -> None:
    with numbers(1200) as database:
        query = "SELECT number FROM numbers WHERE number > ? ORDER BY number LIMIT ?"
        assert sum(len(page) for page in database.pages(query, after=-1, limit=limit)) == expected


def test_what_goes_wrong_is_said_with_what_the_file_is_for() -> None:
    with numbers(1) as database, pytest.raises(SourceError, match="the temporary file for tests cannot be used"):
        database.rows("SELECT nothing FROM nowhere")


def test_another_programs_database_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "a name with ? # and %.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(TABLE)
    with closing(open_read_only(path)) as connection:
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("INSERT INTO numbers VALUES (1, '')")
