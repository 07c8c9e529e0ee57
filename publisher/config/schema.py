"""The settings of one TOML file as types.

Relative paths are relative to the file; durations become seconds, dates instants. `publisher.config.file` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import Field, model_validator

from publisher.config.allocations import Allocation, AllocationFile, overlap_of
from publisher.config.energy import Energy
from publisher.config.operation import Credentials, Log, Metrics, Notices, Serve, SpoolContext
from publisher.config.reports import Charges, Node, StatementSettings, crossing_prices
from publisher.config.rules import BenchmarkRule, BenchmarkSettings, GridLog, MapRule, Selected, When
from publisher.config.sources import SOURCE_KINDS, SourceKind, SourceSettings
from publisher.config.target_kind import TargetKind
from publisher.config.target_registry import TARGET_KINDS, Target
from publisher.config.targets import MOST_PUBLISHERS, AddOnSettings, FormatName, ReportingSettings, TargetSettings
from publisher.config.types import (
    FilePath,
    Instant,
    KeyProblem,
    Months,
    Seconds,
    Settings,
    StoreUrl,
    WrongKeysError,
    ZoneName,
)
from publisher.text import did_you_mean

__all__ = [
    "MOST_PUBLISHERS",
    "SOURCE_KINDS",
    "TARGET_KINDS",
    "AddOnSettings",
    "BenchmarkRule",
    "BenchmarkSettings",
    "Config",
    "Credentials",
    "FilePath",
    "FormatName",
    "GridLog",
    "Instant",
    "MapRule",
    "ReportingSettings",
    "Seconds",
    "Selected",
    "Settings",
    "SiteSettings",
    "SourceKind",
    "SourceSettings",
    "SpoolContext",
    "StoreSettings",
    "Target",
    "TargetKind",
    "TargetSettings",
    "When",
    "ZoneName",
]  # fmt: skip


_STATE_FOLDER: Final = Path("/var/lib/usage-publisher")
"""The folder that the service units create for the store."""
LONGEST_NAME: Final = 100
"""Characters in the name of a source, target, or context, which is used in file names and indexes of the store."""


class SiteSettings(Settings):
    """`[site]`: the site."""

    name: str = Field(min_length=1, max_length=255, description="Name of the site, as in GOCDB.")


class StoreSettings(Settings):
    """`[store]`: where the state is kept."""

    url: StoreUrl = Field(
        default="sqlite:////var/lib/usage-publisher/store.db",
        description="`sqlite:////absolute/path`, `sqlite:///path/relative/to/this/file` or `postgresql://...`.",
    )
    busy_timeout: Seconds = Field(
        default=30.0, description="How long to wait for a store that another process has locked."
    )
    sent_mark: FilePath | None = Field(
        default=None,
        description="File that records what was sent last, so that a restored store is recognised. Default: beside an "
        "SQLite store; for PostgreSQL `/var/lib/usage-publisher/sent-mark`, if that folder exists.",
    )
    columns: FilePath | None = Field(
        default=None,
        description="Private folder of the columns, from which reports are made; it may be removed at any time. "
        "Default: beside an SQLite store; for PostgreSQL in `/var/lib/usage-publisher`, if that can be written to, "
        "else none is kept.",
    )
    keep_jobs: Months | None = Field(
        default=None, description="Age after which `store purge` removes jobs that were delivered."
    )
    keep_messages: Months | None = Field(
        default=None, description="Age after which it removes messages, unless a job in the store was sent in one."
    )
    keep_receipts: Months | None = Field(
        default=None, description="Age after which it removes receipts and answers of messages."
    )

    keep_history: Months = Field(default=13, description="Age after which runs of the program leave its `history`.")

    @property
    def mark_file(self) -> Path | None:
        """The file that records what was sent last; None: in the folder of an SQLite store; another store has none."""
        if self.sent_mark is None and not self.url.startswith("sqlite") and _STATE_FOLDER.is_dir():
            return _STATE_FOLDER / "sent-mark"
        return self.sent_mark


class Config(Settings):
    """The whole file."""

    site: SiteSettings
    store: StoreSettings = Field(default_factory=StoreSettings.model_construct)
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    targets: dict[str, Target] = Field(default_factory=dict)
    map: tuple[MapRule, ...] = ()
    nodes: tuple[Node, ...] = ()
    energy: Energy = Field(default_factory=Energy.model_construct)
    allocations: tuple[Allocation, ...] = ()
    allocation_files: tuple[AllocationFile, ...] = ()
    charges: Charges = Field(default_factory=Charges.model_construct)
    statements: StatementSettings = Field(default_factory=StatementSettings.model_construct)
    credentials: Credentials = Field(default_factory=Credentials.model_construct)
    metrics: Metrics = Field(default_factory=Metrics.model_construct)
    notices: Notices = Field(default_factory=Notices.model_construct)
    log: Log = Field(default_factory=Log.model_construct)
    serve: Serve = Field(default_factory=Serve.model_construct)
    spool: dict[str, SpoolContext] = Field(default_factory=dict)
    file: Path | None = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _tables_fit_together(self) -> Config:
        problems = [
            *self._names_of_wrong_length(),
            *self._unknown_sources(),
            *self._two_shapes_for_a_service(),
            *self._tokens_for_wrong_services(),
            *self._one_resource_of_several_sources(),
            *self._more_power_than_nodes_have(),
            *self._overlapping_allocations(),
            *((("charges", "prices"), problem) for problem in crossing_prices(self.charges.prices)),
        ]
        if problems:
            raise WrongKeysError(*problems)
        return self

    @property
    def has_allocations(self) -> bool:
        """Whether there may be any."""
        return bool(self.allocations or self.allocation_files)

    def _overlapping_allocations(self) -> Iterator[KeyProblem]:
        overlap = overlap_of(self.allocations)
        if overlap is not None:
            yield ("allocations",), overlap

    def _names_of_wrong_length(self) -> Iterator[KeyProblem]:
        for section, names in (("sources", self.sources), ("targets", self.targets), ("spool", self.spool)):
            for name in names:
                if not 0 < len(name) <= LONGEST_NAME:
                    yield (section, name), f"a name must have 1 to {LONGEST_NAME} characters, not {len(name)}"

    def _unknown_sources(self) -> Iterator[KeyProblem]:
        for name, target in self.targets.items():
            for source in target.sources:
                if source not in self.sources:
                    known = ", ".join(sorted(self.sources)) or "none is configured"
                    near = did_you_mean(source, self.sources)
                    yield ("targets", name, "sources"), f"{source!r} is not a source; known: {known}{near}"

    def _two_shapes_for_a_service(self) -> Iterator[KeyProblem]:
        services: dict[tuple[str, ...], tuple[str, str]] = {}
        for name, target in self.targets.items():
            service = target.destination
            if service is None or not target.format.with_sync:
                continue
            other, shape = services.setdefault(service, (name, target.format.shape))
            if shape != target.format.shape:
                text = f"targets.{other} and targets.{name} send job records and summaries of one site to the same "
                text += "service, which then counts neither. Set the same `records` in both"
                yield ("targets", name, "records"), text

    def _tokens_for_wrong_services(self) -> Iterator[KeyProblem]:
        """Who has a token can use it: no service may get the token of another."""
        hosts: dict[str, str] = {}
        for name, target in self.targets.items():
            own = target.own_credentials
            if own is not None and own.has_token:
                if not target.kind.sends_token:
                    text = f"targets of type {target.type} send no token: they are known by their certificate. Omit it"
                    yield ("targets", name, "credentials"), text
            elif self.credentials.has_token and target.kind.sends_token and target.service_host is not None:
                hosts.setdefault(target.service_host, name)
        if len(hosts) > 1:
            where = " and ".join(f"{host} (targets.{name})" for host, name in hosts.items())
            text = f"the token would be sent to {where}: write it into the credentials of the target that needs it"
            yield ("credentials",), text

    def _one_resource_of_several_sources(self) -> Iterator[KeyProblem]:
        """Where job numbers identify a run in a resource, two batch systems cannot be one resource."""
        for name, target in self.targets.items():
            if target.format.file_of is not None and target.machine_name is not None:
                feeding = target.sources or tuple(self.sources)
                if len(feeding) > 1:
                    text = (
                        f"makes one resource of the sources {', '.join(feeding)}, whose job numbers may be the same: "
                    )
                    text += "set `sources` to one of them, and make a target for each of the others"
                    yield ("targets", name, "machine_name"), text

    def _more_power_than_nodes_have(self) -> Iterator[KeyProblem]:
        """A node that is full of modelled jobs draws no more than it can, with one rule for its cluster at least."""
        for place, node in enumerate(self.nodes):
            if node.watts_max is None:
                continue
            rules = [rule for rule in self.energy.power if rule.may_be_on(node.cluster)]
            least = min((rule.watts_of(node.cores, node.gpus, node.memory_gib or 0) for rule in rules), default=None)
            if least is not None and least > node.watts_max:
                text = f"is less than the {least:f} W that [[energy.power]] gives to jobs that hold all of such a node"
                yield ("nodes", str(place), "watts_max"), text

    @property
    def local_id_prefixes(self) -> dict[str, str]:
        """The prefix of the local ids of each source, by its name; empty: no prefix."""
        return {name: source.local_id_prefix for name, source in self.sources.items()}

    @property
    def site_names(self) -> list[str]:
        """The names of the sites whose jobs are sent."""
        return [self.site.name, *(source.site for source in self.sources.values() if source.site is not None)]

    def credentials_of(self, target: TargetSettings) -> Credentials:
        """The target's own credentials; what they lack is taken from the common ones."""
        return self.credentials.of_target(target.own_credentials)
