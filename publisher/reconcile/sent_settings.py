"""The settings by which what was sent was made: benchmarks, rules, and site as they were then, not as they are now.

The ledger has the facts of a run as they were sent, and the store the settings that each message was made by. Of
messages that were sent before the store kept settings, only the present ones are known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from formats.view import View
from publisher.collect.enrich import Enrichers
from publisher.collect.settings_text import config_of_text
from publisher.config.schema import Config
from publisher.messages.recipient import Recipient
from publisher.store import registry
from publisher.store.ledger_entries import LedgerEntry
from publisher.store.stored_json import read_with


class MadeBy:
    """Settings by which messages were made. `number`: 0 for the present ones; `recipient` None: they are not known any
    more, so what was sent cannot be made again."""

    def __init__(self, number: int, recipient: Recipient | None, present: Recipient) -> None:
        self.number = number
        self.recipient = recipient
        self._present = present
        self._enrichers: Enrichers | None = None

    @property
    def view(self) -> View:
        """The view of the jobs; the present one where another is not known."""
        return (self.recipient or self._present).view

    @property
    def enrichers(self) -> Enrichers:
        """What the configuration added."""
        if self._enrichers is None:
            self._enrichers = Enrichers((self.recipient or self._present).config)
        return self._enrichers


class SentSettings:
    """The settings of a target at each time."""

    def __init__(self, present: Recipient) -> None:
        """Raises `StoreCorruptError`."""
        self.present = present
        self.now = MadeBy(0, present, present)
        before: list[tuple[int, str]] = []
        if present.target_id is not None:
            with present.store.read() as connection:
                before = registry.settings_before(connection, present.target_id)
        self._last_batches = [last for last, _ in before]
        self._earlier = [MadeBy(number, self._recipient(text), present) for number, (_, text) in enumerate(before, 1)]

    def _recipient(self, text: str) -> Recipient | None:
        name = self.present.name
        assert name is not None  # it has an id
        config = read_with(lambda stored: config_of_text(stored, name, self.present.config), text, "earlier settings")
        return None if config is None else Recipient(self.present.store, config, name)

    @property
    def configs(self) -> list[Config]:
        """The known configurations by which anything was sent, the present one first."""
        recipients = [self.present, *(made_by.recipient for made_by in self._earlier if made_by.recipient is not None)]
        return [recipient.config for recipient in recipients]

    def groups(self, entries: Sequence[LedgerEntry]) -> Iterator[tuple[MadeBy, list[LedgerEntry]]]:
        """The same runs by the settings by which they were sent."""
        if not self._earlier:
            yield self.now, list(entries)
            return
        by_settings: dict[int, tuple[MadeBy, list[LedgerEntry]]] = {}
        for entry in entries:
            made_by = self.of(entry)
            by_settings.setdefault(made_by.number, (made_by, []))[1].append(entry)
        yield from by_settings.values()

    def of(self, entry: LedgerEntry) -> MadeBy:
        """Those by which a run was sent; the present ones of a run that was not sent from here."""
        if not self._earlier or not entry.sent or entry.batch_id is None:
            return self.now
        position = bisect_left(self._last_batches, entry.batch_id)
        return self.now if position == len(self._earlier) else self._earlier[position]

    def possible(self, entry: LedgerEntry) -> list[LedgerEntry]:
        """A run as it was last sent; and, where the service may have taken it before that, as it was sent by each of
        the earlier settings."""
        version = entry.version
        if version is None or entry.batch_id is None:
            return [entry]
        if not (version.by_several_settings or version.may_be_one_of_several):
            return [entry]
        earlier = self._last_batches[: bisect_left(self._last_batches, entry.batch_id)]
        return [entry, *(msgspec.structs.replace(entry, batch_id=last) for last in earlier)]
