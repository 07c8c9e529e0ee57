"""Looking after the store itself, and the spooling contexts that follow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from publisher.api.opened import Opened
from publisher.errors import UsageError

if TYPE_CHECKING:
    from publisher.maintenance import StoreMaintenance
    from publisher.spool.exchange import Manifest
    from publisher.spool.spooler import ContextState


class Keeping(Opened):
    """See the module."""

    @property
    def keeper(self) -> StoreMaintenance:
        """What looks after the store itself. Raises `UsageError` as long as there is none."""
        from publisher.maintenance import StoreMaintenance  # noqa: PLC0415 - most commands need it not

        store = self._store_if_there()
        if store is None:
            raise UsageError("there is no store yet", hint="Run `usage-publisher collect` first")
        return StoreMaintenance(store, self.config, self.tools.clock, self._plans)

    def import_store(self, folder: Path) -> Manifest:
        """Put what was exported into the store, which is made; it must be empty."""
        from publisher.spool.exchange import import_  # noqa: PLC0415

        return import_(self.store, folder)

    def spool(self) -> list[ContextState]:
        """Write to the spooling contexts what they have not got, tidy up, and tell how they are."""
        if self._store_if_there() is None or self.spooler is None:
            return []
        self.spooler.maintain()
        return self.spooler.states()
