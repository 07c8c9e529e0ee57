"""Source slurm: tables, documents and logs that were saved; the same jobs from each."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.job import Job
from publisher.config import schema
from publisher.errors import ConfigError
from publisher.sources.base import Line, UnreadableLine, Window
from publisher.sources.slurm.parser import MOST_BYTES, SlurmParser
from publisher.sources.slurm.source import SlurmSource
from tests.extent import short_or_whole
from tests.publisher.sources.log_reading import Seen, compare, fuzz, read_on
from tests.publisher.sources.saved_reading import grown, parse_to_end

FILES = ("sacct.psv", "jobcomp.log", "sacct-22.05.json", "sacct-24.05.json")


def source(path: Path, **more: object) -> SlurmSource:
    return SlurmSource("slurm", schema.SourceSettings.model_validate({"type": "slurm", "path": path, **more}))


def parser() -> SlurmParser:
    return SlurmParser("c1", "UTC")


@pytest.fixture(scope="module")
def seen(fixtures: Path) -> Seen:
    return read_on(source(fixtures / "slurm" / "sacct.psv"), Seen())


@pytest.fixture(scope="module")
def lines(fixtures: Path) -> list[bytes]:
    return (fixtures / "slurm" / "sacct.psv").read_bytes().splitlines()


def runs(seen: Seen, local_id: str) -> list[Job]:
    return [job for job in seen.jobs.values() if job.local_id == local_id]


def one(seen: Seen, local_id: str) -> Job:
    (job,) = runs(seen, local_id)
    return job


@pytest.mark.parametrize("name", FILES)
def test_the_fixtures(fixtures: Path, name: str, rewrite_golden: bool) -> None:
    found = read_on(source(fixtures / "slurm" / name), Seen())
    compare(fixtures / "slurm" / f"{name}.jobs.json", list(found.jobs.values()), rewrite=rewrite_golden)
    assert (found.unreadable, found.at_end) == ([], True)


def test_every_spelling_gives_the_same(seen: Seen, fixtures: Path) -> None:
    for name in FILES[1:]:
        other = read_on(source(fixtures / "slurm" / name), Seen())
        finished = {key for key, job in seen.jobs.items() if job.finished}
        assert finished == {key for key, job in other.jobs.items() if job.finished}
        for key in finished:
            mine, its = seen.jobs[key], other.jobs[key]
            for fact in (
                "status",
                "local_id",
                "name",
                "start",
                "end",
                "submit",
                "cores",
                "nodes",
                "gpus",
                "hosts",
                "array_id",
            ):
                assert getattr(mine, fact) == getattr(its, fact), (name, key, fact)
            if name.endswith(".json"):
                assert (mine.cpu_ms, mine.wall_ms, mine.energy_j) == (its.cpu_ms, its.wall_ms, its.energy_j)
                assert mine.memory_rss_kib == its.memory_rss_kib


def test_a_requeued_job_has_two_runs(seen: Seen) -> None:
    first, second = runs(seen, "113")
    assert (first.status, first.end_reason, first.wall_ms, first.memory_rss_kib) == ("aborted", "REQUEUED", 7_000, 3048)
    assert (second.status, second.end_reason, second.wall_ms, second.submit) == ("completed", None, 60_000, first.end)


def test_steps_are_folded_into_their_allocation(seen: Seen) -> None:
    job = one(seen, "104")
    assert (job.cores, job.nodes, [host.name for host in job.hosts]) == (26, 2, ["n1", "n2"])
    assert job.memory_rss_kib == 1_572_864  # the largest step, not their sum
    assert job.cpu_ms == (46 * 3600 + 10) * 1000
    assert not [job for job in seen.jobs.values() if "." in str(job.local_id)]


def test_what_never_started_is_not_a_run(seen: Seen) -> None:
    assert not {"121", "122", "130"} & {job.local_id for job in seen.jobs.values()}


def test_cpu_time_that_was_not_measured_is_unknown(seen: Seen) -> None:
    assert (one(seen, "127").cpu_ms, one(seen, "127").wall_ms) == (None, 1_000_000)


def test_time_of_suspension_is_not_wall_time(seen: Seen) -> None:
    assert one(seen, "126").wall_ms == 700_000


def test_gpus_and_energy(seen: Seen) -> None:
    assert (one(seen, "105").gpus, one(seen, "105").energy_j, one(seen, "106").gpus) == (2, 361_000.0, 4)


def test_parts_of_a_heterogeneous_job_are_records_of_their_own(seen: Seen) -> None:
    first, second = one(seen, "118"), one(seen, "119")
    assert (first.cores, second.cores) == (4, 64)
    assert [host.name for host in second.hosts] == ["m01", "m02", "m03", "m07"]
    assert (second.extras["het_job_id"], second.extras["het_offset"]) == ("118", 1)


@pytest.mark.parametrize(
    ("local_id", "expected"),
    [
        ("101", ("completed", 0, None, None)),
        ("102", ("failed", 3, None, "FAILED")),
        ("103", ("failed", None, 9, "FAILED")),
        ("107", ("failed", 0, None, "TIMEOUT")),
        ("108", ("failed", None, 125, "OUT_OF_MEMORY")),
        ("109", ("failed", 0, None, "DEADLINE")),
        ("110", ("aborted", 0, None, "NODE_FAIL")),
        ("111", ("aborted", 0, None, "BOOT_FAIL")),
        ("112", ("aborted", 0, None, "PREEMPTED")),
        ("120", ("cancelled", 0, None, "CANCELLED by 1001")),
        ("128", ("running", 0, None, None)),
    ],
)
def test_endings(seen: Seen, local_id: str, expected: tuple[object, ...]) -> None:
    job = one(seen, local_id)
    assert (job.status, job.exit_code, job.exit_signal, job.end_reason) == expected


def test_names_with_the_delimiter_and_with_line_feeds(seen: Seen) -> None:
    assert (one(seen, "123").name, one(seen, "123").extras["Comment"]) == ("pipe|name;x=y with space", "c1|c2")
    assert one(seen, "124").name == "new\nline"


def test_any_order_of_columns_and_a_trailing_delimiter() -> None:
    found = parse_to_end(parser(), [b"End|Start|JobID|State|", b"30|10|5|COMPLETED|", b"31|10|6|TIMEOUT|"])
    assert [(job.local_id, job.start, job.end, job.status) for job in found.jobs.values()] == [
        ("5", 10, 30, "completed"),
        ("6", 10, 31, "failed"),
    ]


def test_a_table_without_times_or_header_is_reported() -> None:
    outcome = parser().parse(b"JobID|JobName|State")
    assert isinstance(outcome, UnreadableLine)
    assert "Start, End" in outcome.reason
    assert isinstance(parser().parse(b"1|2|3|4"), UnreadableLine)


def test_columns_assumed_for_a_file_without_a_header_are_not_those_of_the_next() -> None:
    table = parser()
    row = "{}|a|ada|hep|2026-11-01T10:00:00|2026-11-01T10:01:00|00:01:00|{}|main|2|1|n1|1K|1K|COMPLETED"
    table.file_begins("raw")
    first = parse_to_end(table, [row.format(1, 120).encode()])
    table.file_begins("total")
    second = parse_to_end(table, [row.format(2, "00:01:30").encode()])
    assert [job.cpu_ms for seen in (first, second) for job in seen.jobs.values()] == [None, 90_000]


def test_fields_that_can_be_split_in_several_ways_are_refused() -> None:
    table = parser()
    assert table.parse(b"JobName|User|Comment|JobID|Start|End|State") is Line.IGNORED
    outcome = table.parse(b"a|b|c|d|5|10|20|COMPLETED")
    assert isinstance(outcome, UnreadableLine)
    assert "several ways" in outcome.reason


def test_local_time_is_read_in_its_zone_and_an_hour_that_comes_twice_by_the_elapsed_time() -> None:
    table = SlurmParser("c1", "Europe/Oslo")
    # in 2026 the clocks go back on 25 October at 03:00
    rows = [
        b"JobID|Submit|Start|End|ElapsedRaw|State",
        b"1|2026-10-25T01:30:00|2026-10-25T02:30:00|2026-10-25T02:20:00|3000|COMPLETED",
        b"2|2026-10-25T01:30:00|2026-10-25T02:10:00|2026-10-25T02:20:00|4200|COMPLETED",
        b"3|2026-10-25T01:30:00|2026-10-25T02:10:00|2026-10-25T02:20:00|600|COMPLETED",
        b"4|2026-07-01T01:30:00|2026-07-01T02:10:00|2026-07-01T02:20:00|600|COMPLETED",
    ]
    found = parse_to_end(table, rows)
    spans = {job.local_id: (job.start, job.end) for job in found.jobs.values()}
    assert spans["1"] == (1_792_888_200, 1_792_891_200)
    assert spans["2"] == (1_792_887_000, 1_792_891_200)
    assert spans["3"] == (1_792_887_000, 1_792_887_600)
    assert spans["4"] == (1_782_864_600, 1_782_865_200)


def test_reading_again_gives_nothing_new(fixtures: Path) -> None:
    for name in FILES:
        made = source(fixtures / "slurm" / name)
        first = read_on(made, Seen())
        second = read_on(source(fixtures / "slurm" / name), Seen(cursor=first.cursor))
        assert (second.jobs, second.at_end) == ({}, True)


def test_a_window_gives_what_ended_in_it_and_leaves_the_cursor(fixtures: Path, seen: Seen) -> None:
    window = Window(1_793_491_200 + 60, 1_793_491_200 + 100)
    expected = {key for key, job in seen.jobs.items() if job.end and window.from_ <= job.end < window.until}  # type: ignore[operator]
    assert expected
    for name in FILES:
        pages = list(source(fixtures / "slurm" / name).pages({"kept": 1}, window))
        assert {job.record_id for page in pages for job in page.jobs} == expected
        assert all(page.cursor == {"kept": 1} for page in pages)


def test_a_folder_with_tables_and_documents(fixtures: Path, tmp_path: Path, seen: Seen) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes((fixtures / "slurm" / name).read_bytes())
    found = read_on(source(tmp_path), Seen())
    assert found.jobs.keys() == seen.jobs.keys()
    assert found.at_end
    changed = json.loads((tmp_path / FILES[2]).read_text(encoding="utf-8"))
    changed["jobs"] = changed["jobs"][:1]
    changed["jobs"][0]["job_id"] = 999
    (tmp_path / FILES[2]).write_text(json.dumps(changed), encoding="utf-8")
    again = read_on(source(tmp_path), Seen(cursor=found.cursor))
    assert [job.local_id for job in again.jobs.values()] == ["999"]


def test_a_damaged_job_in_a_document_costs_only_itself(fixtures: Path, tmp_path: Path, seen: Seen) -> None:
    text = (fixtures / "slurm" / FILES[2]).read_text(encoding="utf-8")
    at = text.index('"job_id": 104')
    (tmp_path / "damaged.json").write_text(text[:at] + '"x": }' + text[at:], encoding="utf-8")
    found = read_on(source(tmp_path / "damaged.json"), Seen())
    assert seen.jobs.keys() - found.jobs.keys() == {one(seen, "104").record_id}
    assert len(found.unreadable) == 1


def test_a_document_that_is_cut_off_is_reported_and_read_when_it_is_whole(
    fixtures: Path, tmp_path: Path, seen: Seen
) -> None:
    whole = (fixtures / "slurm" / FILES[3]).read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: len(whole) // 2])
    found = read_on(source(path), Seen())
    assert 0 < len(found.jobs) < len(seen.jobs)
    assert len(found.unreadable) == 1
    path.write_bytes(whole)
    assert read_on(source(path), found).jobs.keys() == seen.jobs.keys()


@settings(max_examples=short_or_whole(8, 25))
@given(data=st.data())
@pytest.mark.parametrize("name", FILES[:2])
def test_any_split_into_reads_gives_the_same(
    name: str, data: st.DataObject, fixtures: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = (fixtures / "slurm" / name).read_bytes()
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=5))
    live = tmp_path_factory.mktemp("slurm") / name
    found = grown(source, live, content, cuts)
    assert found.jobs == read_on(source(fixtures / "slurm" / name), Seen()).jobs
    assert {each.reason for each in found.unreadable} <= {"the last record is not complete so far"}


@pytest.mark.parametrize("damage", [b"\0garbage", b"", b"x|y|z", b"|" * 200, b"JobId=1 UserId=x"])
@pytest.mark.parametrize("name", FILES[:2])
def test_a_damaged_line_costs_only_its_own_job(fixtures: Path, name: str, damage: bytes) -> None:
    lines = (fixtures / "slurm" / name).read_bytes().splitlines()
    whole = parse_to_end(parser(), lines)
    for index in range(1, len(lines)):
        found = parse_to_end(parser(), [*lines[:index], damage, *lines[index + 1 :]])
        lost = whole.jobs.keys() - found.jobs.keys() - found.suspects.keys()
        assert len(lost) <= 1, (index, lines[index])
        assert not found.suspects or lines[index].startswith(b"line "), "only after a name that never ends"
        near = b" ".join(lines[max(0, index - 1) : index + 1]).decode()
        assert all(str(whole.jobs[key].local_id) in near for key in lost), (index, lost)
        assert found.jobs.keys() <= whole.jobs.keys()


def test_a_record_that_never_ends_is_bounded() -> None:
    table = parser()
    table.parse(b"JobID|Start|End|JobName|State")
    for _ in range(2_000):
        table.parse(b"1|10|20|" + b"x" * 1000)
    assert len(json.dumps(table.state())) < 2 * MOST_BYTES


def test_what_is_remembered_is_json(lines: list[bytes]) -> None:
    first, whole = parser(), parser()
    for index, line in enumerate(lines):
        fresh = parser()
        fresh.resume(json.loads(json.dumps(first.state())))
        outcome = fresh.parse(line)
        expected = whole.parse(line)
        assert msgspec.json.encode(outcome if outcome is not Line.MORE else None, enc_hook=str) == msgspec.json.encode(
            expected if expected is not Line.MORE else None, enc_hook=str
        ), index
        first = fresh
    first.resume("nonsense")
    assert first.state() is None


@pytest.mark.parametrize("name", FILES[:2])
def test_fuzz(fixtures: Path, name: str) -> None:
    assert _fuzzed(fixtures / "slurm" / name, 10_000) > 250


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FILES[:2])
def test_fuzz_long(fixtures: Path, name: str) -> None:
    assert _fuzzed(fixtures / "slurm" / name, 1_000_000) > 20_000


def _fuzzed(file: Path, rounds: int) -> int:
    """Runs from mutated lines of a table or log, whose first line is complete."""
    lines = file.read_bytes().splitlines()
    fuzzed = parser()
    fuzzed.parse(lines[0])
    found = fuzz(fuzzed, lines[1:], rounds)
    assert len(json.dumps(fuzzed.state())) < 4 * MOST_BYTES
    return found


def test_without_a_path_the_program_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sources\.slurm\.path"):
        SlurmSource("slurm", schema.SourceSettings(type="slurm"), environ={"PATH": str(tmp_path)})


def test_check(fixtures: Path, tmp_path: Path) -> None:
    for name in FILES:
        assert [finding.level for finding in source(fixtures / "slurm" / name).check()] == ["green"]
    (tmp_path / "broken.json").write_text('{"jobs": [{"job_id": 1}]}', encoding="utf-8")
    assert [finding.level for finding in source(tmp_path / "broken.json").check()] == ["red"]
    assert [finding.level for finding in source(tmp_path / "nothing").check()] == ["red"]


def test_the_samples(shared: Path) -> None:
    samples = shared / "samples" / "slurm"
    full = read_on(source(samples / "sacct-all-D.psv"), Seen())
    assert (len(full.jobs), full.unreadable) == (25, [])
    assert [(job.status, job.wall_ms) for job in runs(full, "25")] == [("aborted", 7_000), ("completed", 2_000)]
    assert one(full, "14").name == "pipe|name;x=y with space"
    assert one(full, "17").name == "new\nline"
    assert (one(full, "18").memory_rss_kib, one(full, "13").cpu_ms) == (163_124, 1_552)
    for name, zone, cluster in (
        ("sacct.json", "UTC", None),
        ("jobcomp.txt", "UTC", None),
        ("sacct-all-X-D.psv", "UTC", None),
        ("sacct-xdmod-format.psv", "UTC", None),
        ("sacct-epoch.psv", "UTC", "researchcl"),
        ("sacct-tz-tokyo.psv", "Asia/Tokyo", "researchcl"),
        ("sacct-bart-format.psv", "UTC", "researchcl"),
        ("sacct-apel-format.psv", "UTC", "researchcl"),
        ("sacct-apel-totalcpu.psv", "UTC", "researchcl"),
        ("sacct-auditor-like.psv", "UTC", "researchcl"),
    ):
        other = read_on(source(samples / name, timezone=zone, cluster=cluster), Seen())
        if "apel" in name:  # it has no JobIDRaw, so tasks of arrays go by their shown id
            assert len(other.jobs.keys() ^ full.jobs.keys()) == 6
        else:
            assert other.jobs.keys() == full.jobs.keys(), name
        assert sorted(str(job.end) for job in other.jobs.values()) == sorted(str(job.end) for job in full.jobs.values())
    by_apel = read_on(source(samples / "sacct-apel-format.psv", cluster="researchcl"), Seen())
    assert all(job.cpu_ms is None for job in by_apel.jobs.values())  # CPUTimeRAW is not a CPU time
    public = read_on(source(shared / "samples" / "slurm-public" / "xdmod-sacct.log"), Seen())
    assert [(job.cores, job.nodes, job.gpus) for job in public.jobs.values()] == [
        (256, 32, None),
        (36, 3, None),
        (None, 2, 2),
    ]
    assert one(public, "4103947").extras["ReqMem"] == "3000Mc"


def test_the_completion_log_of_older_versions_and_names_with_a_blank_before_a_line_feed() -> None:
    older = (
        b"JobId=7 UserId=alice(1) GroupId=g(2) Name=a b=c JobState=COMPLETED Partition=p TimeLimit=5 "
        b"StartTime=2026-11-01T00:00:05 EndTime=2026-11-01T00:00:09 NodeList=n[1-2] NodeCnt=2 ProcCnt=8 WorkDir=/a b "
    )
    found = parse_to_end(parser(), [older, older.replace(b"=7 ", b"=8 ").replace(b"a b=c", b"x ")])
    assert [(job.local_id, job.name, job.cores, job.cluster) for job in found.jobs.values()] == [
        ("7", "a b=c", 8, "c1"),
        ("8", "x ", 8, "c1"),
    ]
    broken = parse_to_end(parser(), older.replace(b"a b=c", b"x \ny").split(b"\n"))
    assert [job.name for job in broken.jobs.values()] == ["x \ny"]
