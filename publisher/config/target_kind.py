"""The descriptor of a kind of service: what the program must know of it, for built-in kinds and add-ons alike."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from typing import Any, Literal, TypeAlias, cast

import msgspec

from formats.base import Service
from formats.calendar import SECONDS_A_DAY, date_of_day, month_bounds, month_of

EvidenceSource: TypeAlias = Literal["query", "records", "totals", "files", "file", "none"]
"""The evidence of what a service has: sums that it is asked for (`publisher.targets.base.GivesSums`), its records, by
day (`GivesRecords`), its totals, by month (`GivesTotals`), the messages themselves (`KeepsMessages`), a file or URL of
the configuration, or none."""


class SecondVersion(StrEnum):
    """How a service treats another version of what it has. What is sent for a run that changed, or that the target no
    longer selects, after it was delivered follows from this, and is decided here alone."""

    KEEPS_FIRST = "keeps-first"
    """It keeps the first version: a second one looks accepted and changes nothing."""
    REPLACES = "replaces"
    """The last version with the same key replaces the earlier one."""
    REPLACES_PERIOD = "replaces-period"
    """The totals of a period replace its earlier ones."""
    REFUSES_REPEATS = "refuses-repeats"
    """It refuses what it has with a word that means "already there". The target compares what the service has with what
    it sends, corrects what can be corrected, and names the others (`publisher.targets.base.Accepted.kept`)."""

    @property
    def replaces(self) -> bool:
        """Whether the service has, after it accepted a record, the version that was sent last: so it stores what is
        sent again on request."""
        return self in {SecondVersion.REPLACES, SecondVersion.REPLACES_PERIOD}

    @property
    def sends_changed(self) -> bool:
        """Whether a run that changed after delivery is sent again. Otherwise it is superseded: the service would accept
        the second version and change nothing, so the ledger would be wrong."""
        return self is not SecondVersion.KEEPS_FIRST

    @property
    def sends_vanished(self) -> bool:
        """Whether what the service has of a run is removed by sending its period again without it. Otherwise such a run
        is superseded, and somebody must decide about it."""
        return self is SecondVersion.REPLACES_PERIOD

    def of_totals(self) -> SecondVersion:
        """How the service treats another version of the totals of a period, if it replaces what it has."""
        return SecondVersion.REPLACES_PERIOD if self.replaces else self


class SumsKind(msgspec.Struct, frozen=True, kw_only=True):
    """How a service adds up the records that it has, if its evidence is sums (`query`)."""

    key: tuple[str, ...] = ("machine", "user", "vo")
    """The columns of a record (`formats.columns.RECORD_COLUMNS`) by which it adds up. It is asked for one value of the
    first. Empty: it has the sums of all its records, and is asked once."""
    period: Literal["day", "month"] = "day"
    """The UTC period of the ends of the runs in a sum."""
    amounts: frozenset[Literal["wall", "cpu"]] = frozenset({"wall", "cpu"})
    """The times that are summed beside the number of records."""
    per_core: bool = True
    """Whether the wall time of a record is multiplied by its processors."""
    spelt: str | Callable[[str, str], str] = ""
    """Called with a column and its value in a record: the value in the sums. As `MODULE:FUNCTION` it is imported;
    empty: they are equal."""
    lag_s: int = 900
    """How long a service may take to count what it accepted, where its sums lag (`publisher.targets.base.SumsLag`)."""

    @property
    def has_wall(self) -> bool:
        """Whether wall time is summed."""
        return "wall" in self.amounts

    @property
    def has_cpu(self) -> bool:
        """Whether CPU time is summed."""
        return "cpu" in self.amounts

    def first_day(self, day: int) -> int:
        """The first day of the period in which a day (counted from 1970) is."""
        return day if self.period == "day" else month_bounds(month_of(day * SECONDS_A_DAY))[0] // SECONDS_A_DAY

    def period_text(self, first_day: int) -> str:
        """The period that begins on this day, for people."""
        return str(date_of_day(first_day) if self.period == "day" else month_of(first_day * SECONDS_A_DAY))


class TargetKind(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a kind of service. An add-on gives one as its entry point."""

    name: str
    settings: type[Any]
    """The class of its settings: for add-ons `publisher.config.targets.AddOnSettings`."""
    factory: str | Callable[..., Any]
    """What is called with the name of a target, its settings, and a `publisher.targets.identity.TargetContext`; as
    `MODULE:CLASS` it is imported when a target is made."""
    second_version: SecondVersion = SecondVersion.REPLACES
    skips_local_jobs: bool = False
    """Whether jobs without a grid identity are skipped by default."""
    evidence: EvidenceSource = "none"
    """The evidence of what the service has, if the configuration names no file or URL."""
    sums: SumsKind = SumsKind()
    """How the service adds up, if its evidence is `query`."""
    receipts_name_records: bool = False
    """Whether a receipt names each record that was accepted."""
    registration: str = ""
    """Where the subject of our certificate is registered: what follows "Register it"."""
    compares_machine_names: bool = False
    """Whether the service takes records only of machines in the domain of our certificate's host."""
    machine_names_right: str = "a right to send them"
    """What its operators can grant then, so that it takes those of other machines."""
    sends_token: bool = False
    """Whether requests carry the token of the credentials."""
    takes_apel: bool = True
    """Whether messages of APEL's formats, such as those in an outgoing queue of SSM, can be sent to it."""
    forwarder: tuple[str, Service] | None = None
    """A program of the service's sites that sends what it gets on, and the service to which it does."""
    is_offered: bool = True
    """Whether `init` offers it."""
    asked: tuple[str, ...] = ()
    """The keys that `init` asks for beside the place."""


def added_kind(name: str, brought: Any) -> TargetKind:
    """The descriptor of what an add-on brings under a name: its own, or for a callable one with the default values and
    the evidence of the callable's methods. None: an add-on that cannot be loaded, which sends nothing."""
    if isinstance(brought, TargetKind):
        return msgspec.structs.replace(brought, name=name, is_offered=False)
    gives_sums = hasattr(brought, "usage") and hasattr(brought, "last_registration_s")
    keeps_messages = hasattr(brought, "kept") and hasattr(brought, "keeps")
    evidence: EvidenceSource = "query" if gives_sums else "files" if keeps_messages else "none"
    return TargetKind(
        name=name, settings=object, factory=brought or "", evidence=evidence, sends_token=True, is_offered=False
    )


def factory_of(kind: TargetKind) -> Callable[..., Any]:
    """What makes targets of a kind; its module is imported."""
    return _loaded(kind.factory)


def spelling_of(kind: TargetKind) -> Callable[[str, str], str]:
    """How the service of a kind spells the value of a column in its sums."""
    return _loaded(kind.sums.spelt) if kind.sums.spelt else _as_written


def _as_written(_column: str, value: str) -> str:
    return value


def _loaded(named: str | Callable[..., Any]) -> Callable[..., Any]:
    """What is named as `MODULE:NAME`, with its module imported; or what is given itself."""
    if not isinstance(named, str):
        return named
    module, _, attribute = named.partition(":")
    return cast("Callable[..., Any]", getattr(import_module(module), attribute))
