"""State between the lines of TORQUE and PBS Pro: the path of each unfinished job.

Lines come in the order of the log; the state after a line is a function of the lines up to it, however they were
divided into readings. It is kept in the cursor as compact JSON, so it is bounded: the oldest jobs are forgotten first,
which loses only the earlier part of a path, because an E record alone has its run.

Paths (Li, Yang, Wu 2016, figure 2; the facts on sources, 4): Q S+ E, Q S D E, Q S E R S E, and TORQUE's real path of a
rerun, Q S R S E, where R has no usage and the lost run is estimated from S and R.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Final, TypeVar

import msgspec

from formats.job import Events, Job
from publisher.sources.fields import LineError, instant, integer
from publisher.sources.limits import SHORT_BYTES, bounded
from publisher.sources.pbs import jobs as pbs_jobs
from publisher.sources.pbs import values
from publisher.sources.pbs.attributes import (
    AttributeReader,
    ForgedEndError,
    require_whole_end,
    require_whole_start,
    start_in,
)
from publisher.sources.pbs.lines import LocalClock, PbsLogEntry


class HistoryLimits(msgspec.Struct, frozen=True):
    """Limits of the state.

    `weight` of all open jobs together: one each, and one for every 256 characters of the S record of a running one.
    `ended`: jobs whose path is kept for a while, because an R or an E may follow; `completed`: those that ended
    normally, whose path is kept for a while, because an R may follow.
    """

    weight: int = 65_536
    ended: int = 1_000
    completed: int = 1_000


USUAL_LIMITS: Final = HistoryLimits()
# Without a limit, a job that is rerun for weeks would make the cursor, and its record, as long as its path.
MAX_EVENTS: Final = 64

_MOST: Final = 1 << 62
"""The largest sum of damaged numbers that can be stored."""

_Job = TypeVar("_Job")
_NO_JOBS: Final[tuple[Job, ...]] = ()
_RUNNING: Final = values.Ending("running")
_NONE: Final[dict[str, str]] = {}
_NOTHING: Final = (_NONE, "")
_SHORT: Final = 32
"""Characters of a text that has no attributes of a run."""


JobEvent = tuple[int, str]
"""When it happened, and the letter of its record."""


class OpenJob(msgspec.Struct, array_like=True):
    """A job between two lines. `start` and `text` (of its S record) belong to the run in progress; `core_ms` and
    `phase_ms` are the usage of its ended phases.
    """

    events: list[JobEvent]
    start: int | None = None
    text: str = ""
    shown: bool = False
    weight: int = 1
    starts: int = 0
    left_out: int = 0
    deleted: bool = False
    core_ms: int = 0
    phase_ms: int = 0
    phase_cores: int | None = None
    suspended_since: int | None = None
    suspended_s: int = 0

    def note(self, at: int, kind: str) -> None:
        """Add an event; the middle of a path that is too long is omitted."""
        if len(self.events) >= MAX_EVENTS:
            del self.events[MAX_EVENTS // 2]
            self.left_out += 1
        self.events.append((at, kind))

    def close_run(self) -> None:
        """Forget the run in progress."""
        self.start = None
        self.text = ""
        self.shown = self.deleted = False
        self.weight = 1
        self.core_ms = self.phase_ms = self.suspended_s = 0
        self.phase_cores = self.suspended_since = None


class Completed(msgspec.Struct, array_like=True):
    """A job that ended normally: its path, the number of its starts, and the number of omitted events."""

    events: list[JobEvent]
    starts: int
    left_out: int = 0


class HistoryState(msgspec.Struct, array_like=True):
    """The whole state: open jobs, ended ones, the instant that the log has reached, and those that ended normally. In
    the order of the log.
    """

    open: dict[str, OpenJob] = {}
    ended: dict[str, OpenJob] = {}
    at: int = 0
    completed: dict[str, Completed] = {}
    forged: list[str] = []
    """The last jobs whose start record contains an end."""


_decoder: Final = msgspec.json.Decoder(HistoryState)


class JobPaths:
    """Takes the lines of a log in order and gives the runs that begin, are lost, and end."""

    def __init__(
        self,
        dialect: pbs_jobs.Dialect,
        zone: str,
        cluster: str | None,
        limits: HistoryLimits = USUAL_LIMITS,
        state: str = "",
    ) -> None:
        self._limits = limits
        self._dialect = dialect
        self._clock = LocalClock(zone)
        self._cluster = cluster
        self._attributes = AttributeReader(quoted=dialect.quoted)
        self._state = _decoder.decode(state) if state else HistoryState()
        self._weight = sum(job.weight for job in self._state.open.values())

    def dump(self) -> str:
        """The state as JSON."""
        return msgspec.json.encode(self._state).decode()

    def running(self) -> list[Job]:
        """Runs in progress that were not given before."""
        runs = []
        for key, job in self._state.open.items():
            if job.start is not None and not job.shown:
                job.shown = True
                with suppress(LineError):  # its end has a record of its own, which is checked by itself
                    runs.append(msgspec.structs.replace(self._begun(key, job), events=Events.of(job.events)))
        return runs

    def take(self, line: PbsLogEntry) -> tuple[Job, ...] | None:
        """The runs of a line: empty if it has none, None if it is kept for later lines.

        Raises `LineError` if it contradicts the state, which then stays unchanged.
        """
        kind = line.kind
        if kind not in self._dialect.job_kinds:
            if kind not in self._dialect.other_kinds:
                raise LineError(f"record type {kind!r} is not one of {self._dialect.system}'s")
            self._clock.instant(line.stamp, after=self._state.at)
            return _NO_JOBS
        ident = pbs_jobs.job_id(line.job_id)
        attributes, near = _NOTHING if kind == "Q" and len(line.text) < _SHORT else self._read(line)
        at = self._clock.instant(line.stamp, after=self._state.at, near=near)
        if ident.array:
            return _NO_JOBS
        if kind == "E" or (kind == "R" and "start" in attributes):
            jobs: tuple[Job, ...] | None = self._end(line, ident, attributes)
        elif kind in {"S", "s"}:
            jobs = self._start(line, near) or None
        elif kind == "R":
            jobs = self._lose(line.job_id, at) or None
        elif kind == "Q":
            jobs = self._queue(line.job_id, at) or None
        else:
            jobs = None if self._happen(line, attributes, at) else _NO_JOBS
        self._state.at = at
        return jobs

    def _read(self, line: PbsLogEntry) -> tuple[dict[str, str], str]:
        """The attributes of a record that needs them all, and the instant in it that is nearest to its stamp."""
        kind, quoted = line.kind, self._dialect.quoted
        if kind in {"S", "s"}:
            near = start_in(line.text, quoted=quoted)
            try:
                require_whole_start(line.text, quoted=quoted)
            except ForgedEndError:
                self._state.forged = [*self._state.forged[1 - self._limits.ended :], line.job_id]
                raise
            return _NONE, near
        if kind in {"E", "R", "u", "c", "e"}:
            attributes = self._attributes(line.text)
            if kind == "E" or (kind == "R" and attributes):
                require_whole_end(attributes)
                if self._state.forged and line.job_id in self._state.forged:
                    raise LineError("the start record of the job has an end, so this record may be a user's text")
            return attributes, attributes.get("end" if kind in {"E", "R"} else "start", "")
        if " start=" in line.text and " queue=" in line.text:
            raise LineError(f"a record of type {kind} has a job's attributes: a line feed in a user's text")
        return _NOTHING

    def _queue(self, key: str, at: int) -> tuple[Job, ...]:
        """Take a Q record: a new job, a job that moved, or a new job with an old number."""
        state = self._state
        jobs = _NO_JOBS
        job = state.open.get(key)
        if job is not None and job.start is not None:
            jobs = (self._unfinished(key, job, "submitted again"),)
            self._forget(key)
            job = None
        state.ended.pop(key, None)
        state.completed.pop(key, None)
        if job is None:
            self._keep(key, OpenJob([(at, "Q")]))
        else:
            job.note(at, "Q")
        return jobs

    def _start(self, line: PbsLogEntry, written: str) -> tuple[Job, ...]:
        """Take an S record. It is kept unparsed: most runs end with a record that has everything."""
        start = instant(written)
        if start is None:
            raise LineError("the start record has no start")
        if len(line.text) > SHORT_BYTES:
            self._begun(line.job_id, OpenJob([], start, line.text))
        job = self._reopen(line.job_id)
        jobs = _NO_JOBS
        if job.start == start:  # the record was written again, with other hosts
            job.shown = False
        else:
            if job.start is not None:
                jobs = (self._unfinished(line.job_id, job, "started again"),)
            self._weight -= job.weight - 1
            job.close_run()
            job.starts += 1
        if self._state.forged and line.job_id in self._state.forged:  # a line feed broke it, and it was joined again
            self._state.forged = [job_id for job_id in self._state.forged if job_id != line.job_id]
        job.start, job.text = start, line.text
        job.note(start, line.kind)
        self._weight -= job.weight
        job.weight = 1 + len(line.text) // 256
        self._weight += job.weight
        self._shrink()
        return jobs

    def _begun(self, key: str, job: OpenJob) -> Job:
        """The run in progress. Raises `LineError` if its text is ambiguous or too long."""
        attributes = self._attributes(job.text)
        run = pbs_jobs.run_of(
            self._dialect,
            pbs_jobs.job_id(key),
            attributes,
            cluster=self._cluster,
            ending=_RUNNING,
            start=job.start or 0,
            end=None,
            run=max(job.starts - 1, 0),
            queued=instant(attributes.get("qtime")),
            events=None,
            extras={},
        )
        return run if len(job.text) <= SHORT_BYTES else bounded(run)

    def _unfinished(self, key: str, job: OpenJob, reason: str) -> Job:
        """Note a start that no record ended: an attempt for which resources were missing."""
        run = self._begun(key, job)
        path = _path(job, run.lrms_submit, run.start or 0)
        return msgspec.structs.replace(run, status="never_started", end_reason=reason, events=path)

    def _lose(self, key: str, at: int) -> tuple[Job, ...]:
        """Take an R record without usage: the run in progress is discarded; its usage is the time from start to now, on
        all its cores.
        """
        job = self._state.open.get(key)
        if job is None or job.start is None:
            self._rerun(key).note(at, "R")
            return _NO_JOBS
        start = job.start
        if at < start:
            raise LineError(f"rerun at {at}, before the start at {start}: check the source's `timezone`")
        run = self._begun(key, job)
        job.note(at, "R")
        lost = msgspec.structs.replace(
            run,
            status="lost",
            end=at,
            wall_ms=(at - start) * 1000,
            end_reason="rerun without accounting",
            events=_path(job, run.lrms_submit, start),
            extras={"estimated": 1},
        )
        self._weight -= job.weight - 1
        job.close_run()
        return (lost,)

    def _end(self, line: PbsLogEntry, ident: pbs_jobs.JobId, found: Mapping[str, str]) -> tuple[Job, ...]:
        span = pbs_jobs.instants(found)
        if span is None:
            self._forget(line.job_id)
            return _NO_JOBS
        start, end = span
        state = self._state
        job = state.open.get(line.job_id) or state.ended.get(line.job_id) or OpenJob([])
        exit_status = integer(found.get("Exit_status"))
        if exit_status is None and "Exit_status" in found:
            raise LineError("Exit_status is not a number")
        before = _NO_JOBS
        if job.start is not None and job.start != start:
            before = (self._unfinished(line.job_id, job, "started again"),)
        job.note(end, line.kind)
        queued = instant(found.get("qtime"))
        extras = pbs_jobs.extras_of(found)
        self._add_path(extras, job, end - start, end)
        ending = values.ending(exit_status, deleted=job.deleted, codes=self._dialect.codes)
        if line.kind == "R" and ending.status != "cancelled":
            ending = values.Ending("aborted", end_reason=f"rerun, {ending.end_reason or exit_status}")
        run = pbs_jobs.run_of(
            self._dialect,
            ident,
            found,
            cluster=self._cluster,
            ending=ending,
            start=start,
            end=end,
            run=max(job.starts - 1, 0),
            queued=queued,
            events=_path(job, queued, start),
            extras=extras,
        )
        self._forget(line.job_id)
        if line.kind == "R":
            state.ended.pop(line.job_id, None)
            job.close_run()
            self._keep(line.job_id, job)
        elif exit_status:
            job.close_run()
            _remember(state.ended, line.job_id, job, self._limits.ended)
        else:
            completed = Completed(job.events, job.starts, job.left_out)
            _remember(state.completed, line.job_id, completed, self._limits.completed)
        return (*before, run)

    def _happen(self, line: PbsLogEntry, found: Mapping[str, str], at: int) -> bool:
        """Take a record that neither begins nor ends a run, but belongs to its path or to a phase of it.

        False if the job is finished and did not run.
        """
        key, kind = line.job_id, line.kind
        state = self._state
        if kind in {"D", "A", "M"}:
            job = state.open.get(key) or state.ended.get(key) or OpenJob([])
            job.note(at, kind)
            job.deleted = job.deleted or kind == "D"
            if job.start is None:  # it waited and did not run, or its start is in a file that is gone
                self._forget(key)
                _remember(state.ended, key, job, self._limits.ended)
            return job.start is not None
        phase_ms = values.duration_ms(found.get("resources_used.walltime"))
        cores = pbs_jobs.cores_of(found) if found else None
        if kind in {"u", "e"} and (phase_ms is None or cores is None):
            raise LineError("the phase record has no resources_used.walltime or no hosts")
        job = self._reopen(key)
        job.note(at, kind)
        if kind in {"u", "e"} and phase_ms is not None and cores is not None:
            job.core_ms = min(job.core_ms + cores * phase_ms, _MOST)
            job.phase_ms = min(job.phase_ms + phase_ms, _MOST)
            job.phase_cores = 0 if kind == "e" else job.phase_cores or cores
        elif kind == "c":
            job.phase_cores = cores
        elif kind == "z":
            job.suspended_since = at
        elif kind == "r" and job.suspended_since is not None:
            job.suspended_s += max(at - job.suspended_since, 0)
            job.suspended_since = None
        return True

    def _add_path(self, extras: pbs_jobs.Extras, job: OpenJob, wall_s: int, end: int) -> None:
        """Add what the path adds to the last record of a run."""
        if job.phase_ms:
            rest_ms = max(wall_s * 1000 - job.phase_ms, 0)
            extras["core_seconds"] = min(job.core_ms + (job.phase_cores or 0) * rest_ms, _MOST) // 1000
        if job.suspended_s or job.suspended_since is not None:
            since = job.suspended_since
            extras["suspended_seconds"] = job.suspended_s + (max(end - since, 0) if since is not None else 0)
        if job.left_out:
            extras["events_left_out"] = job.left_out

    def _keep(self, key: str, job: OpenJob) -> None:
        self._state.open[key] = job
        self._weight += job.weight
        self._shrink()

    def _shrink(self) -> None:
        jobs = self._state.open
        while self._weight > self._limits.weight and len(jobs) > 1:
            self._forget(next(iter(jobs)))

    def _forget(self, key: str) -> None:
        job = self._state.open.pop(key, None)
        if job is not None:
            self._weight -= job.weight

    def _reopen(self, key: str) -> OpenJob:
        """The open job, moved back from the ended ones, or created if it is unknown."""
        job = self._state.open.get(key)
        if job is None:
            job = self._state.ended.pop(key, None) or OpenJob([])
            self._keep(key, job)
        return job

    def _rerun(self, key: str) -> OpenJob:
        """The job that runs again after a run that ended. A job that ended normally is reopened by an R only, since
        other repeated lines come from a file that is read again.
        """
        done = self._state.completed.pop(key, None)
        if done is not None and key not in self._state.open and key not in self._state.ended:
            self._keep(key, OpenJob(done.events, starts=done.starts, left_out=done.left_out))
        return self._reopen(key)


def _remember(jobs: dict[str, _Job], key: str, job: _Job, most: int) -> None:
    jobs.pop(key, None)
    jobs[key] = job
    if len(jobs) > most:  # several at once: the first of a dictionary is looked for among all that were deleted
        for oldest in list(islice(jobs, max(most // 8, 1))):
            del jobs[oldest]


def _path(job: OpenJob, queued: int | None, start: int) -> Events | None:
    """The path so far. Its Q and S are in the run's own record, even if their lines were not read."""
    events = job.events
    if len(events) == 1 and queued is not None and events[0][1] == "E":  # only the E record itself is known
        ended = events[0][0]
        events[:0] = ((queued, "Q"), (start, "S"))
        return Events("Q S E", (queued, start, ended))  # what `Events.of` makes of them
    kinds = [kind for _, kind in events]
    if queued is not None:
        if "Q" not in kinds:
            events.insert(0, (queued, "Q"))
            kinds.insert(0, "Q")
        elif kinds.count("Q") == 1:
            events[kinds.index("Q")] = (queued, "Q")
    if (start, "S") not in events:
        later = [index for index, (at, kind) in enumerate(events) if at >= start and kind != "Q"]
        events.insert(later[0] if later else len(events), (start, "S"))
    return Events.of(events)
