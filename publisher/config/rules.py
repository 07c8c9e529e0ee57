"""Rules that add values which the source of a job does not have: grid identity and benchmark scores.

`publisher.collect.enrich` applies them; a rule never replaces a value of the source. Also: the filter of a report.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from formats.job import Infrastructure
from formats.names import is_token_group, to_slash
from publisher.config.types import (
    BenchmarkName,
    FilePath,
    Folders,
    Instant,
    KeyProblem,
    NameFilter,
    Number,
    Patterns,
    Seconds,
    Settings,
    Switch,
    WrongKeysError,
)


def _name_of_user(value: str) -> str:
    if "=" not in value or not to_slash(value).startswith("/"):
        raise ValueError("must be a distinguished name such as /DC=org/O=Grid/CN=Ada")
    return value


def _fqans(value: tuple[str, ...]) -> tuple[str, ...]:
    for fqan in value:
        if not fqan.startswith("/") or not fqan.strip("/") or fqan.startswith(("/Role=", "/Capability=")):
            raise ValueError(f"{fqan!r} is not a VOMS attribute such as /atlas/Role=production")
    return value


_WILDCARDS: Final = frozenset("*?[")


class When(Settings):
    """`when = { local_group = "atlas*" }` in a mapping rule: all keys must match. Without it every job matches."""

    local_user: Patterns | None = Field(default=None, description="Account of the user on the system.")
    local_group: Patterns | None = Field(default=None, description="Group of that account.")
    account: Patterns | None = Field(default=None, description="Account that is charged (Slurm, Grid Engine, PBS).")
    project: Patterns | None = Field(default=None, description="Project of the batch system.")
    department: Patterns | None = Field(default=None, description="Department of the batch system.")
    queue: Patterns | None = Field(default=None, description="Queue or partition.")
    dn: Patterns | None = Field(default=None, description="Distinguished name, as the source writes it.")
    token_issuer: Patterns | None = Field(default=None, description="Issuer of the user's token.")
    token_subject: Patterns | None = Field(default=None, description="Subject of the user's token.")


class MapRule(Settings):
    """`[[sources.NAME.map]]`, or `[[map]]` for all sources: the grid identity of jobs whose source has none."""

    when: When = Field(default_factory=When, description="Which jobs; see below. Default: every job.")
    vo: str | None = Field(default=None, min_length=1, description="Virtual organisation.")
    fqans: Annotated[tuple[str, ...], AfterValidator(_fqans)] = Field(
        default=(), description="VOMS attributes, the primary one first."
    )
    dn: Annotated[str, AfterValidator(_name_of_user)] | None = Field(
        default=None, description="Distinguished name of the user."
    )
    infrastructure: Infrastructure | None = Field(default=None, description="`grid` or `local`.")
    submit_host: str | None = Field(
        default=None, min_length=1, description="The computing element through which the jobs came."
    )
    fqans_from: Literal["token_groups"] | None = Field(
        default=None, description="The VOMS attribute is the group of the token within the VO, if there is one."
    )

    @model_validator(mode="after")
    def _names_issuer_and_vo(self) -> MapRule:
        if self.fqans_from is None:
            return self
        problems: list[KeyProblem] = []
        if not self.when.token_issuer:
            why = "is missing: anyone's token may have any group, so `fqans_from` needs the issuer of the VO"
            problems.append((("when", "token_issuer"), why))
        elif any(_WILDCARDS & set(issuer) for issuer in self.when.token_issuer):
            why = "must be literal, without `*`, `?`, and `[`: with `fqans_from` the issuer is compared exactly"
            problems.append((("when", "token_issuer"), why))
        if self.vo is None:
            problems.append((("vo",), "is missing: `fqans_from` takes the groups below `/VO`"))
        elif not is_token_group(f"/{self.vo}") or "/" in self.vo:
            problems.append((("vo",), f"{self.vo!r} cannot be the first part of a group: with `fqans_from` it must be"))
        if self.fqans:
            problems.append((("fqans",), "cannot be set together with `fqans_from`"))
        if problems:
            raise WrongKeysError(*problems)
        return self

    @model_serializer(mode="wrap")
    def _as_before(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the key that came later, if it is not given: else deliveries of stores of before were planned
        again."""
        table: dict[str, Any] = serialize(self)
        if self.fqans_from is None:
            del table["fqans_from"]
        return table

    @model_validator(mode="after")
    def _gives_something(self) -> MapRule:
        if not (self.vo or self.fqans or self.dn or self.infrastructure or self.submit_host):
            raise ValueError("a mapping rule needs at least one of vo, fqans, dn, infrastructure and submit_host")
        return self


class BenchmarkSettings(Settings):
    """`benchmark = { type = "HEPscore23", value = 14.2 }`: score per core if the source has no usable one."""

    type: BenchmarkName = Field(description="Name of the benchmark: HEPscore23, HEPSPEC, or Si2k.")
    value: Number = Field(gt=0, allow_inf_nan=False, description="Score of one core.")


class BenchmarkRule(BenchmarkSettings):
    """`[[sources.NAME.benchmarks]]`: score per core by queue, host, and date; `benchmark` is for the other jobs."""

    queue: Patterns | None = Field(default=None, description="Only jobs of these queues or partitions.")
    host: Patterns | None = Field(default=None, description="Only jobs of which every execution host matches.")
    since: Instant | None = Field(default=None, description="Only jobs that ended at this time or later.")
    until: Instant | None = Field(default=None, description="Only jobs that ended before this time.")

    @model_validator(mode="after")
    def _has_a_time(self) -> BenchmarkRule:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("since must be before until")
        return self


class GridLog(Settings):
    """`[sources.NAME.grid_log]`: the log in which a computing element records the grid identity of each local job."""

    path: FilePath = Field(description="BLAH lines of BLAH, ARC or HTCondor-CE: a file, a folder or a pattern.")
    rotated_to: Folders = Field(default=(), description="Further folders to which the log is rotated.")
    wait: Seconds = Field(
        default=86400.0,
        description="How long after its end a job without an entry is held before it counts as local.",
    )
    require: Switch = Field(default=False, description="Every job must have an entry: a job without one stays held.")


class SelectedNames(Settings):
    """`jobs = { user = "!test*" }` of a target: a pattern that begins with `!` excludes what it matches."""

    user: NameFilter = Field(
        default=(),
        description="Account of the user, or the distinguished name; only the latter of jobs that have it and a VO.",
    )
    queue: NameFilter = Field(default=(), description="Queue or partition.")
    project: NameFilter = Field(
        default=(), description="Project of the batch system; unknown of jobs with distinguished name and VO."
    )


class Selected(Settings):
    """`select = { queue = "long*" }` of a target that is sent reports: patterns as those of names of files."""

    queue: str | None = Field(default=None, description="Queue or partition.")
    host: str | None = Field(default=None, description="Execution host.")
    complex: str | None = Field(default=None, description="Complex of the queue (DQS).")
    group: str | None = Field(default=None, description="Group of the user's account.")
    user: str | None = Field(default=None, description="Account of the user.")
    job: str | None = Field(default=None, description="Name or id of the job.")
    vo: str | None = Field(default=None, description="Virtual organisation.")
    project: str | None = Field(default=None, description="Project of the batch system.")
    account: str | None = Field(default=None, description="Account that is charged.")
    department: str | None = Field(default=None, description="Department of the batch system.")
    status: str | None = Field(default=None, description="How the job ended.")
    pe: str | None = Field(default=None, description="Parallel environment.")
    slots: str | None = Field(default=None, description="Number of slots.")
    task: str | None = Field(default=None, description="Number of the array task.")
    cluster: str | None = Field(default=None, description="Cluster or cell.")
    reservation: str | None = Field(default=None, description="Advance reservation: its id or name.")
    dn: str | None = Field(default=None, description="Distinguished name of the user.")
    ending: str | None = Field(default=None, description="How the job ended: `time-limit`, ...")

    @property
    def patterns(self) -> dict[str, str]:
        """Those that are given, by their key."""
        return self.model_dump(exclude_none=True)
