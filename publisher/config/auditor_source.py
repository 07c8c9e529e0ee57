"""`[sources.NAME.auditor]`: which records of AUDITOR a source reads, and what their components and meta entries mean.

AUDITOR stores names and whole numbers, not units: each collector, and each release of it, has its own. What this
program knows of a collector is a row of `COLLECTORS`; every key of the configuration takes precedence over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from publisher.config.operation import Credentials
from publisher.config.types import Count, Instant, Seconds, Settings, Switch, WrongKeysError, http_parts, is_here

_TABLE_SCHEMES: Final = ("postgresql://", "postgres://")
LARGEST_PAGE: Final = 20_000


def _address(value: str) -> str:
    if value.startswith(_TABLE_SCHEMES):
        return value
    parts = http_parts(value, "the URL of AUDITOR (http://, https://) or of its database (postgresql://)")
    if parts.query or parts.fragment:
        raise ValueError("must end with host, port, and path: the queries are added to it")
    return value.rstrip("/")


Unit = Literal["us", "ms", "s", "min", "h", "B", "kB", "KiB", "MB", "MiB", "GB", "GiB"]
TIME_UNITS_US: Final[Mapping[str, int]] = {
    "us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000,
}  # fmt: skip
"""Microseconds in each unit of time."""
SIZE_UNITS_BYTES: Final[Mapping[str, int]] = {
    "B": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30,
}  # fmt: skip
"""Bytes in each unit of size."""


class ComponentRule(Settings):
    """`cpu = { name = "TotalCPU", unit = "ms", until = "2026-05-01" }`: the component that has a quantity."""

    name: str = Field(min_length=1, description="Name of the component.")
    unit: Unit | None = Field(
        default=None, description="Unit of `cpu` (default `s`), `memory` (`B`), or of core time in `cores`."
    )
    since: Instant | None = Field(default=None, description="Only records that ended at this time or later.")
    until: Instant | None = Field(default=None, description="Only records that ended before this time.")

    @model_validator(mode="after")
    def _has_a_time(self) -> ComponentRule:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("since must be before until")
        return self

    def applies(self, end: int) -> bool:
        """Whether it counts for a record that ended then (epoch seconds)."""
        return (self.since is None or end >= self.since) and (self.until is None or end < self.until)


def _rules(value: object) -> object:
    values = value if isinstance(value, list | tuple) else (value,)
    return tuple([{"name": one} if isinstance(one, str) else one for one in values])


ComponentRules = Annotated[tuple[ComponentRule, ...], BeforeValidator(_rules)]
"""A name, a table, or a list of them, of which the first counts that applies and that the record has."""


class Components(Settings):
    """`[sources.NAME.auditor.components]`: which component has which quantity. Default: those of the collector."""

    cores: ComponentRules | None = Field(
        default=None,
        description="Cores; with a unit of time: core time, which is divided by the wall time and rounded up.",
    )
    cpu: ComponentRules | None = Field(default=None, description="CPU time that was used, of all cores.")
    memory: ComponentRules | None = Field(default=None, description="Largest memory that was used.")
    nodes: ComponentRules | None = Field(default=None, description="Number of nodes.")
    gpus: ComponentRules | None = Field(default=None, description="Number of GPUs.")

    @model_validator(mode="after")
    def _units_fit(self) -> Components:
        allowed: dict[str, Mapping[str, int]] = {
            "cores": TIME_UNITS_US, "cpu": TIME_UNITS_US, "memory": SIZE_UNITS_BYTES, "nodes": {}, "gpus": {},
        }  # fmt: skip
        problems = [
            ((key,), f"{rule.unit!r} is not a unit of it; allowed: {', '.join(units) or 'none'}")
            for key, units in allowed.items()
            for rule in getattr(self, key) or ()
            if rule.unit is not None and rule.unit not in units
        ]
        if problems:
            raise WrongKeysError(*problems)
        return self


class MetaKeys(Settings):
    """`[sources.NAME.auditor.meta]`: which entry of `meta` has which fact. Default: those of the collector."""

    user: str | None = Field(default=None, description="Account of the user on the system.")
    group: str | None = Field(default=None, description="Group of that account.")
    dn: str | None = Field(default=None, description="Distinguished name of the user.")
    fqans: str | None = Field(default=None, description="VOMS attributes.")
    vo: str | None = Field(default=None, description="Virtual organisation.")
    submit_host: str | None = Field(default=None, description="The computing element.")
    queue: str | None = Field(default=None, description="Queue or partition.")
    project: str | None = Field(default=None, description="Project.")
    account: str | None = Field(default=None, description="Account that is charged.")
    host: str | None = Field(default=None, description="Execution hosts.")
    name: str | None = Field(default=None, description="Name of the job.")
    status: str | None = Field(default=None, description="How the job ended.")


class CollectorKind(msgspec.Struct, frozen=True, kw_only=True):
    """What a collector of AUDITOR writes. `job_id`: which part of the record id after the prefix is the local id.

    `batch_systems`: the types of source that have the same jobs. `counts_pilots`: its records are machines in which
    jobs of others run.
    """

    name: str
    components: Components
    meta: MetaKeys
    job_id: Literal["rest", "global job id"] = "rest"
    batch_systems: frozenset[str] = frozenset()
    counts_pilots: bool = False


def _named(name: str, unit: Unit | None = None) -> tuple[ComponentRule, ...]:
    return (ComponentRule.model_construct(name=name, unit=unit),)


_OF_APEL_PLUGIN: Final = Components.model_construct(
    cores=_named("Cores"), cpu=_named("TotalCPU", "s"), nodes=_named("NNodes")
)  # fmt: skip
"""The names of the template of AUDITOR's APEL plugin, and of our target."""
_USUAL_META: Final = MetaKeys.model_construct(
    user="user_id", group="group_id", dn="subject", fqans="voms", submit_host="headnode"
)  # fmt: skip

COLLECTORS: Final[Mapping[str, CollectorKind]] = {
    each.name: each
    for each in (
        CollectorKind(name="slurm", components=_OF_APEL_PLUGIN, meta=_USUAL_META, batch_systems=frozenset({"slurm"})),
        CollectorKind(
            name="htcondor",
            components=_OF_APEL_PLUGIN,
            meta=_USUAL_META,
            job_id="global job id",
            batch_systems=frozenset({"htcondor"}),
        ),
        CollectorKind(
            # Its `naive_cpu_time` is limit times duration: neither CPU time nor cores, so cores are configured.
            name="kubernetes",
            components=Components.model_construct(cpu=_named("cpu", "s"), memory=_named("memory", "B")),
            meta=MetaKeys.model_construct(project="namespace", name="podname", status="status"),
        ),
        CollectorKind(
            name="tardis",
            components=Components.model_construct(cores=_named("Cores")),
            meta=MetaKeys.model_construct(user="user_id", group="group_id"),
            counts_pilots=True,
        ),
        CollectorKind(name="other", components=_OF_APEL_PLUGIN, meta=_USUAL_META),
    )
}
"""By the name in the configuration. (AUDITOR: collectors/, and the plugin of COBalD/TARDIS.)"""

Collector = Literal["slurm", "htcondor", "kubernetes", "tardis", "other"]


class AuditorSourceSettings(Settings):
    """`[sources.NAME.auditor]`: AUDITOR's REST interface, or its table."""

    url: Annotated[str, AfterValidator(_address)] = Field(
        description="Of the REST interface, or of the database (`postgresql://reader@db.example.org/auditor`)."
    )
    collector: Collector = Field(default="other", description="What wrote the records.")
    record_prefix: str = Field(
        default="", description="The collector's `record_prefix`: only records with it, and their ids without it."
    )
    where: dict[str, str] = Field(
        default_factory=dict, description='Only records whose `meta` has these values, such as `{ site_id = "A" }`.'
    )
    components: Components = Field(default_factory=Components.model_construct, description="See below.")
    meta: MetaKeys = Field(default_factory=MetaKeys.model_construct, description="See below.")
    credentials: Credentials | None = Field(
        default=None, description="Certificate and authorities for `https://`: keys as in `[credentials]`."
    )
    plain_http: Switch = Field(default=False, description="Allow `http://` to another host.")
    timeout: Seconds = Field(default=60.0, description="The longest time for an answer.")
    most_cpu: Annotated[Count, Field(ge=1)] = Field(
        default=20,
        description="A record with more CPU time than so many times its core time is refused: its unit is wrong.",
    )
    page: Annotated[Count, Field(ge=2, le=LARGEST_PAGE)] = Field(
        default=2_000, description="Records in an answer of the REST interface."
    )

    @model_validator(mode="after")
    def _is_not_read_by_others(self) -> AuditorSourceSettings:
        parts = urlsplit(self.url)
        if parts.scheme == "http" and not self.plain_http and not is_here(parts.hostname or ""):
            text = "records could be read and altered on the way. Use AUDITOR's TLS port, or set plain_http = true"
            raise WrongKeysError((("url",), text))
        return self

    @property
    def is_table(self) -> bool:
        """Whether the table is read, not the REST interface."""
        return self.url.startswith(_TABLE_SCHEMES)

    @property
    def place(self) -> str:
        """The URL without a password, for people."""
        if not self.is_table:
            return self.url
        parts = urlsplit(self.url)
        return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def kind(self) -> CollectorKind:
        """The collector."""
        return COLLECTORS[self.collector]

    def rules(self, quantity: str) -> tuple[ComponentRule, ...]:
        """The components that may have a quantity, in order; empty: none."""
        own = getattr(self.components, quantity)
        rules: tuple[ComponentRule, ...] = getattr(self.kind.components, quantity) or () if own is None else own
        return rules

    def meta_key(self, fact: str) -> str | None:
        """The entry of `meta` that has a fact; None: none."""
        key: str | None = getattr(self.meta, fact) or getattr(self.kind.meta, fact)
        return key

    def overlaps(self, other: AuditorSourceSettings) -> bool:
        """Whether a record may be read by both, as far as their settings tell: another host may be the same AUDITOR."""
        prefixes = self.record_prefix, other.record_prefix
        if not (prefixes[0].startswith(prefixes[1]) or prefixes[1].startswith(prefixes[0])):
            return False
        return all(other.where.get(key, value) == value for key, value in self.where.items())
