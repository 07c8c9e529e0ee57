"""Every field of Grid Engine's accounting manual is read from either format, kept, and shown by `jobs ID`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.cli.jobs_cmd import show_run
from publisher.config.schema import SourceSettings as Settings
from publisher.sources.gridengine.jobs import RUSAGE
from publisher.sources.gridengine.source import GridEngineParser, GridEngineSource
from publisher.status.jobs import facts
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import Site
from tests.publisher.sources.log_reading import Seen, parse_all, read_on

MANUAL: Final = (
    "qname", "hostname", "group", "owner", "job_name", "job_number", "account", "priority", "submission_time",
    "start_time", "end_time", "failed", "exit_status", "ru_wallclock", "ru_utime", "ru_stime", "ru_maxrss",
    "ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap", "ru_inblock",
    "ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw", "project", "department",
    "granted_pe", "slots", "task_number", "cpu", "mem", "io", "category", "iow", "pe_taskid", "maxvmem", "arid",
    "ar_submission_time",
)  # fmt: skip
"""The fields of accounting(5) in the order of the colon format."""
ONLY_JSONL: Final = ("ioops", "maxpss", "maxrss", "wallclock", "submit_cmd_line")
"""What the manual has for JSONL alone."""
IDENTITY_FIELDS: Final[dict[str, str | int | float]] = {
    "qname": "long.q", "hostname": "node7", "group": "chem", "owner": "ada", "job_name": "dna", "job_number": 4711,
    "account": "acct1", "priority": 12, "submission_time": 1_793_500_000, "start_time": 1_793_500_060,
    "end_time": 1_793_500_160, "failed": 37, "exit_status": 137, "project": "atlas", "department": "physics",
    "granted_pe": "smp", "slots": 6, "task_number": 3, "cpu": 540.25, "mem": 17.5, "io": 2.75, "category": "-l gpu=1",
    "iow": 1.25, "pe_taskid": "NONE", "maxvmem": 3_145_728, "arid": 5, "ar_submission_time": 1_793_400_000,
    "ioops": 901, "maxpss": 1_048_576, "maxrss": 2_097_152, "wallclock": 100.5, "submit_cmd_line": "qsub -t 3 dna.sh",
} | {name: 1000 + number for number, name in enumerate(RUSAGE)}  # fmt: skip
"""A record whose every field has a value of its own."""
SHOWN: Final = {
    "qname": ("queue", "long.q"), "hostname": ("hosts", ({"name": "node7"},)), "group": ("local_group", "chem"),
    "owner": ("local_user", "ada"), "job_name": ("name", "dna"), "job_number": ("array_id", "4711"),
    "account": ("account", "acct1"), "submission_time": ("submit", "2026-11-01T02:26:40Z"),
    "start_time": ("start", "2026-11-01T02:27:40Z"), "end_time": ("end", "2026-11-01T02:29:20Z"),
    "exit_status": ("exit_code", 137), "project": ("project", "atlas"), "department": ("department", "physics"),
    "granted_pe": ("parallel_environment", "smp"), "slots": ("slots", 6), "task_number": ("array_task", 3),
    "cpu": ("cpu_ms", 540_250), "maxvmem": ("memory_virtual_kib", 3072),
}  # fmt: skip
"""Where a field stands in `jobs ID` if not among the extras under its own name. Of a record without a PE task there is
nothing to show; slave records are folded into their master's, under `pe_tasks`."""


def as_colon(reported: Mapping[str, str | int | float]) -> str:
    return ":".join(str(reported[name]) for name in MANUAL)


def as_jsonl(reported: Mapping[str, str | int | float]) -> str:
    scale = {"submission_time", "start_time", "end_time", "ar_submission_time"}
    eusage = ("wallclock", "cpu", "mem", "io", "ioops", "iow", "maxvmem", "maxrss", "maxpss")
    record: dict[str, Any] = {
        name: value * 1_000_000 if name in scale and isinstance(value, int) else value
        for name, value in reported.items()
        if name not in RUSAGE and name not in eusage
    }
    record["usage"] = {
        "rusage": {name: reported[name] for name in RUSAGE},
        "eusage": {name: reported[name] for name in eusage},
    }
    return json.dumps(record)


@pytest.mark.parametrize(
    ("write", "names"), [(as_colon, MANUAL), (as_jsonl, (*MANUAL, *ONLY_JSONL))], ids=["colon", "jsonl"]
)
def test_jobs_shows_every_field_of_the_manual(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Callable[[Mapping[str, Any]], str], names: Sequence[str]
) -> None:
    site = Site(tmp_path, [], [RecordReceiver("neic")])
    site.table["sources"] = {"ge": {"type": "gridengine", "path": "accounting", "cluster": "cell"}}
    (tmp_path / "accounting").write_text(write(IDENTITY_FIELDS) + "\n", encoding="ascii")
    site.publisher.collect((), None)
    (known,) = site.publisher.job("4711.3")
    shown = facts(known.run.job)
    for name in names:
        if name != "pe_taskid":
            where, value = SHOWN.get(name, (f"extras.{name}", IDENTITY_FIELDS[name]))
            assert shown[where] == value, name
    assert shown["end_reason"] == "37 enforced h_rt"
    show_run(known)
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "} >= set(shown) - {"record_id"}


SUMMED = {
    *(name for name in RUSAGE if name not in {"ru_wallclock", "ru_maxrss"}), "mem", "io", "ioops", "iow", "gpu.joules",
}  # fmt: skip
"""What a parallel job has of all its tasks, as Grid Engine adds it up itself with `accounting_summary`."""
LARGEST = {"ru_maxrss", "maxrss", "maxpss"}
MASTERS = {"ru_wallclock", "wallclock", "priority", "failed", "arid", "ar_submission_time"}


@pytest.mark.parametrize("write", [as_colon, as_jsonl])
def test_every_measure_of_a_slave_counts(write: Callable[[Mapping[str, Any]], str]) -> None:
    """Slave 2 and master 1 are 3, as qacct has it."""
    numbers = [name for name in IDENTITY_FIELDS if name in {*SUMMED, *LARGEST, *MASTERS}]
    master = IDENTITY_FIELDS | dict.fromkeys(numbers, 1) | {"failed": 0}
    slave = IDENTITY_FIELDS | dict.fromkeys(numbers, 2) | {"pe_taskid": "1.node9"}
    lines = [write(slave), write(master)]
    if write is as_jsonl:
        for place, custom in enumerate(({"joules": 2, "kind": "b"}, {"joules": 1, "kind": "a"})):
            record = json.loads(lines[place])
            record["usage"]["gpu"] = custom
            lines[place] = json.dumps(record)
    first, refused = parse_all(GridEngineParser("cell"), [lines[0].encode()])
    assert (first.jobs, refused) == ({}, [])
    seen, _ = parse_all(GridEngineParser("cell"), [line.encode() for line in lines])
    (job,) = seen.jobs.values()
    there = set(job.extras)
    assert {name: job.extras[name] for name in SUMMED & there} == dict.fromkeys(SUMMED & there, 3)
    assert {name: job.extras[name] for name in LARGEST & there} == dict.fromkeys(LARGEST & there, 2)
    mine = MASTERS & there - {"failed"}
    assert {name: job.extras[name] for name in mine} == dict.fromkeys(mine, 1)
    assert there >= SUMMED - ({"ioops", "gpu.joules"} if write is as_colon else set())
    assert job.extras.get("gpu.kind") == ("a" if write is as_jsonl else None)


def test_measures_wait_with_their_slave_for_a_later_reading(tmp_path: Path) -> None:
    log = tmp_path / "accounting"
    source = GridEngineSource("ge", Settings(type="gridengine", path=log, cluster="cell"))
    log.write_text(as_jsonl(IDENTITY_FIELDS | {"pe_taskid": "1.node9", "iow": 2}) + "\n", encoding="ascii")
    seen = read_on(source, Seen())
    with log.open("a", encoding="ascii") as file:
        file.write(as_jsonl(IDENTITY_FIELDS | {"iow": 1}) + "\n")
    (job,) = read_on(source, seen).jobs.values()
    assert job.extras["iow"] == 3
    assert len(json.loads(str(job.extras["pe_tasks"]))[0]) == 13, "what is shown of a task stays what it was"


def test_jobs_shows_the_task_of_a_slave_record() -> None:
    task = IDENTITY_FIELDS | {"pe_taskid": "1.node9", "hostname": "node9", "cpu": 60.5}
    for write in (as_colon, as_jsonl):
        seen, refused = parse_all(GridEngineParser("cell"), [write(task).encode(), write(IDENTITY_FIELDS).encode()])
        (job,) = seen.jobs.values()
        assert refused == []
        assert (job.cpu_ms, [host.name for host in job.hosts]) == (600_750, ["node7", "node9"])
        assert "1.node9" in str(job.extras["pe_tasks"])
