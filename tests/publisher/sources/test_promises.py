"""Our own batch systems keep the promises of `publisher.testing`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from publisher.testing import Facts, SourceSuite
from tests.generators.arc_database import ArcWriter
from tests.generators.arc_jobs import ArcJob
from tests.publisher.sources import test_hostile_texts as written
from tests.publisher.sources.auditor.auditor_records import record
from tests.publisher.sources.auditor.auditor_server import AuditorServer, auditor_server
from tests.publisher.sources.auditor.test_table import auditor_table
from tests.publisher.sources.test_hostile_texts import Form, Submitted
from tests.publisher.store.server import PostgresqlServer
from tests.publisher.torque_cluster import torque_line

COMPLETE = {"complete_since": "2026-01-01"}


class OwnLog(SourceSuite):
    """A log with the lines of a form of `test_hostile_texts`."""

    form: ClassVar[Form]
    header = ""
    end = 1_795_132_800

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        if self.header and not path.exists():
            path.write_text(f"{self.header}\n", encoding="utf-8")
        with path.open("a", encoding="utf-8") as file:
            for run in runs:
                (_, line) = type(self).form(Submitted(run["number"], "ada", run["end"] - 100))[-1]
                file.write(f"{line}\n")


class TestTorque(SourceSuite):
    type = "torque"
    settings = COMPLETE
    end = 1_795_132_800

    def path(self, folder: Path) -> Path:
        return folder / "20261120"

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(torque_line(run["number"], run["end"], wall_s=run["wall_s"]) for run in runs)


class TestPbs(OwnLog):
    type = "pbs"
    settings = COMPLETE
    form = staticmethod(written.pbs)

    def path(self, folder: Path) -> Path:
        return folder / "20261120"


class TestGridEngine(OwnLog):
    type = "gridengine"
    form = staticmethod(written.gridengine)


class TestGridEngineJson(SourceSuite):
    type = "gridengine"

    def path(self, folder: Path) -> Path:
        return folder / "accounting.jsonl"

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        with path.open("a", encoding="utf-8") as file:
            for run in runs:
                start = run["end"] - run["wall_s"]
                record = {
                    "job_number": run["number"], "task_number": 0, "start_time": start * 1_000_000,
                    "end_time": run["end"] * 1_000_000, "owner": "ada", "group": "chem", "account": "sge",
                    "qname": "long.q", "hostname": "node1", "department": "defaultdepartment", "slots": 1,
                    "job_name": "job", "priority": 0, "submission_time": (start - 9) * 1_000_000, "failed": 0,
                    "exit_status": 0,
                    "usage": {
                        "rusage": {"ru_wallclock": run["wall_s"]},
                        "usage": {"wallclock": run["wall_s"], "cpu": run["cpu_s"], "mem": 1.5, "io": 0.25, "iow": 0.5},
                    },
                }  # fmt: skip
                file.write(f"{json.dumps(record)}\n")


class TestDqs(OwnLog):
    type = "dqs"
    form = staticmethod(written.dqs)


class TestSlurmCompletionLog(OwnLog):
    type = "slurm"
    form = staticmethod(written.jobcomp)


class TestSlurmTable(OwnLog):
    type = "slurm"
    form = staticmethod(written.sacct)
    header = written.HEADER


class TestLsf(SourceSuite):
    type = "lsf"

    def path(self, folder: Path) -> Path:
        return folder / "lsb.acct"

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        with path.open("a", encoding="utf-8") as file:
            for run in runs:
                number, end, start = run["number"], run["end"], run["end"] - run["wall_s"]
                parts = [
                    f'"JOB_FINISH" "10.1" {end} {number} 1001 33554482 1 {start - 9} 0 0 {start} "ada" "normal"',
                    f'"" "" "" "login1" "work" "" "%J.out" "%J.err" "{start - 9}.{number}" 0 1 "n1" 64 60.0 "name"',
                    f'"run.sh" {run["cpu_s"]}.0 0.0 1000 0 -1 0 0 100 0 0 0 0 -1 0 0 0 5 6 -1 "" "proj1" 0 1 "" ""',
                    '0 2048 4096 "" "" "" "" 0 "" 0 "" -1 "/p/ada" "" "" "" -1 "/g1" "" 5136 ""',
                    f'{start} "" "" 2 1032 "0" 1033 "0" 1 "n1" 10 20 30 40 0 0 0 2048 "select[type == any]" "" -1 ""',
                    f'-1 0 "" 0 0 "" {run["wall_s"]} ""',
                ]
                file.write(f"{' '.join(parts)}\n")


class TestHtcondor(SourceSuite):
    type = "htcondor"

    def path(self, folder: Path) -> Path:
        return folder / "history"

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        with path.open("a", encoding="utf-8") as file:
            for run in runs:
                number, end, start = run["number"], run["end"], run["end"] - run["wall_s"]
                ad: dict[str, Any] = {
                    "ClusterId": number, "ProcId": 0, "CompletionDate": end, "CpusProvisioned": 1, "RequestCpus": 1,
                    "EnteredCurrentStatus": end, "ExitBySignal": "false", "ExitCode": 0,
                    "GlobalJobId": f'"schedd.example.org#{number}.0#{start - 9}"', "JobCurrentStartDate": start,
                    "JobStartDate": start, "JobStatus": 4, "JobUniverse": 5, "NumJobStarts": 1, "Owner": '"ada"',
                    "LastRemoteHost": '"slot1@wn1.example.org"', "QDate": start - 9, "RemoteSysCpu": 0.0,
                    "RemoteUserCpu": float(run["cpu_s"]), "RemoteWallClockTime": float(run["wall_s"]),
                }  # fmt: skip
                file.writelines(f"{name} = {value}\n" for name, value in ad.items())
                file.write(f'*** Offset = 0 ClusterId = {number} ProcId = 0 Owner = "ada" CompletionDate = {end}\n')


class TestArc(SourceSuite):
    """ARC writes the row of a job again when it changes."""

    type = "arc"
    rewrites = True

    def path(self, folder: Path) -> Path:
        return folder / "accounting.db"

    def garbage(self) -> None:
        return None

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        with ArcWriter(path, new=not path.exists()) as writer:
            ids = dict(writer.connection.execute("SELECT JobID, RecordID FROM AAR"))
            for run in runs:
                job = ArcJob(
                    f"job{run['number']}", run["end"] - run["wall_s"] - 9, str(run["number"]), end=run["end"],
                    wall=run["wall_s"], cpu_user=run["cpu_s"], vo="atlas",
                )  # fmt: skip
                if job.job_id in ids:
                    writer.update(ids[job.job_id], job)
                else:
                    writer.add(job)


class TestAuditorSource(SourceSuite):
    """It is a service: what is read is its address, and a site that moves it gives it another. It is asked again for
    some days only, so that these runs ended today."""

    type = "auditor"
    end = int(time.time()) - 3 * 3600

    @pytest.fixture(autouse=True)
    def _serving(self) -> Iterator[None]:
        with auditor_server() as self.server, auditor_server() as self.moved:
            yield

    def garbage(self) -> None:
        return None

    def table(self, path: Path) -> dict[str, Any]:
        server: AuditorServer = self.moved if path.name == "moved" else self.server
        return {"type": self.type, "auditor": {"url": server.url}}

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        names = {run["number"]: f"slurm-{run['number']}" for run in runs}
        self.server.add(
            *(record(names[run["number"]], run["end"], wall=run["wall_s"], cpu=run["cpu_s"]) for run in runs)
        )

    def move(self, path: Path) -> Path:
        self.moved.records = self.server.records
        return path.parent / "moved"


class TestAuditorTable(SourceSuite):
    """The same from its table; a site that moves it gives the other database."""

    type = "auditor"
    end = int(time.time()) - 3 * 3600

    @pytest.fixture(autouse=True)
    def _serving(self, postgresql: PostgresqlServer) -> Iterator[None]:
        with auditor_table(postgresql, "first") as self.kept, auditor_table(postgresql, "second") as self.moved:
            yield

    def garbage(self) -> None:
        return None

    def table(self, path: Path) -> dict[str, Any]:
        return {"type": self.type, "auditor": {"url": (self.moved if path.name == "moved" else self.kept).url}}

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        for run in runs:
            made = record(f"slurm-{run['number']}", run["end"], wall=run["wall_s"], cpu=run["cpu_s"])
            self.kept.add(made, updated=time.time())

    def move(self, path: Path) -> Path:
        self.moved.copy_of(self.kept)
        return path.parent / "moved"
