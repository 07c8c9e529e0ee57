"""Source `dqs`: finished jobs of the Distributed Queueing System, from its act_file.

Promise kept here: one record a run is published, and every line of the act_file is tallied in a report, once, in
whatever order and however far apart the lines of a job are written.

A line is written for every queue that a job held; one of them says that it is the master's, and is the run: queue,
times and exit are its. The slaves' lines are folded into its record: CPU as a sum, memory as the largest, hosts as
their union, as with Grid Engine, which descends from DQS.

Reports tally each line, as DQS' own programs do. So each slave's line is stored by itself as well, as a `slave`, which
depends on nothing but the line; of a run with slaves reports count the master's line alone (`without_slaves`).

No document says in which order the lines of a job are written, so any will do: slaves' lines wait for their master's,
of 1 024 jobs, however many others come meanwhile; the last 1 024 runs are remembered, in the cursor too, since a
slave's line that comes behind its master's gives the run again, with the slave in it. What comes later still, or never
finds its master, is in no record, and told.

A run's record is known by job number and start. A master's line that shares both with one of the runs remembered and is
another line is another run: counters of job numbers begin anew, and nothing says that a job has one master's line. It
goes under an id of its own; of one job the slaves stay with the first.
(DQS accounting manual, "Accounting Files"; the facts on sources, 3.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from publisher import config
from publisher.sources.base import required_path
from publisher.sources.dqs_act import ActError, ActLine, parse_line, run_of, slave_of
from publisher.sources.lines import Line, LineSource, Outcome, Refused
from publisher.sources.logfile import LogReader

MOST_JOBS: Final = 1_024
MOST_SLAVES: Final = 4_096
"""Of one run."""
MOST_LINES: Final = 16_384
"""Of slaves, of all jobs that wait, and of all runs that are remembered."""
_IN_NO_RECORD: Final = "reports count what they used, no record has it"
_NAMES: Final = re.compile(r"act_file(?:[._-](?:\d[\d._T-]*|old))?", re.ASCII)


class _Seen(msgspec.Struct):
    """The lines of a run that were met so far. `beside`: another run has its number and start."""

    master: ActLine | None = None
    slaves: list[ActLine] = []
    beside: bool = False

    def takes(self, line: ActLine) -> bool:
        """Whether a line of the same job is of this run and not of a later one."""
        if self.master is None:
            return not line.master or all(slave.end >= line.start for slave in self.slaves)
        if line.master:
            return line.start == self.master.start
        return line.start <= self.master.end and line.end >= self.master.start


class _Jobs:
    """The lines of the last jobs, by job; the oldest are given up where there are too many jobs or lines."""

    def __init__(self, jobs: Mapping[str, _Seen]) -> None:
        self.jobs: dict[str, _Seen] = {}
        self.masters: dict[tuple[int, int], ActLine] = {}
        """Of those that are not beside another, by number and start."""
        self.lines = 0
        for key, seen in jobs.items():
            self.put(key, seen)

    def put(self, key: str, seen: _Seen) -> list[_Seen]:
        """Keep the lines of a job, as the last; those that are given up for it."""
        self.jobs[key] = seen
        self.lines += len(seen.slaves)
        if seen.master is not None and not seen.beside:
            self.masters[seen.master.job_number, seen.master.start] = seen.master
        given_up: list[_Seen] = []
        while len(self.jobs) > MOST_JOBS or (self.lines > MOST_LINES and len(self.jobs) > 1):
            oldest = self.take(next(iter(self.jobs)))
            given_up += [oldest] if oldest is not None else []
        return given_up

    def take(self, key: str) -> _Seen | None:
        """The lines of a job, which are no longer kept."""
        seen = self.jobs.pop(key, None)
        if seen is not None:
            self.lines -= len(seen.slaves)
            if seen.master is not None and not seen.beside:
                self.masters.pop((seen.master.job_number, seen.master.start), None)
        return seen


class DqsParser:
    """Lines of an act_file."""

    reads: frozenset[str] = frozenset({"dqs"})

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._alone = _Jobs({})
        """Jobs whose master's line has not come."""
        self._whole = _Jobs({})
        """The last jobs that were given as runs."""

    def file_begins(self, file: str) -> None:
        """The lines of a job may lie in different files."""

    def state(self) -> Any:
        """The lines of the last jobs, and of those that wait."""
        seen = self._alone.jobs | self._whole.jobs
        return msgspec.to_builtins(seen) if seen else None

    def resume(self, state: Any) -> None:
        """Go on as `state()` was; anything else is taken as nothing."""
        try:
            seen = {} if state is None else msgspec.convert(state, dict[str, _Seen])
        except msgspec.ValidationError:
            seen = {}
        self._alone = _Jobs({key: one for key, one in seen.items() if one.master is None})
        self._whole = _Jobs({key: one for key, one in seen.items() if one.master is not None})

    def waiting(self) -> str | None:
        """How many slaves' lines wait for their master's."""
        lines, jobs = self._alone.lines, len(self._alone.jobs)
        if not jobs:
            return None
        return f"slave lines ({lines}) of jobs ({jobs}) whose master's line has not come: in reports, and in no record"

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """What a line is: see `publisher.sources.lines.LineParser`."""
        if not line.strip():
            return Line.IGNORED
        try:
            act = parse_line(line.decode(errors="backslashreplace"))
        except ActError as error:
            return Refused(str(error))
        if act.start == 0:
            return Line.SKIPPED
        key = f"{act.dqs_job_name}:{act.job_number}:{act.submit}"
        also: list[Outcome] = [] if act.master else [slave_of(act, self._cluster)]
        beside = act.master == 1 and self._whole.masters.get((act.job_number, act.start), act) != act
        seen = self._alone.take(key) or self._whole.take(key)
        if seen is None or not seen.takes(act):
            also += _given_up(seen)
            seen = _Seen()
        if act.master and seen.master is not None and seen.master != act:
            also.append(run_of(act, [], self._cluster, beside=True))
        elif act.master:
            seen.beside = beside or (seen.master is not None and seen.beside)
            seen.master = act
        elif act not in seen.slaves:
            if len(seen.slaves) < MOST_SLAVES:
                seen.slaves.append(act)
            else:
                also.append(Refused(f"job {act.job_number} has more than {MOST_SLAVES} slaves; {_IN_NO_RECORD}"))
        kept = self._alone if seen.master is None else self._whole
        for oldest in kept.put(key, seen):
            also += _given_up(oldest)
        if seen.master is not None:
            also.insert(0, run_of(seen.master, seen.slaves, self._cluster, beside=seen.beside))
        return also if len(also) > 1 else also[0]


class DqsSource(LineSource):
    """An act_file with its rotated copies, its folder, or a pattern."""

    def __init__(self, name: str, settings: config.Source) -> None:
        path = required_path(name, settings, "DQS' act_file", "/usr/local/DQS/common/act_file")
        reader = LogReader(path, _NAMES if path.is_dir() else None)
        cluster = settings.cluster or "default"
        super().__init__(name, "dqs", reader, lambda: DqsParser(cluster), complete_since=settings.complete_since)


def _given_up(seen: _Seen | None) -> list[Outcome]:
    if seen is None or seen.master is not None or not seen.slaves:
        return []
    first = seen.slaves[0]
    reason = f"slave lines ({len(seen.slaves)}) of job {first.job_number} had no master's line; {_IN_NO_RECORD}"
    return [Refused(reason, msgspec.json.encode(seen.slaves)[:65_536])]
