"""What a target wants: decided from the class of a run and its end, so that it is decided once for many runs.

What a target demands of a run besides its format: that its grid log was asked, and a VO where VOs are wanted.

What lacks it is held, never dropped.

The one step between a stored run and its rendering: what configuration adds is added, then the demands are looked at.

Why a target does not want a run: asked of the wish that decided it, of the class by which it was decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from sqlalchemy import Connection

from formats.calendar import PeriodKind, period_of, periods_between
from formats.job import Job
from formats.names import vo_of
from formats.reason import CannotRenderError
from publisher.collect.enrich import ENRICHING, Enrichers
from publisher.config.schema import REPORT_KINDS, SNAPSHOT_KINDS, Config, ReportingSettings, SourceSettings, Target
from publisher.reason import ReasonCode
from publisher.store.classes import JobClass, awaits_grid_log, classes_by_id
from publisher.store.grid_jobs import class_ids
from publisher.store.runs import StoredRun
from publisher.text import iso


def unknown_vo_of(target: Target) -> Literal["hold", "send", "skip"]:
    """What becomes of runs whose VO is unknown: as configured, else held where the target wants certain VOs only."""
    return target.unknown_vo or ("hold" if target.vo else "send")


class RunPreparer:
    """Makes runs ready for one target, or for a plain view of the site where there is none."""

    def __init__(self, config: Config, target: Target | None) -> None:
        self._enrichers = Enrichers(config)
        self._needs_vo = target is not None and unknown_vo_of(target) == "hold"

    def identified(self, run: StoredRun) -> Job:
        """The run with what the configuration adds. Raises `CannotRenderError` where whose it is is not known yet."""
        return self._identified(run.source, run.job, awaits=run.awaits_grid_log)

    def prepare(self, run: StoredRun) -> Job:
        """The same, for a record. Raises `CannotRenderError` also where the target wants a VO and none is known."""
        return self._with_vo(run.source, self.identified(run))

    def meet_class(self, job_class: JobClass, end: int) -> Job:
        """What runs of a class share once they meet it: those that ended then, or with none of `bounds` between."""
        facts = msgspec.structs.replace(job_class.facts, end=end)
        source = job_class.source
        return self._with_vo(source, self._identified(source, facts, awaits=awaits_grid_log(facts)))

    def bounds(self) -> list[int]:
        """The instants from which on runs of a class may be given something else than before, in order."""
        return self._enrichers.bounds()

    def _identified(self, source: str, job: Job, *, awaits: bool) -> Job:
        if awaits:
            raise CannotRenderError(ReasonCode.NO_GRID_LOG_ENTRY, "user_dn", source=source)
        return self._enrichers.apply(source, job)

    def _with_vo(self, source: str, job: Job) -> Job:
        if self._needs_vo and vo_of(job) is None:
            raise CannotRenderError(ReasonCode.NO_VO, "VO", source=source)
        return job


RULES_VERSION: Final = 2
"""Raised when a new version of the program would hold or plan differently, so that what is held is planned anew."""

ARC_STATUSES: Final = frozenset({"completed", "failed"})
BATCH_SYSTEM_STATUSES: Final = frozenset({"completed", "failed", "aborted", "cancelled"})


class TargetFilter:
    """The wishes of one target."""

    def __init__(self, name: str, target: Target, config: Config) -> None:
        self.name = name
        self._target = target
        self._enrichers = Enrichers(config)
        self._statuses = frozenset(target.statuses) if target.statuses is not None else None
        if self._statuses is None and target.records in REPORT_KINDS:
            self._statuses = BATCH_SYSTEM_STATUSES  # whatever ran has used the site
        self._slaves = target.records in REPORT_KINDS  # the record of their run has what they used
        self._vos = frozenset(target.vo)
        self._skip_unknown_vo = unknown_vo_of(target) == "skip"
        self._sources = frozenset(target.sources)
        skip_by_default = target.type == "ams" and target.records not in REPORT_KINDS
        self._skip_local = target.local_jobs == "skip" or (target.local_jobs is None and skip_by_default)
        self.summaries = target.records in SNAPSHOT_KINDS
        """Whether summaries or reports are sent: they tell of many runs at once, and replace those sent before."""
        self.period = period_kind(target)
        self.sync = sends_sync(target)
        self.since = _since(target)
        self.delivered_until = target.delivered_until
        self.text = _text(target, config)
        self._verdicts: dict[int, bool] = {}

    def wants_class(self, job_class: JobClass) -> bool:
        """Whether runs of this class are wanted, their end time apart. Remembered by the class's id."""
        verdict = self._verdicts.get(job_class.id)
        if verdict is None:
            verdict = self.why_not(job_class.source, job_class.facts) is None
            self._verdicts[job_class.id] = verdict
        return verdict

    def known_verdict(self, class_id: int) -> bool | None:
        """The remembered verdict on a class, if it was decided before."""
        return self._verdicts.get(class_id)

    def selects_end(self, end_time: int | None) -> bool:
        """Whether a run that ended then is wanted."""
        return end_time is not None and (self.since is None or end_time >= self.since)

    def why_not_end(self, end_time: int | None) -> str | None:
        """Why a run that ended then is not wanted; None where it is."""
        if self.selects_end(end_time):
            return None
        return "of no end yet" if end_time is None else f"ended before its `since`, {iso(self.since)}"

    def numbers_between(self, from_: int, until: int) -> list[int]:
        """The numbers of the months, or of the reports' periods, that the instants until `until` (exclusive) touch."""
        return [period.number for period in periods_between(self.period, from_, until)]

    def why_not(self, source: str, facts: Job) -> str | None:
        """Why runs with these facts are not wanted, their end time apart; None where they are."""
        if self._sources and source not in self._sources:
            return "of sources that are not among its `sources`"
        statuses = usual_statuses(facts) if self._statuses is None else self._statuses
        if facts.status not in statuses:
            return "of a status that is not among its `statuses`"
        if facts.slave and not self._slaves:
            return "slave records: the record of their run has what they used"
        if awaits_grid_log(facts):
            return None  # decided when it is known whose it is; held until then
        return self._why_not_whose(self._enrichers.apply(source, facts))

    def _why_not_whose(self, job: Job) -> str | None:
        if self._skip_local and is_local(job):
            return 'local jobs, without a user\'s DN, token, VO or FQAN: they go where `local_jobs` is "send"'
        vo = vo_of(job)
        if vo is None:
            return 'of no known VO: `unknown_vo` is "skip"' if self._skip_unknown_vo else None
        return "of VOs that are not among its `vo`" if self._vos and vo not in self._vos else None


def usual_statuses(facts: Job) -> frozenset[str]:
    """The statuses of the runs that are sent where a target does not name its own: as ARC does, or all that ran."""
    return ARC_STATUSES if facts.system == "arc" else BATCH_SYSTEM_STATUSES


def is_usually_sent(job: Job) -> bool:
    """Whether a run is sent by a target with the default settings; what a view without a target shows."""
    return job.has_record and job.status in usual_statuses(job)


def period_kind(target: Target) -> PeriodKind:
    """What the snapshots of a target are of: months, but for reports of days."""
    return target.period if isinstance(target, ReportingSettings) and target.records in REPORT_KINDS else "month"


def sends_sync(settings: Target) -> bool:
    """Whether a target gets sync counts with its records: those of APEL do, unless switched off."""
    return bool(getattr(settings, "sync", False)) and settings.records.startswith(("apel-", "emi-car"))


def is_local(job: Job) -> bool:
    """A job without a grid identity: no distinguished name, token, VO or FQAN."""
    return not (job.user_dn or job.token_subject or job.vo or job.fqans)


def _since(target: Target) -> int | None:
    """`since`; for summaries and reports the first second of the month or day it lies in: they are sent whole."""
    if target.since is not None and target.records in SNAPSHOT_KINDS:
        return period_of(period_kind(target), target.since).start
    return target.since


_NOT_WISHES: Final = {
    "url",
    "auth_url",
    "credentials",
    "proxy",
    "timeout",
    "attempts",
    "retry_wait",
    "retry_budget",
    "every",
    "shadow",
    "taken_over_from",
    "batch_records",
    "batch_bytes",
    "workers",
    "publishers",
    "token_file",
    "encrypt_to",
    "sign",
    "path",
    "layout",
    "project",
    "topic",
    "options",
    "infrastructure_description",
    "period",
    "bin",
    "measure",
    "select",
}
_DECIDING: Final = ENRICHING | {"complete_since", "grid_log", "end_time"}
"""The keys of a source that decide what is planned and held. The others say where and how it is read."""


def _text(target: Target, config: Config) -> str:
    """Everything that decides what is planned and what is held, as text: when it changes, planning is done anew."""
    wishes = target.model_dump(mode="json", exclude=_NOT_WISHES)
    wishes["ur_extensions"] = sorted(wishes["ur_extensions"])
    enrichment = {name: _enrichment(source) for name, source in sorted(config.sources.items())}
    everything = {
        "rules": RULES_VERSION,
        "site": config.site.name,
        "target": wishes,
        "sources": enrichment,
        "map": [rule.model_dump(mode="json") for rule in config.map],
    }
    return msgspec.json.encode(everything, order="deterministic").decode()


def _enrichment(source: SourceSettings) -> dict[str, object]:
    return source.model_dump(mode="json", include=set(_DECIDING))


def why_unwanted(
    connection: Connection, config: Config, names: Iterable[str], runs: Sequence[StoredRun]
) -> dict[int, dict[str, str]]:
    """By run id, of each of these targets that does not want the run as both are now, why."""
    wishes = [TargetFilter(name, config.targets[name], config) for name in names]
    ids = class_ids(connection, [run.run_id for run in runs])
    of = {each.id: each for each in classes_by_id(connection, sorted(set(ids.values())))}
    return {run.run_id: _of_run(run, wishes, of[ids[run.run_id]]) for run in runs}


def _of_run(run: StoredRun, wishes: Iterable[TargetFilter], job_class: JobClass) -> dict[str, str]:
    end = run.job.end if run.job.finished else None
    told: dict[str, str] = {}
    for wish in wishes:
        why = wish.why_not(job_class.source, job_class.facts) or wish.why_not_end(end)
        if why is not None:
            told[wish.name] = why
    return told
