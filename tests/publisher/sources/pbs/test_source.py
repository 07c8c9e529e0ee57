"""Source pbs: the fixture's jobs, the samples', and that no cut of a log into reads changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.job import Job
from publisher.config import schema
from publisher.errors import SourceMissingError
from publisher.sources.pbs.jobs import PBS, TORQUE
from publisher.sources.pbs.source import PbsParser, PbsProSource
from tests.extent import short_or_whole
from tests.publisher.sources.log_reading import Seen, compare, fuzz, parse_all, read_on

ZONE = "America/Denver"


def source(path: Path) -> PbsProSource:
    return PbsProSource("hpc", schema.SourceSettings(type="pbs", path=path, timezone=ZONE))


def parser() -> PbsParser:
    return PbsParser(PBS, ZONE, None)


@pytest.fixture(scope="module")
def seen(fixtures: Path) -> Seen:
    return read_on(source(fixtures / "pbs" / "accounting"), Seen())


@pytest.fixture(scope="module")
def lines(fixtures: Path) -> list[bytes]:
    return [
        line for file in sorted((fixtures / "pbs" / "accounting").iterdir()) for line in file.read_bytes().splitlines()
    ]


def runs_of(seen: Seen, local_id: str) -> list[Job]:
    return [job for job in seen.jobs.values() if job.local_id == local_id]


def test_the_fixture(seen: Seen, fixtures: Path, rewrite_golden: bool) -> None:
    compare(fixtures / "pbs" / "expected.json", list(seen.jobs.values()), rewrite=rewrite_golden)
    assert [each.line for each in seen.unreadable] == [55, 56, 57]


def test_26_cores_not_2(seen: Seen) -> None:
    (job,) = runs_of(seen, "1")
    assert (job.cores, job.slots, job.nodes) == (26, 26, 2)


def test_a_rerun_with_usage_is_a_run_of_its_own(seen: Seen) -> None:
    first, second = runs_of(seen, "2")
    assert (first.status, first.run, first.wall_ms, first.finished) == ("aborted", 0, 3000, True)
    assert (second.status, second.run, second.wall_ms) == ("completed", 1, 100_000)


def test_gpus_and_a_chunk_without_cpus(seen: Seen) -> None:
    (job,) = runs_of(seen, "3")
    assert (job.gpus, job.cores, [(host.name, host.slots) for host in job.hosts]) == (2, 8, [("g1", 8), ("g2", 0)])


def test_quotes_and_blanks(seen: Seen) -> None:
    (job,) = runs_of(seen, "4")
    assert (job.account, job.project, job.name, job.local_group) == ("my lab", "a b", "x y", "RConsole Users")
    assert job.extras["Resource_List.both"] == 'it\'s "x" y'
    assert job.extras["Resource_List.site"] == "it's; end=7"


def test_arrays_are_their_tasks(seen: Seen) -> None:
    assert [job.array_task for job in seen.jobs.values() if job.array_id == "5"] == [1, 2]
    assert runs_of(seen, "5[]") == []


def test_a_shrunken_job_shows_its_core_seconds(seen: Seen) -> None:
    (job,) = runs_of(seen, "6")
    assert job.extras["core_seconds"] == 12 * 100 + 8 * 200 + 4 * 100
    assert job.cores == 12


def test_phases_without_a_last_one() -> None:
    """If the `e` record is missing, the last `c` record has the cores of the rest."""
    one = parser()
    hosts = b"user=a start=1000 exec_host=n1/0*4+n2/0*4 exec_vnode=(n1:ncpus=4)+(n2:ncpus=4)"
    one.parse(b"01/01/2026 00:00:00;u;1.s;" + hosts + b" resources_used.walltime=00:01:40")
    one.parse(b"01/01/2026 00:00:00;c;1.s;user=a start=1000 exec_host=n1/0*4 exec_vnode=(n1:ncpus=4)")
    job = one.parse(b"01/01/2026 00:05:00;E;1.s;" + hosts + b" end=1300 Exit_status=0 resources_used.ncpus=8")
    assert isinstance(job, Job)
    assert job.extras["core_seconds"] == 8 * 100 + 4 * 200


def test_suspension_is_reported_beside_the_wall_time(seen: Seen) -> None:
    (job,) = runs_of(seen, "7")
    assert (job.wall_ms, job.extras["suspended_seconds"]) == (490_000, 300)
    assert job.extras["resources_used.walltime"] == "00:03:10"


def test_what_never_ran_is_not_a_run(seen: Seen) -> None:
    for local_id in ("8", "9", "10", "14", "15", "17", "R11", "license"):
        assert runs_of(seen, local_id) == []


def test_hosts_that_are_exchanged_at_the_start(seen: Seen) -> None:
    (job,) = runs_of(seen, "12")
    assert (job.events and job.events.kinds, job.hosts[0].name) == ("Q P p S s E", "n4")


def test_in_two_reads(fixtures: Path, tmp_path: Path, seen: Seen) -> None:
    files = sorted((fixtures / "pbs" / "accounting").iterdir())
    content = files[0].read_bytes()
    for cut in range(0, len(content), 977):
        place = tmp_path / str(cut)
        place.mkdir()
        (place / files[0].name).write_bytes(content[:cut])
        grown = read_on(source(place), Seen())
        for file in files:
            (place / file.name).write_bytes(file.read_bytes())
        assert read_on(source(place), grown).jobs == seen.jobs


def test_its_types_are_not_torques(lines: list[bytes]) -> None:
    _, refused = parse_all(PbsParser(TORQUE, ZONE, None), lines)
    assert len(refused) > 10


def test_fuzz(lines: list[bytes]) -> None:
    assert fuzz(parser(), lines, short_or_whole(7_000, 20_000)) > short_or_whole(225, 900)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fuzz_long(lines: list[bytes]) -> None:
    one = parser()
    assert fuzz(one, lines, 1_000_000) > 50_000
    assert len(one.state()) < 64_000_000


def test_the_samples_of_pbs_pro(shared: Path) -> None:
    sample = (shared / "samples" / "pbs" / "pbspro.log").read_bytes().splitlines()
    found, refused = parse_all(parser(), sample)
    assert refused == []
    jobs = {job.local_id: job for job in found.jobs.values()}
    assert list(jobs) == ["4413086", "4400521", "124231"]
    rerun = jobs["4400521"]
    assert (rerun.run, rerun.wall_ms, rerun.status, rerun.end_reason) == (
        20,
        3000,
        "aborted",
        "rerun, -3 JOB_EXEC_RETRY",
    )
    killed = jobs["4413086"]
    assert (killed.exit_signal, killed.account, killed.gpus, killed.cores) == (15, "SCSG0001", 1, 1)
    assert (killed.wall_ms, killed.extras["resources_used.walltime"]) == (3_330_000, "00:55:26")


def test_the_samples_of_xdmod(shared: Path) -> None:
    sample = (shared / "samples" / "pbs" / "xdmod-accounting-logs.log").read_bytes().splitlines()
    found, refused = parse_all(parser(), sample)
    assert refused == []
    cores = {job.local_id: job.cores for job in found.jobs.values()}
    assert cores == {"6": 32, "6464684": 4, "2994": 65, "7904": None, "10711": 28}
    no_usage = next(job for job in found.jobs.values() if job.local_id == "7904")
    assert (no_usage.wall_ms, no_usage.cpu_ms, no_usage.memory_rss_kib) == (8_407_000, None, None)
    assert next(job for job in found.jobs.values() if job.local_id == "10711").memory_rss_kib == 12565


LACKS = "has no accounting file, which the server names by its day, such as 20261101"


@pytest.mark.parametrize(("others", "said"), [(0, f"is empty: it {LACKS}"), (2, f"{LACKS}; it has 2 other files")])
def test_a_folder_without_accounting_files_is_named_with_what_to_do(tmp_path: Path, others: int, said: str) -> None:
    for number in range(others):
        (tmp_path / f"sched_log.{number}").touch()
    (finding, *_) = source(tmp_path).check()
    assert (finding.level, finding.message) == ("red", f"the folder {tmp_path} {said}")
    assert finding.hint.startswith("Set `path` of the source to the folder in which the batch system writes this log")
    with pytest.raises(SourceMissingError, match="has no accounting file"):
        list(source(tmp_path).pages({}))
