"""Grid Engine 8.1.9 as it wrote its file for the jobs of `fixtures/gridengine/make.sh`: each run, and qacct's sums."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import gmtime, strftime

import pytest

from formats.job import Job
from publisher.collect.target_filter import is_usually_sent
from publisher.config.schema import SourceSettings as Settings
from publisher.sources.base import Page
from publisher.sources.gridengine.source import GridEngineSource

RUNS = """\
3.3      tasks      alice failed     0    8 1   7
3.5      tasks      alice completed  0    7 1   0
3.1      tasks      alice completed  1    8 1   0
4        exit3      bob   failed     0    8 1   3
6        exit100    bob   failed     0   12 1 100
1        plain      alice completed  3  809 1   0
2        sleeper    bob   completed  4    9 1   0
10       killed     alice failed     0   10 1 137
11       crashed    bob   failed     0   12 1 139
5        rerun99    alice aborted    4  448 1  99
8        warned     alice failed     3    9 1 138
7        overtime   alice failed     4    8 1 137
17       badshell   bob   completed  0   10 1   0
12       grid       carol completed  3  609 1   0
13       a;b|c=x-.+,() carol completed 1 11 1 0
14       LONG       bob   completed  1   12 1   0
18       threads    bob   completed  3  925 2   0
5        rerun99    alice completed  2   10 1   0
9        cpulimit   bob   failed    11 2695 1 137
19       memory     carol completed  9  564 1   0
6        exit100    bob   failed     0    7 1 100
21       deleted    bob   failed     2  630 1 137
20       restarted  alice completed  8    8 1   0
23.2     someof     carol failed     3    7 1 137
24       before     carol completed  1    7 1   0
23.1     someof     carol completed  6    7 1   0
23.3     someof     carol completed  6    7 1   0
25       after      carol completed  1    7 1   0
26       suspended  alice completed  7    6 1   0
27       tight      alice completed  5 3251 4   0
29       reserved   carol completed  3  704 2   0
28       tightsum   bob   completed  6 2994 4   0
""".replace("LONG", "long" * 31)
"""Read from the file by hand, in its order: id, name, user, status, wall s, CPU ms, slots, exit status.

In no line of it ran: 15 and 16 (failed 28 and 26), the first try of 20 (qmod -rj, failed 25), both tries of 30 (the
start of the parallel environment, failed 10). 22 was deleted while it waited and has no line. The CPU time of 27 is
that of its master and of four slaves, each in a line before it: 255 + 910 + 611 + 728 + 747.
"""


@pytest.fixture
def folder(fixtures: Path) -> Path:
    return fixtures / "gridengine" / "real"


@pytest.fixture
def page(folder: Path) -> Page:
    (page,) = GridEngineSource("ge", Settings(type="gridengine", path=folder / "accounting"), {}).pages({})
    return page


@pytest.fixture
def jobs(page: Page) -> tuple[Job, ...]:
    return page.jobs


def test_each_run(page: Page) -> None:
    seen = [
        (
            job.local_id, job.name, job.local_user, job.status, (job.wall_ms or 0) / 1000, job.cpu_ms, job.slots,
            job.exit_code,
        )
        for job in page.jobs
    ]  # fmt: skip
    expected = [
        (number, name, user, status, float(wall), int(cpu), int(slots), int(code))
        for number, name, user, status, wall, cpu, slots, code in map(str.split, RUNS.splitlines())
    ]
    assert seen == expected
    assert (page.read, page.skipped, page.merged, page.unreadable) == (41, 5, 4, ())
    assert len({job.record_id for job in page.jobs}) == len(expected)


def test_runs_of_a_job(jobs: tuple[Job, ...]) -> None:
    """Exit 99 and 100 (again after qmod -cj) ran twice; the first try of the restarted one has no times."""
    runs = Counter(job.local_id for job in jobs)
    assert {job for job, count in runs.items() if count > 1} == {"5", "6"}
    assert (runs["5"], runs["6"], runs["20"], runs["22"]) == (2, 2, 1, 0)


def test_the_parallel_job_on_two_hosts(jobs: tuple[Job, ...]) -> None:
    (tight,) = (job for job in jobs if job.name == "tight")
    assert [host.name for host in tight.hosts] == ["genode", "gehost"]
    assert (tight.nodes, tight.parallel_environment, tight.extras["pe_task_count"]) == (2, "mpi", 4)
    assert (tight.start, tight.end, tight.memory_virtual_kib) == (1795238581, 1795238586, 37096)
    (summed,) = (job for job in jobs if job.name == "tightsum")
    assert ([host.name for host in summed.hosts], summed.nodes) == (["gehost"], None)


def test_accounts_and_end_reasons(jobs: tuple[Job, ...]) -> None:
    by_name = {job.name: job for job in jobs}
    grid = by_name["grid"]
    assert (grid.project, grid.department, grid.local_group) == ("atlas", "particle", "physics")
    assert grid.account == "grid_vo=atlas,role=prod"
    assert by_name["a;b|c=x-.+,()"].account == "semi;x=y|z"
    assert by_name["overtime"].end_reason == "37 enforced h_rt"
    assert (by_name["warned"].exit_signal, by_name["crashed"].exit_signal) == (10, 11)
    reserved = by_name["reserved"]
    assert (reserved.extras["arid"], reserved.extras["ar_submission_time"]) == (1, 1795238590)
    assert by_name["memory"].memory_rss_kib == 200_272
    assert by_name["memory"].memory_virtual_kib == 202_200
    assert (by_name["restarted"].submit, by_name["suspended"].wall_ms) == (1795238559, 7000)


GROUPS: dict[str, Callable[[Job], str | None]] = {
    "o": lambda job: job.local_user,
    "P": lambda job: job.project or "NONE",
    "D": lambda job: job.department,
    "pe": lambda job: job.parallel_environment or "NONE",
    "A": lambda job: job.account if job.account == "grid_vo=atlas,role=prod" else None,
}


@pytest.mark.parametrize("option", GROUPS)
def test_sums_agree_with_qacct(folder: Path, jobs: tuple[Job, ...], option: str) -> None:
    """CPU time to a millisecond a record; wall time, which qacct sums over slaves too, as ours and that of slaves."""
    cpu, wall, records = defaultdict[str, int](int), defaultdict[str, int](int), Counter[str]()
    for job in jobs:
        group = GROUPS[option](job)
        if group is not None:
            cpu[group] += job.cpu_ms or 0
            wall[group] += (job.wall_ms or 0) // 1000 + 3 * int(job.extras.get("pe_task_count", 0))
            records[group] += 1 + int(job.extras.get("pe_task_count", 0))
    reported = dict(sums((folder / f"qacct-{option}.txt").read_text()))
    assert {group for group, (seconds, _) in reported.items() if seconds} == set(cpu)
    for group in cpu:
        assert wall[group] == reported[group][0]
        assert abs(cpu[group] - reported[group][1] * 1000) <= records[group]


def test_the_total_agrees_with_qacct(folder: Path, jobs: tuple[Job, ...]) -> None:
    """109 s of wall time with the slaves' four times 3 s."""
    wall, _, _, cpu = (folder / "qacct.txt").read_text().splitlines()[-1].split()[:4]
    assert sum(job.wall_ms or 0 for job in jobs) == (int(wall) - 12) * 1000
    assert abs(sum(job.cpu_ms or 0 for job in jobs) - float(cpu) * 1000) <= 36


def test_each_record_agrees_with_qacct(folder: Path, jobs: tuple[Job, ...]) -> None:
    """What qacct -j shows of each record that ran and is not a slave's; its CPU time of job 27 is the master's
    alone."""
    reported = [
        (
            record["jobnumber"], record["taskid"].replace("undefined", ""), record["owner"], record["jobname"],
            record["slots"], record["exit_status"].split()[0], record["failed"].split()[0], record["start_time"],
            record["end_time"], "" if record["jobname"] == "tight" else record["cpu"],
        )
        for record in blocks((folder / "qacct-j.txt").read_text())
        if record["start_time"] != "-/-" and not (record["jobname"] == "tight" and record["ru_wallclock"] == "3s")
    ]  # fmt: skip
    seen = [
        (
            str(job.local_id).partition(".")[0], str(job.array_task or ""), job.local_user, job.name,
            str(job.slots), str(job.exit_code), str(job.extras["failed"]), stamp(job.start),
            stamp(job.end), "" if job.name == "tight" else f"{(job.cpu_ms or 0) / 1000:.3f}s",
        )
        for job in jobs
    ]  # fmt: skip
    assert seen == reported


def test_deleted_by_force(folder: Path) -> None:
    """The master writes such a record without a report of the host: it says a good end, and no usage at all."""
    (page,) = GridEngineSource("ge", Settings(type="gridengine", path=folder / "forced" / "accounting"), {}).pages({})
    *forced, usual = page.jobs
    assert [(job.local_id, job.wall_ms, job.slots) for job in forced] == [
        ("31", 7000, 1), ("32.1", 3000, 1), ("32.2", 8000, 1), ("33", 2000, 4), ("34", 11000, 1),
    ]  # fmt: skip
    assert {job.status for job in forced} == {"lost"}
    assert {(job.cpu_ms, job.cpu_user_ms, job.cpu_system_ms, job.exit_code) for job in forced} == {(None,) * 4}
    assert {(job.end_reason, job.extras["estimated"]) for job in forced} == {("deleted by force, without usage", 1)}
    assert (usual.local_id, usual.status, usual.wall_ms, usual.cpu_ms) == ("35", "completed", 3000, 2939)
    assert (page.skipped, page.unreadable) == (0, ())


def test_what_is_sent_of_those_deleted_by_force_agrees_with_qacct(folder: Path) -> None:
    """qacct adds nothing for them."""
    path = folder / "forced"
    (page,) = GridEngineSource("ge", Settings(type="gridengine", path=path / "accounting"), {}).pages({})
    sent = [job for job in page.jobs if is_usually_sent(job)]
    reported = dict(sums((path / "qacct-o.txt").read_text()))
    for user in ("alice", "bob", "carol"):
        mine = [job for job in sent if job.local_user == user]
        assert sum(job.wall_ms or 0 for job in mine) == reported[user][0] * 1000
        assert sum(job.cpu_ms or 0 for job in mine) == round(reported[user][1] * 1000)


def sums(text: str) -> Iterator[tuple[str, tuple[int, float]]]:
    """Wall and CPU seconds of each line below the rule."""
    for line in text.split("=\n", 1)[1].splitlines():
        group, wall, _, _, cpu, *_ = line.split()
        yield group, (int(wall), float(cpu))


def blocks(text: str) -> Iterator[dict[str, str]]:
    """The records of qacct -j."""
    for block in re.split(r"^=+\n", text, flags=re.MULTILINE)[1:]:
        if block.startswith("qname"):
            yield {line.split(None, 1)[0]: line.split(None, 1)[1].strip() for line in block.splitlines()}


def stamp(at: int | None) -> str:
    """An instant as qacct wrote it, in UTC."""
    return strftime("%a %b %e %H:%M:%S %Y", gmtime(at))
