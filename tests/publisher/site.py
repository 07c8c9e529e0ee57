"""A site in a folder: sources and services in memory, a real store, the real pipeline between them."""

from __future__ import annotations

import functools
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from formats.job import Benchmark, Job
from publisher.api import Publisher
from publisher.collect.collect import Collected
from publisher.config import file as config_file
from publisher.config.schema import Config
from publisher.errors import SourceError, StoreError
from publisher.events import Event, ignore
from publisher.finding import Finding
from publisher.messages.steps import BacklogLimits
from publisher.publish.circuit import Circuits
from publisher.publish.context import Tools
from publisher.publish.publish import Delivery
from publisher.reason import from_stored, sentence
from publisher.sources import make_source
from publisher.sources.base import Cursor, Page, Unreadable, Window
from publisher.store.database import open_store
from publisher.store.schema import State
from publisher.targets import TargetFactory, make_target
from publisher.targets.base import Target
from publisher.targets.identity import TargetContext
from tests.publisher.receivers import RecordReceiver
from tests.publisher.store.server import PostgresqlServer

NOW: Final = 1_795_200_000
"""2026-11-20T18:40:00Z."""
NOVEMBER: Final = 1_793_491_200
"""2026-11-01T00:00:00Z."""
OCTOBER: Final = 1_790_812_800
"""2026-10-01T00:00:00Z."""
SCORE: Final = (Benchmark("HEPscore23", 14.2),)


def make_job(number: int, *, wall_s: int = 100, **facts: Any) -> Job:
    """A finished run that every target selects; by default all its values are functions of its number."""
    end = facts.pop("end", NOVEMBER + 3600 + number)
    usual: dict[str, Any] = {
        "record_id": f"ur-ce1.example.org-{number:04}",
        "system": "arc",
        "status": "completed",
        "global_id": f"{number:04}",
        "local_id": str(number),
        "user_dn": "/DC=org/CN=Ada",
        "vo": "atlas",
        "cluster": "ce1.example.org",
        "endpoint_url": "https://ce1.example.org:443/arex",
        "endpoint_type": "org.nordugrid.arcrest",
        "queue": "main",
        "submit": end - wall_s - 10 if end is not None else None,
        "start": end - wall_s if end is not None else None,
        "end": end,
        "wall_ms": wall_s * 1000,
        "cpu_ms": wall_s * 500,
        "cores": 1,
        "nodes": 1,
        "benchmarks": SCORE,
    }
    return Job(**(usual | facts))


def make_jobs(count: int, first: int = 1, **facts: Any) -> list[Job]:
    """Several of them."""
    return [make_job(number, **facts) for number in range(first, first + count)]


class ListSource:
    """A source that gives what was appended to its log since it was last read, `page` jobs at a time."""

    kind = "arc"

    def __init__(self, name: str, *, page: int = 100, complete_since: int | None = 0) -> None:
        self.name = name
        self.log: list[Job | Unreadable] = []
        self.page = page
        self.fails: str | None = None
        """Why it cannot be read to its end: said behind the first page."""
        self._complete_since = complete_since

    def add(self, *jobs: Job | Unreadable) -> None:
        """Append."""
        self.log += jobs

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """See `publisher.sources.base.Source`."""
        if window is not None:
            again = [job for job in self.log if isinstance(job, Job) and job.end is not None and _lies_in(job, window)]
            yield Page(tuple(again), cursor, len(again), at_end=True)
            return
        place = int(cursor.get("at", 0))
        while True:
            part = self.log[place : place + self.page]
            place += len(part)
            at_end = place >= len(self.log)
            jobs = tuple(item for item in part if isinstance(item, Job))
            bad = tuple(item for item in part if isinstance(item, Unreadable))
            yield Page(jobs, {"at": place}, len(part), unreadable=bad, at_end=at_end and self.fails is None)
            if self.fails is not None:
                raise SourceError(self.fails)
            if at_end:
                return

    def complete_since(self) -> int | None:
        """The given time."""
        return self._complete_since

    def check(self) -> list[Finding]:
        """No findings."""
        return []


def _lies_in(job: Job, window: Window) -> bool:
    end = job.end or 0
    return (window.from_ is None or end >= window.from_) and (window.until is None or end < window.until)


@functools.cache
def _empty_store() -> bytes:
    """A store without anything in it, made once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "store.db")
        open_store(f"sqlite:///{file}").close()
        return file.read_bytes()


class _Databases:
    """The stores of sites on a server: a database for each folder."""

    def __init__(self, server: PostgresqlServer) -> None:
        self.server = server
        self._names: dict[Path, str] = {}

    def of(self, folder: Path) -> str:
        """The database of a folder's site, made where it is new."""
        if folder not in self._names:
            self._names[folder] = self.server.new_database()
        return self._names[folder]


_databases: _Databases | None = None
_open_sites: list[Site] = []


def close_sites() -> None:
    """Close the stores of all sites, as their processes would at their end."""
    while _open_sites:
        _open_sites.pop().reopen()


@contextmanager
def stores_on(server: PostgresqlServer) -> Iterator[None]:
    """Within this, sites have their stores on a server, each a fresh one."""
    global _databases  # noqa: PLW0603 - sites are made deep inside the tests, which do not care which store they have
    _databases = _Databases(server)
    try:
        yield
    finally:
        close_sites()
        _databases = None
        server.forget()


def store_url_of(folder: Path) -> str:
    """The store of a site in a folder, as it is configured: a file there, or a database on the server at hand."""
    return _databases.server.url(_databases.of(folder)) if _databases is not None else "sqlite:///store.db"


class Killed(BaseException):
    """The process died."""


class Site:
    """See the module. `receivers` are both the targets of the configuration and the services to which they send."""

    def __init__(self, folder: Path, sources: Sequence[ListSource], receivers: Sequence[RecordReceiver]) -> None:
        self.folder = folder
        self._server = _databases.server if _databases is not None else None
        self.database = _databases.of(folder) if _databases is not None else ""
        self.sources = {source.name: source for source in sources}
        self.receivers = {receiver.name: receiver for receiver in receivers}
        self.now = NOW
        self.events: list[Event] = []
        self.watch: Callable[[Event], None] = lambda _event: None
        self.stop_when: Callable[[], bool] = lambda: False
        self.slept_s: list[float] = []
        self.backlog = BacklogLimits()
        self.make_target: TargetFactory = make_target
        """What makes a target that is not a receiver in memory."""
        self.table: dict[str, Any] = {
            "site": {"name": "EXAMPLE-SITE"},
            "store": {"url": self.store_url, "sent_mark": "store.db.sent"},
            "sources": {name: {"type": "arc", "path": "x"} for name in self.sources},
            "targets": {name: _settings(receiver) for name, receiver in self.receivers.items()},
        }
        self._publisher: Publisher | None = None
        self._images: dict[Path, str] = {}
        if self._server is None and not self.store_file.exists():
            self.store_file.touch(mode=0o600)
            self.store_file.write_bytes(_empty_store())

    @classmethod
    def beside(cls, site: Self) -> Self:
        """Another process at the same site, with the same configuration, services, and clock."""
        other = cls.__new__(cls)
        other.__dict__.update(site.__dict__, events=[], watch=lambda _event: None, _publisher=None)
        return other

    def configure(self, target: str, **settings: Any) -> None:
        """Change the settings of a target; the next command is a process with the new configuration."""
        self.table["targets"][target].update(settings)
        self.reopen()

    def reopen(self) -> None:
        """Let the next command be a new process."""
        if self._publisher is not None:
            self._publisher.close()
        self._publisher = None

    @property
    def config(self) -> Config:
        """The configuration as it is now."""
        return config_file.parse(self.table, self.folder / "publisher.toml")

    @property
    def store_url(self) -> str:
        """The configured URL of the store."""
        return self._server.url(self.database) if self._server is not None else "sqlite:///store.db"

    @property
    def store_file(self) -> Path:
        """The store, where it is a file."""
        return self.folder / "store.db"

    @property
    def publisher(self) -> Publisher:
        """The real publisher over this site."""
        if self._publisher is None:
            self._publisher = Publisher(self.config, self.tools)
            _open_sites.append(self)
        return self._publisher

    def another_publisher(self) -> Publisher:
        """A second publisher over this site, as of another process, whose events are not seen here."""
        return Publisher(self.config, msgspec.structs.replace(self.tools, observer=ignore))

    @property
    def tools(self) -> Tools:
        """The clock of this site, its observer, and its sources and receivers in memory."""
        return Tools(
            clock=lambda: self.now,
            observer=self._observe,
            sleep=self.slept_s.append,
            stopping=self._interrupted,
            make_source=lambda name, settings: self.sources.get(name) or make_source(name, settings),
            make_target=self._make_target,
            backlog=self.backlog,
        )

    def _interrupted(self) -> bool:
        return self.stop_when()

    def _make_target(self, name: str, settings: Any, context: TargetContext) -> Target:
        if name in self.receivers:
            return self.receivers[name]
        return self.make_target(name, settings, context)

    def _observe(self, event: Event) -> None:
        self.events.append(event)
        self.watch(event)

    def collect(self, *names: str, window: Window | None = None) -> dict[str, Collected]:
        """`usage-publisher collect`."""
        found = self.publisher.collect(names, window)
        assert found is not None
        return found

    def publish(self, *names: str, circuits: Circuits | None = None) -> dict[str, Delivery]:
        """`usage-publisher publish`."""
        return self.publisher.publish(names, circuits=circuits)

    def publish_to(self, name: str) -> Delivery:
        """Publish to one target."""
        return self.publish(name)[name]

    def republish(self, name: str, from_: int, until: int, *, only_missing: bool = False) -> Delivery:
        """`usage-publisher republish --yes`."""
        return self.publisher.republish(name, Window(from_, until), only_missing=only_missing)

    # --- looking into the store, past the program

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query; `?` stands for a value."""
        if self._server is not None:
            import psycopg

            with psycopg.connect(self.store_url) as session:
                return session.execute(query.replace("?", "%s"), values or None).fetchall()
        connection = sqlite3.connect(self.store_file)
        connection.text_factory = lambda stored: stored.decode("utf-8", "backslashreplace")  # tests damage texts
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def states(self, target: str) -> dict[str, State]:
        """The state of every delivery to a target, by record id."""
        query = (
            "SELECT record_id, state FROM deliveries JOIN runs ON runs.id = run_id "
            "JOIN targets ON targets.id = target_id WHERE targets.name = ?"
        )
        return {record_id: State(state) for record_id, state in self.rows(query, target)}

    def in_state(self, target: str, state: State) -> set[str]:
        """Record ids in a state."""
        return {record_id for record_id, found in self.states(target).items() if found is state}

    def reasons(self, target: str) -> dict[str, str | None]:
        """Why each delivery is in its state, in words, where there is a reason."""
        query = (
            "SELECT record_id, reason, reason_parameters FROM deliveries JOIN runs ON runs.id = run_id "
            "JOIN targets ON targets.id = target_id WHERE targets.name = ?"
        )
        return {name: sentence(from_stored(*why)) or None for name, *why in self.rows(query, target)}

    def counted(self, target: str) -> dict[State, int]:
        """The counters that `status` reads; those of zero left out."""
        query = (
            "SELECT state, jobs FROM counters JOIN targets ON targets.id = target_id "
            "WHERE name = ? AND jobs <> 0 AND state < 100"
        )
        return {State(state): jobs for state, jobs in self.rows(query, target)}

    def assert_counters_right(self) -> None:
        """Counters are what counting gives, for every target."""
        for name in self.receivers:
            counted: dict[State, int] = {}
            for state in self.states(name).values():
                counted[state] = counted.get(state, 0) + 1
            assert self.counted(name) == counted, name
            confirmed = (
                "SELECT COUNT(*) FROM deliveries JOIN targets ON targets.id = target_id "
                "WHERE name = ? AND confirmed_at IS NOT NULL"
            )
            kept = "SELECT jobs FROM counters JOIN targets ON targets.id = target_id WHERE name = ? AND state = 101"
            assert self.rows(kept, name) in ([], self.rows(confirmed, name)), name

    @contextmanager
    def full_at(self, statement: Literal["INSERT", "UPDATE"], table: str, when: str = "1 = 1") -> Iterator[None]:
        """Within this the store has no room for what a statement writes to a table; `when`: of which rows, as SQL."""
        if self._server is not None:
            full = "BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END"
            self._run(
                f"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ {full} $$",
                f"CREATE TRIGGER full_disk BEFORE {statement} ON {table} FOR EACH ROW WHEN ({when}) "
                "EXECUTE FUNCTION full_disk()",
            )
        else:
            full = "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            self._run(f"CREATE TRIGGER full_disk BEFORE {statement} ON {table} FOR EACH ROW WHEN {when} {full}")
        try:
            yield
        finally:
            self._run("DROP FUNCTION full_disk CASCADE" if self._server is not None else "DROP TRIGGER full_disk")

    def _run(self, *statements: str) -> None:
        if self._server is not None:
            import psycopg

            with psycopg.connect(self.store_url) as session:
                for statement in statements:
                    session.execute(statement)
            return
        with closing(sqlite3.connect(self.store_file)) as connection:
            for statement in statements:
                connection.execute(statement)

    def snapshot(self, folder: Path) -> None:
        """The files of the store as a power cut would leave them now; of one on a server, what is committed.

        With the mark outside of it: restored together they are a state that the store was in.
        """
        if self._server is not None:
            self.reopen()
            self._images[folder] = self._server.copy(self.database)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in self.folder.glob("store.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder / file.name)

    def restore(self, folder: Path) -> None:
        """Put these files in place; a new process comes next."""
        self.reopen()
        if self._server is not None:
            self._server.replace(self.database, self._images[folder])
        for file in self.folder.glob("store.db*"):
            file.unlink()
        for file in folder.iterdir():
            shutil.copy(file, self.folder / file.name)

    def killed_at(self, step: int, action: Callable[[], object]) -> bool:
        """Do something, dying with the power at the given event (from 0); False if it was done before that."""
        image = self.folder / "image"
        count = 0
        dead = False

        def die(_event: Event) -> None:
            nonlocal count, dead
            if not dead and count == step:
                self._cut_the_power(image)
                dead = True
            if dead:
                raise Killed
            count += 1

        before, self.watch = self.watch, die
        try:
            action()
        except (Killed, StoreError):
            if not dead:
                raise
            self._power_up(image)
            return True
        finally:
            self.watch = before
        return False

    def _cut_the_power(self, image: Path) -> None:
        if self._server is not None:
            self._server.cut_off(self.database)
        else:
            self.snapshot(image)

    def _power_up(self, image: Path) -> None:
        if self._server is not None:
            self.reopen()
            self._server.let_in(self.database)
        else:
            self.restore(image)


def _settings(receiver: RecordReceiver) -> dict[str, Any]:
    common = {"attempts": 1, "workers": 1}
    if receiver.kind == "sgas":
        return {"type": "sgas", "url": "https://sgas.example.org:6143/sgas", **common}
    if receiver.kind == "ams":
        return {
            "type": "ams", "url": f"https://{receiver.name}.example.org", "project": "p", "topic": "t",
            "records": "emi-car", "sync": False, "batch_records": 100, **common,
        }  # fmt: skip
    return {"type": "directory", "path": receiver.name, "records": "apel-summary", **common}
