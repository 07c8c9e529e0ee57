"""Grid Engine's JSON lines: Open Cluster Scheduler and Gridware Cluster Scheduler from 9.0 on.

Pure. Times are microseconds. Keys without a value are omitted. The usage gathered by the execution daemon is
`usage.usage` in 9.0 and `usage.eusage` from 9.1 on. A container may be an object, as written, or an array, as in the
manual; containers of other names have the values that a site's `usage_patterns` collect. (The facts on sources, 2.)
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from formats.job import Job
from publisher.sources.gridengine.jobs import (
    LARGEST,
    Cluster,
    Extras,
    Figure,
    Number,
    Slave,
    none_if_none,
    outcome,
    storable,
)

_Value = Figure | str
_MICROSECONDS: Final = 1_000_000
_MOST_EXTRAS: Final = 4_096
_Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class JsonlError(ValueError):
    """A line is not a record of the JSONL format; the message is the reason."""


class _JsonlRecord(msgspec.Struct):
    job_number: _Count
    hostname: str
    owner: str
    end_time: _Count
    start_time: _Count
    usage: dict[str, dict[str, _Value]]
    task_number: _Count = 0
    submission_time: _Count = 0
    group: str = ""
    account: str = ""
    qname: str = ""
    job_name: str = ""
    project: str | None = None
    department: str | None = None
    granted_pe: str | None = None
    slots: _Count = 0
    priority: Figure = 0
    arid: _Count = 0
    ar_submission_time: _Count = 0
    submit_cmd_line: str | None = None
    submit_host: str | None = None
    pe_taskid: str | None = None
    pe_task_id: str | None = None
    category: str | None = None
    failed: _Count = 0
    exit_status: _Count = 0
    deleted_by: str | None = None


_lines = msgspec.json.Decoder(_JsonlRecord)


def parse_record(line: str, cluster: Cluster) -> Job | Slave | None:
    """The outcome of a line: see `outcome`. Raises `JsonlError`."""
    if "\\u0000" in line:
        raise JsonlError("a text contains NUL, which cannot be stored")
    try:
        record = _lines.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        record = _loosely(line, error)
    started, ended, failed = record.start_time, record.end_time, record.failed
    if started and ended < started:
        raise JsonlError("the job ends before it starts" if ended else "the job started and has no end")
    start, end = started // _MICROSECONDS, ended // _MICROSECONDS
    usage = record.usage
    extras: Extras = usage.pop("rusage", {})
    own = usage.pop("eusage", {}) or usage.pop("usage", {})
    cpu = own.pop("cpu", None)  # Grid Engine writes it always, 0 too: one that is missing is unknown
    maxvmem = _figure(own.pop("maxvmem", 0))
    maxrss = _figure(own.get("maxrss", 0))
    extras.update(own)
    for container, values in usage.items():
        extras.update({f"{container}.{name}": value for name, value in values.items()})
    extras["failed"] = failed
    extras["priority"] = record.priority
    if len(extras) > _MOST_EXTRAS:
        raise JsonlError("the record has more values than possible")
    cpu_ms = None
    if isinstance(cpu, int | float):
        if not 0 <= cpu <= LARGEST:
            raise JsonlError("the CPU time is negative, or larger than possible")
        cpu_ms = int(cpu * 1000 + 0.5)
    if record.category:
        extras["category"] = record.category
    if record.arid:
        extras["arid"] = record.arid
        extras["ar_submission_time"] = record.ar_submission_time // _MICROSECONDS
    if record.submit_cmd_line:
        extras["submit_cmd_line"] = record.submit_cmd_line
    deleted_by = none_if_none(record.deleted_by or "")
    if deleted_by is not None:
        extras["deleted_by"] = deleted_by
    pe_task = record.pe_taskid or record.pe_task_id or ""
    return outcome(
        cluster, record.job_number, record.task_number, record.submission_time // _MICROSECONDS, start, end,
        (ended - started) // 1000, cpu_ms, failed, record.exit_status, record.slots,
        record.hostname, "" if pe_task == "NONE" else pe_task, maxvmem, maxrss, extras,
        record.owner, record.group, record.job_name, record.account, record.qname,
        none_if_none(record.project or ""), none_if_none(record.department or ""),
        none_if_none(record.granted_pe or ""), record.submit_host, deleted_by,
    )  # fmt: skip


def _figure(value: _Value) -> Number:
    return value if isinstance(value, int | float) else 0


def _loosely(line: str, error: Exception) -> _JsonlRecord:
    """A record with containers as arrays, numbers as text or out of bounds, flags, or null among the values."""
    try:
        loose = msgspec.json.decode(line)
        if not isinstance(loose, dict):
            raise JsonlError("the line is JSON, but not an accounting record")
        loose["usage"] = {name: _values(_merged(inner)) for name, inner in _merged(loose.get("usage")).items()}
        return msgspec.convert(loose, _JsonlRecord, strict=False)
    except msgspec.ValidationError as wrong:
        raise JsonlError(f"the JSON is not an accounting record: {wrong}") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as wrong:
        raise JsonlError(f"the line is not JSON: {wrong}") from error


def _merged(container: Any) -> dict[str, Any]:
    """An object unchanged; an array of objects as one object."""
    if isinstance(container, dict):
        return container
    merged: dict[str, Any] = {}
    for part in container if isinstance(container, list) else ():
        if isinstance(part, dict):
            merged.update(part)
    return merged


def _values(container: dict[str, Any]) -> dict[str, Any]:
    """A value that can be stored: flags as 0 and 1, as Grid Engine has them, huge figures as text; others are
    omitted.
    """
    values: dict[str, Any] = {}
    for name, value in container.items():
        if isinstance(value, bool):
            values[name] = int(value)
        elif isinstance(value, int | float):
            values[name] = storable(value)
        elif isinstance(value, str):
            values[name] = value
    return values
