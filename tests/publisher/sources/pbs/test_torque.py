"""Source torque: the fixture's jobs, the samples', and that no cut of a log into reads changes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.identity import run_record_id
from formats.job import Events, Job
from publisher.config import schema
from publisher.errors import ConfigError, SourceError, SourceMissingError
from publisher.sources.base import Window
from publisher.sources.pbs import history
from publisher.sources.pbs.jobs import TORQUE
from publisher.sources.pbs.source import PbsParser, TorqueSource
from tests.extent import short_or_whole
from tests.publisher.sources.log_reading import Seen, compare, fuzz, parse_all, read_on

ZONE = "Europe/Oslo"


def source(path: Path, zone: str = ZONE) -> TorqueSource:
    return TorqueSource("ce1", schema.SourceSettings(type="torque", path=path, timezone=zone))


def parser() -> PbsParser:
    return PbsParser(TORQUE, ZONE, None)


@pytest.fixture(scope="module")
def folder(fixtures: Path) -> Path:
    return fixtures / "torque" / "accounting"


@pytest.fixture(scope="module")
def seen(folder: Path) -> Seen:
    return read_on(source(folder), Seen())


@pytest.fixture(scope="module")
def lines(folder: Path) -> list[bytes]:
    return [line for file in sorted(folder.iterdir()) for line in file.read_bytes().splitlines()]


def runs_of(seen: Seen, local_id: str) -> list[Job]:
    return [job for job in seen.jobs.values() if job.local_id == local_id]


def path_of(job: Job) -> str:
    return "" if job.events is None else job.events.kinds.replace(" ", "")


def test_the_fixture(seen: Seen, fixtures: Path, rewrite_golden: bool) -> None:
    compare(fixtures / "torque" / "expected.json", list(seen.jobs.values()), rewrite=rewrite_golden)
    assert seen.at_end


def test_lines_that_are_not_records_are_kept_with_their_reason(seen: Seen) -> None:
    assert [(Path(each.file).name, each.line, each.reason.split(":")[0]) for each in seen.unreadable] == [
        ("20261025", 1, "it does not have the form `MM/DD/YYYY HH"),
        ("20261025", 8, "no end"),
        ("20261025", 9, "record type 'z' is not one of torque's"),
        ("20261025", 10, "a part of a record, followed by another record in the same line"),
        ("20261025", 11, "contains NUL bytes, which an interrupted write leaves"),
    ]


@pytest.mark.parametrize(
    ("local_id", "expected"),
    [
        ("101", [("completed", 0, "QSE", 1200)]),
        ("102", []),  # deleted while it waited
        ("103", [("cancelled", 0, "QSDE", 175)]),
        ("104", [("never_started", 0, "QS", None), ("never_started", 1, "QSS", None), ("failed", 2, "QSSSE", 670)]),
        ("105", [("lost", 0, "QSR", 3600), ("completed", 1, "QSRSE", 12000)]),  # over midnight
        ("106", [("aborted", 0, "QSE", 390), ("completed", 1, "QSERSE", 300)]),
        ("114", [("lost", 0, "QSR", 1200), ("completed", 1, "QSRSE", 1500)]),  # over the end of summer time
        ("119", [("running", 0, "QS", None)]),
        ("120", []),
    ],
)
def test_paths(seen: Seen, local_id: str, expected: list[tuple[object, ...]]) -> None:
    found = [
        (job.status, job.run, path_of(job), job.wall_ms and job.wall_ms // 1000) for job in runs_of(seen, local_id)
    ]
    assert found == expected


def test_a_lost_run_is_estimated(seen: Seen) -> None:
    lost = runs_of(seen, "105")[0]
    assert (lost.status, lost.cores, lost.cpu_ms, lost.extras) == ("lost", 8, None, {"estimated": 1})


def test_a_run_in_progress_is_given_once(folder: Path, seen: Seen) -> None:
    again = read_on(source(folder), Seen(cursor=seen.cursor))
    assert again.jobs == {}
    assert again.unreadable == []


def test_record_ids(seen: Seen) -> None:
    job = runs_of(seen, "107[2]")[0]
    assert job.record_id == run_record_id("torque", "batch.example.org", "107[2]", job.start)
    assert (job.array_id, job.array_task) == ("107", 2)
    assert len(seen.jobs) == len({job.record_id for job in seen.jobs.values()})


def test_what_was_a_file_from_the_beginning_is_complete_from_then_on(folder: Path) -> None:
    torque = source(folder)
    read_on(torque, Seen())
    assert torque.complete_since() == 1792792800  # 2026-10-24T00:00 in Oslo


def test_removed_days_leave_it_complete(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    seen = read_on(source(tmp_path), Seen())
    (tmp_path / "20261024").unlink()
    later = source(tmp_path)
    read_on(later, seen)
    assert later.complete_since() == 1792792800


def test_a_window_gives_the_same_runs_and_leaves_the_cursor(folder: Path, seen: Seen) -> None:
    window = Window(1792870000, 1792872000)
    pages = list(source(folder).pages({"mine": 1}, window))
    again = {job.record_id: job for page in pages for job in page.jobs}
    assert again == {
        key: job for key, job in seen.jobs.items() if job.end is not None and 1792870000 <= job.end < 1792872000
    }
    assert again
    assert all(page.cursor == {"mine": 1} for page in pages)


@settings(max_examples=short_or_whole(8, 25))
@given(data=st.data())
def test_any_split_into_reads_gives_the_same(
    data: st.DataObject, folder: Path, seen: Seen, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = [(file.name, file.read_bytes()) for file in sorted(folder.iterdir())]
    total = sum(len(content) for _, content in files)
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=8)))
    place = tmp_path_factory.mktemp("split")
    grown, begin = Seen(), 0
    for cut in [*cuts, total]:
        at = 0
        for name, content in files:
            part = content[max(begin - at, 0) : max(cut - at, 0)]
            if part:
                with (place / name).open("ab") as stream:
                    stream.write(part)
            at += len(content)
        begin = cut
        if any(place.iterdir()):
            read_on(source(place), grown)
    assert grown.jobs == seen.jobs
    assert [(each.line, each.reason) for each in grown.unreadable] == [
        (each.line, each.reason) for each in seen.unreadable
    ]


@pytest.mark.parametrize("damage", [lambda line: b"\0garbage", lambda line: line[: len(line) // 2], lambda line: b""])
def test_a_damaged_line_costs_only_its_own_job(lines: list[bytes], damage: Callable[[bytes], bytes]) -> None:
    whole, _ = parse_all(parser(), lines)
    for index, line in enumerate(lines):
        found, _ = parse_all(parser(), [*lines[:index], damage(line), *lines[index + 1 :]])
        own = line.split(b";")[2].split(b".")[0].decode() if line.count(b";") >= 2 else ""
        for key, job in whole.jobs.items():
            if job.local_id != own and key not in found.suspects:
                assert found.jobs.get(key) == job, (index, line)


def test_an_end_alone_gives_its_run(lines: list[bytes]) -> None:
    """If files are missing, the earlier part of a path is lost, but not the usage."""
    whole, _ = parse_all(parser(), lines)
    ends, _ = parse_all(parser(), [line for line in lines if b";E;" in line])
    for key, job in ends.jobs.items():
        assert (job.wall_ms, job.cpu_ms, job.cores) == (
            whole.jobs[key].wall_ms,
            whole.jobs[key].cpu_ms,
            whole.jobs[key].cores,
        )
        if whole.jobs[key].events and path_of(whole.jobs[key]) == "QSE":
            assert job == whole.jobs[key]


RERUN = b"""\
10/24/2026 20:00:00;Q;1.s;queue=a
10/24/2026 20:00:10;S;1.s;user=a queue=a ctime=1792864800 qtime=1792864800 start=1792864810 exec_host=n/0
10/24/2026 20:01:10;E;1.s;user=a queue=a ctime=1792864800 qtime=1792864800 start=1792864810 exec_host=n/0 \
end=1792864870 Exit_status=%d resources_used.walltime=00:01:00
10/24/2026 20:01:11;R;1.s;
10/24/2026 20:02:00;S;1.s;user=a queue=a ctime=1792864800 qtime=1792864800 start=1792864920 exec_host=n/0
10/24/2026 20:03:00;E;1.s;user=a queue=a ctime=1792864800 qtime=1792864800 start=1792864920 exec_host=n/0 \
end=1792864980 Exit_status=0 resources_used.walltime=00:01:00
"""
"""As TORQUE writes it where it was built to keep the usage of reruns."""


@pytest.mark.parametrize("status", [0, 271, -3])
@pytest.mark.parametrize("cut", range(7))
def test_a_path_with_several_ends(tmp_path: Path, status: int, cut: int) -> None:
    """However the first run ended, and wherever a reading stopped."""
    lines = (RERUN % status).splitlines(keepends=True)
    seen = Seen()
    for part in (lines[:cut], lines[cut:]):
        with (tmp_path / "20261024").open("ab") as file:
            file.writelines(part)
        read_on(source(tmp_path), seen)
    first, second = sorted(seen.jobs.values(), key=lambda job: job.start or 0)
    assert (path_of(first), path_of(second)) == ("QSE", "QSERSE")
    assert (first.run, second.run) == (0, 1)
    (tmp_path / "20261024").rename(tmp_path / "20261025")
    (tmp_path / "20261025").write_bytes(b"10/24/2026 19:00:00;L;license;x\n" + RERUN % status)
    if status == 0:
        assert read_on(source(tmp_path), Seen(cursor=seen.cursor)).jobs == seen.jobs, "read again, nothing changes"


def test_what_is_remembered_is_bounded() -> None:
    small = PbsParser(TORQUE, ZONE, None, history.HistoryLimits(weight=50, ended=10, completed=10))
    for number in range(500):
        small.parse(b"10/24/2026 20:00:00;Q;%d.s;queue=a" % number)
        small.parse(
            b"10/24/2026 20:00:00;S;%d.s;user=a start=%d exec_host=%s" % (number, 1_792_864_800, b"n/0+" * 100 + b"n/1")
        )
        small.parse(b"10/24/2026 20:00:00;D;%d.x;" % number)
        small.parse(
            b"10/24/2026 20:00:00;E;%d.z;user=a start=1792864800 end=1792864800 Exit_status=0 exec_host=n/0" % number
        )
        for _ in range(3):
            small.parse(b"10/24/2026 20:00:00;C;1.y;")
    assert len(small.state()) < 16_000


def test_a_path_that_grows_without_end_is_cut_in_the_middle() -> None:
    one = parser()
    for number in range(1000):
        one.parse(b"10/24/2026 20:00:00;C;1.s;%d" % number)
    job = one.parse(b"10/24/2026 21:00:00;E;1.s;user=a start=1792864800 end=1792868400 Exit_status=0")
    assert isinstance(job, Job)
    assert len((job.events or Events("", ())).times) <= history.MAX_EVENTS + 1
    assert job.extras["events_left_out"] == 1000 + 1 - history.MAX_EVENTS


def test_a_rerun_before_its_start_is_refused() -> None:
    one = PbsParser(TORQUE, "UTC", None)
    one.parse(b"10/24/2026 20:00:00;S;1.s;user=a start=1792864800 exec_host=n/0")
    assert "timezone" in str(one.parse(b"10/24/2026 17:00:00;R;1.s;"))


def test_a_wrong_time_zone_is_found(folder: Path) -> None:
    findings = source(folder, "America/New_York").check()
    assert any(finding.level == "yellow" and "timezone" in finding.hint for finding in findings)
    assert not any("timezone" in finding.hint for finding in source(folder).check())


def test_a_single_odd_line_is_not_a_wrong_time_zone(tmp_path: Path) -> None:
    fits = b"10/24/2026 20:00:00;E;1.s;user=a start=1792864700 end=1792864800 Exit_status=0\n"
    (tmp_path / "20261024").write_bytes(fits * 9 + fits.replace(b" 20:", b" 05:"))
    assert not any("timezone" in finding.hint for finding in source(tmp_path).check())


def test_a_cursor_of_something_else_is_read_from_the_beginning(folder: Path, seen: Seen) -> None:
    for parser_state in ("{", 7, None, "[1]"):
        again = read_on(source(folder), Seen(cursor={"parser": parser_state, "since": "x"}))
        assert again.jobs == seen.jobs


def test_no_path_no_files_other_files(tmp_path: Path, fixtures: Path) -> None:
    with pytest.raises(ConfigError, match=r"sources\.ce1\.path"):
        TorqueSource("ce1", schema.SourceSettings(type="torque"))
    with pytest.raises(SourceMissingError):
        read_on(source(tmp_path), Seen())
    (tmp_path / "20261024").write_bytes((fixtures / "lsf" / "lsb.acct").read_bytes())
    with pytest.raises(SourceError, match="LSF"):
        read_on(source(tmp_path), Seen())


def test_fuzz(lines: list[bytes]) -> None:
    assert fuzz(parser(), lines, short_or_whole(7_000, 20_000)) > short_or_whole(250, 1_000)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fuzz_long(lines: list[bytes]) -> None:
    one = parser()
    assert fuzz(one, lines, 1_000_000) > 50_000
    assert len(one.state()) < 64_000_000


def test_the_samples(shared: Path) -> None:
    sample = (shared / "samples" / "torque" / "accounting.log").read_bytes().splitlines()
    found, refused = parse_all(PbsParser(TORQUE, "Australia/Adelaide", None), sample)
    assert refused == []
    jobs = {job.local_id: job for job in found.jobs.values()}
    assert sorted(jobs, key=str) == ["21048463", "27542", "45"]
    eleven = jobs["27542"]  # seven single places and 0-3, although nodes=1:ppn=8 was asked for
    assert (eleven.slots, eleven.cores, eleven.nodes) == (11, 11, 2)
    assert (eleven.wall_ms, eleven.cpu_ms) == (15_868_000, 10_000)
    assert (eleven.memory_rss_kib, eleven.memory_virtual_kib, eleven.client_host) == (
        3348,
        54768,
        "cw-vm-d195.sa.nectar.org.au",
    )
    assert (jobs["45"].cores, jobs["45"].cpu_ms) == (4, 0)  # plain seconds
    assert (jobs["21048463"].cpu_ms, jobs["21048463"].extras["resources_used.walltime"]) == (65_724_000, "19:23:4")
