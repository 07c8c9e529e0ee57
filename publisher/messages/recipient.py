"""The recipient of items: a target as it is configured and stored, or a plain view of the site without a target."""

from __future__ import annotations

import msgspec

from formats.base import Format
from formats.view import View
from publisher.collect.run_preparer import RunPreparer
from publisher.collect.target_filter import TargetFilter, is_usually_sent
from publisher.config.schema import Config, Target
from publisher.errors import UsageError
from publisher.messages.item import view_of
from publisher.messages.run_energy import RunEnergy
from publisher.plugins import format_of
from publisher.store import classes, registry
from publisher.store.database import Store
from publisher.store.stored_run import StoredRun

PLAIN = "a plain view"


class Recipient:
    """A target that is sent `format_name`, or would be. `target_id` None: it has no deliveries in the store yet."""

    def __init__(self, store: Store, config: Config, name: str | None, format_name: str | None = None) -> None:
        """`name` None: a plain view of the site; `format_name` None: the target's own format.

        Raises `CredentialError` if the key for hashed names cannot be read.
        """
        self.store = store
        self.config = config
        self.name = name
        self.settings: Target | None = config.targets[name] if name is not None else None
        self.format_name = format_name or (self.settings.records if self.settings is not None else "")
        sends_energy = self.settings is not None and self.settings.needs_energy and self.is_own_format
        self.preparer = RunPreparer(config, self.settings, RunEnergy(store, config) if sends_energy else None)
        self.view = View(site=config.site.name)
        self.filter: TargetFilter | None = None
        self.target_id: int | None = None
        if name is not None and self.settings is not None:
            self.view = view_of(self.settings, config)
            if not self.is_own_format:
                self.view = msgspec.structs.replace(self.view, version="")
            self.filter = TargetFilter(name, self.settings, config)
            with store.read() as connection:
                row = registry.get_target(connection, name)
            self.target_id = row.id if row is not None else None

    @property
    def format(self) -> Format:
        """The descriptor of the format."""
        return format_of(self.format_name)

    @property
    def sync_format(self) -> Format:
        """The descriptor of the format of sync counts: this one, or that of those that go with it."""
        return self.format if self.format.shape == "sync" else format_of(self.format.sync)

    @property
    def is_own_format(self) -> bool:
        """Whether this is the format in the target's settings."""
        return self.settings is not None and self.settings.records == self.format_name

    @property
    def sends_sync(self) -> bool:
        """Whether sync counts go with the records of the target."""
        return self.settings is not None and self.settings.sends_sync

    @property
    def is_sent(self) -> bool:
        """Whether the target is sent this format: its own, or sync counts with it."""
        return self.is_own_format or (self.format.shape == "sync" and self.sends_sync)

    def required_settings(self) -> Target:
        """The settings of the target. Raises `UsageError` without a target."""
        if self.settings is None:
            raise UsageError(f"{PLAIN} has no {self.format_name}", hint="Name a target with --target")
        return self.settings

    def selected_classes(self) -> frozenset[int] | None:
        """The classes of runs that the target selects; None: any class may have runs that are sent by default."""
        if self.filter is None:
            return None
        with self.store.read() as connection:
            return frozenset(
                job_class.id for job_class in classes.all_classes(connection) if self.filter.selects_class(job_class)
            )

    def selects(self, run: StoredRun, class_id: int, selected: frozenset[int] | None) -> bool:
        """Whether a run is sent: its class is one of those `selected`, or it is sent by default."""
        if self.filter is None or selected is None:
            return is_usually_sent(run.job)
        return run.job.has_record and class_id in selected and self.filter.selects_end(run.job.end)

    def selects_now(self, run: StoredRun) -> bool:
        """Whether a run is sent, decided from its own facts."""
        chosen = self.filter
        selected = chosen is None or (chosen.selects_end(run.job.end) and chosen.why_not(run.source, run.job) is None)
        return run.job.has_record and selected
