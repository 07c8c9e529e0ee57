"""Another database: a table for each kind, and one for each sublist; its rows have the key of their object.

    spool_jobs                  key and attributes
    spool_jobs_fqans            a list: key, position, value
    spool_jobs_extras           name/value pairs: key, position, name, value (as text that shows its type)
    spool_jobs_hosts            subordinate objects: key, position, their attributes

Only changed attributes are updated, and only changed sublists are inserted again. Values that no column can hold (a
number beyond 64 bits, a text with NUL) are in the column `odd`, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from publisher.spool import name_value
from publisher.spool.base import Kind, Object, Scalar, SpoolError
from publisher.store import dialect

_TYPES: Final[Mapping[Scalar, Any]] = {
    "int": BigInteger, "float": Double, "text": Text, "bytes": LargeBinary, "flag": SmallInteger,
}  # fmt: skip
_BUSY_TIMEOUT_S: Final = 30.0
_ODD: Final = "odd"


class _KindTables:
    """The tables of a kind."""

    def __init__(self, kind: Kind) -> None:
        name, metadata = f"spool_{kind.name}", MetaData()
        self.main = Table(
            name,
            metadata,
            Column("key", Text, primary_key=True),
            *(Column(f"a_{field}", _TYPES[of]) for field, of in kind.scalars.items()),
            Column(_ODD, Text),
        )
        self.lists = {field: self._sub(metadata, name, field, {"value": of}) for field, of in kind.lists.items()}
        self.pairs = {
            field: self._sub(metadata, name, field, {"name": "text", "value": "text"}) for field in kind.pairs
        }
        self.parts = {field: self._sub(metadata, name, field, fields) for field, fields in kind.parts.items()}

    def _sub(self, metadata: MetaData, name: str, field: str, columns: Mapping[str, Scalar]) -> Table:
        return Table(
            f"{name}_{field}",
            metadata,
            Column("key", Text, ForeignKey(f"{name}.key"), primary_key=True),
            Column("position", Integer, primary_key=True),
            *(Column(f"a_{column}", _TYPES[of]) for column, of in columns.items()),
            Column(_ODD, Text),
        )

    @property
    def subs(self) -> dict[str, Table]:
        """The tables of the sublists by attribute."""
        return {**self.lists, **self.pairs, **self.parts}


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
        """See `Context`."""
        with self._explained():
            connection = self._open()
            connection.execute(delete(self._notes))
            if text is not None:
                connection.execute(insert(self._notes).values(key="", note=text))
            self._end(commit=True)

    def noted(self) -> str | None:
        """See `Context`."""
        with self._explained(), dialect.transaction(self._engine, writes=False) as connection:
            found: str | None = connection.execute(select(self._notes.c.note)).scalar_one_or_none()
            return found

    def clear(self, kind: Kind) -> None:
        """Remove all objects of a kind, including tables of attributes that are no longer written."""
        with self._explained():
            connection = self._open()
            there = set(inspect(connection).get_table_names())
            tables = _KindTables(kind)
            for table in (*tables.subs.values(), tables.main):
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
            there = set(inspect(connection).get_table_names())
            tables = _KindTables(kind)
            return all(table.name in there for table in (tables.main, *tables.subs.values()))

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
            row = _fitting({"key": item.key, **{f"a_{name}": item.values.get(name) for name in kind.scalars}})
            there = connection.execute(select(tables.main).where(tables.main.c.key == item.key)).mappings().first()
            changed = False
            if there is None:
                connection.execute(insert(tables.main).values(row))
                changed = True
            elif different := {name: value for name, value in row.items() if _plain(there[name]) != _plain(value)}:
                connection.execute(update(tables.main).where(tables.main.c.key == item.key).values(different))
                changed = True
            for name, table in tables.subs.items():
                rows = _rows(kind, name, item.values.get(name, ()))
                if there is None or _of_key(connection, table, item.key, whole=False) != rows:
                    connection.execute(delete(table).where(table.c.key == item.key))
                    if rows:
                        connection.execute(
                            insert(table),
                            [{"key": item.key, "position": place, **each} for place, each in enumerate(rows)],
                        )
                    changed = changed or bool(rows) or there is not None
            return changed

    def delete_object(self, kind: Kind, key: str) -> None:
        """With its sublists."""
        with self._explained():
            tables, connection = self._of(kind), self._open()
            for table in (*tables.subs.values(), tables.main):
                connection.execute(delete(table).where(table.c.key == key))

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """By their keys."""
        with self._explained():
            tables, connection = self._of(kind), self._open()
            keys = connection.execute(select(tables.main.c.key).order_by(tables.main.c.key)).scalars().all()
        for key in keys:
            found = self.read_object(kind, key)
            if found is not None:
                yield found

    def read_object(self, kind: Kind, key: str) -> Object | None:
        """With its sublists."""
        with self._explained():
            tables, connection = self._of(kind), self._open()
            row = connection.execute(select(tables.main).where(tables.main.c.key == key)).mappings().first()
            if row is None:
                return None
            values: dict[str, Any] = {}
            whole = _whole(dict(row))
            for name, of in kind.scalars.items():
                value = whole[f"a_{name}"]
                if value is not None:
                    values[name] = bytes(value) if of == "bytes" else bool(value) if of == "flag" else value
            for name, table in tables.subs.items():
                rows = _of_key(connection, table, key)
                if rows:
                    values[name] = _value(kind, name, rows)
            return Object(kind.name, key, values)

    def _of(self, kind: Kind) -> _KindTables:
        """The tables of a kind, created if they are missing; columns that are no longer written stay, and are empty."""
        if kind.name not in self._tables:
            made = self._tables[kind.name] = _KindTables(kind)
            for table in (made.main, *made.subs.values()):
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
        except (StoreError, SQLAlchemyError) as error:
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


def _rows(kind: Kind, name: str, value: Any) -> list[dict[str, Any]]:
    if name in kind.lists:
        rows = [{"a_value": each} for each in value]
    elif name in kind.pairs:
        rows = [{"a_name": key, "a_value": name_value.loose(each)} for key, each in dict(value).items()]
    else:
        rows = [{f"a_{field}": each.get(field) for field in kind.parts[name]} for each in value]
    return [_fitting(row) for row in rows]


def _fitting(row: dict[str, Any]) -> dict[str, Any]:
    """A row that databases can store: numbers beyond 64 bits and texts with NUL are moved to the column `odd`."""
    odd = {
        name: value
        for name, value in row.items()
        if (isinstance(value, int) and not -(2**63) <= value < 2**63) or (isinstance(value, str) and "\0" in value)
    }
    if not odd:
        return {**row, _ODD: None}
    extra = {
        name: str(value) if isinstance(value, int) else name_value.escaped(value, "") for name, value in odd.items()
    }
    fitting = {name: value.replace("\0", "\ufffd") if isinstance(value, str) else None for name, value in odd.items()}
    return {
        **row,
        **fitting,
        _ODD: msgspec.json.encode([extra, sorted(n for n in odd if isinstance(odd[n], int))]).decode(),
    }


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    """The original row of one made by `_fitting`."""
    if row[_ODD] is None:
        return row
    extra, numbers = msgspec.json.decode(row[_ODD])
    return row | {name: int(word) if name in numbers else name_value.unescaped(word) for name, word in extra.items()}


def _value(kind: Kind, name: str, rows: list[dict[str, Any]]) -> Any:
    if name in kind.lists:
        return tuple(row["a_value"] for row in rows)
    if name in kind.pairs:
        return {row["a_name"]: name_value.loose_of(row["a_value"]) for row in rows}
    flags = [field for field, of in kind.parts[name].items() if of == "flag"]
    return tuple(
        {field: (bool(row[f"a_{field}"]) if field in flags else row[f"a_{field}"]) for field in kind.parts[name]}
        for row in rows
    )


def _of_key(connection: Connection, table: Table, key: str, *, whole: bool = True) -> list[dict[str, Any]]:
    names = [column.name for column in table.c if column.name not in {"key", "position"}]
    query = select(*(table.c[name] for name in names)).where(table.c.key == key).order_by(table.c.position)
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute(query)]
    return [_whole(row) for row in rows] if whole else rows
