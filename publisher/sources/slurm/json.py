"""A job of `sacct --json` as a row of a table, with its steps.

The names differ between versions: a number may be in `{"set", "infinite", "number"}`, a state in a list. (The facts on
sources, 6; output of the data parsers of Slurm 22.05 to 24.11.)
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.sources.base import Line, Outcome, UnreadableLine
from publisher.sources.fields import LineError
from publisher.sources.slurm.run import Run
from publisher.sources.slurm.table import Layout, Step
from publisher.sources.slurm.values import Clock

KEY: Final = "jobs"
"""The key of the list of jobs in the document."""

COLUMNS: Final = (
    "JobIDRaw", "JobID", "Cluster", "JobName", "State", "Start", "End", "Submit", "Eligible", "ElapsedRaw", "TotalCPU",
    "UserCPU", "SystemCPU", "NCPUS", "NNodes", "NodeList", "AllocTRES", "User", "Group", "Account", "Partition",
    "ExitCode", "QOS", "ReqTRES", "DerivedExitCode", "WCKey", "Comment", "AdminComment", "Reservation", "Constraints",
    "ConsumedEnergyRaw",
)  # fmt: skip
_LAYOUT: Final = Layout(COLUMNS, "\x1f")
_NO_VALUE: Final = 1 << 62
_RSS, _VIRTUAL = "mem", "vmem"


def outcome(element: dict[str, Any], cluster: str) -> Outcome:
    """The run of a job, `SKIPPED`, or why it is refused. A refused job comes with its JSON, by which it is recognised
    when it is read again.

    Never raises for any JSON document.
    """
    try:
        job = _LAYOUT.job([*_fields(element), ""], Clock("UTC"), cluster)
        if job is None:
            return Line.SKIPPED
        return _with_steps(job, element)
    except LineError as error:
        return UnreadableLine(str(error), raw=msgspec.json.encode(element))


def _with_steps(job: Job, element: dict[str, Any]) -> Job:
    run = Run(job, job.local_id or "")
    for step in _list(element.get("steps")):
        most = _list(_at(step, "tres", "requested", "max"))
        used_us, elapsed_s = _microseconds(step.get("time"), "total"), _number(_at(step, "time", "elapsed"))
        run.add(
            Step(
                rss_kib=_kib(most, _RSS),
                virtual_kib=_kib(most, _VIRTUAL),
                cpu_ms=None if used_us is None else used_us // 1000,
                sampled_cpu_ms=_count(_list(_at(step, "tres", "requested", "total")), "cpu"),
                wall_ms=None if elapsed_s is None else elapsed_s * 1000,
                cores=_count(_list(_at(step, "tres", "allocated")), "cpu"),
                is_srun=_is_srun(step),
            )
        )
    return run.whole()


def _is_srun(step: dict[str, Any]) -> bool:
    """Whether srun started a step: its id is a number, alone, after the job's (`7.0`), or in an object."""
    known = _at(step, "step", "id")
    shown = _at(known, "step_id") if isinstance(known, dict) else known
    number = _number(shown)
    return number is not None or (isinstance(shown, str) and shown.rpartition(".")[2].isdecimal())


def _fields(element: dict[str, Any]) -> list[str]:
    number = _text(_number(element.get("job_id")))
    time = _at(element, "time")
    allocated = _list(_at(element, "tres", "allocated"))
    state, code = _state(element), _code(_at(element, "exit_code"))
    if code == "0:0" and state in {"FAILED", "OUT_OF_MEMORY"}:
        code = ""  # Slurm 22.05 writes zero for every code
    return [
        number, _shown(element, number), _text(element.get("cluster")), _text(element.get("name")), state,
        _stamp(time, "start"), _stamp(time, "end"), _stamp(time, "submission"), _stamp(time, "eligible"),
        _text(_number(_at(time, "elapsed"))), _used(element, "total"), _used(element, "user"),
        _used(element, "system"), _text(_count(allocated, "cpu")), _text(_number(element.get("allocation_nodes"))),
        _text(element.get("nodes")),
        _tres(allocated), _text(element.get("user")), _text(element.get("group")), _text(element.get("account")),
        _text(element.get("partition")), code, _text(element.get("qos")),
        _tres(_list(_at(element, "tres", "requested"))), _code(_at(element, "derived_exit_code")),
        _text(_at(element, "wckey", "wckey")), _text(_at(element, "comment", "job")),
        _text(_at(element, "comment", "administrator")), _text(_at(element, "reservation", "name") or ""),
        _text(element.get("constraints")), _text(_count(allocated, "energy")),
    ]  # fmt: skip


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: Any) -> int | None:
    """A number, also from `{"set": true, "infinite": false, "number": 5}`; None: not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite", False) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_NO_VALUE < value < _NO_VALUE:
        return None
    return int(value)


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        return ""
    text = str(value)
    if "\0" in text:
        raise LineError("a text contains NUL")
    return text


def _stamp(time: Any, name: str) -> str:
    return _text(_number(_at(time, name)) or "")


def _microseconds(time: Any, name: str) -> int | None:
    seconds, micro = _number(_at(time, name, "seconds")), _number(_at(time, name, "microseconds"))
    return None if seconds is None or seconds < 0 else seconds * 1_000_000 + (micro or 0)


def _used(element: dict[str, Any], name: str) -> str:
    """CPU time as `MM:SS.mmm`.

    22.05 writes zero for a job: its steps are summed before they are cut to milliseconds, as in sacct's table, so that
    both give the same figure.
    """
    own = _microseconds(element.get("time"), name)
    steps = [_microseconds(step.get("time"), name) for step in _list(element.get("steps"))]
    used_ms = max(own or 0, sum(each or 0 for each in steps)) // 1000
    if own is None and not any(steps):
        return ""
    return f"{used_ms // 60_000}:{used_ms // 1000 % 60:02}.{used_ms % 1000:03}"


def _state(element: dict[str, Any]) -> str:
    state = _at(element, "state", "current")
    if isinstance(state, list):  # the state, followed by flags
        state = state[0] if state else None
    if not isinstance(state, str) or not state:
        raise LineError("the job has no state")
    return state


def _code(exit_code: Any) -> str:
    signal = _number(_at(exit_code, "signal", "signal_id")) or _number(_at(exit_code, "signal", "id")) or 0
    code = _number(_at(exit_code, "return_code"))
    return "" if code is None and not signal else f"{code or 0}:{signal}"


def _shown(element: dict[str, Any], number: str) -> str:
    """The id of an array task or of a part of a heterogeneous job, as sacct shows it."""
    array, task = _number(_at(element, "array", "job_id")), _number(_at(element, "array", "task_id"))
    if array and task is not None:
        return f"{array}_{task}"
    het, offset = _number(_at(element, "het", "job_id")), _number(_at(element, "het", "job_offset"))
    return f"{het}+{offset}" if het and offset is not None else number


def _tres(items: list[dict[str, Any]]) -> str:
    """Resources as `cpu=1,mem=100,gres/gpu:a100=2`; memory in MiB."""
    words: list[str] = []
    for item in items:
        amount = _number(item.get("count"))
        if amount is not None and isinstance(item.get("type"), str):
            name = f"{item['type']}/{item['name']}" if item.get("name") else item["type"]
            words.append(f"{name}={amount}{'M' if name == 'mem' else ''}")
    return ",".join(words)


def _count(items: list[dict[str, Any]], kind: str) -> int | None:
    return next((_number(item.get("count")) for item in items if item.get("type") == kind), None)


def _kib(items: list[dict[str, Any]], kind: str) -> int | None:
    """An amount in bytes as KiB, rounded up."""
    amount = _count(items, kind)
    return -(-amount // 1024) if amount is not None and amount > 0 else None
