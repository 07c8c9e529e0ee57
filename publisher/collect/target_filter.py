"""Which runs a target selects. It depends on the class of a run and its end, so one decision serves many runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, select

from formats.calendar import period_of, periods_between
from formats.job import Job
from formats.names import vo_of
from publisher.collect.enrich import Enrichers, NameSelection
from publisher.collect.settings_text import settings_text
from publisher.config.rules import SelectedNames
from publisher.config.schema import Config, Target
from publisher.encoded_run import class_needs_local_user
from publisher.store import paging
from publisher.store.classes import JobClass, awaits_grid_log, classes_by_id
from publisher.store.grid_jobs import class_ids
from publisher.store.schema import runs as runs_table
from publisher.store.stored_run import StoredRun
from publisher.text import iso

# As ARC's own publisher: a site that comes from it would otherwise send more jobs than before.
GRID_STATUSES: Final = frozenset({"completed", "failed"})
# Every run that ran used cores, whatever ended it: without these, usage would be missing.
BATCH_SYSTEM_STATUSES: Final = frozenset({"completed", "failed", "aborted", "cancelled"})


class TargetFilter:
    """Which runs one target selects. `text`: all settings that decide what is selected or held."""

    def __init__(self, name: str, target: Target, config: Config) -> None:
        self.name = name
        self._target = target
        self._enrichers = Enrichers(config)
        self._statuses = frozenset(target.statuses) if target.statuses is not None else None
        if self._statuses is None and target.reporting is not None:
            self._statuses = BATCH_SYSTEM_STATUSES  # all runs have used the site
        self._slaves = target.reporting is not None  # the record of their run includes their usage
        self._vos = frozenset(target.vo)
        self._skip_unknown_vo = target.for_unknown_vo == "skip"
        self._sources = frozenset(target.sources)
        jobs = target.jobs or SelectedNames.model_construct()
        self._names_decide = bool(jobs.user or jobs.queue or jobs.project)
        self._user = NameSelection("user", jobs.user)
        self._queue = NameSelection("queue", jobs.queue)
        self._project = NameSelection("project", jobs.project)
        self._skip_local = target.skips_local_jobs
        self.is_snapshot = target.format.is_snapshot
        """Whether summaries or reports are sent: each covers many runs and replaces the one sent before."""
        self.second_version = target.second_version
        """What is sent for a run that changed, or is no longer selected, after delivery."""
        self.period = target.period_kind
        self.sync = target.sends_sync
        self.since = _since(target)
        self.delivered_until = target.delivered_until
        self.text = settings_text(target, config)
        self._verdicts: dict[int, bool] = {}

    def selects_class(self, job_class: JobClass) -> bool:
        """Whether runs of this class are selected, apart from their end. Cached by the id of the class."""
        verdict = self._verdicts.get(job_class.id)
        if verdict is None:
            verdict = self.why_not(job_class.source, job_class.facts) is None
            self._verdicts[job_class.id] = verdict
        return verdict

    def known_verdict(self, class_id: int) -> bool | None:
        """The cached decision on a class, if there is one."""
        return self._verdicts.get(class_id)

    def selects_end(self, end_time: int | None) -> bool:
        """Whether a run that ended then is selected."""
        return end_time is not None and (self.since is None or end_time >= self.since)

    def why_not_end(self, end_time: int | None) -> str | None:
        """Why a run that ended then is not selected; None if it is."""
        if self.selects_end(end_time):
            return None
        return "it has not ended" if end_time is None else f"it ended before `since` of the target, {iso(self.since)}"

    def numbers_between(self, from_: int, until: int) -> list[int]:
        """The numbers of the months, or of the reports' periods, that the instants until `until` (exclusive) touch."""
        return [period.number for period in periods_between(self.period, from_, until)]

    def why_not(self, source: str, facts: Job) -> str | None:
        """Why a run with these facts is not selected, apart from its end; None if it is."""
        if self._sources and source not in self._sources:
            return f"its source ({source}) is not in `sources` of the target"
        statuses = usual_statuses(facts) if self._statuses is None else self._statuses
        if facts.status not in statuses:
            return f"its status ({facts.status}) is not in `statuses` of the target ({', '.join(sorted(statuses))})"
        if facts.slave and not self._slaves:
            return "it is a slave record: the record of its job has what it used"
        if awaits_grid_log(facts):
            return None  # decided once its owner is known; held until then
        if self._names_decide and (excluded_by := self._excluded_by(facts)) is not None:
            return excluded_by
        return self._why_not_whose(self._enrichers.apply(source, facts))

    def _excluded_by(self, facts: Job) -> str | None:
        # The class of a run with both DN and VO has no local names (`encoded_run.class_needs_local_user`). The run
        # itself may: with them, a run and its class would be decided differently.
        local = class_needs_local_user(facts)
        user, project = (facts.local_user, facts.project) if local else (None, None)
        for selection, names in (
            (self._user, (user, facts.user_dn)),
            (self._queue, (facts.queue,)),
            (self._project, (project,)),
        ):
            if not selection.selects(*names):
                known = next(filter(None, names), "unknown")
                return f"`jobs.{selection.key}` of the target does not select its {selection.key} ({known})"
        return None

    def _why_not_whose(self, job: Job) -> str | None:
        if self._skip_local and is_local(job):
            return 'it has no DN, token, VO, or FQAN of a user, and `local_jobs` of the target is not "send"'
        vo = vo_of(job)
        if vo is None:
            return 'its VO is unknown, and `unknown_vo` of the target is "skip"' if self._skip_unknown_vo else None
        return f"its VO ({vo}) is not in `vo` of the target" if self._vos and vo not in self._vos else None


def usual_statuses(facts: Job) -> frozenset[str]:
    """The statuses of runs that are sent to a target without `statuses`: as ARC does, or all runs that ran."""
    return GRID_STATUSES if facts.is_of_grid else BATCH_SYSTEM_STATUSES


def is_usually_sent(job: Job) -> bool:
    """Whether a target with default settings is sent a run; a view without a target shows these runs."""
    return job.has_record and job.status in usual_statuses(job)


def is_local(job: Job) -> bool:
    """Whether a job has no grid identity: no distinguished name, token, VO, or FQAN."""
    return not (job.user_dn or job.token_subject or job.vo or job.fqans)


def _since(target: Target) -> int | None:
    """`since`; for summaries and reports the first second of its month or day, since they are sent whole."""
    if target.since is not None and target.format.is_snapshot:
        return period_of(target.period_kind, target.since).start
    return target.since


def still_selected(connection: Connection, selection: TargetFilter, run_ids: Sequence[int]) -> set[int]:
    """Return those of these runs that the target selects in their present state."""
    query = select(runs_table.c.id, runs_table.c.class_id, runs_table.c.end_time)
    matches = list(paging.rows_in(connection, query, runs_table.c.id, run_ids))
    class_ids = selected_classes(connection, selection, list({class_id for _, class_id, _ in matches}))
    return {run_id for run_id, class_id, end in matches if class_id in class_ids and selection.selects_end(end)}


def selected_classes(connection: Connection, selection: TargetFilter, ids: Sequence[int]) -> set[int]:
    """Return those of these classes that the target selects."""
    return {item.id for item in classes_by_id(connection, ids) if selection.selects_class(item)}


def why_not_selected(
    connection: Connection, config: Config, names: Iterable[str], runs: Sequence[StoredRun]
) -> dict[int, dict[str, str]]:
    """By run id: the targets that do not select the run now, each with the reason."""
    filters = [TargetFilter(name, config.targets[name], config) for name in names]
    ids = class_ids(connection, [run.run_id for run in runs])
    classes = {job_class.id: job_class for job_class in classes_by_id(connection, sorted(set(ids.values())))}
    return {run.run_id: _why_not_selected(run, filters, classes[ids[run.run_id]]) for run in runs}


def _why_not_selected(run: StoredRun, filters: Iterable[TargetFilter], job_class: JobClass) -> dict[str, str]:
    end = run.job.end if run.job.finished else None
    reasons: dict[str, str] = {}
    for each in filters:
        why = each.why_not(job_class.source, job_class.facts) or each.why_not_end(end)
        if why is not None:
            reasons[each.name] = why
    return reasons
