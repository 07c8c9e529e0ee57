"""Typed settings from one TOML file. Every error names the file, the key and the values allowed there.

Relative paths are relative to the file, durations become seconds, dates instants. `publisher.config.file` reads it;
everything else gets one of these frozen objects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from formats.calendar import LONGEST_S, PeriodKind
from formats.job import Infrastructure
from formats.registry import require_version
from formats.utilization.measure import Bins
from formats.utilization.report import Measure
from formats.view import DnPolicy, NamespaceStyle, SubmitHostSpelling, UrExtension, VoSpelling
from publisher import plugins
from publisher.config.reports import Charges, Node
from publisher.config.rules import BenchmarkRule, BenchmarkSettings, GridLog, MapRule, Selected, When
from publisher.config.services import Log, Metrics, Notices, Serve, SpoolContext
from publisher.config.types import Count, FilePath, Folders, Instant, Months, Seconds, Settings, Switch, ZoneName

__all__ = [
    "ADD_ON",
    "BUILT_IN_RECORDS",
    "BUILT_IN_TARGETS",
    "MOST_PUBLISHERS",
    "REPORT_KINDS",
    "SNAPSHOT_KINDS",
    "SUMMARY_KINDS",
    "AddOnSettings",
    "AmsSettings",
    "BenchmarkRule",
    "BenchmarkSettings",
    "Config",
    "Credentials",
    "DirectorySettings",
    "FilePath",
    "GridLog",
    "HttpsSettings",
    "Instant",
    "MapRule",
    "RecordsKind",
    "ReportingSettings",
    "Seconds",
    "Selected",
    "Settings",
    "SgasSettings",
    "SiteSettings",
    "SourceSettings",
    "SourceType",
    "SpoolContext",
    "StoreSettings",
    "Target",
    "TargetSettings",
    "When",
    "ZoneName",
]  # fmt: skip


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
    keep_jobs: Months | None = Field(
        default=None, description="Jobs that ended earlier, and were delivered, are taken out by `store purge`."
    )
    keep_messages: Months | None = Field(
        default=None, description="Messages sent earlier that no job in the store was sent in: the same."
    )
    keep_receipts: Months | None = Field(
        default=None, description="Receipts of, and answers to, messages sent earlier: the same."
    )


SourceType = Literal["arc", "gridengine", "torque", "pbs", "dqs", "slurm", "htcondor", "lsf"]


class SourceSettings(Settings):
    """`[sources.NAME]`: finished jobs of one batch system or grid front end."""

    type: str = Field(description="arc, gridengine, torque, pbs, dqs, slurm, htcondor, lsf, or one an add-on brings.")
    path: FilePath | None = Field(default=None, description="A file, a folder or a glob, as suits the type.")
    rotated_to: Folders = Field(
        default=(), description="Of logs: further folders to which they are rotated, such as logrotate's `olddir`."
    )
    benchmark: BenchmarkSettings | None = Field(
        default=None, description="Score per core where the source has no usable one."
    )
    timezone: ZoneName = Field(default="UTC", description="Of logs that are written in local time.")
    expect_every: Seconds | None = Field(default=None, description="Silent for longer: yellow in `status`.")
    complete_since: Instant | None = Field(
        default=None, description="Where a rotated log cannot tell: from then on every job is there."
    )
    cluster: str | None = Field(default=None, description="Name of the cluster or cell where the source has none.")
    infrastructure: Infrastructure | None = Field(default=None, description="`grid` or `local`.")
    site: str | None = Field(
        default=None, min_length=1, max_length=255, description="Name of the site, where it is not that of `[site]`."
    )
    submit_host: str | None = Field(
        default=None,
        min_length=1,
        description="The computing element that jobs come through, where the source has none.",
    )
    local_id_prefix: str = Field(
        default="", description="Before every LocalJobId of this source, so that those of two do not collide."
    )
    benchmarks: tuple[BenchmarkRule, ...] = Field(
        default=(), description="The same by queue, host and date; the first that matches."
    )
    map: tuple[MapRule, ...] = Field(
        default=(), description="Grid identity where the source does not tell it; the first that matches."
    )
    grid_log: GridLog | None = Field(default=None, description="Log that tells whose each local job is.")
    options: dict[str, Any] = Field(default_factory=dict, description="What an add-on's type wants to know besides.")
    start_time: Literal["submission", "execution"] = Field(
        default="submission",
        description="ARC: what counts as StartTime. `submission` is what ARC's own publisher uses.",
    )
    end_time: Literal["terminal", "lrms"] = Field(
        default="terminal", description="ARC: what counts as EndTime. It is in APEL's key: changing it counts twice."
    )
    overlap: Seconds = Field(default=86400.0 * 7, description="ARC: how far back each read looks for late rows.")
    busy_timeout: Seconds = Field(default=10.0, description="How long to wait for a source that its writer locks.")
    stat_file: FilePath | None = Field(default=None, description="DQS: samples of the queues, for `--view load`.")

    @model_validator(mode="after")
    def _options_are_for_add_ons(self) -> SourceSettings:
        if self.options and self.type in get_args(SourceType):
            raise ValueError(f"options are for the types of add-ons; {self.type} has its keys beside `type`")
        return self


class Credentials(Settings):
    """`[credentials]`, or a target's own: the client certificate and who is trusted."""

    certificate: FilePath | None = Field(default=None, description="PEM file with the certificate (and its chain).")
    key: FilePath | None = Field(default=None, description="PEM file with the key, mode 0600 or 0400, no pass phrase.")
    ca_directory: FilePath | None = Field(default=None, description="Hashed directory of CA certificates.")
    ca_file: FilePath | None = Field(default=None, description="PEM file of CA certificates.")

    @model_validator(mode="after")
    def _together(self) -> Credentials:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        return self


BUILT_IN_RECORDS: Final = (
    "ogf-ur", "emi-car", "apel-job", "apel-summary", "apel-normalised-summary", "utilization",
)  # fmt: skip
"""The formats of this program that targets can be sent."""
JOB_RECORD_KINDS: frozenset[str] = frozenset({"apel-job", "emi-car"})
"""Of the formats that APEL takes, those with one record a job."""
MOST_PUBLISHERS: Final = 64
"""That may send to one target at once."""
SUMMARY_KINDS: frozenset[str] = frozenset({"apel-summary", "apel-normalised-summary"})
REPORT_KINDS: frozenset[str] = frozenset({"utilization"})
SNAPSHOT_KINDS: frozenset[str] = SUMMARY_KINDS | REPORT_KINDS
"""The formats that tell of many jobs at once: what is sent again replaces what was sent before."""


def _format(value: str) -> str:
    if value not in BUILT_IN_RECORDS and value not in (others := plugins.names(plugins.FORMATS)):
        raise ValueError(f"is {value!r}; allowed: {', '.join([*BUILT_IN_RECORDS, *others])}")
    return value


RecordsKind = Annotated[str, AfterValidator(_format)]
"""A format of this program or of an installed add-on."""


class TargetSettings(Settings):
    """What all kinds of target have."""

    vo: tuple[str, ...] = Field(default=(), description="Only jobs of these VOs; empty: of all.")
    statuses: tuple[str, ...] | None = Field(
        default=None,
        description="Which ends count. Default: completed and failed of ARC, each of batch systems, and in reports.",
    )
    since: Instant | None = Field(default=None, description="Nothing that ended before.")
    delivered_until: Instant | None = Field(
        default=None, description="Jobs that ended up to then were delivered before us; set by `import`."
    )
    taken_over_from: str | None = Field(
        default=None, description="From what `import` made this, and who did; goes into the audit."
    )
    shadow: Switch = Field(
        default=False, description="Plan, render and sign everything, and send nothing: beside an earlier publisher."
    )
    every: Seconds | None = Field(default=None, description="Publish not oftener than this.")
    unknown_vo: Literal["hold", "send", "skip"] | None = Field(
        default=None,
        description="Jobs whose VO is unknown. Default: held until a mapping tells it if `vo` is given, else sent.",
    )
    local_jobs: Literal["send", "skip"] | None = Field(
        default=None, description="Jobs without a grid identity. Default: sent; ams skips them, but in reports."
    )
    sources: tuple[str, ...] = Field(default=(), description="Only jobs of these sources; empty: of all.")
    batch_records: Count = Field(default=100, ge=1, le=100_000, description="Most records of a message.")
    batch_bytes: Count = Field(default=1_000_000, ge=10_000, description="Most bytes of a message as it travels.")
    workers: Count = Field(
        default=2, ge=1, le=32, description="Messages on their way at a time, each over a connection of its own."
    )
    publishers: Count = Field(
        default=4,
        ge=1,
        le=MOST_PUBLISHERS,
        description="Publishers that may send to it at once, each its part of a large backlog; with PostgreSQL.",
    )
    timeout: Seconds = Field(default=60.0, gt=0, description="For each answer of the service.")
    attempts: Count = Field(default=3, ge=1, le=20, description="Tries of one message in one run.")
    retry_wait: Seconds = Field(default=1.0, gt=0, description="Pause before the second try; doubles with each.")
    retry_budget: Seconds = Field(default=120.0, description="Most time spent on such pauses in one run.")
    proxy: str | None = Field(default=None, description="HTTP proxy; the environment's settings are ignored.")
    credentials: Credentials | None = Field(default=None, description="Instead of the common ones.")
    version: str = Field(default="", description="Of the format, where it has several.")
    record_id_prefix: str = Field(default="", description="Before every record id that is not yet fixed.")
    local_id_prefix: str = Field(default="", description="ARC's localid_prefix: before every LocalJobId.")
    machine_name: str | None = Field(default=None, description="Instead of the host of the endpoint or cluster.")
    submit_host: SubmitHostSpelling = Field(default="arc", description="Spelling of APEL's SubmitHost.")
    vo_spelling: VoSpelling = Field(default="plain", description="Of VO groups and roles.")
    infrastructure_description: str | None = Field(
        default=None, description="Of CAR and APEL job records, instead of USAGE-PUBLISHER-middleware-LRMS."
    )
    benchmark_type: str | None = Field(default=None, description="Which benchmark to use where a job has several.")
    ur_extensions: frozenset[UrExtension] = Field(
        default=frozenset({"vo", "file-transfers", "submit-time", "exit-code", "runtime-environment", "user-time"}),
        description="Extensions of SGAS and ARC to write into usage records.",
    )
    namespace_style: NamespaceStyle = Field(
        default="default", description="Of XML: elements in the default namespace, or each with the prefix urf."
    )
    service_class_as_service_level: Switch = Field(default=False, description="ARC's wninstance as UR ServiceLevel.")
    ascii_names: Switch = Field(
        default=False, description="Of CARs: names in ASCII, as `apel-job` always has them; for databases in Latin-1."
    )
    dn: DnPolicy = Field(default="send", description="Send names of users, send a keyed hash, or withhold them.")
    dn_key: FilePath | None = Field(default=None, description="File with the key of the hash, mode 0600.")

    @model_validator(mode="after")
    def _version_is_known(self) -> Self:
        try:
            require_version(getattr(self, "records", ""), self.version)
        except ValueError as error:
            raise ValueError(f"version: {error}") from None
        return self

    @model_validator(mode="after")
    def _ascii_names_are_for_job_records(self) -> Self:
        if self.ascii_names and getattr(self, "records", None) not in JOB_RECORD_KINDS:
            raise ValueError(f"ascii_names is for {' and '.join(sorted(JOB_RECORD_KINDS))}; leave it out")
        return self

    @property
    def is_signed(self) -> bool:
        """Whether messages are signed before they reach the service."""
        return False


class SgasSettings(TargetSettings):
    """`[targets.NAME]` with `type = "sgas"`."""

    type: Literal["sgas"] = Field(description="An SGAS service: usage records by HTTPS.")
    url: str = Field(pattern=r"^https?://", description="Of the service; `/ur` is added where it is missing.")
    records: Literal["ogf-ur"] = Field(default="ogf-ur", description="What is sent; SGAS takes nothing else.")
    workers: Count = Field(
        default=3, ge=1, le=32, description="Messages on their way at a time: SGAS answers when it has stored one."
    )


class ReportingSettings(TargetSettings):
    """What kinds of target have that can be sent reports: for `records = "utilization"` alone."""

    period: PeriodKind = Field(default="month", description="What each report is of; it is sent when that is complete.")
    bin: Seconds = Field(default=3600.0, description="Size of a bin, whole seconds.")
    measure: Measure = Field(default="queue", description="What a report says it is about.")
    select: Selected = Field(default_factory=Selected, description="Only jobs that match.")

    @model_validator(mode="after")
    def _reports_make_sense(self) -> Self:
        given = sorted({"period", "bin", "measure", "select"} & self.model_fields_set)
        if getattr(self, "records", None) not in REPORT_KINDS:
            if given:
                raise ValueError(f'{given[0]} is for reports; set records = "utilization", or leave it away')
            return self
        if self.bin != int(self.bin):
            raise ValueError("bin: a bin has a whole number of seconds")
        try:
            Bins(0, LONGEST_S[self.period], int(self.bin))
        except ValueError as error:
            raise ValueError(f"bin: {error}") from None
        return self


class AmsSettings(ReportingSettings):
    """`[targets.NAME]` with `type = "ams"`."""

    type: Literal["ams"] = Field(description="The ARGO messaging service, as APEL uses it: signed messages.")
    url: str = Field(pattern=r"^https?://", description="Of the messaging service.")
    auth_url: str | None = Field(default=None, description="Of the token service; default: port 8443 of the same host.")
    project: str = Field(
        default="accounting", pattern=r"^[a-zA-Z0-9_-]+$", description="Project of the messaging service."
    )
    topic: str = Field(default="gLite-APEL", pattern=r"^[a-zA-Z0-9_-]+$", description="Topic to publish to.")
    records: RecordsKind = Field(default="apel-summary", description="What is sent.")
    batch_records: Count = Field(default=500, ge=1, le=100_000, description="Most records of a message.")
    encrypt_to: FilePath | None = Field(default=None, description="Certificate of the receiver, as SSM's encryption.")
    sync: Switch = Field(default=True, description="Send sync messages with the records.")

    @property
    def is_signed(self) -> bool:
        """Always."""
        return True


class HttpsSettings(ReportingSettings):
    """`[targets.NAME]` with `type = "https"`: POST of any format."""

    type: Literal["https"] = Field(description="Any service that takes a POST.")
    url: str = Field(pattern=r"^https?://", description="Where to POST each message.")
    records: RecordsKind = Field(default="ogf-ur", description="What is sent.")
    sign: Switch = Field(default=False, description="Sign messages (S/MIME) with the certificate.")
    encrypt_to: FilePath | None = Field(default=None, description="Certificate of the receiver, to encrypt to it.")
    token_file: FilePath | None = Field(default=None, description="File with a bearer token, mode 0600.")

    @property
    def is_signed(self) -> bool:
        """An encrypted message is signed first."""
        return self.sign or self.encrypt_to is not None


class DirectorySettings(ReportingSettings):
    """`[targets.NAME]` with `type = "directory"`."""

    type: Literal["directory"] = Field(description="Messages as files, for SSM or another program to take away.")
    path: FilePath = Field(description="The directory.")
    layout: Literal["dirq", "files"] = Field(
        default="dirq", description="`dirq`: an outgoing queue as SSM reads it; `files`: one plain file a message."
    )
    records: RecordsKind = Field(default="apel-summary", description="What is written.")
    sign: Switch = Field(default=False, description="Sign messages (S/MIME) with the certificate. SSM signs by itself.")
    batch_records: Count = Field(default=500, ge=1, le=100_000, description="Most records of a message.")
    sync: Switch = Field(default=True, description="Write sync messages with APEL records.")

    @property
    def is_signed(self) -> bool:
        """By us, or by SSM when it takes a message from its queue."""
        return self.sign or self.layout == "dirq"


class AddOnSettings(ReportingSettings):
    """`[targets.NAME]` with the `type` of an installed add-on."""

    type: str = Field(description="The type that the add-on brings.")
    records: RecordsKind = Field(default="ogf-ur", description="What is sent.")
    options: dict[str, Any] = Field(default_factory=dict, description="What the add-on wants to know besides.")


ADD_ON: Final = "add-on"
BUILT_IN_TARGETS: Final[dict[str, type[TargetSettings]]] = {
    "sgas": SgasSettings,
    "ams": AmsSettings,
    "https": HttpsSettings,
    "directory": DirectorySettings,
}


def _kind_of_target(value: Any) -> str | None:
    """Which of the types below a table is: its own for those of this program, `ADD_ON` for an installed one's."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if not isinstance(kind, str) or kind in BUILT_IN_TARGETS:
        return kind if isinstance(kind, str) else None
    return ADD_ON if kind in plugins.names(plugins.TARGETS) else kind


Target = Annotated[
    Annotated[SgasSettings, Tag("sgas")]
    | Annotated[AmsSettings, Tag("ams")]
    | Annotated[HttpsSettings, Tag("https")]
    | Annotated[DirectorySettings, Tag("directory")]
    | Annotated[AddOnSettings, Tag(ADD_ON)],
    Discriminator(_kind_of_target),
]


def _service_of(target: TargetSettings) -> tuple[str, ...] | None:
    """Where the messages of a target end up, as far as its settings tell."""
    if isinstance(target, AmsSettings):
        return target.url.rstrip("/").lower(), target.project, target.topic
    if isinstance(target, HttpsSettings):
        return (target.url.rstrip("/"),)
    return ("directory", str(target.path)) if isinstance(target, DirectorySettings) else None


class Config(Settings):
    """The whole file."""

    site: SiteSettings
    store: StoreSettings = Field(default_factory=StoreSettings)
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    targets: dict[str, Target] = Field(default_factory=dict)
    map: tuple[MapRule, ...] = ()
    nodes: tuple[Node, ...] = ()
    charges: Charges = Field(default_factory=Charges)
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
                    raise ValueError(f"targets.{name}.sources names {source!r}, which is no source (known: {known})")
        return self

    @model_validator(mode="after")
    def _one_kind_for_a_service(self) -> Config:
        services: dict[tuple[str, ...], tuple[str, bool]] = {}
        for name, target in self.targets.items():
            summaries = target.records in SUMMARY_KINDS
            service = _service_of(target)
            if service is None or not (summaries or target.records in JOB_RECORD_KINDS):
                continue
            other = services.setdefault(service, (name, summaries))
            if other[1] != summaries:
                raise ValueError(
                    f"targets.{other[0]} and targets.{name} send job records and summaries of one site to the same "
                    "service, which then counts neither; let both send one kind"
                )
        return self

    @property
    def local_id_prefixes(self) -> dict[str, str]:
        """By the names of the sources what stands before their local ids; empty where nothing does."""
        return {name: source.local_id_prefix for name, source in self.sources.items()}

    def credentials_of(self, target: TargetSettings) -> Credentials:
        """The target's own credentials, filled up with the common ones."""
        if target.credentials is None:
            return self.credentials
        own = target.credentials
        common = self.credentials
        pair = (own.certificate, own.key) if own.certificate else (common.certificate, common.key)
        trust = (
            (own.ca_directory, own.ca_file)
            if own.ca_directory or own.ca_file
            else (common.ca_directory, common.ca_file)
        )
        return Credentials(certificate=pair[0], key=pair[1], ca_directory=trust[0], ca_file=trust[1])
