"""Keeps the contexts up to date with the store, as an observer of its transactions.

Triggers of the database record each change in the transaction that makes it, so none can be missed. After the commit it
is written to every context, and its record is removed. So after a kill at any instant the next process brings the
contexts up to date. An error of a context affects nothing else: it is reported, and the next process that can use the
context fills it again. The triggers exist while contexts are configured. They count how often an object changed, so
that an object that changes while it is written is written again.
"""

from __future__ import annotations

import difflib
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, text

from publisher.config.schema import SpoolContext
from publisher.errors import ConfigError, PublisherError
from publisher.events import ContextFilled, Observer
from publisher.spool import kinds as spool_kinds
from publisher.spool.base import Kind, Object
from publisher.spool.content import Incomplete, incomplete, write_all
from publisher.spool.context import SpoolingContext, make_context
from publisher.spool.kinds import kind_named
from publisher.store.database import Store
from publisher.store.schema import runs, spool_changes

_GENERATION: Final = "generation"
_BROKEN: Final = "broken"
_COUNTED: Final = "ON CONFLICT (kind, key, target) DO UPDATE SET times = spool_changes.times + 1"


def _change(kind: str, key: str, target: str = "''") -> str:
    values = f"SELECT '{kind}', {key}, {target}, 1 WHERE true"
    return f"INSERT INTO spool_changes (kind, key, target, times) {values} {_COUNTED};"


def _of_delivery(row: str) -> str:
    key = f"(SELECT record_id FROM runs WHERE id = {row}.run_id)"  # noqa: S608 - of our own words
    return _change("deliveries", key, f"(SELECT name FROM targets WHERE id = {row}.target_id)")  # noqa: S608


_BODIES: Final[dict[str, Callable[[str], str]]] = {
    "runs": lambda row: _change("jobs", f"{row}.record_id"),
    "deliveries": _of_delivery,
    "batches": lambda row: _change("messages", f"CAST({row}.id AS TEXT)"),
}
_EVENTS: Final = (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD"))
_NOT_WATCHED: Final = frozenset({"mark", "sums_check", "row_check"})
_WATCHED: Final = [column.name for column in runs.c if column.name not in _NOT_WATCHED]
_OF_WATCHED_COLUMNS: Final = f" OF {', '.join(_WATCHED)}"
"""The columns of a run whose change is a change of the object; a new mark only means that the run is unchanged, and
check numbers only follow other columns."""


def install(connection: Connection) -> str:
    """Install the triggers if they are missing; return their generation, which changes if they were missing."""
    known = generation(connection)
    if known is not None:
        return known
    remove(connection)  # what a copy by other means may have left
    for table, body in _BODIES.items():
        for happening, row in _EVENTS:
            _install(connection, table, happening, body(row))
    fresh = secrets.token_hex(8)
    connection.execute(insert(spool_changes).values(kind=_GENERATION, key=fresh, target="", times=1))
    return fresh


def _install(connection: Connection, table: str, happening: str, body: str) -> None:
    name = f"spool_{table}_{happening}"
    event = happening.upper() + (_OF_WATCHED_COLUMNS if (table, happening) == ("runs", "update") else "")
    if connection.dialect.name == "sqlite":
        connection.execute(text(f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {body} END"))
        return
    connection.execute(
        text(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$")
    )
    connection.execute(text(f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()"))


def remove(connection: Connection) -> None:
    """Remove the triggers, and the changes that they recorded."""
    for table in _BODIES:
        for happening, _ in _EVENTS:
            name = f"spool_{table}_{happening}"
            if connection.dialect.name == "sqlite":
                connection.execute(text(f"DROP TRIGGER IF EXISTS {name}"))
            else:
                connection.execute(text(f"DROP FUNCTION IF EXISTS {name}() CASCADE"))
    connection.execute(delete(spool_changes))


def generation(connection: Connection) -> str | None:
    """Generation of the triggers; None if there are none."""
    query = select(spool_changes.c.key).where(spool_changes.c.kind == _GENERATION)
    return connection.execute(query).scalar_one_or_none()


_IS_CHANGE: Final = spool_changes.c.kind.not_in((_GENERATION, _BROKEN))
_CHANGE: Final = (spool_changes.c.kind, spool_changes.c.key, spool_changes.c.target, spool_changes.c.times)


def pending(connection: Connection, limit: int) -> list[tuple[str, str, str, int]]:
    """Changes that are not written yet: (kind, key, target, how often)."""
    query = select(*_CHANGE).where(_IS_CHANGE).order_by(*_CHANGE[:3]).limit(limit)
    return [(kind, key, target, times) for kind, key, target, times in connection.execute(query)]


def count(connection: Connection) -> int:
    """How many changed objects are not written yet."""
    return connection.execute(select(func.count()).select_from(spool_changes).where(_IS_CHANGE)).scalar_one()


def broken(connection: Connection) -> frozenset[str]:
    """The contexts that could not be written: their changes are not recorded, they are filled again."""
    query = select(spool_changes.c.key).where(spool_changes.c.kind == _BROKEN)
    return frozenset(connection.execute(query).scalars())


def set_broken(connection: Connection, name: str, *, is_broken: bool) -> None:
    """Record that a context must be filled again, or that it was."""
    connection.execute(delete(spool_changes).where(spool_changes.c.kind == _BROKEN, spool_changes.c.key == name))
    if is_broken:
        connection.execute(insert(spool_changes).values(kind=_BROKEN, key=name, target="", times=1))


def written(connection: Connection, changes: list[tuple[str, str, str, int]]) -> None:
    """Record that these changes are written; what changed again in the meantime stays."""
    for change in changes:
        is_written = (column == value for column, value in zip(_CHANGE, change, strict=True))
        connection.execute(delete(spool_changes).where(*is_written))


_LOCK: Final = "spool"
_PAGE: Final = 500

MakeContext = Callable[[SpoolContext], SpoolingContext]
ReportProblem = Callable[[str, str], None]
"""Called with the name of a context and its error."""


class ContextState(msgspec.Struct, frozen=True):
    """The state of a context. `problem`: why it could not be written; None: it has everything that was committed.

    `was_incomplete`: objects of it had been removed or altered, so it was filled again.
    """

    name: str
    format: str
    kinds: tuple[str, ...]
    problem: str | None
    was_incomplete: bool = False


def all_incomplete(store: Store, settings: Mapping[str, SpoolContext]) -> dict[str, Incomplete]:
    """By context, what `incomplete` finds. Nothing while a process writes to the contexts, or has changes to write.

    Raises `SpoolError` for a context that cannot be read.
    """
    by_context: dict[str, Incomplete] = {}
    with store.lock(_LOCK) as held, store.read() as connection:
        if not held or count(connection):
            return by_context
        for name, each in settings.items():
            context = make_context(each)
            context.startup()
            try:
                by_context[name] = incomplete(connection, context, _kinds_of(name, each))
            finally:
                context.shutdown()
    return {name: differences for name, differences in by_context.items() if differences}


class Spooler:
    """See the module; `publisher.store.database.TransactionObserver`."""

    def __init__(
        self,
        store: Store,
        settings: Mapping[str, SpoolContext],
        observer: Observer,
        report_problem: ReportProblem,
        make: MakeContext = make_context,
    ) -> None:
        self._store = store
        self._settings = settings
        self._observer = observer
        self._report_problem = report_problem
        self._kinds = {name: _kinds_of(name, each) for name, each in settings.items()}
        self._contexts: dict[str, SpoolingContext] = {name: make(each) for name, each in settings.items()}
        self._problems: dict[str, str] = {}
        self._were_incomplete: set[str] = set()
        self._due = threading.Event()
        self._at_work = threading.Lock()
        self._generation = ""

    def startup(self) -> None:
        """Prepare the contexts, fill new ones, write what an earlier process could not write, and keep them up to date
        from now on."""
        with self._store.read() as connection:
            known = generation(connection)
        if known is None:
            with self._store.write() as connection:
                known = install(connection)
        self._generation = known
        for name in self._contexts:
            self._make_ready(name)
        self.flush()
        self._store.observe(self)

    @contextmanager
    def _skipped_if_it_fails(self, name: str) -> Iterator[None]:
        """If anything fails, skip a context in this process: the store goes on. Once it can be used, it is filled."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever a context cannot hold, it is reported
            text = str(error) if isinstance(error, PublisherError) else f"{type(error).__name__}: {error}"
            self._report_problem(name, text)
            self._problems[name] = text
            with self._store.write() as connection:
                set_broken(connection, name, is_broken=True)

    def _usable(self) -> Iterator[tuple[str, SpoolingContext]]:
        """The contexts that are not skipped."""
        return ((name, context) for name, context in self._contexts.items() if name not in self._problems)

    def _make_ready(self, name: str) -> None:
        """Start a context, and fill it if it is new, its kinds or attributes changed, a file of it was removed, or it
        could not be written before."""
        context = self._contexts[name]
        with self._store.read() as connection:
            was_broken = name in broken(connection)
        with self._skipped_if_it_fails(name):
            context.startup()
            is_new = was_broken or context.noted() != self._note(name)
            if (is_new or self._lacks_place(name, context)) and not self._fill(name, context):
                return
            self._problems.pop(name, None)
            if was_broken:
                with self._store.write() as connection:
                    set_broken(connection, name, is_broken=False)

    def _lacks_place(self, name: str, context: SpoolingContext) -> bool:
        """Whether somebody removed the files or tables of a kind: new objects alone would be written to new ones.

        A program that made none for a kind without objects filled the context: they are made now.
        """
        missing = {each: kind for each, kind in self._kinds[name].items() if not context.has_place(kind)}
        if not missing:
            return False
        with self._store.read() as connection:
            was_removed = any(spool_kinds.count_of(connection, each) for each in missing)
        if was_removed:
            self._were_incomplete.add(name)
        else:
            for kind in missing.values():
                context.make_place(kind)
            context.commit()
        return was_removed

    def _note(self, name: str) -> str:
        """What a context notes when it was filled."""
        return f"{self._generation} {_filled_with(self._settings[name])}"

    def _fill(self, name: str, context: SpoolingContext) -> bool:
        """Write everything; False if another process is doing so."""
        with self._store.lock(_LOCK) as held:
            if held:
                self._fill_locked(name, context)
            return held

    def _fill_locked(self, name: str, context: SpoolingContext) -> None:
        context.note(None)
        for each, kind in self._kinds[name].items():
            context.clear(kind_named(each))  # with what other attributes left
            context.make_place(kind)
            with self._store.read() as connection:
                write_all(context, kind, spool_kinds.all_of(connection, each))
        context.note(self._note(name))
        self._observer(ContextFilled(name, name in self._were_incomplete))

    def prepare(self, connection: Connection) -> None:
        """Note whether the transaction has changes to write."""
        if pending(connection, 1):
            self._due.set()

    def commit(self) -> None:
        """Write the recorded changes, unless another thread or process does so: then that one or the next one writes
        them."""
        if not self._due.is_set() or not self._at_work.acquire(blocking=False):
            return
        try:
            self._due.clear()
            with self._store.lock(_LOCK) as held:
                if held:
                    self._write_pending()
        except PublisherError as error:  # of the store: the changes stay recorded
            for name in self._contexts:
                self._report_problem(name, str(error))
        finally:
            self._at_work.release()

    def _write_pending(self) -> None:
        for name, context in self._usable():
            with self._skipped_if_it_fails(name):
                if self._lacks_place(name, context):
                    self._fill_locked(name, context)
        while True:
            with self._store.read() as connection:
                changes = pending(connection, _PAGE)
                keys: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
                for kind, key, target, _times in changes:
                    keys[kind].append((key, target))
                objects = {kind: list(spool_kinds.some_of(connection, kind, each)) for kind, each in keys.items()}
            if not changes:
                return
            for name, context in self._usable():
                with self._skipped_if_it_fails(name):
                    for each, written_kind in self._kinds[name].items():
                        _write(context, written_kind, objects.get(each, ()))
                    context.commit()
            with self._store.write() as connection:  # observed as well, and not due
                written(connection, changes)

    def maintain(self) -> None:
        """Try skipped contexts again, write the recorded changes, clean up, and fill contexts again of which objects
        were removed or altered."""
        for name in list(self._problems):
            self._make_ready(name)
        self.flush()
        with self._store.lock(_LOCK) as held:
            if not held:
                return
            for name, context in self._usable():
                with self._skipped_if_it_fails(name):
                    with self._store.read() as connection:
                        # Changes that another process records meanwhile are in the store only.
                        is_incomplete = not count(connection) and incomplete(connection, context, self._kinds[name])
                    if is_incomplete:
                        self._were_incomplete.add(name)
                        context.note(None)
                    else:  # after the comparison: what is altered may not be readable
                        context.maintain([*self._kinds[name].values()])
        for name in self._were_incomplete - self._problems.keys():
            self._make_ready(name)

    def states(self) -> list[ContextState]:
        """The states of the contexts."""
        return [
            ContextState(name, each.format, each.kinds, self._problems.get(name), name in self._were_incomplete)
            for name, each in self._settings.items()
        ]

    def flush(self) -> None:
        """Write the recorded changes."""
        self._due.set()
        self.commit()

    def shutdown(self) -> None:
        """Write the recorded changes, and release the contexts."""
        self.flush()
        for context in self._contexts.values():
            context.shutdown()


def _write(context: SpoolingContext, kind: Kind, changed: Iterable[tuple[str, Object | None]]) -> None:
    for key, item in changed:
        if item is None:
            context.delete_object(kind, key)
        else:
            context.write_object(kind, kind.of(item))


def _kinds_of(name: str, settings: SpoolContext) -> dict[str, Kind]:
    """The kinds of a context, each with the attributes that are written. Raises `ConfigError` for an unknown
    attribute."""
    kinds: dict[str, Kind] = {}
    for each in settings.kinds:
        kind = kind_named(each)
        chosen = settings.attributes.get(each, kind.fields)
        for word in chosen:
            if word not in kind.fields:
                near = difflib.get_close_matches(word, kind.fields, n=1)
                raise ConfigError(
                    f"{each} have no attribute {word!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                    key=f"spool.{name}.attributes.{each}", hint=f"There are: {', '.join(kind.fields)}",
                )  # fmt: skip
        kinds[each] = kind.only(chosen)
    return kinds


def _filled_with(settings: SpoolContext) -> str:
    """A text about the content of a context: if it changes, the context is filled again."""
    words = [f"{kind}({','.join(sorted(settings.attributes.get(kind, ())))})" for kind in sorted(settings.kinds)]
    return " ".join(words).replace("()", "")
