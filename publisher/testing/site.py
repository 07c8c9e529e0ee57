"""A site in a folder: sources in memory, a real store, the real pipeline, and kills at any event."""

from __future__ import annotations

import functools
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from publisher.api import Publisher
from publisher.collect.collect import Collected
from publisher.config import file as config_file
from publisher.config.schema import Config
from publisher.errors import StoreError
from publisher.events import Event, ignore
from publisher.messages.steps import BacklogLimits
from publisher.publish.circuit import Circuits
from publisher.publish.context import Tools
from publisher.publish.publish import Delivery
from publisher.reason import from_stored, sentence
from publisher.sources import make_source
from publisher.sources.base import Window
from publisher.store.database import open_store
from publisher.store.schema import State
from publisher.targets import TargetFactory, make_target
from publisher.targets.base import Target
from publisher.targets.identity import TargetContext
from publisher.testing.jobs import NOW
from publisher.testing.memory import ListSource
from publisher.testing.postgresql import DatabaseServer


class Killed(BaseException):
    """The process died."""


@functools.cache
def _empty_store() -> bytes:
    """A store without anything in it, made once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "store.db")
        open_store(f"sqlite:///{file}").close()
        return file.read_bytes()


class FolderSite:
    """See the module. Its store is a file in the folder, or a database of a server.

    `table` is the configuration; who changes it calls `reopen`. `now`: the clock, epoch seconds. `watch` is called with
    each event. `make_target` makes the targets.
    """

    def __init__(
        self, folder: Path, sources: Sequence[ListSource], server: DatabaseServer | None = None, database: str = ""
    ) -> None:
        self.folder = folder
        self._server = server
        self.database = database
        self.sources = {source.name: source for source in sources}
        self.now = NOW
        self.events: list[Event] = []
        self.watch: Callable[[Event], None] = lambda _event: None
        self.stop_when: Callable[[], bool] = lambda: False
        self.slept_s: list[float] = []
        self.backlog = BacklogLimits()
        self.make_target: TargetFactory = make_target
        self.table: dict[str, Any] = {
            "site": {"name": "EXAMPLE-SITE"},
            "store": {"url": self.store_url, "sent_mark": "store.db.sent"},
            "sources": {name: {"type": "arc", "path": "x"} for name in self.sources},
            "targets": {},
        }
        self._publisher: Publisher | None = None
        if server is None and not self.store_file.exists():
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
        return self._publisher

    def another_publisher(self) -> Publisher:
        """A second publisher over this site, as of another process, whose events are not seen here."""
        return Publisher(self.config, msgspec.structs.replace(self.tools, observer=ignore))

    @property
    def tools(self) -> Tools:
        """The clock of this site, its observer, and its sources in memory."""
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
        return self.make_target(name, settings, context)

    def _observe(self, event: Event) -> None:
        self.events.append(event)
        self.watch(event)

    def collect(self, *names: str, window: Window | None = None) -> dict[str, Collected]:
        """`usage-publisher collect`."""
        collected = self.publisher.collect(names, window)
        assert collected is not None
        return collected

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
            return self._server.rows(self.database, query.replace("?", "%s"), *values)
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
        return {record_id for record_id, its_state in self.states(target).items() if its_state is state}

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
        for name in self.table["targets"]:
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

    # --- kills

    def snapshot(self, folder: Path) -> None:
        """The files of the store as a power cut would leave them now.

        With the mark outside of it: restored together they are a state that the store was in.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in self.folder.glob("store.db*"):
            if file.is_file() and not file.name.endswith("-shm"):  # the columns are a folder, and derived
                shutil.copy(file, folder / file.name)

    def restore(self, folder: Path) -> None:
        """Put these files in place; a new process comes next."""
        self.reopen()
        for file in self.folder.glob("store.db*"):
            if file.is_file():
                file.unlink()
        for file in folder.iterdir():
            shutil.copy(file, self.folder / file.name)

    def killed_at(self, step: int, action: Callable[[], object]) -> bool:
        """Do something, dying with the power at the given event (from 0); False if it was done before that."""
        count = 0

        def is_time(_event: Event) -> bool:
            nonlocal count
            count += 1
            return count > step

        return self.killed_when(is_time, action)

    def killed_when(self, is_time: Callable[[Event], bool], action: Callable[[], object]) -> bool:
        """The same at the first event for which `is_time`."""
        image = self.folder / "image"
        dead = False

        at_once = threading.Lock()  # the power fails once, for all threads

        def die(event: Event) -> None:
            nonlocal dead
            with at_once:
                if not dead and is_time(event):
                    self._cut_the_power(image)
                    dead = True
            if dead:
                raise Killed

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
