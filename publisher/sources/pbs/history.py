"""What must be remembered between the lines of TORQUE and PBS Pro: the path of each job that is not over.

Lines come in the order of the log; the state after a line is a function of the lines up to it, however they were cut
into reads. It travels in the cursor as compact JSON, so it is bounded: the oldest jobs are forgotten first, and what
is forgotten costs only the earlier part of a path, because an E record has its run alone.

Paths (Li, Yang, Wu 2016, figure 2; the facts on sources, 4): Q S+ E, Q S D E, Q S E R S E, and what TORQUE really
writes for a rerun, Q S R S E, where R says nothing and the lost run is estimated from S and R.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from formats.job import Event, Job
from publisher.sources.fields import LineError, instant, integer
from publisher.sources.limits import SHORT_BYTES, bounded
from publisher.sources.pbs import jobs as pbs_jobs
from publisher.sources.pbs import values
from publisher.sources.pbs.lines import (
    ForgedEndError,
    LocalClock,
    PbsLogEntry,
    attributes,
    require_whole_end,
    require_whole_start,
    start_in,
)


class HistoryLimits(msgspec.Struct, frozen=True):
    """How much is remembered of jobs.

    `weight` of all open jobs together: one each, and one for every 256 characters of the S record of a running one.
    `ended`: jobs whose path is kept a while, because an R or an E may still follow; `completed`: those that ended well
    whose path is kept a while, because an R may still follow.
    """

    weight: int = 65_536
    ended: int = 1_000
    completed: int = 1_000


USUAL_LIMITS: Final = HistoryLimits()
MAX_EVENTS: Final = 64

_MOST: Final = 1 << 62
"""What damaged numbers can add up to, so that it can be stored."""

_Job = TypeVar("_Job")
_NO_JOBS: Final[tuple[Job, ...]] = ()
_NONE: Final[dict[str, str]] = {}
_NOTHING: Final = (_NONE, "")
_SHORT: Final = 32
"""Characters of a text that holds no attributes of a run."""


class OpenJob(msgspec.Struct, array_like=True):
    """A job between two lines. `start` and `text` (of its S record) are of the run in progress, `core_ms` and
    `phase_ms` what its ended phases used."""

    events: list[Event]
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
        """Add an event; of a path that grows too long the middle is left out."""
        if len(self.events) >= MAX_EVENTS:
            del self.events[MAX_EVENTS // 2]
            self.left_out += 1
        self.events.append(Event(at, kind))

    def close_run(self) -> None:
        """Forget the run in progress and what belongs to it."""
        self.start = None
        self.text = ""
        self.shown = self.deleted = False
        self.weight = 1
        self.core_ms = self.phase_ms = self.suspended_s = 0
        self.phase_cores = self.suspended_since = None


class Completed(msgspec.Struct, array_like=True):
    """A job that ended well: its path, the number of its starts, and of events left out."""

    events: list[Event]
    starts: int
    left_out: int = 0


class HistoryState(msgspec.Struct, array_like=True):
    """All that is remembered: open jobs, ended ones, the instant the log has reached, and those that ended well. In the
    order they came."""

    open: dict[str, OpenJob] = {}
    ended: dict[str, OpenJob] = {}
    at: int = 0
    completed: dict[str, Completed] = {}
    forged: list[str] = []
    """The last jobs whose start record has an end."""


_decoder: Final = msgspec.json.Decoder(HistoryState)


class JobPaths:
    """Takes the lines of a log one after the other and gives the runs they begin, lose and end."""

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
        self._state = _decoder.decode(state) if state else HistoryState()
        self._weight = sum(job.weight for job in self._state.open.values())

    def dump(self) -> str:
        """The state as JSON."""
        return msgspec.json.encode(self._state).decode()

    def running(self) -> list[Job]:
        """Runs in progress that were not given yet."""
        runs = []
        for key, job in self._state.open.items():
            if job.start is not None and not job.shown:
                job.shown = True
                with suppress(LineError):  # its end is a record of its own, and will be refused or not
                    runs.append(msgspec.structs.replace(self._begun(key, job), events=tuple(job.events)))
        return runs

    def take(self, line: PbsLogEntry) -> tuple[Job, ...] | None:
        """The runs of a line: empty where it has none, None where it is remembered for later lines.

        Raises `LineError` where it makes no sense; the state is then as it was before.
        """
        kind = line.kind
        if kind not in self._dialect.job_kinds:
            if kind not in self._dialect.other_kinds:
                raise LineError(f"record type {kind!r} is not one of {self._dialect.system}'s")
            self._clock.instant(line.stamp, after=self._state.at)
            return _NO_JOBS
        ident = pbs_jobs.job_id(line.job_id)
        found, near = _NOTHING if kind == "Q" and len(line.text) < _SHORT else self._read(line)
        at = self._clock.instant(line.stamp, after=self._state.at, near=near)
        if ident.array:
            return _NO_JOBS
        if kind == "E" or (kind == "R" and "start" in found):
            jobs: tuple[Job, ...] | None = self._end(line, ident, found)
        elif kind in {"S", "s"}:
            jobs = self._start(line, near) or None
        elif kind == "R":
            jobs = self._lose(line.job_id, at) or None
        elif kind == "Q":
            jobs = self._queue(line.job_id, at) or None
        else:
            jobs = None if self._happen(line, found, at) else _NO_JOBS
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
            found = attributes(line.text, quoted=quoted)
            if kind == "E" or (kind == "R" and found):
                require_whole_end(found)
                if self._state.forged and line.job_id in self._state.forged:
                    raise LineError("the start record of the job has an end, so this one may be of a user's text")
            return found, found.get("end" if kind in {"E", "R"} else "start", "")
        if " start=" in line.text and " queue=" in line.text:
            raise LineError(f"a record of type {kind} holds a run's attributes: a line feed in a user's text")
        return _NOTHING

    def _queue(self, key: str, at: int) -> tuple[Job, ...]:
        """A job comes into a queue: a new one, an old one moved, or a new one under an old number."""
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
            self._keep(key, OpenJob([Event(at, "Q")]))
        else:
            job.note(at, "Q")
        return jobs

    def _start(self, line: PbsLogEntry, written: str) -> tuple[Job, ...]:
        """A run begins. It is kept as it is written: most runs end with a record that has all."""
        start = instant(written)
        if start is None:
            raise LineError("a start record without a start")
        if len(line.text) > SHORT_BYTES:
            self._begun(line.job_id, OpenJob([], start, line.text))
        job = self._reopen(line.job_id)
        jobs = _NO_JOBS
        if job.start == start:  # written again, with other hosts
            job.shown = False
        else:
            if job.start is not None:
                jobs = (self._unfinished(line.job_id, job, "started again"),)
            self._weight -= job.weight - 1
            job.close_run()
            job.starts += 1
        if self._state.forged and line.job_id in self._state.forged:  # a line feed broke it, and it was put together
            self._state.forged = [each for each in self._state.forged if each != line.job_id]
        job.start, job.text = start, line.text
        job.note(start, line.kind)
        self._weight -= job.weight
        job.weight = 1 + len(line.text) // 256
        self._weight += job.weight
        self._shrink()
        return jobs

    def _begun(self, key: str, job: OpenJob) -> Job:
        """The run in progress. Raises `LineError` where its text is unclear, or too long."""
        found = attributes(job.text, quoted=self._dialect.quoted)
        run = pbs_jobs.running(
            self._dialect,
            pbs_jobs.job_id(key),
            found,
            cluster=self._cluster,
            start=job.start or 0,
            run=max(job.starts - 1, 0),
        )
        return run if len(job.text) <= SHORT_BYTES else bounded(run)

    def _unfinished(self, key: str, job: OpenJob, reason: str) -> Job:
        """A start that no record ended: an attempt for which resources were short."""
        run = self._begun(key, job)
        path = _path(job, run.lrms_submit, run.start or 0)
        return msgspec.structs.replace(run, status="never_started", end_reason=reason, events=path)

    def _lose(self, key: str, at: int) -> tuple[Job, ...]:
        """R without usage: the run in progress is thrown away; what it used is start to now, on all its cores."""
        job = self._state.open.get(key)
        if job is None or job.start is None:
            self._rerun(key).note(at, "R")
            return _NO_JOBS
        start = job.start
        if at < start:
            raise LineError(f"rerun at {at}, before the start at {start}: is the source's `timezone` right?")
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
        more = self._more(job, end - start, end)
        ending = values.ending(exit_status, deleted=job.deleted, codes=self._dialect.codes)
        if line.kind == "R" and ending.status != "cancelled":
            ending = values.Ending("aborted", end_reason=f"rerun, {ending.end_reason or exit_status}")
        run = pbs_jobs.finished(
            self._dialect,
            ident,
            found,
            cluster=self._cluster,
            ending=ending,
            start=start,
            end=end,
            run=max(job.starts - 1, 0),
            events=_path(job, instant(found.get("qtime")), start),
            more=more,
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
        """Records that neither begin nor end a run, but belong to its path or to a phase of it.

        False where the job is over without having run.
        """
        key, kind = line.job_id, line.kind
        state = self._state
        if kind in {"D", "A", "M"}:
            job = state.open.get(key) or state.ended.get(key) or OpenJob([])
            job.note(at, kind)
            job.deleted = job.deleted or kind == "D"
            if job.start is None:  # it waited: nothing ran; or its start is in a file that is gone
                self._forget(key)
                _remember(state.ended, key, job, self._limits.ended)
            return job.start is not None
        phase_ms = values.duration_ms(found.get("resources_used.walltime"))
        cores = pbs_jobs.cores_of(found) if found else None
        if kind in {"u", "e"} and (phase_ms is None or cores is None):
            raise LineError("a phase record without resources_used.walltime or without hosts")
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

    def _more(self, job: OpenJob, wall_s: int, end: int) -> dict[str, int | float | str]:
        """What the path says of a run beyond its last record."""
        more: dict[str, int | float | str] = {}
        if job.phase_ms:
            rest_ms = max(wall_s * 1000 - job.phase_ms, 0)
            more["core_seconds"] = min(job.core_ms + (job.phase_cores or 0) * rest_ms, _MOST) // 1000
        if job.suspended_s or job.suspended_since is not None:
            since = job.suspended_since
            more["suspended_seconds"] = job.suspended_s + (max(end - since, 0) if since is not None else 0)
        if job.left_out:
            more["events_left_out"] = job.left_out
        return more

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
        """The open job, taken back from the ended ones or made where none is known."""
        job = self._state.open.get(key)
        if job is None:
            job = self._state.ended.pop(key, None) or OpenJob([])
            self._keep(key, job)
        return job

    def _rerun(self, key: str) -> OpenJob:
        """The job that runs again after a run that ended: what ended well is taken back by an R alone, since other
        lines that come again are of a file that is read again."""
        done = self._state.completed.pop(key, None)
        if done is not None and key not in self._state.open and key not in self._state.ended:
            self._keep(key, OpenJob(done.events, starts=done.starts, left_out=done.left_out))
        return self._reopen(key)


def _remember(jobs: dict[str, _Job], key: str, job: _Job, most: int) -> None:
    jobs.pop(key, None)
    jobs[key] = job
    if len(jobs) > most:
        del jobs[next(iter(jobs))]


def _path(job: OpenJob, queued: int | None, start: int) -> tuple[Event, ...]:
    """The path so far. Its Q and S are in the run's own record, also where their lines were never seen."""
    events = job.events
    if len(events) == 1 and queued is not None and events[0].kind == "E":  # nothing known but the E record itself
        events[:0] = (Event(queued, "Q"), Event(start, "S"))
        return tuple(events)
    kinds = [event.kind for event in events]
    if queued is not None:
        if "Q" not in kinds:
            events.insert(0, Event(queued, "Q"))
            kinds.insert(0, "Q")
        elif kinds.count("Q") == 1:
            events[kinds.index("Q")] = Event(queued, "Q")
    if not any(event.kind == "S" and event.at == start for event in events):
        later = [index for index, event in enumerate(events) if event.at >= start and event.kind != "Q"]
        events.insert(later[0] if later else len(events), Event(start, "S"))
    return tuple(events)
