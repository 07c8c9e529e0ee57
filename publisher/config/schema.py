"""Typed settings from one TOML file. Every error names the file, the key and the values allowed there.

Relative paths are relative to the file, durations become seconds, dates instants. `publisher.config.file` reads it;
everything else gets one of these frozen objects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field, model_validator

from publisher.config.operation import Log, Metrics, Notices, Serve, SpoolContext
from publisher.config.reports import Charges, Node, StatementSettings
from publisher.config.rules import BenchmarkRule, BenchmarkSettings, GridLog, MapRule, Selected, When
from publisher.config.sources import SOURCE_KINDS, SourceKind, SourceSettings
from publisher.config.targets import (
    ADD_ON,
    MOST_PUBLISHERS,
    TARGET_KINDS,
    AddOnSettings,
    AmsSettings,
    ApelSettings,
    Credentials,
    DirectorySettings,
    EncryptingSettings,
    FormatName,
    HttpsSettings,
    ReportingSettings,
    SgasSettings,
    Target,
    TargetKind,
    TargetSettings,
)
from publisher.config.types import FilePath, Instant, Months, Seconds, Settings, ZoneName

__all__ = [
    "ADD_ON",
    "MOST_PUBLISHERS",
    "SOURCE_KINDS",
    "TARGET_KINDS",
    "AddOnSettings",
    "AmsSettings",
    "ApelSettings",
    "BenchmarkRule",
    "BenchmarkSettings",
    "Config",
    "Credentials",
    "DirectorySettings",
    "EncryptingSettings",
    "FilePath",
    "FormatName",
    "GridLog",
    "HttpsSettings",
    "Instant",
    "MapRule",
    "ReportingSettings",
    "Seconds",
    "Selected",
    "Settings",
    "SgasSettings",
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
"""What the service units have for the store."""
LONGEST_NAME: Final = 100
"""Characters of the name of a source, a target, or a context: it is in names of files and in indexes of the store."""


class SiteSettings(Settings):
    """`[site]`: who we are."""

    name: str = Field(min_length=1, max_length=255, description="Name of the site, as in GOCDB.")


class StoreSettings(Settings):
    """`[store]`: where the state is kept."""

    url: str = Field(
        default="sqlite:////var/lib/usage-publisher/store.db",
        description="`sqlite:////absolute/path`, `sqlite:///path/relative/to/this/file` or `postgresql://...`.",
    )
    busy_timeout: Seconds = Field(default=30.0, description="How long to wait for a store that another process holds.")
    sent_mark: FilePath | None = Field(
        default=None,
        description="File that says what was sent last, by which a restored store is recognised. Default: beside an "
        "SQLite store; for PostgreSQL `/var/lib/usage-publisher/sent-mark`, where that folder exists.",
    )
    keep_jobs: Months | None = Field(
        default=None, description="Jobs that ended earlier, and were delivered, are taken out by `store purge`."
    )
    keep_messages: Months | None = Field(
        default=None, description="Messages sent earlier that no job in the store was sent in: the same."
    )
    keep_receipts: Months | None = Field(
        default=None, description="Receipts of, and answers to, messages sent earlier: the same."
    )

    @property
    def mark_file(self) -> Path | None:
        """The file that says what was sent last; None: beside an SQLite store, nowhere for another."""
        if self.sent_mark is None and not self.url.startswith("sqlite") and _STATE_FOLDER.is_dir():
            return _STATE_FOLDER / "sent-mark"
        return self.sent_mark


class Config(Settings):
    """The whole file."""

    site: SiteSettings
    store: StoreSettings = Field(default_factory=StoreSettings)
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    targets: dict[str, Target] = Field(default_factory=dict)
    map: tuple[MapRule, ...] = ()
    nodes: tuple[Node, ...] = ()
    charges: Charges = Field(default_factory=Charges)
    statements: StatementSettings = Field(default_factory=StatementSettings)
    credentials: Credentials = Field(default_factory=Credentials)
    metrics: Metrics = Field(default_factory=Metrics)
    notices: Notices = Field(default_factory=Notices)
    log: Log = Field(default_factory=Log)
    serve: Serve = Field(default_factory=Serve)
    spool: dict[str, SpoolContext] = Field(default_factory=dict)
    file: Path | None = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _names_are_short(self) -> Config:
        for section, names in (("sources", self.sources), ("targets", self.targets), ("spool", self.spool)):
            for name in names:
                if not 0 < len(name) <= LONGEST_NAME:
                    shown = f"{name[:20]}..." if name else '""'
                    raise ValueError(f"{section}.{shown}: a name has 1 to {LONGEST_NAME} characters, not {len(name)}")
        return self

    @model_validator(mode="after")
    def _sources_exist(self) -> Config:
        for name, target in self.targets.items():
            for source in target.sources:
                if source not in self.sources:
                    known = ", ".join(sorted(self.sources)) or "none is configured"
                    raise ValueError(f"targets.{name}.sources names {source!r}, which is not a source (known: {known})")
        return self

    @model_validator(mode="after")
    def _one_shape_for_a_service(self) -> Config:
        services: dict[tuple[str, ...], tuple[str, str]] = {}
        for name, target in self.targets.items():
            service = target.destination
            if service is None or not target.format.with_sync:
                continue
            other, shape = services.setdefault(service, (name, target.format.shape))
            if shape != target.format.shape:
                raise ValueError(
                    f"targets.{other} and targets.{name} send job records and summaries of one site to the same "
                    "service, which then counts neither; let both send one kind"
                )
        return self

    @property
    def local_id_prefixes(self) -> dict[str, str]:
        """By the names of the sources what stands before their local ids; empty where nothing does."""
        return {name: source.local_id_prefix for name, source in self.sources.items()}

    @property
    def site_names(self) -> list[str]:
        """The names of the sites under which jobs are sent."""
        return [self.site.name, *(source.site for source in self.sources.values() if source.site is not None)]

    def credentials_of(self, target: TargetSettings) -> Credentials:
        """The target's own credentials, filled up with the common ones."""
        return self.credentials if target.credentials is None else target.credentials.over(self.credentials)
