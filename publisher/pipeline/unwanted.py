"""Why a target does not want a run: asked of the wish that decided it, of the class by which it was decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from publisher.config import Config
from publisher.pipeline.wish import Wish
from publisher.store.classes import JobClass, classes_by_id
from publisher.store.grid_jobs import class_ids
from publisher.store.runs import StoredRun


def why_unwanted(
    connection: Connection, config: Config, names: Iterable[str], runs: Sequence[StoredRun]
) -> dict[int, dict[str, str]]:
    """By run id, of each of these targets that does not want the run as both are now, why."""
    wishes = [Wish(name, config.targets[name], config) for name in names]
    ids = class_ids(connection, [run.run_id for run in runs])
    of = {each.id: each for each in classes_by_id(connection, sorted(set(ids.values())))}
    return {run.run_id: _of_run(run, wishes, of[ids[run.run_id]]) for run in runs}


def _of_run(run: StoredRun, wishes: Iterable[Wish], job_class: JobClass) -> dict[str, str]:
    end = run.job.end if run.job.finished else None
    told: dict[str, str] = {}
    for wish in wishes:
        why = wish.why_not(job_class.source, job_class.facts) or wish.why_not_end(end)
        if why is not None:
            told[wish.name] = why
    return told
