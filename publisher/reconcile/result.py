"""Result of a reconciliation: sums by month, and the differences one by one."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from formats.calendar import Month
from publisher.config.schema import Target
from publisher.store.schema import State
from publisher.text import Instant

Evidence = Literal["query", "records", "totals", "files", "file", "receipts"]
"""Where the evidence is from: sums, records, or totals that the service was asked for, the files in a directory, a
file, or only its receipts."""

ALL_MEASURES: Final = ("jobs", "wall", "cpu")

Kind = Literal["missing", "suspect", "differs", "hours", "foreign", "superseded", "unsettled", "outdated"]
"""`missing`: sent, and not there. `suspect`: one of several jobs of which some are not there, and the service does not
say which. `differs`: a record, group or report that is there with other values than were sent, the number of jobs of a
group among them. `hours`: as many jobs as were sent, with other hours than rounding explains. `foreign`: there, but not
from this store. `superseded`: the service keeps the first version of a run that changed. `unsettled`: there, but not
accepted by our ledger. `outdated`: there as it was sent, and the present settings give other values: nothing is
wrong."""


class Difference(msgspec.Struct, frozen=True):
    """A difference. `record`: the record id, or the fields of a group; `detail`: a sentence for people."""

    month: Month | None
    kind: Kind
    record: str
    detail: str = ""


class SentSums(msgspec.Struct):
    """The jobs of a month that were accepted, also in an earlier version. Of these an earlier publisher delivered
    `assumed`, according to an import, and no kept receipt names `without_receipt`."""

    jobs: int = 0
    wall_s: int = 0
    cpu_s: int = 0
    assumed: int = 0
    without_receipt: int = 0


class ServiceSums(msgspec.Struct, frozen=True):
    """What a service has of a month, in whole seconds; None: it is not known."""

    jobs: int
    wall_s: int | None
    cpu_s: int | None


class MonthFound(msgspec.Struct):
    """A month of one target. `states` counts deliveries by state, `confirmed` the accepted ones that are confirmed.

    `service_*`: what the service has, None if it is not known; seconds, of all processors together where `per_core`,
    as those of `sent`. Differences are counted in jobs, for summaries and sums by
    group in groups. `other_hours`: those of `differing` whose number of jobs is as it was sent. `taken`: in messages
    that are no longer in a directory from which another program takes them, as intended. `totals_open`: those of which
    the service did not take the last version, or may not have it: they were not compared. `outdated`: records that are
    there as they were sent, by settings that changed since. `counts_jobs`: the service has numbers and times of jobs;
    else it has amounts, and `service_jobs` are the jobs of the totals that agree. `is_done`: the comparison was not
    interrupted.
    """

    month: Month
    states: dict[State, int] = msgspec.field(default_factory=lambda: dict.fromkeys(State, 0))
    confirmed: int = 0
    sent: SentSums = msgspec.field(default_factory=SentSums)
    per_core: bool = msgspec.field(default=False, name="wall_of_all_processors")
    service_jobs: int | None = None
    counts_jobs: bool = True
    service_wall_s: float | None = None
    service_cpu_s: float | None = None
    missing: int = 0
    differing: int = 0
    other_hours: int = 0
    foreign: int = 0
    unsettled: int = 0
    totals_open: int = 0
    taken: int = msgspec.field(default=0, name="taken_away")
    outdated: int = 0
    purged: bool = False
    is_done: bool = False

    @property
    def at_service(self) -> ServiceSums | None:
        """The jobs that the service has, and their times; None: not known, or it has amounts."""
        if self.service_jobs is None or not self.counts_jobs:
            return None
        wall_s, cpu_s = (None if each is None else round(each) for each in (self.service_wall_s, self.service_cpu_s))
        return ServiceSums(self.service_jobs, wall_s, cpu_s)

    @property
    def states_open(self) -> int:
        """Number of jobs that the service should have, and that were not sent or not accepted."""
        return sum(self.states[state] for state in (State.WAITING, State.IN_FLIGHT, State.HELD, State.REJECTED))

    @property
    def is_confirmed(self) -> bool:
        """Whether everything accepted is confirmed and nothing is superseded, so that agreement changes nothing."""
        return self.confirmed == self.states[State.ACCEPTED] and not self.states[State.SUPERSEDED]

    @property
    def agrees(self) -> bool:
        """Whether nothing contradicts the ledger, and all totals were compared."""
        return not (self.missing or self.differing or self.foreign or self.totals_open)


class Found(msgspec.Struct):
    """What was found of one target. `unavailable`: why the service gives no evidence; `notes` are for people.

    `registered`: when the service last took records of a machine, where it says so (epoch seconds).
    `again_jobs`, `again_groups`: what `--resend` would send again. `delivered_jobs`: what the service has and was never
    sent from here, as far as this store knows. `busy`: another run is at work for this target.
    `too_recent`: accepted so recently that the service may not have counted them; they were not compared.
    `keeps_first`: the service keeps the first version of a record, so that sending again does not change what differs.
    `compared`: what the evidence has, and so what a confirmation rests on: numbers of jobs, times, and columns; nothing
    where there are receipts only. `counted_twice`: jobs that the service has from two sources, in sentences.
    """

    target: str
    keeps_first: bool = False
    evidence: Evidence = "receipts"
    unavailable: str | None = msgspec.field(default=None, name="no_evidence")
    unauthorised: bool = False
    busy: bool = False
    months: list[MonthFound] = []
    notes: list[str] = []
    registered: dict[str, Instant] = msgspec.field(default_factory=dict, name="last_registration")
    foreign: int = 0
    again_jobs: int = 0
    again_groups: int = 0
    delivered_jobs: int = 0
    too_recent: int = 0
    compared: tuple[str, ...] = ()
    counted_twice: list[str] = []

    @staticmethod
    def of(target: str, settings: Target) -> Found:
        """Make an empty result."""
        keeps_first = not settings.second_version.replaces
        return Found(target, keeps_first=keeps_first, months=[], notes=[], registered={}, counted_twice=[])

    @property
    def agrees(self) -> bool:
        """Whether no evidence contradicts the ledger."""
        return not self.foreign and all(month.agrees for month in self.months)

    @property
    def has_evidence(self) -> bool:
        """Whether there is evidence for any month."""
        return any(month.service_jobs is not None for month in self.months)

    @property
    def compared_nothing(self) -> bool:
        """Whether records were sent, and nothing shows whether the service has any of them: it gives no evidence, or
        another program took all messages out of the directory."""
        seen = any(month.service_jobs or not month.agrees for month in self.months)
        return any(month.sent.jobs for month in self.months) and not seen

    @property
    def others(self) -> bool:
        """Whether there are differences that sending again does not remove: foreign records, or first versions."""
        kept = self.keeps_first and any(month.differing for month in self.months)
        return kept or bool(self.foreign) or any(month.foreign for month in self.months)
