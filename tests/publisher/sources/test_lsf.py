"""Source lsf: the fixture's jobs, the samples', records of several lines, and damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.job import Job
from publisher.config import schema
from publisher.errors import ConfigError
from publisher.sources import lsf
from publisher.sources.base import Line, UnreadableLine
from publisher.sources.lsf import MAX_RECORD_BYTES, LsfParser, LsfSource
from tests.extent import short_or_whole
from tests.publisher.sources.log_reading import Seen, compare, fuzz, parse_all, read_on


def source(path: Path) -> LsfSource:
    return LsfSource("lsf", schema.SourceSettings(type="lsf", path=path, cluster="c1"))


def parser() -> LsfParser:
    return LsfParser("c1")


@pytest.fixture(scope="module")
def seen(fixtures: Path) -> Seen:
    return read_on(source(fixtures / "lsf" / "lsb.acct"), Seen())


@pytest.fixture(scope="module")
def lines(fixtures: Path) -> list[bytes]:
    names = ("lsb.acct.1", "lsb.acct")
    return [line for name in names for line in (fixtures / "lsf" / name).read_bytes().splitlines()]


def one(seen: Seen, local_id: str) -> Job:
    (job,) = (job for job in seen.jobs.values() if job.local_id == local_id)
    return job


def test_the_fixture(seen: Seen, fixtures: Path, rewrite_golden: bool) -> None:
    compare(fixtures / "lsf" / "expected.json", list(seen.jobs.values()), rewrite=rewrite_golden)
    assert [each.reason.split(":")[0] for each in seen.unreadable] == [
        "a quoted text in it is never closed",
        "cut off",
        "ends at 1793001500, before its start at 1793001600",
        "does not begin with the type of a record and a version",
        "a quoted text in it is never closed",
    ]


def test_slots_of_hosts(seen: Seen) -> None:
    assert (one(seen, "202").slots, one(seen, "202").nodes) == (32, 2)
    assert [(host.name, host.slots) for host in one(seen, "201").hosts] == [("n1", 2), ("n2", 1)]


def test_what_never_ran_is_not_a_run(seen: Seen) -> None:
    assert not [job for job in seen.jobs.values() if job.local_id == "207"]


def test_unknown_is_not_zero(seen: Seen) -> None:
    job = one(seen, "208")
    assert (job.cpu_ms, job.cpu_user_ms, job.memory_rss_kib, job.exit_code) == (None, None, None, 255)


def test_a_requeued_job_has_two_runs(seen: Seen) -> None:
    runs = [job for job in seen.jobs.values() if job.local_id == "209"]
    assert [(job.status, job.end_reason) for job in runs] == [("aborted", "TERM_REQUEUE_OWNER"), ("completed", None)]


@pytest.mark.parametrize(
    ("local_id", "expected"),
    [
        ("201", ("completed", 0, None, None)),
        ("203", ("failed", 137, None, "TERM_RUNLIMIT")),
        ("206", ("cancelled", None, 15, "TERM_OWNER")),
        ("208", ("failed", 255, None, None)),
    ],
)
def test_endings(seen: Seen, local_id: str, expected: tuple[object, ...]) -> None:
    job = one(seen, local_id)
    assert (job.status, job.exit_code, job.exit_signal, job.end_reason) == expected


def test_commands_are_never_kept(seen: Seen, fixtures: Path) -> None:
    kept = (fixtures / "lsf" / "expected.json").read_text(encoding="utf-8")
    assert "run.sh" not in kept
    assert "quoted" not in kept
    assert one(seen, "204").name == 'say "hi"'


def test_time_without_suspension_is_reported_beside_the_wall_time(seen: Seen) -> None:
    assert (one(seen, "211").wall_ms, one(seen, "211").extras["runTime"]) == (90_000, 50)


def test_a_record_of_several_lines(seen: Seen) -> None:
    assert one(seen, "205").name == "newline"


def test_a_quote_that_is_never_closed_is_bounded() -> None:
    given_up = parser()
    assert given_up.parse(b'"JOB_FINISH" "10.1" 17 "open') is Line.MORE
    outcomes = [given_up.parse(b"x" * 1000) for _ in range(300)]
    assert [isinstance(outcome, UnreadableLine) for outcome in outcomes].count(True) == 1, (
        "the record, not each of its lines"
    )
    again = parser()
    again.resume(json.loads(json.dumps(given_up.state())))
    for each in (given_up, again):
        assert each.parse(b"still open") is Line.IGNORED
        assert each.parse(b'and closed here" 5') is Line.IGNORED
        assert isinstance(each.parse(b"no record"), UnreadableLine)
        assert each.state() is None


@settings(max_examples=short_or_whole(8, 25))
@given(data=st.data())
def test_any_split_into_reads_gives_the_same(
    data: st.DataObject, fixtures: Path, seen: Seen, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, new = ((fixtures / "lsf" / name).read_bytes() for name in ("lsb.acct.1", "lsb.acct"))
    place = tmp_path_factory.mktemp("lsf")
    live = place / "lsb.acct"
    grown = Seen()
    for content in (old, new):
        begin = 0
        for cut in [*sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=4))), len(content)]:
            with live.open("ab") as stream:
                stream.write(content[begin:cut])
            begin = cut
            read_on(source(live), grown)
        if content is old:
            live.rename(place / "lsb.acct.1")
            live.write_bytes(b"")
    assert grown.jobs == seen.jobs
    assert [each.reason for each in grown.unreadable] == [each.reason for each in seen.unreadable]


@pytest.mark.parametrize("damage", [b"\0garbage", b'"', b"", b'"JOB_FINISH" "10.1" x'])
def test_a_damaged_line_costs_only_its_own_job(lines: list[bytes], damage: bytes) -> None:
    whole, _ = parse_all(parser(), lines)
    for index, line in enumerate(lines):
        found, _ = parse_all(parser(), [*lines[:index], damage, *lines[index + 1 :]])
        lost = [job.local_id for key, job in whole.jobs.items() if key not in found.jobs]
        begun = [
            b.split(b" ")[3].decode() for b in lines[max(index - 2, 0) : index + 1] if b.startswith(b'"JOB_FINISH"')
        ]
        assert len(lost) <= 1, (index, line)
        assert not lost or str(lost[0]).split("[")[0] in begun, (index, line)


def test_the_path_is_needed_and_the_cluster_should_have_a_name(fixtures: Path) -> None:
    with pytest.raises(ConfigError, match=r"sources\.lsf\.path"):
        LsfSource("lsf", schema.SourceSettings(type="lsf"))
    path = fixtures / "lsf"
    nameless = LsfSource("lsf", schema.SourceSettings(type="lsf", path=path))
    assert any("cluster" in finding.hint for finding in nameless.check())
    assert not any("cluster" in finding.hint for finding in source(path / "lsb.acct").check())


def test_fuzz(lines: list[bytes]) -> None:
    assert fuzz(parser(), lines, short_or_whole(7_000, 20_000)) > short_or_whole(125, 500)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fuzz_long(lines: list[bytes]) -> None:
    fuzzed = parser()
    assert fuzz(fuzzed, lines, 1_000_000) > 20_000
    assert len(str(fuzzed.state() or "")) <= MAX_RECORD_BYTES


def test_the_samples(shared: Path) -> None:
    sample = (shared / "samples" / "lsf" / "lsb.acct").read_bytes().splitlines()
    found, refused = parse_all(parser(), sample)
    assert refused == []
    jobs = {job.local_id: job for job in found.jobs.values()}
    assert list(jobs) == ["11493", "699195", "7610", "404717"]
    assert (jobs["404717"].slots, jobs["404717"].cores, jobs["404717"].nodes) == (128, 128, 8)  # 128, not 8
    assert jobs["404717"].cpu_ms == 5_794_523_290
    assert (jobs["7610"].cpu_ms, jobs["7610"].exit_code, jobs["7610"].wall_ms) == (None, 255, 839_000)  # -1 is unknown
    assert (jobs["699195"].memory_rss_kib, jobs["699195"].memory_virtual_kib) == (310_424, 339_112)
    assert jobs["11493"].cores == 1  # cut off after what counts


def test_a_long_record_is_split_as_every_other(lines: list[bytes]) -> None:
    records = [line for line in lines if lsf.record_type(line) and not lsf.goes_on(line)]
    expected = [lsf.fields(line) for line in records]
    long = b"x" * (lsf._CSV_CHARACTERS + 1)
    found = [lsf.fields(line.rstrip(b"\r\n") + b' "' + long + b'"') for line in records]
    assert [each[:-1] for each in found] == expected
    assert {each[-1] for each in found} == {long.decode()}
    assert len(records) > 10
