"""Source `dqs`: finished jobs of the Distributed Queueing System, from its act_file.

A line has 31 fields between colons; nothing is escaped, so a line with another number of fields cannot be understood.
DQS writes a line for every queue that a job held; one of them has the master flag and is the run, with its queue,
times, and exit code. The slaves' lines are added to its record: CPU as a sum, memory as the largest, hosts as their
union, as with Grid Engine, which descends from DQS. So one record for each run is published.

Reports count each line once, as DQS' own programs do. So each slave's line is also stored by itself, as a `slave`,
which depends on nothing but the line; of a run with slaves, reports count the master's line only (`without_slaves`).

The order of a job's lines is not documented, so any order is accepted: slaves' lines of up to 256 jobs wait for their
master's. The last 256 runs are remembered, in the cursor too: a slave's line that comes after its master's gives the
run again, with the slave in it. Lines that come later still, or whose master never comes, are in no record and are
reported. (DQS accounting manual, "Accounting Files"; the facts on sources, 3.)
"""

from __future__ import annotations

import contextlib
import re
from hashlib import blake2b
from typing import Any, Final

import msgspec

from formats.identity import run_record_id
from formats.job import Host, Job
from publisher.config.sources import SourceSettings
from publisher.sources.base import Line, Outcome, UnreadableLine, required_path
from publisher.sources.fields import LineError, decoded
from publisher.sources.gridengine.jobs import LARGEST, RUSAGE, Extras, measures_of, with_measures
from publisher.sources.limits import LimitError, require_short
from publisher.sources.logs.broken_record import RecordJoiner
from publisher.sources.logs.lines import LineSource
from publisher.sources.logs.reader import LogReader

FIELDS: Final = 31
SEVERAL_LINES: Final = b"]],["
"""The key in the extras of every run with slaves' lines, and so in the stored run."""
_OF_ALL_LINES: Final = ("hosts", "nodes", "slots", "cpu_ms", "cpu_user_ms", "cpu_system_ms", "memory_rss_kib")
"""The number of a run's slaves."""
_LINE_BYTES: Final = 12
_MOST_DIGITS: Final = 15
_NUMBERS: Final = 23
"""The fields at the end of a line, all of them whole numbers."""


class ActError(ValueError):
    """A line is not a line of an act_file; the message is the reason."""


class CutActError(ActError):
    """The line does not end as a record does: a line feed in a user's text may have broken the record."""


class ActLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of the act_file: times in epoch seconds, then the 18 `ru_` figures as getrusage(2) gave them."""

    queue: str
    host: str
    master: int
    complexes: str
    group: str
    owner: str
    name: str
    dqs_job_name: str
    job_number: int
    submit: int
    start: int
    end: int
    exit_status: int
    rusage: tuple[int, ...]

    @property
    def user_s(self) -> int:
        """User time, seconds."""
        return self.rusage[1]

    @property
    def system_s(self) -> int:
        """System time, seconds."""
        return self.rusage[2]


class ActValueError(ActError):
    """The line has the form of a record, and a value that no record has: see `gridengine.colon.ColonValueError`."""


def is_rest(line: bytes) -> bool:
    """Whether a line that is not a record ends as one does. It may begin in any way: a user may have written that."""
    return _ends_as_record(line.decode("latin-1").rstrip("\r").split(":"))


def _ends_as_record(fields: list[str]) -> bool:
    return len(fields) > _NUMBERS and all(field.isascii() and field.isdecimal() for field in fields[-_NUMBERS:])


def parse_line(text: str) -> ActLine:
    """A line without its line feed. Raises `ActError`."""
    fields = text.rstrip("\r").split(":")
    if len(fields) != FIELDS:
        # All up to a user's text may be there: a line that begins as a record, unless it was joined of several.
        begins = fields[2:3] in (["0"], ["1"]) and "\n" not in text
        error = CutActError if begins or not _ends_as_record(fields) else ActError
        raise error(f"a line of an act_file has {FIELDS} fields, this one has {len(fields)}")
    for place in (2, *range(8, FIELDS)):
        digits = fields[place]
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
            raise ActError(f"field {place + 1} should be a whole number that is not negative")
    numbers = [int(digits) for digits in fields[8:]]
    job_number, submit, start, end, exit_status = numbers[:5]
    if start and end < start:
        raise ActValueError("the job ends before it starts" if end else "the job started and has no end")
    if fields[2] not in ("0", "1"):
        raise ActError("field 3 should be 0 or 1: 1 for the master's line")
    return ActLine(
        fields[0], fields[1], int(fields[2]), fields[3], fields[4], fields[5], fields[6], fields[7],
        job_number, submit, start, end, exit_status, tuple(numbers[5:]),
    )  # fmt: skip


def run_of(master: ActLine, slaves: list[ActLine], cluster: str) -> Job:
    """The run of a job's lines. `extras["act_lines"]` contains them all."""
    lines = [master, *slaves]
    extras = with_measures(_rusage(master), (measures_of(_rusage(slave)) for slave in slaves))
    if master.complexes:
        extras["complex"] = master.complexes
    extras["dqs_job_name"] = master.dqs_job_name
    extras["act_lines"] = msgspec.json.encode(lines).decode()
    user_ms = 1000 * sum(line.user_s for line in lines)
    system_ms = 1000 * sum(line.system_s for line in lines)
    hosts: dict[str, int] = {}
    for line in lines:
        hosts[line.host] = hosts.get(line.host, 0) + 1
    return Job(
        record_id=run_record_id("dqs", cluster, str(master.job_number), master.start),
        system="dqs",
        status="completed" if master.exit_status == 0 else "failed",
        local_id=str(master.job_number),
        name=master.name or None,
        local_user=master.owner or None,
        local_group=master.group or None,
        cluster=cluster,
        queue=master.queue or None,
        hosts=tuple(Host(name, slots) for name, slots in hosts.items()),
        nodes=len(hosts),
        slots=len(lines),
        submit=master.submit or None,
        start=master.start,
        end=master.end,
        wall_ms=(master.end - master.start) * 1000,
        cpu_ms=min(user_ms + system_ms, LARGEST),
        cpu_user_ms=min(user_ms, LARGEST),
        cpu_system_ms=min(system_ms, LARGEST),
        memory_rss_kib=max(line.rusage[3] for line in lines) or None,
        exit_code=master.exit_status,
        extras=extras,
    )


def _rusage(line: ActLine) -> Extras:
    return dict(zip(RUSAGE, line.rusage, strict=True))


def slave_of(line: ActLine, cluster: str) -> Job:
    """The line of a slave as reports count it: a run that is not a record. Its id is a function of the whole line."""
    digest = blake2b(msgspec.json.encode(line), digest_size=_LINE_BYTES).hexdigest()
    record_id = run_record_id("dqs", cluster, str(line.job_number), line.start, f"slave-{digest}")
    return msgspec.structs.replace(run_of(line, [], cluster), record_id=record_id, slave=True)


def act_lines(job: Job) -> list[ActLine]:
    """The lines of the act_file from which a run of DQS was made, the master's first."""
    return msgspec.json.decode(str(job.extras.get("act_lines", "[]")), type=list[ActLine])


def without_slaves(job: Job) -> Job:
    """A run as reports count it: of DQS the master's line only, since its slaves are counted by themselves."""
    if job.system != "dqs" or len(lines := act_lines(job)) < 2:
        return job
    alone = run_of(lines[0], [], job.cluster or "")
    return msgspec.structs.replace(job, **{name: getattr(alone, name) for name in _OF_ALL_LINES})


# They are in the cursor, which is written with each page.
MOST_JOBS: Final = 256
MOST_SLAVES: Final = 4_096
_IN_NO_RECORD: Final = "reports count their usage, but no record has it"
_HELD: Final = "held"
_JOBS: Final = "jobs"
_NAMES: Final = re.compile(r"act_file(?:[._-](?:\d[\d._T-]*|old))?", re.ASCII)


class _PartialRun(msgspec.Struct):
    """The lines of a run that were read so far."""

    master: ActLine | None = None
    slaves: list[ActLine] = []
    doubtful: list[ActLine] = []
    """Those of the slaves that a user may have written."""

    def takes(self, line: ActLine) -> bool:
        """Whether a line of the same job belongs to this run and not to a later one."""
        if self.master is None:
            return not line.master or all(slave.end >= line.start for slave in self.slaves)
        if line.master:
            return line.start == self.master.start
        return line.start <= self.master.end and line.end >= self.master.start


class DqsParser:
    """Lines of an act_file."""

    reads: frozenset[str] = frozenset({"dqs"})
    joins_lines = False
    has_header = False

    def __init__(self, cluster: str, *, most_jobs: int = MOST_JOBS, most_slaves: int = MOST_SLAVES) -> None:
        self._cluster = cluster
        self._most_jobs, self._most_slaves = most_jobs, most_slaves
        self._alone: dict[str, _PartialRun] = {}
        """Jobs whose master's line is missing."""
        self._whole: dict[str, _PartialRun] = {}
        """The last jobs that were given as runs."""
        self._joiner = RecordJoiner(self.parse, _completes, is_rest, self.alone, doubt=self.doubt)
        self.release = self._joiner.release

    def doubt(self, line: bytes) -> UnreadableLine | None:
        """See `publisher.sources.logs.line_parser.MergingParser`. The line itself was given as suspect."""
        with contextlib.suppress(ActError, LineError):
            act = parse_line(decoded(line))
            partial = self._alone.get(_key(act)) or self._whole.get(_key(act))
            if partial is not None and act in partial.slaves and act not in partial.doubtful:
                partial.doubtful.append(act)
        return None

    def alone(self, line: bytes) -> Job | None:
        """See `publisher.sources.logs.line_parser.RunParser`: of a master's line."""
        try:
            act = parse_line(decoded(line))
        except (ActError, LineError):
            return None
        return run_of(act, [], self._cluster) if act.master and act.start else None

    def after_too_long(self, first: bytes, last: bytes) -> list[Outcome]:  # noqa: ARG002
        """See `publisher.sources.logs.line_parser.RunParser`: any line may be the rest."""
        return self._joiner.give_up()

    def file_begins(self, file: str) -> None:
        """The lines of a job may be in different files."""

    def state(self) -> Any:
        """The lines of the last jobs and of those that wait, and those of a broken record, if there is one."""
        partial, held = self._alone | self._whole, self._joiner.state()
        jobs = msgspec.to_builtins(partial) if partial else None
        return jobs if held is None else {_HELD: held, _JOBS: jobs}

    def resume(self, state: Any) -> None:
        """Continue from `state()`; anything else counts as empty."""
        held = isinstance(state, dict) and state.keys() == {_HELD, _JOBS}
        self._joiner.resume(state[_HELD] if held else None)
        state = state[_JOBS] if held else state
        try:
            partial = {} if state is None else msgspec.convert(state, dict[str, _PartialRun])
        except msgspec.ValidationError:
            partial = {}
        self._alone = {key: one for key, one in partial.items() if one.master is None}
        self._whole = {key: one for key, one in partial.items() if one.master is not None}

    def waiting(self) -> str | None:
        """How many slaves' lines wait for their master's."""
        if not self._alone:
            return None
        lines = sum(len(partial.slaves) for partial in self._alone.values())
        jobs = len(self._alone)
        return f"slave lines ({lines}) of jobs ({jobs}) without a master's line so far: in reports, but in no record"

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """See `publisher.sources.logs.line_parser.LineParser`."""
        if self._joiner.holds:
            return self._joiner.take(line)
        if not line.strip():
            return Line.IGNORED
        try:
            act = parse_line(decoded(line))
            _require_short(act)
        except (ActError, LineError) as error:
            whole = isinstance(error, ActValueError | LimitError)
            return self._joiner.refused(line, str(error), cut=isinstance(error, CutActError), whole=whole)
        # It never started: with a start of 1970 it would have used its slots for decades.
        if act.start == 0:
            return Line.SKIPPED
        key = _key(act)
        also: list[Outcome] = [] if act.master else [slave_of(act, self._cluster)]
        partial = self._alone.pop(key, None) or self._whole.pop(key, None)
        if partial is None or not partial.takes(act):
            also += _unreadable_slaves(partial)
            partial = _PartialRun()
        if act.master:
            partial.master = act
        # A log that is read again after a copy has the same lines: added twice, the slave would count twice.
        elif act not in partial.slaves:
            if len(partial.slaves) < self._most_slaves:
                partial.slaves.append(act)
            else:
                why = f"job {act.job_number} has more than {self._most_slaves} slaves; {_IN_NO_RECORD}"
                also.append(UnreadableLine(why))
        kept = self._alone if partial.master is None else self._whole
        kept[key] = partial
        while len(kept) > self._most_jobs:
            also += _unreadable_slaves(kept.pop(next(iter(kept))))
        if partial.master is not None:
            also[:0] = self._runs_of(partial.master, partial)
        return also if len(also) > 1 else also[0]

    def _runs_of(self, master: ActLine, partial: _PartialRun) -> list[Outcome]:
        """The run, or both that it may be: only a person can know which is right."""
        run = run_of(master, partial.slaves, self._cluster)
        if not partial.doubtful:
            return [run]
        others = [slave for slave in partial.slaves if slave not in partial.doubtful]
        why = f"{len(partial.doubtful)} slave lines of this job may be text of a user"
        return [
            UnreadableLine(f"{why}; with them", suspect=run),
            UnreadableLine(f"{why}; without them", suspect=run_of(master, others, self._cluster)),
        ]


class DqsSource(LineSource):
    """An act_file with its rotated copies, its folder, or a pattern."""

    def __init__(self, name: str, settings: SourceSettings) -> None:
        path = required_path(name, settings, "DQS' act_file", "/usr/local/DQS/common/act_file")
        reader = LogReader(path, _NAMES if path.is_dir() else None, settings.rotated_to, "file named act_file")
        cluster = settings.cluster or "default"
        super().__init__(name, "dqs", reader, lambda: DqsParser(cluster), complete_since=settings.complete_since)


def _require_short(line: ActLine) -> None:
    for each in (line.queue, line.host, line.complexes, line.group, line.owner, line.name, line.dqs_job_name):
        require_short("a text", each)


def _key(line: ActLine) -> str:
    return f"{line.dqs_job_name}:{line.job_number}:{line.submit}"


def _completes(first: bytes, line: bytes) -> bool:
    """Whether a line ends the record that begins with the first: it is not a record, and both together are one."""
    if first.count(b":") + line.count(b":") + 1 != FIELDS or line.count(b":") + 1 == FIELDS:
        return False
    try:
        parse_line((first + line).decode(errors="backslashreplace"))
    except ActError:
        return False
    return True


def _unreadable_slaves(partial: _PartialRun | None) -> list[Outcome]:
    if partial is None or partial.master is not None or not partial.slaves:
        return []
    first = partial.slaves[0]
    reason = f"slave lines ({len(partial.slaves)}) of job {first.job_number} had no master's line; {_IN_NO_RECORD}"
    return [UnreadableLine(reason, msgspec.json.encode(partial.slaves)[:65_536])]
