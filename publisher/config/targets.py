"""The settings of targets in the configuration: those of all kinds, and of each kind.

What depends on the kind of service is decided by a field of its descriptor, or a property of its settings, never by its
name. `publisher.config.target_registry` lists the kinds.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, Field, model_validator

from formats.base import Format
from formats.calendar import LONGEST_S, PeriodKind
from formats.registry import FORMATS, names_of, require_version
from formats.utilization.measure import Bins
from formats.utilization.report import Measure
from formats.view import DnPolicy, NamespaceStyle, StartFrom, SubmitHostSpelling, SummaryCounts, UrExtension, VoSpelling
from publisher import plugins
from publisher.config.operation import Credentials
from publisher.config.rules import Selected, SelectedNames
from publisher.config.target_kind import EvidenceSource, SecondVersion, TargetKind, added_kind
from publisher.config.types import (
    BenchmarkName,
    Count,
    FilePath,
    Instant,
    KeepsPlan,
    PathsOrUrls,
    PlansAgain,
    PlansAgainIfGiven,
    Seconds,
    ServiceUrl,
    Settings,
    Switch,
    WrongKeysError,
    matching,
)
from publisher.errors import ConfigError
from publisher.text import did_you_mean

MOST_PUBLISHERS: Final = 64
"""Publishers that may send to one target at the same time."""


def _format(value: str) -> str:
    known = names_of("record", "totals", "report")
    if value not in known and value not in (others := plugins.names(plugins.FORMATS)):
        allowed = [*known, *others]
        raise ValueError(f"{value!r} is not a format; allowed: {', '.join(allowed)}{did_you_mean(value, allowed)}")
    try:
        plugins.format_of(value)
    except ConfigError as error:  # how its runs are planned is not known
        raise ValueError(str(error)) from error
    return value


FormatName = Annotated[str, AfterValidator(_format)]
"""A format that a target can be sent: of this program or of an installed add-on."""


AmsName = Annotated[str, matching(r"[a-zA-Z0-9_-]+", "may only have letters, digits, _, and -")]
"""The name of a project or topic of the messaging service."""


class TargetSettings(Settings):
    """The settings of all kinds of target."""

    descriptor: ClassVar[TargetKind]
    """Set by the registry."""

    if TYPE_CHECKING:  # each kind has these two, with its own defaults and descriptions
        type: str
        records: str

    vo: PlansAgain[tuple[str, ...]] = Field(default=(), description="Only jobs of these VOs. Default: all.")
    jobs: PlansAgainIfGiven[SelectedNames | None] = Field(
        default=None, description="Only jobs with these names of users, queues, and projects. Default: all."
    )
    statuses: PlansAgain[tuple[str, ...] | None] = Field(
        default=None,
        description="Only jobs with these statuses. Default: ARC completed and failed, else and in reports all.",
    )
    since: PlansAgain[Instant | None] = Field(default=None, description="Only jobs that ended at this time or later.")
    delivered_until: PlansAgain[Instant | None] = Field(
        default=None,
        description="Jobs that ended up to this time were delivered by an earlier publisher; set by `import`.",
    )
    taken_over_from: KeepsPlan[str | None] = Field(
        default=None, description="What `import` read, and who ran it; recorded in the audit log."
    )
    shadow: KeepsPlan[Switch] = Field(
        default=False,
        description="Plan, render, and sign everything, but send nothing: to compare with an earlier publisher.",
    )
    every: KeepsPlan[Seconds | None] = Field(default=None, description="Publish at most this often.")
    evidence: KeepsPlan[PathsOrUrls] = Field(
        default=(),
        description="File or https URL of what the service has, or a list of several that are compared together; the "
        "formats are those of `reconcile --file`.",
    )
    reconcile_every: KeepsPlan[Seconds] = Field(
        default=86_400.0,
        ge=0,
        description="How often `run` compares what was sent with the evidence of the service; 0: never.",
    )
    unknown_vo: PlansAgain[Literal["hold", "send", "skip"] | None] = Field(
        default=None,
        description="Jobs whose VO is unknown. Default: if `vo` is set held until a mapping rule gives it, else sent.",
    )
    local_jobs: PlansAgain[Literal["send", "skip"] | None] = Field(
        default=None, description="Jobs without a grid identity. Default: sent; ams skips them, except in reports."
    )
    sources: PlansAgain[tuple[str, ...]] = Field(default=(), description="Only jobs of these sources. Default: all.")
    batch_records: KeepsPlan[Count] = Field(
        default=100, ge=1, le=100_000, description="Maximum number of records in a message."
    )
    batch_bytes: KeepsPlan[Count] = Field(
        default=1_000_000, ge=10_000, description="Maximum size of a message as it is sent, bytes."
    )
    workers: KeepsPlan[Count] = Field(
        default=2, ge=1, le=32, description="Messages that are sent at the same time, each over its own connection."
    )
    publishers: KeepsPlan[Count] = Field(
        default=4,
        ge=1,
        le=MOST_PUBLISHERS,
        description="Publishers that may send to it at the same time, each a part of a large backlog; with PostgreSQL.",
    )
    timeout: KeepsPlan[Seconds] = Field(default=60.0, gt=0, description="Time to wait for each answer of the service.")
    attempts: KeepsPlan[Count] = Field(default=3, ge=1, le=20, description="Attempts to send one message in one run.")
    retry_wait: KeepsPlan[Seconds] = Field(
        default=1.0, gt=0, description="Pause before the second attempt; it doubles with each further one."
    )
    retry_budget: KeepsPlan[Seconds] = Field(
        default=120.0, description="Maximum time that one run spends on such pauses."
    )
    proxy: KeepsPlan[str | None] = Field(
        default=None, description="HTTP proxy; proxy settings of the environment are ignored."
    )
    credentials: KeepsPlan[Credentials | None] = Field(
        default=None, description="Credentials of this target, instead of the common ones."
    )
    version: PlansAgain[str] = Field(default="", description="Version of the format, if it has several.")
    record_id_prefix: PlansAgain[str] = Field(
        default="", description="Prefix of every record id that was not sent yet."
    )
    local_id_prefix: PlansAgain[str] = Field(
        default="", description="Prefix of every LocalJobId (ARC's localid_prefix)."
    )
    start_from: PlansAgainIfGiven[StartFrom] = Field(
        default="start",
        description="For services whose wall time is end - start: `start` as it is, or `wall`: end - wall time.",
    )
    machine_name: PlansAgain[str | None] = Field(
        default=None, description="MachineName, instead of the host of the endpoint or the cluster."
    )
    submit_host: PlansAgain[SubmitHostSpelling] = Field(default="arc", description="Spelling of APEL's SubmitHost.")
    vo_spelling: PlansAgain[VoSpelling] = Field(default="plain", description="Spelling of VO groups and roles.")
    summary_counts: PlansAgain[SummaryCounts] = Field(
        default="nodes-and-cores", description="Which of NodeCount and Processors summaries contain; the others are 0."
    )
    infrastructure_description: KeepsPlan[str | None] = Field(
        default=None,
        description="InfrastructureDescription of CAR and APEL job records. Default: USAGE-PUBLISHER-middleware-LRMS.",
    )
    summary_description: KeepsPlan[str | None] = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="InfrastructureDescription of summaries, for APEL 2.5.0 and later: older servers refuse every "
        "message that has it. Default: omitted.",
    )
    benchmark_type: PlansAgain[BenchmarkName | None] = Field(
        default=None, description="Which benchmark to use where a job has several."
    )
    ur_extensions: PlansAgain[frozenset[UrExtension]] = Field(
        default=frozenset({"vo", "file-transfers", "submit-time", "exit-code", "runtime-environment", "user-time"}),
        description="Extensions of SGAS and ARC to write into usage records.",
    )
    namespace_style: PlansAgain[NamespaceStyle] = Field(
        default="default", description="XML: elements in the default namespace, or each with the prefix urf."
    )
    service_class_as_service_level: PlansAgain[Switch] = Field(
        default=False, description="Write ARC's wninstance as ServiceLevel of usage records."
    )
    ascii_names: PlansAgain[Switch] = Field(
        default=False,
        description="CAR: write names in ASCII, as `apel-job` always does; for APEL databases in Latin-1.",
    )
    dn: PlansAgain[DnPolicy] = Field(
        default="send", description="Send names of users, send a keyed hash, or withhold them."
    )
    dn_key: PlansAgain[FilePath | None] = Field(default=None, description="File with the key of the hash, mode 0600.")

    @model_validator(mode="after")
    def _version_is_known(self) -> Self:
        try:
            require_version(self.records, self.version)
        except ValueError as error:
            raise WrongKeysError((("version",), str(error))) from None
        return self

    @model_validator(mode="after")
    def _a_record_fits(self) -> Self:
        if self.batch_bytes < self.least_batch_bytes:
            text = (
                f"must be at least {self.least_batch_bytes}: signature and encoding leave no room for a record in less"
            )
            raise WrongKeysError((("batch_bytes",), text))
        return self

    @model_validator(mode="after")
    def _files_by_day_are_in_a_directory(self) -> Self:
        if self.format.file_of is not None and not self.by_day:
            text = f'{self.records} is for files of whole days: a target of type directory with layout = "daily"'
            raise WrongKeysError((("records",), text))
        return self

    @model_validator(mode="after")
    def _ascii_names_are_for_job_records(self) -> Self:
        if self.ascii_names and not self.format.has_ascii_names:
            having = sorted(name for name, each in FORMATS.items() if each.has_ascii_names)
            raise WrongKeysError((("ascii_names",), f"is for {' and '.join(having)} only. Omit it"))
        return self

    @property
    def kind(self) -> TargetKind:
        """The descriptor of the type."""
        return self.descriptor

    @property
    def second_version(self) -> SecondVersion:
        """How the service treats another version of what it has: as its kind, for what is sent to it."""
        policy = self.kind.second_version
        return policy.of_totals() if self.format.is_snapshot else policy

    @property
    def format(self) -> Format:
        """The descriptor of what is sent."""
        return plugins.format_of(self.records)

    @property
    def format_options(self) -> msgspec.Struct | None:
        """The settings that its format alone has, as the format defines them."""
        return None

    @property
    def needs_energy(self) -> bool:
        """Whether the energy of runs is sent."""
        return False

    @property
    def reporting(self) -> ReportingSettings | None:
        """These settings, if reports are sent."""
        return None

    @property
    def period_kind(self) -> PeriodKind:
        """The period of each snapshot: months, except for reports of days."""
        return "month" if self.reporting is None else self.reporting.period

    @property
    def by_day(self) -> bool:
        """Whether the records of a UTC day wait until the day is over and all sources were read past it, and are sent
        without those of other days."""
        return False

    @property
    def sends_sync(self) -> bool:
        """Whether sync counts are sent with the records."""
        return False

    @property
    def skips_local_jobs(self) -> bool:
        """Whether jobs without a grid identity are skipped: as configured, or the default of the kind."""
        if self.local_jobs is not None:
            return self.local_jobs == "skip"
        return self.kind.skips_local_jobs and self.reporting is None

    @property
    def for_unknown_vo(self) -> Literal["hold", "send", "skip"]:
        """How runs with an unknown VO are treated: as configured, or held if only certain VOs are sent."""
        return self.unknown_vo or ("hold" if self.vo else "send")

    @property
    def destination(self) -> tuple[str, ...] | None:
        """The service that receives the messages: equal for two targets of one service; None if unknown."""
        return None

    @property
    def own_credentials(self) -> Credentials | None:
        """The credentials of this target; what they lack is taken from the common ones."""
        return self.credentials

    @property
    def service_host(self) -> str | None:
        """The host to which a token is sent; None: none is sent, or it is unknown."""
        return None

    @property
    def evidence_source(self) -> EvidenceSource:
        """The evidence of what the service has."""
        return "file" if self.evidence else self.kind.evidence

    @property
    def least_batch_bytes(self) -> int:
        """The smallest `batch_bytes` in which a record of 5,000 bytes fits, with a signature of 8,192."""
        return 20_000 if self.signs else 10_000

    @property
    def signs(self) -> bool:
        """Whether we sign the messages."""
        return False

    @property
    def receiver_certificate(self) -> Path | None:
        """The certificate to which signed messages are encrypted; None: they are not."""
        return None

    @property
    def is_signed(self) -> bool:
        """Whether messages are signed before they reach the service, by us or by SSM after us."""
        return self.signs


class SgasSettings(TargetSettings):
    """`[targets.NAME]` with `type = "sgas"`."""

    type: PlansAgain[Literal["sgas"]] = Field(description="An SGAS service: usage records by HTTPS.")
    url: KeepsPlan[ServiceUrl] = Field(description="URL of the service; `/ur` is added if it is missing.")
    records: PlansAgain[Literal["ogf-ur"]] = Field(
        default="ogf-ur", description="Format of records; SGAS takes only this one."
    )
    workers: KeepsPlan[Count] = Field(
        default=3,
        ge=1,
        le=32,
        description="Messages that are sent at the same time; SGAS answers when it has stored a message.",
    )


class ReportingSettings(TargetSettings):
    """The settings of reports, for `records = "utilization"` only."""

    period: KeepsPlan[PeriodKind] = Field(
        default="month", description="Period of each report, which is sent when the period is complete."
    )
    bin: KeepsPlan[Seconds] = Field(default=3600.0, description="Size of a bin, whole seconds.")
    measure: KeepsPlan[Measure] = Field(default="queue", description="The measure that a report names.")
    select: KeepsPlan[Selected] = Field(default_factory=Selected, description="Only jobs that match.")

    @model_validator(mode="after")
    def _reports_make_sense(self) -> Self:
        only_reports = sorted({"period", "bin", "measure", "select"} & self.model_fields_set)
        if self.reporting is None:
            if only_reports:
                names = " or ".join(f'"{name}"' for name in names_of("report"))
                text = f"is for reports only: set records = {names}, or omit it"
                raise WrongKeysError(*(((name,), text) for name in only_reports))
            return self
        if self.bin != int(self.bin):
            raise WrongKeysError((("bin",), "must be a whole number of seconds"))
        try:
            Bins(0, LONGEST_S[self.period], int(self.bin))
        except ValueError as error:
            raise WrongKeysError((("bin",), str(error))) from None
        return self

    @property
    def needs_energy(self) -> bool:
        """Whether the energy of runs is sent."""
        return False

    @property
    def reporting(self) -> ReportingSettings | None:
        """See `TargetSettings`."""
        return self if self.format.shape == "report" else None


class EncryptingSettings(ReportingSettings):
    """The settings of targets whose messages can be encrypted."""

    encrypt_to: KeepsPlan[FilePath | None] = Field(
        default=None, description="Certificate of the receiver; messages are encrypted to it, as by SSM."
    )

    @property
    def receiver_certificate(self) -> Path | None:
        """See `TargetSettings`."""
        return self.encrypt_to


class ApelSettings(ReportingSettings):
    """The settings of targets that can lead to APEL."""

    records: PlansAgain[FormatName] = Field(default="apel-summary", description="Format of records.")
    batch_records: KeepsPlan[Count] = Field(
        default=500, ge=1, le=100_000, description="Maximum number of records in a message."
    )
    sync: PlansAgain[Switch] = Field(default=True, description="Send sync messages with APEL records.")

    @property
    def sends_sync(self) -> bool:
        """See `TargetSettings`."""
        return self.sync and self.format.with_sync


class AmsSettings(ApelSettings, EncryptingSettings):
    """`[targets.NAME]` with `type = "ams"`."""

    type: PlansAgain[Literal["ams"]] = Field(
        description="The ARGO messaging service, as APEL uses it: signed messages."
    )
    url: KeepsPlan[ServiceUrl] = Field(description="URL of the messaging service.")
    auth_url: KeepsPlan[ServiceUrl | None] = Field(
        default=None, description="URL of the token service. Default: port 8443 of the same host."
    )
    project: KeepsPlan[AmsName] = Field(default="accounting", description="Project of the messaging service.")
    topic: KeepsPlan[AmsName] = Field(default="gLite-APEL", description="Topic to publish to.")

    @property
    def destination(self) -> tuple[str, ...]:
        """See `TargetSettings`."""
        return self.url.rstrip("/").lower(), self.project, self.topic

    @property
    def least_batch_bytes(self) -> int:
        """See `TargetSettings`."""
        return 20_000 if self.encrypt_to is None else 30_000

    @property
    def signs(self) -> bool:
        """Always."""
        return True


class HttpsSettings(EncryptingSettings):
    """`[targets.NAME]` with `type = "https"`: any format by HTTPS."""

    type: PlansAgain[Literal["https"]] = Field(description="Any service that takes a POST, PUT, or PATCH.")
    url: KeepsPlan[ServiceUrl] = Field(description="URL to which each message is sent.")
    method: KeepsPlan[Literal["POST", "PUT", "PATCH"]] = Field(
        default="POST", description="Method of the request with each message."
    )
    records: PlansAgain[FormatName] = Field(default="ogf-ur", description="Format of records.")
    sign: KeepsPlan[Switch] = Field(default=False, description="Sign messages (S/MIME) with the certificate.")
    token_file: KeepsPlan[FilePath | None] = Field(
        default=None, description="File with a bearer token, mode 0600; short for `token_file` in its credentials."
    )

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if self.token_file is not None and self.credentials is not None and self.credentials.has_token:
            raise WrongKeysError((("token_file",), "is set, and `credentials` has a token too. Set one of them"))
        return self

    @property
    def own_credentials(self) -> Credentials | None:
        """See `TargetSettings`."""
        if self.token_file is None:
            return self.credentials
        return (self.credentials or Credentials()).model_copy(update={"token_file": self.token_file})

    @property
    def service_host(self) -> str | None:
        """See `TargetSettings`."""
        return urlsplit(self.url).hostname

    @property
    def destination(self) -> tuple[str, ...]:
        """See `TargetSettings`."""
        return (self.url.rstrip("/"),)

    @property
    def signs(self) -> bool:
        """An encrypted message is signed first."""
        return self.sign or self.encrypt_to is not None


class AddOnSettings(ReportingSettings):
    """`[targets.NAME]` with the `type` of an installed add-on."""

    type: PlansAgain[str] = Field(description="The type of the add-on.")
    records: PlansAgain[FormatName] = Field(default="ogf-ur", description="Format of records.")
    options: KeepsPlan[dict[str, Any]] = Field(default_factory=dict, description="Further settings of the add-on.")

    @cached_property
    def kind(self) -> TargetKind:
        """The descriptor that the add-on brings; of one that cannot be loaded, which is reported where the target is
        made, one with default values."""
        try:
            return added_kind(self.type, plugins.load(plugins.TARGETS, self.type, key="type"))
        except ConfigError:
            return added_kind(self.type, None)
