"""Source `lsf`: runs from LSF's lsb.acct and its archived copies lsb.acct.1, lsb.acct.2 ...

A record whose quoted text contains line feeds is put together from its lines. A record that never ends affects only
itself: the next one is known by its beginning.

Fields are separated by blanks; text is in double quotes, with a quote doubled. Positions shift by the numbers of hosts
asked for and used. Fields that LSF 7, 8, 9, and 10 added come last; older and cut-off records lack them. (The facts on
sources, 9; the manual of lsb.acct for LSF 6.2, 8, 9.1 and 10.1.)
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from formats.identity import run_record_id
from formats.job import Host, Job, Status
from publisher.config.sources import SourceSettings
from publisher.finding import Finding
from publisher.sources.base import Line, Outcome, UnreadableLine, required_path
from publisher.sources.fields import LineError, decoded, instant, integer
from publisher.sources.logs.lines import LineSource
from publisher.sources.logs.reader import LogReader

MAX_SLOTS: Final = 10_000_000

_TYPE: Final = re.compile(rb'"([A-Z][A-Z0-9_]{2,40})" "')
_FIELD: Final = re.compile(r'(?:"(?:[^"]|"")*"|[^" \r\n]+)(?= |\r?$)')
_CSV_CHARACTERS: Final = 131_072
_HOST: Final = re.compile(r"(?:(\d{1,8})\*)?(\S+)", re.ASCII)
_SECONDS: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?", re.ASCII)

_RUSAGE: Final = (
    "ru_maxrss", "ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap", "ru_inblock",
    "ru_oublock", "ru_ioch", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw", "ru_exutime",
)  # fmt: skip
_FIXED: Final = 23
"""The number of fields before the hosts asked for, including their number."""

_LEAST: Final = 35
"""The number of fields after the hosts used in the oldest known version. None of the numbers that are used is the last
field, which may be cut.
"""

_EXITS: Final = (
    "TERM_UNKNOWN", "TERM_PREEMPT", "TERM_WINDOW", "TERM_LOAD", "TERM_OTHER", "TERM_RUNLIMIT", "TERM_DEADLINE",
    "TERM_PROCESSLIMIT", "TERM_FORCE_OWNER", "TERM_FORCE_ADMIN", "TERM_REQUEUE_OWNER", "TERM_REQUEUE_ADMIN",
    "TERM_CPULIMIT", "TERM_CHKPNT", "TERM_OWNER", "TERM_ADMIN", "TERM_MEMLIMIT", "TERM_EXTERNAL_SIGNAL", "TERM_RMS",
    "TERM_ZOMBIE", "TERM_SWAP", "TERM_THREADLIMIT", "TERM_SLURM", "TERM_BUCKET_KILL", "TERM_CTRL_PID",
    "TERM_CWD_NOTEXIST",
)  # fmt: skip
_LATER_EXITS: Final = {30: "TERM_MC_RECALL", 31: "TERM_RC_RECLAIM", 32: "TERM_CSM_ALLOC"}
_CANCELLED: Final = frozenset({"TERM_OWNER", "TERM_ADMIN", "TERM_FORCE_OWNER", "TERM_FORCE_ADMIN"})
_ABORTED: Final = frozenset(
    {
        "TERM_PREEMPT", "TERM_WINDOW", "TERM_LOAD", "TERM_REQUEUE_OWNER", "TERM_REQUEUE_ADMIN", "TERM_CHKPNT",
        "TERM_ZOMBIE", "TERM_CTRL_PID", "TERM_MC_RECALL", "TERM_RC_RECLAIM", "TERM_CSM_ALLOC",
    }
)  # fmt: skip
_EXIT, _DONE = 32, 64


def record_type(raw: bytes) -> str | None:
    """The type of the record that begins with this line, such as JOB_FINISH; None: no record begins here."""
    match = _TYPE.match(raw)
    return match[1].decode() if match else None


def goes_on(raw: bytes) -> bool:
    """True if a quoted text is open at the end: the record continues in the next line."""
    return raw.count(b'"') % 2 == 1


def fields(raw: bytes) -> list[str]:
    """The fields of a record. Raises `LineError`."""
    text = decoded(raw)
    if len(text) > _CSV_CHARACTERS:
        return _long_fields(text)
    try:
        rows = list(csv.reader([text], delimiter=" ", strict=True))
    except csv.Error as error:
        raise LineError(f"cannot be split into fields: {error}") from None
    if len(rows) != 1:
        raise LineError("cannot be split into fields")
    return rows[0]


def _long_fields(text: str) -> list[str]:
    """The fields of a record with a field longer than the limit of module csv, which is one for the whole process."""
    texts = _FIELD.findall(text)
    if _FIELD.sub("", text).strip(" "):
        raise LineError("cannot be split into fields")
    return [each[1:-1].replace('""', '"') if each[0] == '"' else each for each in texts]


def run(record: Sequence[str], cluster: str | None) -> Job | None:
    """The run of a JOB_FINISH record; None: the job never started. Raises `LineError`."""
    number, start, end, submit = (integer(record[at]) if len(record) > at else None for at in (3, 10, 2, 7))
    if number is None or start is None or end is None or submit is None:
        raise LineError("cut off, or job id or times are not numbers")
    asked = _length(record, _FIXED - 1)
    at = _FIXED + asked
    used = _length(record, at)
    hosts = record[at + 1 : at + 1 + used]
    at += 1 + used
    if len(record) < at + _LEAST:
        raise LineError(f"cut off: {len(record)} fields, a job with this many hosts has at least {at + _LEAST}")
    if start <= 0:
        return None
    if end < start:
        raise LineError(f"ends at {end}, before its start at {start}")
    by_host = _slots(hosts)
    slots = sum(by_host.values()) if by_host else integer(record[6])
    user_ms, system_ms = _milliseconds(record[at + 4]), _milliseconds(record[at + 5])
    task = integer(record[at + 29]) or 0
    local = f"{number}[{task}]" if task > 0 else str(number)
    exit_status = integer(record[at + 25])
    code = signal = None
    if exit_status is not None and exit_status >= 0:
        signal = exit_status & 127 or None
        code = exit_status >> 8 if signal is None else None
    exit_info = integer(_at(record, at + 38))
    status, reason = _ending(integer(record[at]), exit_info)
    return Job(
        record_id=run_record_id("lsf", cluster or "", local, start),
        system="lsf",
        status=status,
        local_id=local,
        name=record[at + 2] or None,
        array_id=str(number) if task > 0 else None,
        array_task=task if task > 0 else None,
        local_user=record[11] or None,
        project=record[at + 24] or None,
        cluster=cluster,
        queue=record[12] or None,
        client_host=record[16] or None,
        hosts=tuple([Host(name, count) for name, count in by_host.items()]),
        nodes=len(by_host) or None,
        cores=slots,
        slots=slots,
        submit=instant(record[7]),
        start=start,
        end=end,
        wall_ms=(end - start) * 1000,
        cpu_ms=None if user_ms is None or system_ms is None else user_ms + system_ms,
        cpu_user_ms=user_ms,
        cpu_system_ms=system_ms,
        memory_rss_kib=_known(_at(record, at + 30)),
        memory_virtual_kib=_known(_at(record, at + 31)),
        exit_code=code,
        exit_signal=signal,
        end_reason=reason,
        extras=_extras(record, at),
    )


def _at(record: Sequence[str], index: int) -> str:
    return record[index] if index < len(record) else ""


def _length(record: Sequence[str], index: int) -> int:
    """The number of fields that follow."""
    count = integer(_at(record, index))
    if count is None or count < 0 or index + count >= len(record):
        raise LineError("cut off, or the number of hosts is not a number")
    return count


def _slots(hosts: Sequence[str]) -> dict[str, int]:
    """Slots by host of `16*n1`, or of a host repeated once for each slot."""
    by_host: dict[str, int] = {}
    for host in hosts:
        match = _HOST.fullmatch(host)
        if match is None:
            raise LineError("a host is not of the form host or 16*host")
        by_host[match[2]] = by_host.get(match[2], 0) + int(match[1] or 1)
    if sum(by_host.values()) > MAX_SLOTS:
        raise LineError("more slots than any job has")
    return by_host


def _milliseconds(text: str) -> int | None:
    """Milliseconds of seconds; LSF writes -1 for unknown."""
    if not _SECONDS.fullmatch(text):
        raise LineError("a CPU time is not a number")
    seconds = float(text)
    return None if seconds < 0 else round(seconds * 1000)


def _known(text: str) -> int | None:
    number = integer(text)
    return None if number is None or number < 0 else number


def _ending(job_status: int | None, exit_info: int | None) -> tuple[Status, str | None]:
    reason = None
    if exit_info:
        known = _EXITS[exit_info] if 0 < exit_info < len(_EXITS) else _LATER_EXITS.get(exit_info)
        reason = known or f"exitInfo {exit_info}"
    if job_status is not None and job_status & _DONE:
        return "completed", reason
    if reason in _CANCELLED:
        return "cancelled", reason
    if reason in _ABORTED:
        return "aborted", reason
    if job_status is not None and job_status & _EXIT:
        return "failed", reason
    return "aborted", reason or f"jStatus {job_status}"


def _extras(record: Sequence[str], at: int) -> dict[str, int | float | str]:
    """Values without a field of their own; paths and the command are omitted, since they may contain secrets."""
    extras: dict[str, int | float | str] = {
        "version": record[1],
        "numProcessors": record[6],
        "hostFactor": record[at + 1],
    }
    figures = record[at + 6 : at + 6 + len(_RUSAGE)]
    extras.update({name: figure for name, figure in zip(_RUSAGE, figures, strict=True) if figure != "-1"})
    for name, offset in (
        ("maxNumProcessors", 26), ("rsvId", 34), ("sla", 35), ("exceptMask", 36), ("additionalInfo", 37),
        ("chargedSAAP", 41), ("licenseProject", 42), ("app", 43), ("jobGroupName", 46),
    ):  # fmt: skip
        value = _at(record, at + offset)
        if value not in {"", "0"}:
            extras[name] = value
    if record[13]:
        extras["resReq"] = record[13]
    run_time = _run_time(record, at)
    if run_time is not None:
        extras["runTime"] = run_time
    return extras


def _run_time(record: Sequence[str], at: int) -> int | None:
    """Seconds of running, without suspensions, which LSF 9 and 10 write after two lists; None: missing."""
    pairs = integer(_at(record, at + 53))
    if pairs is None or not 0 <= pairs <= len(record):
        return None
    at += 54 + 2 * pairs
    for _ in range(min(_known(_at(record, at)) or 0, len(record))):
        at += 6 + 2 * (_known(_at(record, at + 6)) or 0)
        if at >= len(record):
            return None
    return _known(_at(record, at + 14))


MAX_RECORD_BYTES: Final = 131_072

_TOO_LONG: Final = f"the record is longer than {MAX_RECORD_BYTES} bytes"
_NAMES: Final = re.compile(r"lsb\.acct(?:[._-][\w.-]+)?", re.ASCII)


class LsfParser:
    """A `LineParser` of lsb.acct."""

    reads = frozenset({"lsf"})
    has_header = False

    def __init__(self, cluster: str | None) -> None:
        self._cluster = cluster
        self._begun: list[bytes] = []
        self._bytes = 0
        self._passes_over = False
        """Whether the lines of a record that is too long are skipped."""

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """See `publisher.sources.logs.line_parser.LineParser`."""
        kind = record_type(line)
        if not self._begun and not self._passes_over:
            return self._begins(line, kind) if line.strip() else Line.IGNORED
        if kind is not None:  # a quote in a text is doubled, so no line of a text begins like this
            given_up = [] if self._passes_over else [self._given_up("a quoted text in it is never closed", present=0)]
            self._passes_over = False
            return [*given_up, self._begins(line, kind)]
        ends = goes_on(line)
        if self._passes_over:
            self._passes_over = not ends
            return Line.IGNORED
        self._keep(line)
        if self._bytes > MAX_RECORD_BYTES:
            self._passes_over = not ends
            return self._given_up(f"{_TOO_LONG}, or a quoted text in it is never closed", present=1)
        if not ends:
            return Line.MORE
        whole, back = b"\n".join(self._begun), len(self._begun) - 1
        self._forget()
        outcome = self._record(whole, record_type(whole))
        return (
            msgspec.structs.replace(outcome, raw=whole, back=back) if isinstance(outcome, UnreadableLine) else outcome
        )

    def file_begins(self, file: str) -> None:
        """Nothing depends on the file."""

    def state(self) -> Any:
        """The incomplete record, one character for each byte; True while one that is too long is skipped."""
        return b"\n".join(self._begun).decode("latin-1") if self._begun else self._passes_over or None

    def resume(self, state: Any) -> None:
        """Continue with an incomplete record."""
        self._forget()
        self._passes_over = state is True
        if isinstance(state, str) and state:
            try:
                for line in state.encode("latin-1").split(b"\n"):
                    self._keep(line)
            except UnicodeEncodeError:
                self._forget()

    def waiting(self) -> str | None:
        """The incomplete record, if there is one."""
        return "a record with a quoted text that is not closed yet" if self._begun or self._passes_over else None

    def _keep(self, line: bytes) -> None:
        self._begun.append(line)
        self._bytes += len(line) + 1

    def _forget(self) -> None:
        self._begun, self._bytes = [], 0

    def _given_up(self, reason: str, present: int) -> UnreadableLine:
        """Refuse the incomplete record. `present`: 1 if the present line is its last, 0 if the previous one is."""
        whole, back = b"\n".join(self._begun), len(self._begun) - present
        self._forget()
        return UnreadableLine(reason, raw=whole[:MAX_RECORD_BYTES], back=back)

    def _begins(self, line: bytes, kind: str | None) -> Outcome:
        if kind is not None and goes_on(line):
            self._keep(line)
            return Line.MORE
        return self._record(line, kind)

    def _record(self, raw: bytes, kind: str | None) -> Outcome:
        if kind is None:
            return UnreadableLine("does not begin with the type of a record and a version")
        if kind != "JOB_FINISH":
            return Line.SKIPPED
        try:
            job = run(fields(raw), self._cluster)
        except LineError as error:
            return UnreadableLine(str(error))
        return Line.SKIPPED if job is None else job


class LsfSource(LineSource):
    """The lsb.acct of an LSF cluster with its archived copies, or the folder that contains them."""

    def __init__(self, name: str, settings: SourceSettings) -> None:
        path = required_path(name, settings, "lsb.acct", "/usr/share/lsf/work/cluster1/logdir/lsb.acct")
        cluster = settings.cluster
        reader = LogReader(path, _NAMES, settings.rotated_to, "file named lsb.acct")
        super().__init__(name, "lsf", reader, lambda: LsfParser(cluster), complete_since=settings.complete_since)
        self._cluster = cluster

    def check(self) -> list[Finding]:
        """Check the log, and whether the cluster has a name, since LSF's records do not have it."""
        findings = super().check()
        if self._cluster is None:
            hint = "Set `cluster` to the name that lsid shows, before the first job is published"
            findings.append(
                Finding(self.name, "yellow", "the cluster has no name: ids of two clusters could be equal", hint)
            )
        return findings
