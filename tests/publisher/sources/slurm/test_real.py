"""The accounting of Slurm 22.05 for the jobs of `fixtures/slurm/make.sh`: each run, in every form, and sacct's own
sums."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from formats.job import Job
from publisher.config.schema import SourceSettings as Settings
from publisher.sources.slurm import sacct
from publisher.sources.slurm.source import SlurmSource

RUNS = """\
1  plain       alice completed  3  866  1 1   6228 0  -
2  sleeper     bob   completed  3    3  1 1   3160 0  -
4  exit3       bob   failed     0    1  1 1      - 3  FAILED
5  killed      alice failed     0    1  1 1      - s9 FAILED
22 tasks       alice completed  0    2  1 1      - 0  -
23 tasks       alice failed     0    1  1 1      - 7  FAILED
3  tasks       alice completed  0    1  1 1      - 0  -
6  crashed     bob   failed     0    1  1 1      - s11 FAILED
7  overtime    carol failed    88    2  1 1   3084 0  TIMEOUT
8  pipe|in|name carol completed 1    2  1 1   3172 0  -
9  two\\nlines carol completed  1    2  1 1   3228 0  -
10 Grüße_作業  carol completed  1    2  1 1   3152 0  -
11 steps       alice completed  5 1740  4 2 102624 0  -
12 threads     bob   completed  3  815  3 1  11888 0  -
13 gpus        alice completed  2    2  1 1   3176 0  -
14 first       bob   completed  2    2  1 1   3016 0  -
15 behind      bob   completed  1    2  1 1   3256 0  -
16 fails       bob   failed     0    1  1 1      - 1  FAILED
18 het         carol completed  3   25  2 1  14168 0  -
19 het         carol completed  3    7  3 1   1516 0  -
21 greedy      carol failed     1    2  1 1 295048 s9 FAILED
24 badfolder   carol failed     0    0  1 1      - s53 FAILED
25 again       alice aborted    3    1  1 1   3216 0  REQUEUED
25 again       alice completed  6    3  1 1   3192 0  -
26 deleted     bob   cancelled  3 1507  1 1   6444 0  CANCELLED_by_1001
27 byroot      bob   cancelled  3    2  1 1   1516 0  CANCELLED_by_0
29 someof      carol completed  6    2  1 1   3204 0  -
30 someof      carol cancelled  3    2  1 1   3160 0  CANCELLED_by_1002
28 someof      carol completed  6    2  1 1   3160 0  -
31 suspended   alice completed  3    3  1 1   3220 0  -
33 cancelledby bob   aborted    7    2  8 1   3140 0  PREEMPTED
34 requeuedby  bob   aborted    7    1  8 1   3260 0  PREEMPTED
35 urgent      alice completed  2    3 16 2   3344 0  -
34 requeuedby  bob   completed  8    3  8 1   3096 0  -
36 lostnode    carol aborted    6    0  1 1      - 0  NODE_FAIL
37 movednode   carol completed  6    3  1 1   3208 0  -
"""
"""Read from sacct's table by hand, in its order: raw id, name, user, status, wall s, CPU ms, cores, nodes, largest
resident set of any step in KiB, exit code or signal, Slurm's word for the end.

32 missed its deadline before it could start; 17 (its dependency failed) and 20 (cancelled while held) never started
either, and only the job completion log knows of them; the fourth task of 28 was cancelled while it waited and stands
nowhere. 31 was suspended for 5 of its 8 s.
"""
NEVER_STARTED = {"sacct-asked.txt": 1, "sacct-all-D.psv": 1, "sacct.json.gz": 1, "jobcomp.txt": 3}
"""What tells of how many jobs that never started: the forms in which the same runs are kept."""


@pytest.fixture
def folder(fixtures: Path) -> Path:
    return fixtures / "slurm" / "real"


def read(path: Path) -> tuple[list[Job], int, int]:
    """The runs of a saved file, how many jobs were passed over, and how many steps were merged into runs."""
    jobs: list[Job] = []
    skipped = merged = 0
    for page in SlurmSource("slurm", Settings(type="slurm", path=path)).pages({}):
        assert page.unreadable == ()
        jobs += page.jobs
        skipped += page.skipped
        merged += page.merged
    return jobs, skipped, merged


def shown(job: Job, *, accounted: bool = True) -> tuple[object, ...]:
    """A run as a line of `RUNS`; without the values that only accounting has if not `accounted`."""
    code = f"s{job.exit_signal}" if job.exit_signal else str(job.exit_code)
    row = (job.local_id, job.name, job.local_user, job.status)
    if not accounted:
        return (*row, job.cores, job.nodes, code)
    return (
        *row, (job.wall_ms or 0) // 1000, job.cpu_ms, job.cores, job.nodes, job.memory_rss_kib, code, job.end_reason,
    )  # fmt: skip


def expected() -> list[tuple[object, ...]]:
    """`RUNS` as `shown` has them."""
    rows: list[tuple[object, ...]] = []
    for line in RUNS.splitlines():
        number, name, user, status, wall, cpu, cores, nodes, rss, code, reason = line.split()
        name = name.replace("_", " ").replace("\\n", "\n")
        rows.append(
            (
                number, name, user, status, int(wall), int(cpu), int(cores), int(nodes),
                None if rss == "-" else int(rss), code, None if reason == "-" else reason.replace("_by_", " by "),
            )
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("name", ["sacct-asked.txt", "sacct-all-D.psv"])
def test_each_run(folder: Path, name: str) -> None:
    jobs, skipped, merged = read(folder / name)
    assert [shown(job) for job in jobs] == expected()
    assert (skipped, merged) == (NEVER_STARTED[name], 40)


def test_the_saved_table_is_what_the_source_asks_for(folder: Path) -> None:
    """But for the sampled usage, which is asked for since: `sacct-all-D.psv` has that of the same runs."""
    header = (folder / "sacct-asked.txt").read_text().splitlines()[0]
    assert tuple(header.split("\x1f")) == tuple(name for name in sacct.COLUMNS if name != "TRESUsageInTot")
    assert "TRESUsageInTot" in (folder / "sacct-all-D.psv").read_text().splitlines()[0].split("|")


def test_json_gives_the_same_runs(folder: Path) -> None:
    """In another order, without the code of a failed job, which 22.05 does not write there, and without the user who
    cancelled."""
    jobs, skipped, merged = read(folder / "sacct.json.gz")
    assert Counter(shown(job)[:9] for job in jobs) == Counter(row[:9] for row in expected())
    assert (skipped, merged) == (NEVER_STARTED["sacct.json.gz"], 0)


def test_the_job_completion_log_gives_the_same_runs(folder: Path) -> None:
    """It is in the order of the ends, and has neither CPU time nor memory nor suspensions."""
    jobs, skipped, merged = read(folder / "jobcomp.txt")
    known = [(*row[:4], *row[6:8], row[9]) for row in expected()]
    assert Counter(shown(job, accounted=False) for job in jobs) == Counter(known)
    assert {job.cpu_ms for job in jobs} == {job.memory_rss_kib for job in jobs} == {None}
    assert (skipped, merged) == (NEVER_STARTED["jobcomp.txt"], 0)
    walls = {job.record_id: job.wall_ms for job in read(folder / "sacct-asked.txt")[0]}
    differ = [job for job in jobs if walls[job.record_id] != job.wall_ms]
    assert [(job.name, job.wall_ms) for job in differ] == [("suspended", 8000)]


def test_every_form_gives_the_same_ids(folder: Path) -> None:
    ids = [sorted(job.record_id for job in read(folder / name)[0]) for name in NEVER_STARTED]
    assert all(each == ids[0] for each in ids)
    assert len(set(ids[0])) == len(expected())


def test_runs_of_a_job(folder: Path) -> None:
    """Requeued by hand and by preemption: the first run keeps what it used, the second was submitted anew."""
    jobs, *_ = read(folder / "sacct-asked.txt")
    assert {job: count for job, count in Counter(job.local_id for job in jobs).items() if count > 1} == {
        "25": 2,
        "34": 2,
    }
    first, second = (job for job in jobs if job.local_id == "25")
    assert (first.submit, first.end, second.submit, second.start) == (1795238796, 1795238799, 1795238799, 1795238920)


def test_parts_and_places(folder: Path) -> None:
    jobs = {job.local_id: job for job in read(folder / "sacct-asked.txt")[0]}
    assert [(jobs[number].array_id, jobs[number].array_task) for number in ("22", "23", "3")] == [
        ("3", 1),
        ("3", 3),
        ("3", 5),
    ]
    assert [(jobs[number].extras["het_job_id"], jobs[number].extras["het_offset"]) for number in ("18", "19")] == [
        ("18", 0),
        ("18", 1),
    ]
    assert jobs["13"].gpus == 2
    assert [host.name for host in jobs["11"].hosts] == ["c1", "c2"]
    assert (jobs["2"].extras["Comment"], jobs["2"].extras["WCKey"]) == ("a comment", "w")
    assert (jobs["1"].account, jobs["7"].account, jobs["7"].local_group) == ("chem", "atlas", "physics")
    assert (jobs["33"].queue, jobs["34"].queue, jobs["35"].queue) == ("killed", "requeued", "work")


def test_sums_agree_with_sacct(folder: Path) -> None:
    """Elapsed time, and elapsed time by cores, of sacct's own table; a name there goes over two lines."""
    reported = [line.split()[-7:] for line in (folder / "sacct-long.txt").read_text().splitlines()[2:] if ":" in line]
    jobs, *_ = read(folder / "sacct-asked.txt")
    assert sum(job.wall_ms or 0 for job in jobs) == 1000 * sum(int(row[3]) for row in reported)
    used = sum((job.wall_ms or 0) * (job.cores or 0) for job in jobs)
    assert used == 1000 * sum(int(row[5]) for row in reported)


def test_each_size_of_a_resized_job_is_a_run_of_its_own(fixtures: Path) -> None:
    """2 cores for 4 s, then 1 core for 5 s. Slurm gives both the same start, and 9 s to the second."""
    jobs, *_ = read(fixtures / "slurm" / "two_clusters" / "saved.psv")
    first, second = (job for job in jobs if job.local_id == "39")
    assert (first.start, first.end, first.wall_ms, first.cores) == (1795399027, 1795399031, 4000, 2)
    assert (second.start, second.end, second.wall_ms, second.cores) == (1795399031, 1795399036, 5000, 1)
    assert first.record_id != second.record_id


def test_runs_of_two_clusters_are_distinguished_by_their_cluster(fixtures: Path) -> None:
    jobs, *_ = read(fixtures / "slurm" / "two_clusters" / "saved.psv")
    assert Counter(job.cluster for job in jobs) == {"cluster": 40, "north": 6}
    assert len({job.record_id for job in jobs}) == 46
    assert [job.local_user for job in jobs if job.name == "gone"] == ["dave"], "who is no user any more"
