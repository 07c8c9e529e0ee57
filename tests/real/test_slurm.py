"""What the host's Slurm says of its jobs, usage, and limits, and what we make of them. Nothing is changed there."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import pytest

from formats.job import Job
from publisher.api import Publisher
from publisher.config.sources import SourceSettings
from publisher.report.allocation_files import all_allocations
from publisher.report.request import ReportRequest
from publisher.sources import make_source
from tests.real.programs import compared

DAYS: Final = 30
_SETTLED_S: Final = 120
"""slurmdbd gets what happens in batches."""
_ASSOCIATIONS: Final = (
    "sacctmgr", "-P", "show", "assoc", "format=Cluster,Account,User,Partition,ParentName,GrpTRESMins"
)  # fmt: skip
_ANY_LIMIT: Final = "cpu=1000000000"


class SacctRow(msgspec.Struct, frozen=True, array_like=True):
    """A run as `sacct` shows it."""

    number: str
    user: str
    account: str
    submitted: str
    started: str
    ended: str
    elapsed_s: int
    suspended: str
    cpus: int
    nodes: int
    hosts: str

    @property
    def ran(self) -> bool:
        """Whether it had nodes, which one that was cancelled before it began has not, and ended."""
        return self.started[:1].isdigit() and self.ended[:1].isdigit() and self.hosts != "None assigned"

    @property
    def start(self) -> int:
        """Since when it had these nodes: a later size of a resized job has the job's start, and its own submission."""
        return max(instant(self.started), instant(self.submitted))

    @property
    def wall_s(self) -> int:
        """How long it had these nodes, without suspension."""
        days, _, clock = self.suspended.rpartition("-")
        hours, minutes, seconds = map(int, clock.split(":"))
        suspended_s = int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds
        return max(0, instant(self.ended) - self.start - suspended_s)


class SlurmHost:
    """The Slurm of this host."""

    def __init__(self) -> None:
        self.since = int(time.time()) // 86_400 * 86_400 - DAYS * 86_400
        self.settled = int(time.time()) - _SETTLED_S
        self.version = said("sacct", "-V").split()[-1]
        columns = "JobIDRaw,User,Account,Submit,Start,End,ElapsedRaw,Suspended,AllocCPUS,NNodes,NodeList"
        options = ("-a", "-D", "-X", "-P", "-n", "--noconvert", "-S", stamp(self.since), "-E", "now")
        rows = [line.split("|") for line in said("sacct", *options, "-o", columns).splitlines()]
        self.runs = msgspec.convert(rows, list[SacctRow], strict=False)


@pytest.fixture(scope="module")
def slurm() -> SlurmHost:
    for program in ("sacct", "sacctmgr", "scontrol", "sreport"):
        if shutil.which(program) is None:
            pytest.skip(f"Slurm's {program} is not at hand: see tests/real/__init__.py")
    if subprocess.run(["sacctmgr", "-n", "show", "cluster"], check=False, capture_output=True).returncode:
        pytest.skip("no slurmdbd answers: see tests/real/__init__.py")
    return SlurmHost()


def test_jobs_are_those_of_sacct(slurm: SlurmHost) -> None:
    table = {"type": "slurm", "complete_since": f"{stamp(slurm.since)}Z"}
    source = make_source("slurm", SourceSettings.model_validate(table))
    jobs = [job for page in source.pages({}) for job in page.jobs if job.end is not None and job.end < slurm.settled]
    ours = {(job.local_id, job.start): facts(job) for job in jobs}
    assert len(ours) == len(jobs)
    theirs = {
        (run.number, run.start): (run.user, run.account, instant(run.ended), run.wall_s * 1000, run.cpus, run.nodes)
        for run in slurm.runs
        if run.ran and slurm.since <= instant(run.ended) < slurm.settled
    }
    assert ours == theirs
    compared("Slurm", slurm.version, "runs: user, account, times, cores, nodes as by sacct", len(ours))


def test_usage_of_accounts_is_that_of_sreport(slurm: SlurmHost, tmp_path: Path) -> None:
    if any(not run.ended[:1].isdigit() and run.started[:1].isdigit() for run in slurm.runs):
        pytest.skip("jobs are running, which sreport counts and allocations do not")
    report = ("sreport", "-P", "-t", "Seconds", "cluster", "AccountUtilizationByUser")
    text = said(*report, f"start={stamp(slurm.since)}", "end=now")
    end = re.search(r"Utilization \S+ - (\S+) \(\d+ secs\)", text)
    assert end is not None, text
    until = instant(end[1]) + 1  # it knows whole hours only
    theirs = Counter[tuple[str, str]]()
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) == 6 and cells[4].isdecimal():
            theirs[cells[1], cells[2]] += int(cells[4])
    associations = [line.split("|") for line in said(*_ASSOCIATIONS).splitlines()]
    parents = {row[1]: row[4] for row in associations if not row[2]}
    for run in slurm.runs:  # of a resized job, sreport counts the time before for each later size once more
        if run.ran and run.start > instant(run.started) and instant(run.ended) <= until:
            twice = (run.elapsed_s - run.wall_s) * run.cpus
            theirs[run.account, run.user] -= twice
            for account in above(run.account, parents):
                theirs[account, ""] -= twice
    limited = [associations[0], *([*row[:5], _ANY_LIMIT] for row in associations[1:] if not row[3])]
    with site(tmp_path, slurm, "\n".join(map("|".join, limited)), until) as publisher:
        publisher.collect()
        shown = publisher.view("allocations", ReportRequest(start=0, stop=1))
    names = [column.name for column in shown.columns]
    ours = {}
    for row in shown.rows:
        account, _, user = str(row[names.index("allocation")]).partition(" / ")
        used_h = row[names.index("used_h")]
        assert isinstance(used_h, int | float)
        ours[account, user] = round(used_h * 3600)
    assert {key: used for key, used in ours.items() if used} == {key: used for key, used in theirs.items() if used}
    compared("Slurm", slurm.version, "sums of core seconds of accounts and users as by sreport", len(theirs))


def test_limits_of_associations_are_those_of_slurmctld(slurm: SlurmHost, tmp_path: Path) -> None:
    theirs = dict(limits(said("scontrol", "show", "assoc_mgr", "flags=assoc")))
    if not theirs:
        pytest.skip("no association has a limit of GrpTRESMins for cpu or gres/gpu")
    with site(tmp_path, slurm, said(*_ASSOCIATIONS), slurm.settled) as publisher:
        allocations, _notes = all_allocations(publisher.config)
    resources = {"cores": "cpu", "gpus": "gres/gpu"}
    ours = {(one.account, one.user or "", resources[one.resource]): round(one.amount * 60) for one in allocations}
    assert ours == theirs
    compared("Slurm", slurm.version, "limits of associations as slurmctld has them", len(theirs))


def facts(job: Job) -> tuple[object, ...]:
    return (job.local_user, job.account, job.end, job.wall_ms, job.cores, job.nodes)


def limits(text: str) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Account, user, and resource of each limit in minutes, by slurmctld."""
    for record in text.split("ClusterName=")[1:]:
        words = dict(word.partition("=")[::2] for word in record.split())
        user = words["UserName"].partition("(")[0]
        for resource, _, value in (part.partition("=") for part in words["GrpTRESMins"].split(",")):
            minutes = value.partition("(")[0]
            if resource in {"cpu", "gres/gpu"} and minutes != "N" and not words["Partition"]:
                yield (words["Account"], user, resource), int(minutes)


def above(account: str, parents: dict[str, str]) -> Iterator[str]:
    """An account and all above it."""
    while account:
        yield account
        account = parents.get(account, "")


def site(folder: Path, slurm: SlurmHost, associations: str, until: int) -> Publisher:
    """A site whose allocations are limits of associations."""
    (folder / "associations.txt").write_text(associations + "\n")
    config = folder / "publisher.toml"
    config.write_text(
        f'[site]\nname = "S"\n[store]\nurl = "sqlite:///{folder}/store.db"\n'
        f'[sources.slurm]\ntype = "slurm"\ncomplete_since = "{stamp(slurm.since)}Z"\n'
        '[[allocation_files]]\ntype = "sacctmgr"\npath = "associations.txt"\n'
        f'since = "{stamp(slurm.since)}Z"\nuntil = "{stamp(until)}Z"\n'
    )
    return Publisher.from_file(config)


def said(*command: str) -> str:
    """What a program of Slurm prints."""
    path = "/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(command, env={"PATH": path, "TZ": "UTC"}, check=True, capture_output=True, text=True)
    return done.stdout


def instant(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def stamp(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}"
