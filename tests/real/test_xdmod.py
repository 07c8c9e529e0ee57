"""What Open XDMoD's shredder makes of the files for it: a row a run, with the numbers of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from formats.job import Job
from formats.text import read_date_time
from formats.xdmod.slurm import FIELDS
from publisher.testing.delivery import DeliverySite
from publisher.testing.jobs import HOSTILE, NOVEMBER, make_job
from tests.publisher.targets.doubles import DailyDouble
from tests.real.programs import RealProgram


def jobs() -> list[Job]:
    """Runs of several batch systems, arrays, and any text."""
    ordinary = [
        make_job(
            number,
            end=NOVEMBER + 5000 * number,
            wall_s=30 + 97 * number,
            cores=1 + number % 7,
            nodes=1 + number % 2,
            gpus=number % 3,
            status=("completed", "failed")[number % 2],
            local_id=(f"{number}", f"{number}[{number % 5}].pbs.example.org", f"{number}.{number % 9}")[number % 3],
        )
        for number in range(1, 200)
    ]
    hostile = [
        make_job(300 + number, name=text, queue=text, account=text, local_user=text, local_group=text)
        for number, text in enumerate(text for text in HOSTILE if text.encode("utf-8", "ignore").decode() == text)
    ]
    return ordinary + hostile


def test_every_line_is_a_row_with_the_numbers_of_its_run(tmp_path: Path) -> None:
    xdmod = RealProgram("xdmod")
    double = DailyDouble(tmp_path / "xdmod", records="xdmod-slurm")
    site = DeliverySite(tmp_path, double, json.loads, None)
    expected = {job.record_id: job for job in jobs()}
    site.add(*expected.values())
    site.settle()
    site.reopen()
    lines = [line for file in double.files() for line in file.read_text("utf-8").split("\n")[:-1]]
    answer = xdmod.read("xdmod_shredder", {"resource": "ce1", "lines": lines})
    assert answer["said"] == []
    rows = {row["req_tres"]: row for row in answer["rows"]}
    assert len(answer["rows"]) == len(lines) == len(rows)
    assert rows.keys() == expected.keys()
    assert [_texts(row) for row in answer["rows"]] == list(map(_written, lines))
    for record_id, row in rows.items():
        assert _figures(row) == _facts(expected[record_id]), record_id
    identities = {(row["job_id"], row["job_array_index"], row["submit_time"], row["end_time"]) for row in rows.values()}
    assert len(identities) == len(rows), "XDMoD ignores the second of two that are equal in these"
    xdmod.compared("lines", len(rows))


def test_lines_of_every_kind_of_source_are_rows_with_their_texts(fixtures: Path) -> None:
    xdmod = RealProgram("xdmod")
    lines = [
        line
        for file in sorted((fixtures / "golden" / "sources").glob("*/xdmod-slurm.txt"))
        for line in file.read_text("utf-8").splitlines()
        if line.count("|") >= len(FIELDS) - 1
    ]
    answer = xdmod.read("xdmod_shredder", {"resource": "ce1", "lines": lines})
    assert answer["said"] == []
    assert [_texts(row) for row in answer["rows"]] == [_written(line) for line in lines]
    xdmod.compared("lines of every kind of source", len(lines))


_TEXTS: Final = {
    "JobIDRaw": "job_id_raw", "Partition": "partition_name", "QOS": "qos_name", "Account": "account_name",
    "Group": "group_name", "GID": "gid_number", "User": "user_name", "UID": "uid_number", "ExitCode": "exit_code",
    "State": "state", "NNodes": "nnodes", "NCPUS": "ncpus", "ReqCPUS": "req_cpus", "ReqMem": "req_mem",
    "ReqTRES": "req_tres", "AllocTRES": "alloc_tres", "NodeList": "node_list", "JobName": "job_name",
}  # fmt: skip
"""XDMoD's columns of texts, by our fields."""
_TIMES: Final = {"Submit": "submit_time", "Start": "start_time", "End": "end_time"}


def _texts(row: dict[str, Any]) -> dict[str, Any]:
    found = {ours: row[theirs] for ours, theirs in (_TEXTS | _TIMES).items()}
    index = int(row["job_array_index"])
    return found | {"JobID": row["job_id"] if index < 0 else f"{row['job_id']}_{index}"}


def _written(line: str) -> dict[str, Any]:
    fields = dict(zip(FIELDS, line.split("|", len(FIELDS) - 1), strict=True))
    times = {name: read_date_time(f"{fields[name]}Z") for name in _TIMES}
    return {name: fields[name] for name in ("JobID", *_TEXTS)} | times


def _figures(row: dict[str, Any]) -> dict[str, int]:
    """What XDMoD counts by: its wall time is end less start."""
    names = {"ncpus": "cores", "nnodes": "nodes", "ngpus": "gpus", "end_time": "end", "submit_time": "submit"}
    return {own: int(row[theirs]) for theirs, own in names.items()} | {
        "wall_s": row["end_time"] - row["start_time"],
        "elapsed_s": row["elapsed"],
    }


def _facts(job: Job) -> dict[str, int]:
    assert job.wall_ms is not None
    assert job.end is not None
    assert job.submit is not None
    return {
        "cores": job.cores or 0,
        "nodes": job.nodes or 0,
        "gpus": job.gpus or 0,
        "end": job.end,
        "submit": job.submit,
        "wall_s": job.wall_ms // 1000,
        "elapsed_s": job.wall_ms // 1000,
    }
