"""Statements that never change: compiled by SQLAlchemy once, and executed by the database's driver.

The layer of SQLAlchemy takes several times as long as a small statement; rows are plain tuples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Dialect,
    Executable,
    LargeBinary,
    Table,
    Text,
    and_,
    bindparam,
    func,
    insert,
    literal_column,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from publisher.store import postgresql as server


def execute(connection: Connection, sql: str, values: Sequence[Any], *, many: bool = False) -> Any:
    """Execute a statement whose SQL never changes, with these values or with many rows of them; return its cursor.

    It is executed by the driver: the layer of SQLAlchemy takes several times as long as a small statement. Its
    listeners are called. Raises the errors of the driver (see `dialect.translated`).
    """
    driver: Any = connection.connection.driver_connection
    cursor = driver.cursor()
    connection.dispatch.before_cursor_execute(connection, cursor, sql, values, None, many)
    if many:
        cursor.executemany(sql, values)
    else:
        cursor.execute(sql, values)
    return cursor


class Bulk:
    """A statement prepared for many rows of plain tuples, several times faster than a dictionary a row.

    `columns`: the names of the statement's parameters in the order of the tuples.
    """

    def __init__(self, statement: Executable, columns: Sequence[str]) -> None:
        self._statement = statement
        self._columns = tuple(columns)
        self._compiled: dict[str, tuple[str, itemgetter[tuple[Any, ...]] | None]] = {}

    def run(self, connection: Connection, rows: Iterable[tuple[Any, ...]]) -> int:
        """Execute the statement once for each row; return how many rows of the table changed."""
        listed = list(rows)
        if not listed:
            return 0
        sql, order = self._prepare(connection)
        if order is not None:
            listed = list(map(order, listed))
        # Callers count by it: a row that meets the statement's condition no longer did not change.
        changed: int = execute(connection, sql, listed, many=True).rowcount
        return changed

    def one(self, connection: Connection, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Execute the statement once; return what its RETURNING clause gives."""
        sql, order = self._prepare(connection)
        (found,) = execute(connection, sql, row if order is None else order(row)).fetchall()
        return tuple(found)

    def _prepare(self, connection: Connection) -> tuple[str, itemgetter[tuple[Any, ...]] | None]:
        dialect = connection.dialect
        if dialect.name not in self._compiled:
            compiled = self._statement.compile(dialect=dialect, column_keys=list(self._columns))  # type: ignore[attr-defined]
            order = tuple(self._columns.index(name) for name in compiled.positiontup or ())
            straight = order == tuple(range(len(self._columns)))
            self._compiled[dialect.name] = (str(compiled), None if straight else itemgetter(*order))
        return self._compiled[dialect.name]


class BulkInsert:
    """Inserts many rows of plain tuples, none of which exists: on a server with COPY, in a third of the time."""

    def __init__(self, table: Table, columns: Sequence[str]) -> None:
        """`columns`: the names of the tuples' columns; other columns get their defaults."""
        self._inserting = Bulk(insert(table).values({name: bindparam(name) for name in columns}), columns)
        self._copying = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN"

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert the rows."""
        if connection.dialect.name == "sqlite":
            self._inserting.run(connection, rows)
        # COPY has no conflict clause: a row that exists would end the transaction, so only new ones come here.
        elif rows:
            server.copy(connection, self._copying, rows)


class Listed(ColumnElement[int]):
    """The ids of a list that is one parameter of a statement (`listed`): `column.bool_op("IN")(Listed("runs"))`."""

    inherit_cache = True

    def __init__(self, name: str) -> None:
        """`name`: of the parameter."""
        self.key = name
        self.ids: BindParameter[str] = bindparam(name, type_=Text)


@compiles(Listed, "sqlite")
def _listed_in_file(element: Listed, compiler: SQLCompiler, **options: Any) -> str:
    # One parameter however long the list: SQLite limits their number, and each number of them would be a statement.
    return f"(SELECT value FROM json_each({compiler.process(element.ids, **options)}))"  # noqa: S608 - the name of a parameter


@compiles(Listed, "postgresql")
def _listed_on_server(element: Listed, compiler: SQLCompiler, **options: Any) -> str:
    ids = compiler.process(element.ids, **options)
    return f"(SELECT value::BIGINT FROM json_array_elements_text({ids}::JSON))"  # noqa: S608 - as above


def listed(ids: Iterable[int]) -> str:
    """The value of a `Listed` parameter."""
    return f"[{','.join(map(str, ids))}]"


# A byte for each id: one damaged id near 2^63 would ask for more memory than there is.
_MOST_PLACES: Final = 1 << 24
_MEMBERS: Final = "members"


def is_member(
    connection: Connection, column: ColumnElement[int], ids: Collection[int]
) -> tuple[ColumnElement[bool], dict[str, Any]]:
    """The condition that a column of ids has one of many, and the values of its parameter.

    For each of millions of rows SQLite looks up a byte by its place in a third of the time that an index of ids takes.
    """
    most = max(ids, default=0)
    if connection.dialect.name != "sqlite" or most >= _MOST_PLACES:
        return column.bool_op("IN")(Listed(_MEMBERS)), {_MEMBERS: listed(sorted(ids))}
    places = bytearray(most + 1)
    for member in ids:
        places[member] = 1
    byte: ColumnElement[bytes] = func.substr(bindparam(_MEMBERS, type_=LargeBinary), column + 1, 1)
    return byte == literal_column("x'01'"), {_MEMBERS: bytes(places)}


class Lookup:
    """A query for the rows of many keys, prepared once; takes half the time of a query that is compiled for each list
    of keys.

    Rows are the driver's own, in any order; binary columns may have another type than `bytes`.
    """

    _MARKS: Final = 250

    def __init__(self, columns: Sequence[ColumnElement[Any]], *key: ColumnElement[Any]) -> None:
        """`columns` of the rows whose column `key` has one of the keys; of several columns, each key is a tuple."""
        self._columns = columns
        self._key = key
        self._is_tuple = len(key) > 1
        self._compiled: dict[str, str] = {}

    def rows(self, connection: Connection, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows of these keys."""
        dialect = connection.dialect
        if dialect.name not in self._compiled:
            self._compiled[dialect.name] = self._sql(dialect)
        rows: list[tuple[Any, ...]] = []
        for start in range(0, len(keys), self._MARKS):
            asked = tuple(keys[start : start + self._MARKS])
            asked += asked[-1:] * (self._MARKS - len(asked))  # a fixed number: the last key is repeated
            if self._is_tuple:
                asked = tuple(part for key in asked for part in key)
            rows += execute(connection, self._compiled[dialect.name], asked).fetchall()
        return rows

    def _sql(self, dialect: Dialect) -> str:
        # Compiled for one key and repeated as text: for all of them it would take a hundred times as long.
        one = and_(*(part == bindparam(part.key) for part in self._key))
        text = str(select(*self._columns).where(one).compile(dialect=dialect))
        query, where, condition = text.partition("WHERE ")
        if self._is_tuple:  # for `(a, b) IN (...)` SQLite would read the whole table
            return query + where + " OR ".join([condition] * self._MARKS)
        column, _, mark = condition.partition(" = ")
        return f"{query}{where}{column} IN ({', '.join([mark] * self._MARKS)})"
