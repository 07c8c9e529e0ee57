"""The store of a configuration, opened when first needed, and the spooling contexts that follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from publisher.config.schema import Config
from publisher.errors import StoreMissingError, UsageError
from publisher.events import Observer, TargetPaused
from publisher.store import dialect
from publisher.store.database import Store, open_store
from publisher.store.file_owner import is_foreign, require_owner

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from publisher.spool.spooler import ContextState, Spooler


class ConfiguredStore:
    """Opens the store once; what it gives raises `StoreError` and its kinds if the store cannot be opened."""

    def __init__(self, config: Config, observer: Observer, *, read_only: bool) -> None:
        self._config = config
        self._observer = observer
        self._read_only = read_only
        self._store: Store | None = None
        self._spooler: Spooler | None = None
        self._context_errors: dict[str, str] = {}
        self._begin_recording: Callable[[Store], object] | None = None
        self.missing = ""
        """The notice that there is no store, and how to make one, if one was needed."""

    def made(self) -> Store:
        """The store; it is created if it is missing. Raises `StoreError` too if root would write in that of another
        user."""
        if self._store is None:
            self._require_owner()
            self._store = self._opened(create=True)
        if self._begin_recording is not None:
            self._begin_recording(self._store)
        return self._store

    def record(self, begin: Callable[[Store], object] | None) -> None:
        """Call this with the store each time that it is needed; None: nothing any more."""
        self._begin_recording = begin

    def if_there(self) -> Store | None:
        """The store, or None, with the notice in `missing`."""
        if self._store is None:
            try:
                self._store, self.missing = self._opened(create=False), ""
            except StoreMissingError as error:
                self.missing = str(error)
                return None
        if self._begin_recording is not None:
            self._begin_recording(self._store)
        return self._store

    def collected(self) -> Store:
        """The store. Raises `UsageError` if there is none."""
        store = self.if_there()
        if store is None:
            raise UsageError("nothing was collected yet", hint="Run `usage-publisher collect` first")
        return store

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        """A reading transaction; None if there is no store."""
        store = self.if_there()
        if store is None:
            yield None
            return
        with store.read() as connection:
            yield connection

    def spool(self) -> list[ContextState]:
        """Write to the spooling contexts what they lack, and remove what they keep no longer; the state of each.

        Raises `StoreError` if root would write those of another user's store.
        """
        self._require_owner()
        if self.if_there() is None or self._spooler is None:
            return []
        self._spooler.maintain()
        return self._spooler.states()

    def context_errors(self) -> dict[str, str]:
        """By name, the spooling contexts that could not be written since this was last asked, or still cannot be, and
        why; also after `close`."""
        errors, self._context_errors = self._context_errors, {}
        if self._spooler is not None:
            errors |= {state.name: state.problem for state in self._spooler.states() if state.problem is not None}
        return errors

    def written_contexts(self) -> dict[str, str]:
        """Write to the spooling contexts what they lack; then as `context_errors`."""
        if self._spooler is not None:
            self._spooler.flush()
        return self.context_errors()

    def close(self) -> None:
        """Write to the spooling contexts what they lack, and close the store."""
        if self._spooler is not None:
            self._spooler.shutdown()
            self._spooler = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def _require_owner(self) -> None:
        file = dialect.file_of(self._config.store.url)
        if file is not None and not self._read_only:
            require_owner(file)

    def _opened(self, *, create: bool) -> Store:
        settings = self._config.store
        store = open_store(
            settings.url,
            settings.busy_timeout,
            create=create,
            read_only=self._read_only,
            mark=settings.mark_file,
        )
        # what root only looks at is left alone: a context that it writes could not be written by the store's owner
        leaves_alone = self._read_only or (store.file is not None and is_foreign(store.file))
        if self._config.spool and not leaves_alone:
            from publisher.spool.spooler import Spooler  # noqa: PLC0415

            try:
                spooler = Spooler(store, self._config.spool, self._observer, self._context_failed)
                spooler.startup()
            except BaseException:
                store.close()
                raise
            self._spooler = spooler
        return store

    def _context_failed(self, name: str, problem: str) -> None:
        self._context_errors[name] = problem
        self._observer(TargetPaused(f"spool {name}", problem))
