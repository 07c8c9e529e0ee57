"""Another database: a table for each kind, and one for each sublist; its rows have the key of their object.

    spool_jobs                  key and attributes
    spool_jobs_fqans            a list: key, position, value
    spool_jobs_extras           name/value pairs: key, position, name, value (as text that shows its type)
    spool_jobs_hosts            subordinate objects: key, position, their attributes

Only changed attributes are updated, and only changed sublists are inserted again. Values that no column can hold (a
number beyond 64 bits, a text with NUL) are in the column `odd`, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    delete,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from publisher.errors import StoreError
from publisher.spool.base import Kind, Object, Scalar, SpoolError
from publisher.spool.codec import cell_of, cell_text, escaped, unescaped
from publisher.store import dialect

_TYPES: Final[Mapping[Scalar, Any]] = {
    "int": BigInteger, "float": Double, "text": Text, "bytes": LargeBinary, "flag": SmallInteger, "any": Text,
}  # fmt: skip
_BUSY_TIMEOUT_S: Final = 30.0
_ODD: Final = "odd"


class _KindTables:
    """The tables of a kind: the main one has its single values; `subs`: one for each sublist."""

    def __init__(self, kind: Kind) -> None:
        name, metadata = f"spool_{kind.name}", MetaData()
        self.singles = {name: field.single for name, field in kind.fields.items() if field.single is not None}
        self.main = Table(name, metadata, Column("key", Text, primary_key=True), *_columns(self.singles))
        self.subs = {
            field: Table(
                f"{name}_{field}",
                metadata,
                Column("key", Text, ForeignKey(f"{name}.key"), primary_key=True),
                Column("position", Integer, primary_key=True),
                *_columns(attribute.columns),
            )
            for field, attribute in kind.fields.items()
            if field not in self.singles
        }

    @property
    def all(self) -> tuple[Table, ...]:
        """Those that others refer to last."""
        return (*self.subs.values(), self.main)


def _columns(columns: Mapping[str, Scalar]) -> Iterator[Column[Any]]:
    for name, of in columns.items():
        yield Column(f"a_{name}", _TYPES[of])
    yield Column(_ODD, Text)


class Database:
    """A context in another database; see `publisher.spool.context`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._notes = Table("spool_context", MetaData(), Column("key", Text, primary_key=True), Column("note", Text))
        self._tables: dict[str, _KindTables] = {}
        self._engine: Any = None
        self._connection: Connection | None = None

    def startup(self) -> None:
        """Connect; the database must exist, unless it is a file."""
        with self._explained():
            self._engine = dialect.make_engine(self._url, _BUSY_TIMEOUT_S, create=True)
            with dialect.transaction(self._engine, writes=True) as connection:
                self._notes.create(connection, checkfirst=True)

    def shutdown(self) -> None:
        """Disconnect; what was not committed is lost."""
        self._end(commit=False)
        if self._engine is not None:
            self._engine.dispose()

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Nothing to do: removed objects leave nothing."""

    def commit(self) -> None:
        """Commit all changes since the last commit in one transaction."""
        with self._explained():
            self._end(commit=True)

    def note(self, text: str | None) -> None:
        """Store a text in a table of its own; None deletes it."""
        with self._explained():
            connection = self._open()
            connection.execute(delete(self._notes))
            if text is not None:
                connection.execute(insert(self._notes).values(key="", note=text))
            self._end(commit=True)

    def noted(self) -> str | None:
        """Return the stored text."""
        with self._explained(), dialect.transaction(self._engine, writes=False) as connection:
            return connection.execute(select(self._notes.c.note)).scalar_one_or_none()

    def clear(self, kind: Kind) -> None:
        """Remove all objects of a kind, including tables of attributes that are no longer written."""
        with self._explained():
            connection = self._open()
            there = inspect(connection).get_table_names()
            for table in _KindTables(kind).all:
                if table.name in there:
                    connection.execute(delete(table))
            self._tables.clear()

    def make_place(self, kind: Kind) -> None:
        """Create the tables of the kind."""
        with self._explained():
            self._tables.pop(kind.name, None)
            self._of(kind)
            self._end(commit=True)

    def has_place(self, kind: Kind) -> bool:
        """Whether the tables of the kind exist."""
        with self._explained(), dialect.transaction(self._engine, writes=False) as connection:
            there = inspect(connection).get_table_names()
            return all(table.name in there for table in _KindTables(kind).all)

    def count(self, kind: Kind) -> int:
        """The rows of its table."""
        if not self.has_place(kind):
            return 0
        with self._explained(), dialect.transaction(self._engine, writes=False) as connection:
            return connection.execute(select(func.count()).select_from(_KindTables(kind).main)).scalar_one()

    def write_object(self, kind: Kind, item: Object) -> bool:
        """Write what changed of the object."""
        with self._explained():
            tables, connection = self._of(kind), self._open()
            main, key = tables.main, item.key
            row = _row_of(tables.singles, map(item.values.get, tables.singles))
            there = connection.execute(select(main).where(main.c.key == key)).mappings().first()
            changed = there is None
            if there is None:
                connection.execute(insert(main).values(key=key, **row))
            elif different := {name: value for name, value in row.items() if _plain(there[name]) != value}:
                connection.execute(update(main).where(main.c.key == key).values(different))
                changed = True
            for name, table in tables.subs.items():
                attribute = kind.fields[name]
                value = item.values.get(name)
                rows = [_row_of(attribute.columns, cells) for cells in attribute.rows_of(value)] if value else []
                if there is None or _rows_in(connection, table, key) != rows:
                    connection.execute(delete(table).where(table.c.key == key))
                    if rows:
                        numbered = [{"key": key, "position": position, **row} for position, row in enumerate(rows)]
                        connection.execute(insert(table), numbered)
                    changed = True
            return changed

    def delete_object(self, kind: Kind, key: str) -> None:
        """With its sublists."""
        with self._explained():
            connection = self._open()
            for table in self._of(kind).all:
                connection.execute(delete(table).where(table.c.key == key))

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """By their keys."""
        with self._explained():
            tables, connection = self._of(kind), self._open()
            keys = connection.execute(select(tables.main.c.key).order_by(tables.main.c.key)).scalars().all()
        for key in keys:
            if (item := self._read(kind, key)) is not None:
                yield item

    def _read(self, kind: Kind, key: str) -> Object | None:
        with self._explained():
            tables, connection = self._of(kind), self._open()
            row = connection.execute(select(tables.main).where(tables.main.c.key == key)).mappings().first()
            if row is None:
                return None
            cells = zip(tables.singles, _cells_of(tables.singles, dict(row)), strict=True)
            values = {name: cell for name, cell in cells if cell is not None}
            for name, table in tables.subs.items():
                if rows := _rows_in(connection, table, key):
                    attribute = kind.fields[name]
                    values[name] = attribute.value_of([_cells_of(attribute.columns, row) for row in rows])
            return Object(kind.name, key, values)

    def _of(self, kind: Kind) -> _KindTables:
        """The tables of a kind, created if they are missing; columns that are no longer written stay, and are empty."""
        if kind.name not in self._tables:
            made = self._tables[kind.name] = _KindTables(kind)
            for table in reversed(made.all):
                table.create(self._open(), checkfirst=True)
                _add_missing_columns(self._open(), table)
        return self._tables[kind.name]

    def _open(self) -> Connection:
        if self._connection is None:
            connection: Connection = self._engine.connect()
            self._connection = connection
        return self._connection

    def _end(self, *, commit: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if commit:
                connection.commit()
        finally:
            connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (StoreError, SQLAlchemyError, ValueError, msgspec.DecodeError) as error:
            self._end(commit=False)
            self._tables.clear()
            place = dialect.place(self._engine) if self._engine is not None else "its database"
            why = str(getattr(error, "orig", None) or error)
            raise SpoolError(
                f"the spooling context in {place} cannot be used: {why}",
                hint="What it lacks is written as soon as it can be used",
            ) from error


def _add_missing_columns(connection: Connection, table: Table) -> None:
    """Add missing columns to a table that was made for fewer attributes."""
    there = {column["name"] for column in inspect(connection).get_columns(table.name)}
    for column in table.c:
        if column.name not in there:
            kind = column.type.compile(connection.dialect)
            connection.execute(text(f'ALTER TABLE {table.name} ADD COLUMN "{column.name}" {kind}'))


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytes | memoryview) else value


def _row_of(columns: Mapping[str, Scalar], cells: Iterable[Any]) -> dict[str, Any]:
    """A row that databases can store: numbers beyond 64 bits and texts with NUL are moved to the column `odd`."""
    row: dict[str, Any] = {}
    odd: dict[str, str] = {}
    numbers: list[str] = []
    for (name, of), cell in zip(columns.items(), cells, strict=True):
        column, value = f"a_{name}", cell if of != "any" else cell_text(cell, of, "")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            odd[column], value = str(value), None
            numbers.append(column)
        elif isinstance(value, str) and "\0" in value:
            odd[column], value = escaped(value, ""), value.replace("\0", "\ufffd")
        row[column] = value
    return {**row, _ODD: msgspec.json.encode([odd, sorted(numbers)]).decode() if odd else None}


def _cells_of(columns: Mapping[str, Scalar], row: Mapping[str, Any]) -> list[Any]:
    """The cells of a row made by `_row_of`."""
    odd, numbers = msgspec.json.decode(row[_ODD]) if row[_ODD] is not None else ({}, ())
    cells = []
    for name, of in columns.items():
        column = f"a_{name}"
        if column in odd:
            cells.append(int(odd[column]) if column in numbers else unescaped(odd[column]))
        else:
            cells.append(_cell_of(row[column], of))
    return cells


def _cell_of(value: Any, of: Scalar) -> Any:
    if value is None:
        return None
    match of:
        case "flag":
            return bool(value)
        case "bytes":
            return bytes(value)
        case "any":
            return cell_of(value, of)
        case _:
            return value


def _rows_in(connection: Connection, table: Table, key: str) -> list[Mapping[str, Any]]:
    columns = [column for column in table.c if column.name not in {"key", "position"}]
    query = select(*columns).where(table.c.key == key).order_by(table.c.position)
    return [dict(row) for row in connection.execute(query).mappings()]
