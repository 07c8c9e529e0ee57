"""Lines of DQS' act_file, the run that a job's lines tell together, and what reports count of each.

Pure. A line has 31 fields between colons; nothing is escaped, so a line with more or fewer cannot be understood.
(DQS accounting manual, "Accounting Files".)
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from formats.identity import run_record_id
from formats.job import Host, Job
from publisher.sources.gridengine_run import LARGEST, RUSAGE, Extras, measures_of, with_measures

FIELDS: Final = 31
SEVERAL_LINES: Final = b"]],["
"""In `extras["act_lines"]` of every run that has slaves' lines in it, and so in the run as it is stored."""
_OF_ALL_LINES: Final = ("hosts", "nodes", "slots", "cpu_ms", "cpu_user_ms", "cpu_system_ms", "memory_rss_kib")
"""What a run has of its slaves."""
_LINE_BYTES: Final = 12
_MOST_DIGITS: Final = 15
_CUT_IN_TEXT: Final = frozenset({4, 7})


class ActError(ValueError):
    """A line is no line of an act_file; the message says why."""


class CutActError(ActError):
    """The line ends within the complexes or the job name: a line feed in it may have broken the record."""


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


def parse_line(text: str) -> ActLine:
    """A line without its line feed. Raises `ActError`."""
    fields = text.rstrip("\r").split(":")
    if len(fields) != FIELDS:
        error = CutActError if len(fields) in _CUT_IN_TEXT else ActError
        raise error(f"a line of an act_file has {FIELDS} fields, this one has {len(fields)}")
    for place in (2, *range(8, FIELDS)):
        digits = fields[place]
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
            raise ActError(f"field {place + 1} should be a whole number that is not negative")
    numbers = [int(digits) for digits in fields[8:]]
    job_number, submit, start, end, exit_status = numbers[:5]
    if start and end < start:
        raise ActError("the run ends before it starts" if end else "the run started and has no end")
    if fields[2] not in ("0", "1"):
        raise ActError("field 3 should be 0 or 1: whether this is the master's line")
    return ActLine(
        fields[0], fields[1], int(fields[2]), fields[3], fields[4], fields[5], fields[6], fields[7],
        job_number, submit, start, end, exit_status, tuple(numbers[5:]),
    )  # fmt: skip


def run_of(master: ActLine, slaves: list[ActLine], cluster: str) -> Job:
    """The run of a job's lines. `extras["act_lines"]` keeps them all."""
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
    """The line of a slave as reports count it: a run that is no record. Its id is a function of all of the line."""
    told = blake2b(msgspec.json.encode(line), digest_size=_LINE_BYTES).hexdigest()
    record_id = run_record_id("dqs", cluster, str(line.job_number), line.start, f"slave-{told}")
    return msgspec.structs.replace(run_of(line, [], cluster), record_id=record_id, slave=True)


def act_lines(job: Job) -> list[ActLine]:
    """The lines of the act_file that a run of DQS was made of, the master's first."""
    return msgspec.json.decode(str(job.extras.get("act_lines", "[]")), type=list[ActLine])


def without_slaves(job: Job) -> Job:
    """A run as reports count it: of DQS what its master's line tells, since its slaves are counted by themselves."""
    if job.system != "dqs" or len(lines := act_lines(job)) < 2:
        return job
    alone = run_of(lines[0], [], job.cluster or "")
    return msgspec.structs.replace(job, **{name: getattr(alone, name) for name in _OF_ALL_LINES})
