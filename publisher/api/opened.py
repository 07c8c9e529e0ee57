"""A configuration and its store, opened when it is first needed: what all parts of the library stand on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from publisher.collect import plan as collect_plan
from publisher.collect.collect import TargetPlan
from publisher.config import file
from publisher.config.schema import Config
from publisher.errors import StoreMissingError, TargetBusyError, UsageError
from publisher.events import Observer, TargetPaused, ignore
from publisher.publish.context import Tools
from publisher.store import registry
from publisher.store.database import Store, open_store

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from publisher.spool.spooler import Spooler


def wall_clock() -> int:
    """Epoch seconds now."""
    return int(time.time())


class Opened:
    """See the module. Close it, or use it in a `with` statement."""

    def __init__(self, config: Config, tools: Tools | None = None, *, read_only: bool = False) -> None:
        self.config = config
        self._read_only = read_only
        self.tools = tools or Tools(wall_clock, ignore)
        self._store: Store | None = None
        self.missing = ""
        """That there is no store, and what makes one, where something was looked for in it."""
        self.spooler: Spooler | None = None
        """What keeps the spooling contexts of the configuration up with the store, once it is opened."""
        self._context_errors: dict[str, str] = {}

    @classmethod
    def from_file(cls, path: Path | None = None, tools: Tools | None = None, *, read_only: bool = False) -> Self:
        """With the configuration of a file; with `read_only` the store cannot be written. Raises `ConfigError`."""
        return cls(file.load(path), tools, read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; spooling contexts get what they have not got."""
        if self.spooler is not None:
            self.spooler.shutdown()
            self.spooler = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def context_errors(self) -> dict[str, str]:
        """By name, the spooling contexts that could not be written since this was last asked, or still cannot be, and
        why; also of a publisher that was closed."""
        found, self._context_errors = self._context_errors, {}
        if self.spooler is not None:
            found |= {each.name: each.trouble for each in self.spooler.states() if each.trouble is not None}
        return found

    def observed_by(self, observer: Observer) -> Self:
        """The same publisher telling its events to this observer."""
        return type(self)(
            self.config, msgspec.structs.replace(self.tools, observer=observer), read_only=self._read_only
        )

    @property
    def store(self) -> Store:
        """The opened store; made where it is missing."""
        if self._store is None:
            settings = self.config.store
            self._store = self._spooled(open_store(settings.url, settings.busy_timeout, read_only=self._read_only))
        return self._store

    @contextmanager
    def alone_at(self, target: str) -> Iterator[TargetPlan]:
        """Within this, no other process sends to a target. Raises `TargetBusyError` where one is at work."""
        with self._deciding(target) as (plan, _now):
            yield plan

    # --- for the parts of the library

    @contextmanager
    def _deciding(self, target: str) -> Iterator[tuple[TargetPlan, int]]:
        self._require([target], self.config.targets, "target")
        with self.store.lock(f"target-{target}") as held:
            if not held:
                raise TargetBusyError(target)
            yield self._plans()[target], self.tools.clock()

    def _plans(self) -> dict[str, TargetPlan]:
        return collect_plan.prepare(self.store, self.config, self.tools.clock())

    def _store_if_there(self) -> Store | None:
        if self._store is None:
            settings = self.config.store
            try:
                store = open_store(settings.url, settings.busy_timeout, create=False, read_only=self._read_only)
            except StoreMissingError as error:
                self.missing = str(error)
                return None
            self._store, self.missing = self._spooled(store), ""
        return self._store

    def _collected_store(self) -> Store:
        store = self._store_if_there()
        if store is None:
            raise UsageError("nothing was collected yet", hint="Run `usage-publisher collect` first")
        return store

    def _spooled(self, store: Store) -> Store:
        """The store, with the spooling contexts of the configuration kept up with it."""
        if self.config.spool and not self._read_only:
            from publisher.spool.spooler import attach  # noqa: PLC0415 - a leaf, for those who want it

            try:
                self.spooler = attach(store, self.config.spool, self._tell_of_context)
            except BaseException:
                store.close()
                raise
        return store

    def _tell_of_context(self, name: str, trouble: str) -> None:
        self._context_errors[name] = trouble
        self.tools.observer(TargetPaused(f"spool {name}", trouble))

    def _require_sources(self, connection: Connection, names: Sequence[str]) -> None:
        """Sources that are configured, or were once and were read."""
        self._require(
            [name for name in names if registry.get_source(connection, name) is None], self.config.sources, "source"
        )

    @staticmethod
    def _require(names: Sequence[str], known: Mapping[str, object], what: str) -> None:
        for name in names:
            if name not in known:
                there = ", ".join(known) or "none is configured"
                raise UsageError(f"there is no {what} {name!r}; there are: {there}")
