"""Write and read lines for Open XDMoD's Slurm shredder: 26 fields, `|` between them, one line a run.

XDMoD identifies a row by the resource (20 characters of it), job number (32 bits), array index, submission, and end; of
two with one identity it ignores the second without a word. So a resource name that is longer, or an id that does not
fit, is held. Its wall time is end - start, and its CPU time is that times the cores.

The field ReqTRES, which XDMoD stores and does not use, has the record id: so a line can be found again.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from formats.base import Format, InspectedRecord, InspectedText, Note, Rendered, Violation
from formats.columns import RecordColumns
from formats.fit import shown, unreported
from formats.hosts import machine_name
from formats.job import Job
from formats.names import dn_for
from formats.origin import CORES, RECORD_ID, Origins, origin
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import NumberRule, TextRule
from formats.text import date_time, duration_seconds
from formats.view import View

CONTENT_TYPE: Final = "text/x-sacct"
_SOURCE: Final = "Open XDMoD, table shredded_job_slurm"
_RESOURCE: Final = TextRule("resource", 20, _SOURCE, "hold")
_JOB: Final = NumberRule("JobID", 0, 2**32 - 1, _SOURCE, "hold")
_INDEX: Final = NumberRule("array index", 0, 2**31 - 1, _SOURCE, "hold")
_INSTANT: Final = NumberRule("time", 1, 2**32 - 1, _SOURCE, "hold")
_TEXT_BYTES: Final = 255
"""A column of type `tinytext`."""
_ID: Final = re.compile(r"(\d{1,20})(?:\[(\d{1,20})\]|[._](\d{1,20}))?(?:\.\D.*)?", re.ASCII | re.DOTALL)
"""Ids of batch systems: `12`, `12.server`, `12[3].server`, `12_3`, HTCondor's `12.0`."""
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f|\u2028\u2029\ud800-\udfff\U00010000-\U0010ffff]")
"""What a field cannot hold: separators, control characters, and what is not in MySQL's `utf8`."""
_UNFIT_IN_LAST: Final = re.compile(_UNFIT.pattern.replace("|", "", 1))
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_STATES: Final = {
    "completed": "COMPLETED", "failed": "FAILED", "aborted": "FAILED", "cancelled": "CANCELLED", "lost": "NODE_FAIL",
}  # fmt: skip
_OWN_STATES: Final = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "REVOKED", "TIMEOUT",
    }
)  # fmt: skip
"""The states of Slurm that the shredder takes; it leaves out a run in any other."""
FIELDS: Final = (
    "JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit", "Eligible",
    "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem", "ReqTRES", "AllocTRES",
    "Timelimit", "NodeList", "JobName",
)  # fmt: skip
"""In the order of the shredder, with the names of sacct."""
_FIELDS: Final = len(FIELDS)
_JOB_ID, _CLUSTER, _SUBMIT, _START, _END, _ELAPSED, _RECORD_ID = 0, 2, 10, 12, 13, 14, 21
_PARTITION, _ACCOUNT, _GROUP, _USER, _STATE, _NODES, _CPUS = 3, 5, 6, 8, 16, 17, 18
_ROUNDING_S: Final = 1
"""Batch systems measure the wall time in milliseconds, and start and end in seconds."""
UNKNOWN: Final = "Unknown"
"""Slurm's word for a missing value."""


class XdmodSlurmFormat:
    """Renders runs for one view."""

    name = "xdmod-slurm"
    content_type = f"{CONTENT_TYPE}; charset=utf-8"
    overhead_bytes = separator_bytes = 0

    def __init__(self, view: View) -> None:
        """Raises `ValueError` for a version: the format has only one."""
        if view.version:
            raise ValueError(f"xdmod-slurm has no version {view.version!r}")
        self._view = view

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The lines of a file."""
        return b"".join(bodies)

    def record(self, job: Job, created: int) -> Rendered:  # noqa: ARG002 - this format has no createTime
        """Render one run.

        Raises `CannotRenderError` for a run that has not ended, without times or cores, with an id that is not a number
        of XDMoD, or of a resource with a longer name than XDMoD compares.
        """
        if not job.finished:
            raise CannotRenderError(RuleCode.NOT_PUBLISHED, "State", status=job.status)
        notes: list[Note] = []
        number, job_id = _job_id(job)
        if job.wall_ms is None:
            raise unreported("Elapsed", job.system)
        wall_s = duration_seconds(job.wall_ms)
        end = _instant("End", job.end)
        start = self._start(job, end, wall_s, notes)
        submit = _instant("Submit", job.submit if job.submit is not None else start)
        cores = job.cores or job.slots
        if not cores:
            raise CannotRenderError(RuleCode.MISSING, "NCPUS")
        nodes = job.nodes or len(job.hosts) or 1
        gpus = f",gres/gpu={job.gpus}" if job.gpus else ""
        hosts = ",".join(_NOT_IN_NAME.sub("_", host.name) for host in job.hosts) or UNKNOWN
        account = _fitting("Account", job.account or job.project or job.vo, notes)
        fields = (
            job_id,
            number,
            self._resource(job),
            _fitting("Partition", job.queue, notes),
            "",
            account,
            _fitting("Group", job.local_group or job.vo, notes) or account,
            "",
            _fitting("User", job.local_user or dn_for(job, self._view), notes),
            "",
            _written(submit),
            _written(_instant("Eligible", job.eligible)) if job.eligible else UNKNOWN,
            _written(start),
            _written(end),
            f"{wall_s // 3600:02}:{wall_s // 60 % 60:02}:{wall_s % 60:02}",
            f"{job.exit_code or 0}:{job.exit_signal or 0}",
            _state(job),
            str(nodes),
            str(cores),
            str(cores),
            "",
            quote(job.record_id.encode("utf-8", "surrogateescape"), safe="/:@+=,. "),
            f"cpu={cores},node={nodes}{gpus}",
            "",
            hosts,
            _fitting("JobName", job.name, notes, _UNFIT_IN_LAST, UNKNOWN),
        )
        return Rendered(("|".join(fields) + "\n").encode(), tuple(notes), job.record_id)

    def _resource(self, job: Job) -> str:
        name = _NOT_IN_NAME.sub("_", machine_name(job, self._view))
        if not name:
            raise CannotRenderError(RuleCode.NO_HOST_NAME, _RESOURCE.field)
        if len(name) > _RESOURCE.longest:
            raise CannotRenderError(RuleCode.NAME_OF_RESOURCE, _RESOURCE.field, value=name, longest=_RESOURCE.longest)
        return name

    def _start(self, job: Job, end: int, wall_s: int, notes: list[Note]) -> int:
        """The start, so that end - start is XDMoD's wall time. With `start_from = "wall"` it is that of the run."""
        start = _instant("Start", job.start)
        if end < start:
            raise CannotRenderError(RuleCode.END_BEFORE_START, "End", start=start, end=end)
        if abs(end - start - wall_s) <= _ROUNDING_S:
            return start
        if self._view.start_from == "wall":
            notes.append(Note("Start", "start_from: end - wall time", str(start), str(end - wall_s)))
            return _instant("Start", end - wall_s)
        rule = "XDMoD's wall time is end - start, and differs from the wall time of the job"
        notes.append(Note("Elapsed", rule, str(wall_s), str(end - start)))
        return start


def _job_id(job: Job) -> tuple[str, str]:
    """The job number, and JobID: with the index of an array or of HTCondor's cluster, `12_3`."""
    if job.array_id and job.array_task is not None:
        job_id = f"{job.array_id.partition('[')[0].partition('.')[0]}_{job.array_task}"
        raw = job.local_id if job.local_id and job.local_id.isdigit() else ""
    else:
        job_id, raw = job.local_id or "", ""
    if not job_id:
        raise CannotRenderError(RuleCode.MISSING, _JOB.field)
    parts = _ID.fullmatch(job_id)
    if parts is None:
        raise CannotRenderError(RuleCode.NOT_A_NUMBER, _JOB.field, value=shown(job_id))
    number, index = parts[1], parts[2] or parts[3]
    for rule, digits in ((_JOB, number), (_JOB, raw), (_INDEX, index)):
        if digits and int(digits) > rule.largest:
            raise CannotRenderError(RuleCode.OUT_OF_RANGE, rule.field, rule, value=shown(digits))
    return raw or str(int(number)), str(int(number)) if index is None else f"{int(number)}_{int(index)}"


def _instant(field: str, value: int | None) -> int:
    if value is None:
        raise CannotRenderError(RuleCode.MISSING, field)
    if not _INSTANT.least <= value <= _INSTANT.largest:
        raise CannotRenderError(RuleCode.OUT_OF_RANGE, field, _INSTANT, value=shown(value))
    return value


def _written(instant: int) -> str:
    return date_time(instant).removesuffix("Z")


def _fitting(
    field: str, value: str | None, notes: list[Note], unfit: re.Pattern[str] = _UNFIT, missing: str = UNKNOWN
) -> str:
    """A text of at most 255 bytes, in which characters that a field cannot hold become `_`."""
    if not value:
        return missing
    fitting = unfit.sub("_", value).encode()[:_TEXT_BYTES].decode("utf-8", "ignore")
    if fitting != value:
        notes.append(Note(field, f"unfit characters become _, at most 255 bytes ({_SOURCE})", shown(value), fitting))
    return fitting


def _state(job: Job) -> str:
    own = (job.end_reason or "").partition(" ")[0]
    return own if own in _OWN_STATES else _STATES[job.status]


def key_of(job: Job, view: View) -> Hashable:
    """XDMoD's key of the row of a run: resource, job number with index, submission, and end."""
    try:
        fields = XdmodSlurmFormat(view).record(job, 0).body.split(b"|", _END + 1)
    except CannotRenderError:
        return None
    return fields[_CLUSTER], fields[_JOB_ID], fields[_SUBMIT], fields[_END]


def file_of(line: bytes) -> str:
    """The file of a line, without suffix: its resource and the UTC day of its end."""
    fields = line.split(b"|", _END + 1)
    return f"{fields[_CLUSTER].decode()}-{fields[_END][:10].decode()}"


def record_id_of(line: bytes) -> str:
    """The record id in a line; empty for a line of another program."""
    fields = line.split(b"|", _FIELDS - 1)
    return unquote(fields[_RECORD_ID].decode("ascii", "replace")) if len(fields) == _FIELDS else ""


def _read_line(line: bytes) -> RecordColumns:
    fields = line.decode("utf-8", "replace").split("|", _FIELDS - 1)
    if len(fields) != _FIELDS:
        raise ValueError(f"a line has {len(fields)} fields, not {_FIELDS}")
    end, start = (datetime.fromisoformat(fields[at]).replace(tzinfo=UTC).timestamp() for at in (_END, _START))
    hours, minutes, seconds = fields[_ELAPSED].split(":")
    return RecordColumns(
        record_id=record_id_of(line),
        end=int(end),
        wall_ms=(int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1000,
        cpu_ms=None,
        columns={
            "machine": fields[_CLUSTER],
            "queue": fields[_PARTITION],
            "project": fields[_ACCOUNT],
            "local_user": fields[_USER],
            "start": int(start),
            "nodes": int(fields[_NODES]),
            "processors": int(fields[_CPUS]),
        },
    )


def inspected(text: str) -> InspectedText | None:
    """See `Format.inspected`: the first line has the fields, and a job number."""
    first = text.partition("\n")[0]
    if first.count("|") < _FIELDS - 1 or not first[0].isdigit():
        return None
    lines = text.removesuffix("\n").split("\n")
    rule = f"has fewer than {_FIELDS} fields"
    read = ((number, _read_fields(line)) for number, line in enumerate(lines, 1))
    records = (InspectedRecord(number, fields["JobID"], None, fields) for number, fields in read if fields is not None)
    violations = (
        Violation("error", number, "", rule, "Open XDMoD's shredder")
        for number, line in enumerate(lines, 1)
        if _read_fields(line) is None
    )
    return InspectedText(records, violations)


def _read_fields(line: str) -> dict[str, str] | None:
    """The fields of a line by name; None if it has fewer, which stops the shredder."""
    parts = line.split("|", _FIELDS - 1)
    return dict(zip(FIELDS, parts, strict=True)) if len(parts) == _FIELDS else None


def read_columns(payload: bytes) -> list[RecordColumns]:
    """The records of a file. Raises `ValueError` for what is not a file of this format."""
    lines = payload.split(b"\n")
    if lines.pop():
        raise ValueError("the last line is not complete")
    return [_read_line(line) for line in lines]


_FITTED: Final = "unfit characters become _, at most 255 bytes; Unknown if there is none"
_EMPTY: Final = origin(how="always empty")
ORIGINS: Final[Origins] = {
    "JobID": origin(
        "array_id", "array_task", "local_id", how="the number, and the index of an array or HTCondor's process"
    ),
    "JobIDRaw": origin("local_id", how="the number alone"),
    "Cluster": origin(
        "endpoint_url", "cluster", how="the host of the endpoint, else the cluster", settings=("machine_name",)
    ),
    "Partition": origin("queue", how=_FITTED),
    "QOS": _EMPTY,
    "Account": origin("account", "project", "vo", how=f"the first that is known; {_FITTED}"),
    "Group": origin("local_group", "vo", how=f"the first that is known, else Account; {_FITTED}"),
    "GID": _EMPTY,
    "User": origin(
        "local_user", "user_dn", how=f"the local user, else the grid user; {_FITTED}", settings=("dn", "dn_key")
    ),
    "UID": _EMPTY,
    "Submit": origin("submit", "start", how="the submission, else the start"),
    "Eligible": origin("eligible"),
    "Start": origin("start", "end", "wall_ms", how="the start, or end - wall time", settings=("start_from",)),
    "End": origin("end"),
    "Elapsed": origin("wall_ms", how="whole seconds, half up; Open XDMoD uses End - Start"),
    "ExitCode": origin("exit_code", "exit_signal"),
    "State": origin("end_reason", "status", how="the end if it is a state of Slurm, else by the status"),
    "NNodes": origin("nodes", "hosts", how="nodes, else the number of hosts, else 1"),
    "NCPUS": CORES,
    "ReqCPUS": CORES,
    "ReqMem": _EMPTY,
    "ReqTRES": msgspec.structs.replace(RECORD_ID, how="the record id, by which a line is found again"),
    "AllocTRES": origin("cores", "slots", "nodes", "gpus"),
    "Timelimit": _EMPTY,
    "NodeList": origin("hosts", how="their names, characters that cannot be in one become _"),
    "JobName": origin("name", how=_FITTED),
}


FORMAT: Final = Format(
    name=XdmodSlurmFormat.name,
    title="Lines for Open XDMoD's Slurm shredder",
    shape="record",
    make=XdmodSlurmFormat,
    content_type=CONTENT_TYPE,
    columns=read_columns,
    is_readable=True,
    key_settings=frozenset({"target.machine_name"}),
    record_key=key_of,
    key_has_local_id=False,
    same_key=RuleCode.SAME_ROW,
    file_of=file_of,
    longest_machine_name=_RESOURCE.longest,
    record_id_of=record_id_of,
    inspected=inspected,
    origins=ORIGINS,
)
