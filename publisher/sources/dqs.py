"""Source `dqs`: finished jobs of the Distributed Queueing System, from its act_file.

Promise kept here: one record a run is published, and every line of the act_file is tallied in a report, once, in
whatever order and however far apart the lines of a job are written.

A line is written for every queue that a job held; one of them says that it is the master's, and is the run: queue,
times and exit are its. The slaves' lines are folded into its record: CPU as a sum, memory as the largest, hosts as
their union, as with Grid Engine, which descends from DQS.

Reports tally each line, as DQS' own programs do. So each slave's line is stored by itself as well, as a `slave`, which
depends on nothing but the line; of a run with slaves reports count the master's line alone (`without_slaves`).

No document says in which order the lines of a job are written, so any will do: slaves' lines wait for their master's,
of 256 jobs, however many others come meanwhile; the last 256 runs are remembered, in the cursor too, since a slave's
line that comes behind its master's gives the run again, with the slave in it. What comes later still, or never finds
its master, is in no record, and told.
(DQS accounting manual, "Accounting Files"; the facts on sources, 3.)
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from publisher import config
from publisher.sources.base import required_path
from publisher.sources.broken_record import RecordJoiner
from publisher.sources.dqs_act import FIELDS, ActError, ActLine, CutActError, parse_line, run_of, slave_of
from publisher.sources.fields import LineError, decoded
from publisher.sources.limits import require_short
from publisher.sources.lines import Line, LineSource, Outcome, Refused
from publisher.sources.logfile import LogReader

MOST_JOBS: Final = 256
MOST_SLAVES: Final = 4_096
_IN_NO_RECORD: Final = "reports count what they used, no record has it"
_HELD: Final = "held"
_JOBS: Final = "jobs"
_NAMES: Final = re.compile(r"act_file(?:[._-](?:\d[\d._T-]*|old))?", re.ASCII)


class _Seen(msgspec.Struct):
    """The lines of a run that were met so far."""

    master: ActLine | None = None
    slaves: list[ActLine] = []

    def takes(self, line: ActLine) -> bool:
        """Whether a line of the same job is of this run and not of a later one."""
        if self.master is None:
            return not line.master or all(slave.end >= line.start for slave in self.slaves)
        if line.master:
            return line.start == self.master.start
        return line.start <= self.master.end and line.end >= self.master.start


class DqsParser:
    """Lines of an act_file."""

    reads: frozenset[str] = frozenset({"dqs"})
    joins_lines = False

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._alone: dict[str, _Seen] = {}
        """Jobs whose master's line has not come."""
        self._whole: dict[str, _Seen] = {}
        """The last jobs that were given as runs."""
        self._joiner = RecordJoiner(self.parse, _is_rest)
        self.release = self._joiner.release

    def file_begins(self, file: str) -> None:
        """The lines of a job may lie in different files."""

    def state(self) -> Any:
        """The lines of the last jobs, and of those that wait; with those of a broken record, if there is one."""
        seen, held = self._alone | self._whole, self._joiner.state()
        jobs = msgspec.to_builtins(seen) if seen else None
        return jobs if held is None else {_HELD: held, _JOBS: jobs}

    def resume(self, state: Any) -> None:
        """Go on as `state()` was; anything else is taken as nothing."""
        held = isinstance(state, dict) and state.keys() == {_HELD, _JOBS}
        self._joiner.resume(state[_HELD] if held else None)
        state = state[_JOBS] if held else state
        try:
            seen = {} if state is None else msgspec.convert(state, dict[str, _Seen])
        except msgspec.ValidationError:
            seen = {}
        self._alone = {key: one for key, one in seen.items() if one.master is None}
        self._whole = {key: one for key, one in seen.items() if one.master is not None}

    def waiting(self) -> str | None:
        """How many slaves' lines wait for their master's."""
        if not self._alone:
            return None
        lines = sum(len(seen.slaves) for seen in self._alone.values())
        jobs = len(self._alone)
        return f"slave lines ({lines}) of jobs ({jobs}) whose master's line has not come: in reports, and in no record"

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """What a line is: see `publisher.sources.lines.LineParser`."""
        if self._joiner.holds:
            return self._joiner.take(line)
        if not line.strip():
            return Line.IGNORED
        try:
            act = parse_line(decoded(line))
            for each in (act.queue, act.host, act.complexes, act.group, act.owner, act.name, act.dqs_job_name):
                require_short("a text", each)
        except (ActError, LineError) as error:
            return self._joiner.refused(line, str(error), cut=isinstance(error, CutActError))
        if act.start == 0:
            return Line.SKIPPED
        key = f"{act.dqs_job_name}:{act.job_number}:{act.submit}"
        also: list[Outcome] = [] if act.master else [slave_of(act, self._cluster)]
        seen = self._alone.pop(key, None) or self._whole.pop(key, None)
        if seen is None or not seen.takes(act):
            also += _given_up(seen)
            seen = _Seen()
        if act.master:
            seen.master = act
        elif act not in seen.slaves:
            if len(seen.slaves) < MOST_SLAVES:
                seen.slaves.append(act)
            else:
                also.append(Refused(f"job {act.job_number} has more than {MOST_SLAVES} slaves; {_IN_NO_RECORD}"))
        kept = self._alone if seen.master is None else self._whole
        kept[key] = seen
        while len(kept) > MOST_JOBS:
            also += _given_up(kept.pop(next(iter(kept))))
        if seen.master is not None:
            also.insert(0, run_of(seen.master, seen.slaves, self._cluster))
        return also if len(also) > 1 else also[0]


class DqsSource(LineSource):
    """An act_file with its rotated copies, its folder, or a pattern."""

    def __init__(self, name: str, settings: config.Source) -> None:
        path = required_path(name, settings, "DQS' act_file", "/usr/local/DQS/common/act_file")
        reader = LogReader(path, _NAMES if path.is_dir() else None, settings.rotated_to)
        cluster = settings.cluster or "default"
        super().__init__(name, "dqs", reader, lambda: DqsParser(cluster), complete_since=settings.complete_since)


def _is_rest(first: bytes, line: bytes) -> bool:
    """Whether a line ends the record that begins with the first: it is none itself, and both together are one."""
    if first.count(b":") + line.count(b":") + 1 != FIELDS or line.count(b":") + 1 == FIELDS:
        return False
    try:
        parse_line((first + line).decode(errors="backslashreplace"))
    except ActError:
        return False
    return True


def _given_up(seen: _Seen | None) -> list[Outcome]:
    if seen is None or seen.master is not None or not seen.slaves:
        return []
    first = seen.slaves[0]
    reason = f"slave lines ({len(seen.slaves)}) of job {first.job_number} had no master's line; {_IN_NO_RECORD}"
    return [Refused(reason, msgspec.json.encode(seen.slaves)[:65_536])]
