"""Sources in the configuration: their settings, and the descriptor of each kind of source.

`SOURCE_KINDS` is the registry: what depends on the batch system is decided by a field of its descriptor, never by its
name. Classes are named, not imported, so that only what a site uses is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from formats.job import Infrastructure
from publisher import plugins
from publisher.config.auditor_source import COLLECTORS, AuditorSourceSettings
from publisher.config.rules import BenchmarkRule, BenchmarkSettings, GridLog, MapRule
from publisher.config.types import (
    FilePath,
    Folders,
    Instant,
    KeepsPlan,
    PlansAgain,
    Seconds,
    Settings,
    Switch,
    WrongKeysError,
    ZoneName,
)
from publisher.text import did_you_mean


class SourceKind(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a batch system or grid front end."""

    name: str
    factory: str = ""
    """`MODULE:CLASS`, called with the name of a source and its settings; empty for an add-on's."""
    writes_local_time: bool = False
    """Whether some of its logs have local times."""
    knows_first_day: bool = True
    """Whether it shows since when it has every job; if not, complete months need `complete_since`."""
    keeps_slaves: bool = False
    """Whether a run may hold the lines of its slaves, which reports count once (`publisher.sources.dqs`)."""
    has_events: bool = False
    """Whether its jobs may have events, which `report paths` shows."""
    logs: frozenset[str] = frozenset()
    """The kinds of log (`publisher.sources.logs.sniff`) that it writes; TORQUE and PBS Pro write the same."""
    databases: tuple[str, ...] = ()
    """The names of its database, by which a path is recognised."""
    program: str = ""
    """A program that may be asked for jobs, instead of reading them from a file."""
    usual_paths: tuple[str, ...] = ()
    """Where its files are on most sites; environment variables are written `$NAME`."""
    has_scores: bool = False
    """Whether its records may have benchmark scores."""
    apel_sends_steps: bool = False
    """Whether the APEL client may send the steps of its jobs as jobs (`publisher.migrate.slurm_steps`)."""
    submit_filter: str = ""
    """The file of `conf/filters` that refuses texts which its logs do not escape; empty: they do."""
    cluster_from: Literal["setting", "record", "nothing"] = "setting"
    """Where the cluster in record ids is from; `record`: from the setting only where a record has none."""
    is_collector: bool = False
    """Whether its runs are what another batch system ran: of two runs of a job, that of the batch system counts."""
    needs_cores: bool = False
    """Whether a run without a number of cores is held: its records say nothing that could stand for one."""
    has_token_groups: bool = False
    """Whether it may be the log of a computing element, with the groups of tokens that this verified."""
    own_table: str = ""
    """The key of the settings that only this kind has and cannot do without, in a table of their own with a `url`."""
    asked: Mapping[str, str] = {}
    """What `init` asks of these settings besides the URL: the question by its key."""
    overlaps: str = ""
    """`MODULE:FUNCTION`, called with the configuration, the name of a source of this kind, and that of another source
    of the same target: what `check` says of jobs that both have, by their settings. Empty: settings do not show it."""
    other_publisher: tuple[str, str] | None = None
    """A program that publishes the same records to APEL without us, and the format that it sends."""


SOURCE_KINDS: Final[Mapping[str, SourceKind]] = {
    each.name: each
    for each in (
        SourceKind(
            name="arc",
            has_events=True,
            factory="publisher.sources.arc.source:ArcSource",
            logs=frozenset({"sqlite"}),
            databases=("accounting.db", "accounting_v2.db"),
            usual_paths=(
                "/var/spool/arc/jobstatus/accounting/accounting.db",
                "/var/spool/arc/jobstatus/accounting/accounting_v2.db",
            ),
            has_scores=True,
            has_token_groups=True,
            cluster_from="nothing",
        ),
        SourceKind(
            name="gridengine",
            factory="publisher.sources.gridengine.source:GridEngineSource",
            submit_filter="gridengine-jsv",
            writes_local_time=True,
            knows_first_day=False,
            logs=frozenset({"gridengine", "gridengine-jsonl", "gridengine-reporting"}),
            usual_paths=("$SGE_ROOT/$SGE_CELL/common",),
        ),
        SourceKind(
            name="torque",
            factory="publisher.sources.pbs.source:TorqueSource",
            submit_filter="torque-submit-filter",
            logs=frozenset({"torque"}),
            writes_local_time=True,
            cluster_from="record",
            has_events=True,
            usual_paths=("/var/spool/torque/server_priv/accounting",),
        ),
        SourceKind(
            name="pbs",
            factory="publisher.sources.pbs.source:PbsProSource",
            submit_filter="pbs_hook.py",
            logs=frozenset({"torque"}),
            writes_local_time=True,
            cluster_from="record",
            has_events=True,
            usual_paths=("/var/spool/pbs/server_priv/accounting",),
        ),
        SourceKind(
            name="dqs",
            factory="publisher.sources.dqs:DqsSource",
            knows_first_day=False,
            keeps_slaves=True,
            logs=frozenset({"dqs", "dqs-stat"}),
        ),
        SourceKind(
            name="slurm",
            factory="publisher.sources.slurm.source:SlurmSource",
            submit_filter="job_submit.lua",
            writes_local_time=True,
            knows_first_day=False,
            logs=frozenset({"slurm", "slurm-jobcomp", "slurm-json"}),
            program="sacct",
            apel_sends_steps=True,
            cluster_from="record",
        ),
        SourceKind(
            name="htcondor",
            factory="publisher.sources.htcondor.source:HTCondorSource",
            knows_first_day=False,
            logs=frozenset({"htcondor", "htcondor-json", "htcondor-xml", "apel-condor"}),
            has_token_groups=True,
            cluster_from="record",
        ),
        SourceKind(
            name="lsf",
            factory="publisher.sources.lsf:LsfSource",
            writes_local_time=True,
            knows_first_day=False,
            logs=frozenset({"lsf"}),
        ),
        SourceKind(
            name="auditor",
            factory="publisher.sources.auditor.source:AuditorSource",
            knows_first_day=False,
            is_collector=True,
            has_scores=True,
            needs_cores=True,
            own_table="auditor",
            asked={"collector": f"What writes its records ({', '.join(COLLECTORS)})"},
            overlaps="publisher.sources.auditor.overlap:overlaps",
            other_publisher=("auditor-apel-plugin", "apel-normalised-summary"),
        ),
    )
}
"""By the `type` of a source. Add-ons register theirs as entry points."""
COLLECTORS_OF_RUNS: Final = frozenset(name for name, each in SOURCE_KINDS.items() if each.is_collector)


def _type(value: str, info: ValidationInfo) -> str:
    """Only in a file must the type be known: settings made in Python may be for a source that is given as well."""
    if info.context is None or value in SOURCE_KINDS:
        return value
    if value not in (added := plugins.names(plugins.SOURCES)):
        known = sorted({*SOURCE_KINDS, *added})
        raise ValueError(f"{value!r} is not a type of source; allowed: {', '.join(known)}{did_you_mean(value, known)}")
    return value


class SourceSettings(Settings):
    """`[sources.NAME]`: finished jobs of one batch system or grid front end."""

    type: KeepsPlan[Annotated[str, AfterValidator(_type)]] = Field(
        description="arc, gridengine, torque, pbs, dqs, slurm, htcondor, lsf, auditor, or the type of an add-on."
    )
    path: KeepsPlan[FilePath | None] = Field(
        default=None, description="A file, a folder or a glob, depending on the type."
    )
    rotated_to: KeepsPlan[Folders] = Field(
        default=(), description="Further folders to which logs are rotated, such as logrotate's `olddir`."
    )
    benchmark: PlansAgain[BenchmarkSettings | None] = Field(
        default=None, description="Score per core if the source has no usable one."
    )
    timezone: KeepsPlan[ZoneName] = Field(
        default="UTC", description="Time zone of logs that are written in local time."
    )
    expect_every: KeepsPlan[Seconds | None] = Field(
        default=None, description="If no job arrives for longer, `status` shows the source as silent."
    )
    complete_since: PlansAgain[Instant | None] = Field(
        default=None, description="The source has every job since this time; for logs that do not show it."
    )
    retired: KeepsPlan[Switch] = Field(
        default=False,
        description="It is not read any more: all that it had was collected. Its jobs keep their settings.",
    )
    cluster: KeepsPlan[str | None] = Field(
        default=None, description="Name of the cluster or cell if the source has none."
    )
    infrastructure: PlansAgain[Infrastructure | None] = Field(default=None, description="`grid` or `local`.")
    site: PlansAgain[str | None] = Field(
        default=None, min_length=1, max_length=255, description="Name of the site, if it is not that of `[site]`."
    )
    submit_host: PlansAgain[str | None] = Field(
        default=None,
        min_length=1,
        description="The computing element through which the jobs come, if the source has none.",
    )
    local_id_prefix: PlansAgain[str] = Field(
        default="", description="Prefix of every LocalJobId of this source, so that the ids of two sources differ."
    )
    benchmarks: PlansAgain[tuple[BenchmarkRule, ...]] = Field(
        default=(), description="Score per core by queue, host, and date; the first that matches."
    )
    map: PlansAgain[tuple[MapRule, ...]] = Field(
        default=(), description="Grid identity if the source has none; the first that matches."
    )
    grid_log: PlansAgain[GridLog | None] = Field(
        default=None, description="Log with the grid identity of each local job."
    )
    options: KeepsPlan[dict[str, Any]] = Field(default_factory=dict, description="Further settings of an add-on.")
    start_time: KeepsPlan[Literal["submission", "execution"]] = Field(
        default="submission",
        description="ARC: meaning of StartTime. ARC's own publisher uses `submission`.",
    )
    end_time: PlansAgain[Literal["terminal", "lrms"]] = Field(
        default="terminal",
        description="ARC: meaning of EndTime. It is in APEL's key: if it is changed, jobs count twice.",
    )
    overlap: KeepsPlan[Seconds] = Field(
        default=86400.0 * 7,
        description="ARC, Slurm, AUDITOR: how far back each collect looks for jobs that were completed late.",
    )
    busy_timeout: KeepsPlan[Seconds] = Field(
        default=10.0, description="How long to wait for a source that its writer has locked."
    )
    token_groups: KeepsPlan[Switch] = Field(
        default=False,
        description="ARC, HTCondor-CE: read issuer and groups of tokens, as the computing element verified them.",
    )
    stat_file: KeepsPlan[FilePath | None] = Field(
        default=None, description="DQS: samples of the queues, for `report load`."
    )

    auditor: KeepsPlan[AuditorSourceSettings | None] = Field(
        default=None, description="AUDITOR: which records are read, and what they mean."
    )

    @model_validator(mode="after")
    def _own_table_fits(self) -> SourceSettings:
        own = {kind.own_table for kind in SOURCE_KINDS.values() if kind.own_table}
        if missing := {self.kind.own_table} & own - {key for key in own if getattr(self, key) is not None}:
            key = missing.pop()
            raise WrongKeysError(((key,), f"is missing: a source of type {self.type} needs [sources.NAME.{key}]"))
        for key in own - {self.kind.own_table}:
            if getattr(self, key) is not None:
                raise WrongKeysError(((key,), f"is not for a source of type {self.type}"))
        return self

    @model_validator(mode="after")
    def _token_groups_are_verified(self) -> SourceSettings:
        if self.token_groups and not self.kind.has_token_groups:
            raise WrongKeysError((("token_groups",), f"is not for a source of type {self.type}"))
        for place, rule in enumerate(self.map):
            if rule.fqans_from is not None and not (self.token_groups or self.grid_log):
                why = "needs `token_groups = true` of the source, or the history of its computing element as `grid_log`"
                raise WrongKeysError((("map", str(place), "fqans_from"), why))
        return self

    @model_validator(mode="after")
    def _options_are_for_add_ons(self) -> SourceSettings:
        if self.options and self.type in SOURCE_KINDS:
            raise WrongKeysError(
                (("options",), f"is only for add-ons: put the keys of {self.type} directly into its table")
            )
        return self

    @property
    def kind(self) -> SourceKind:
        """The descriptor of the type; that of an add-on has only its name."""
        return SOURCE_KINDS.get(self.type) or SourceKind(name=self.type)
