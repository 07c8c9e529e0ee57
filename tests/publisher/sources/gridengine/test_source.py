"""Grid Engine's accounting: the runs a human reads in it, in both formats, however the file came to us."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.identity import run_record_id
from formats.job import Host, Job
from publisher.config.schema import SourceSettings as Settings
from publisher.errors import ConfigError
from publisher.sources.base import Line, UnreadableLine, Window
from publisher.sources.gridengine.jobs import RUSAGE
from publisher.sources.gridengine.source import GridEngineParser, GridEngineSource, cell_of
from publisher.sources.logs.pending_slaves import MOST_GROUPS
from tests.publisher.sources.log_reading import Seen, compare, fed, fuzz, odd_value, parse_all, read_on, watched

FILES = ("accounting-8.1.9", "accounting-variants", "accounting.jsonl")


def source(path: Path | None, **more: str) -> GridEngineSource:
    return GridEngineSource("ge", Settings(type="gridengine", path=path, cluster="cell"), more)


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


@pytest.fixture
def folder(fixtures: Path) -> Path:
    return fixtures / "gridengine"


@pytest.fixture
def plain(folder: Path) -> bytes:
    """A line of a serial job."""
    return lines_of(folder / "accounting-8.1.9")[4]


def runs(lines: Sequence[bytes]) -> dict[str, Job]:
    """Runs by local id; the last of several."""
    seen, refused = parse_all(GridEngineParser("cell"), lines)
    assert refused == []
    return {str(job.local_id): job for job in seen.jobs.values()}


@pytest.mark.parametrize("name", FILES)
def test_golden(folder: Path, name: str, rewrite_golden: bool) -> None:
    (page,) = source(folder / name).pages({})
    assert page.at_end
    assert page.unreadable == ()
    assert page.read == len(page.jobs) + page.skipped + page.merged
    compare(folder / f"{name}.jobs.json", page.jobs, rewrite=rewrite_golden)


@pytest.mark.parametrize("own", [{}, {"maxvmem": 1024}, {"cpu": "many"}])
def test_cpu_time_that_is_missing_is_unknown(folder: Path, own: dict[str, object]) -> None:
    """Grid Engine writes the field always. With slaves, their sum alone is not the CPU time of the job."""
    (line, *_) = lines_of(folder / "accounting.jsonl")
    record = json.loads(line)
    record["usage"]["eusage"] = own
    job = runs([json.dumps(record).encode()])["1"]
    assert (job.cpu_ms, job.cpu_user_ms, job.status) == (None, 90_500, "completed")
    slave = json.dumps({**json.loads(line), "pe_taskid": "1.node2", "hostname": "node2"}).encode()
    joined = runs([slave, json.dumps(record).encode()])["1"]
    assert (joined.cpu_ms, joined.nodes) == (None, 2)
    whole = line if isinstance(line, bytes) else line.encode()
    of_slave = json.dumps({**record, "pe_taskid": "1.node2", "hostname": "node2"}).encode()
    joined = runs([of_slave, whole])["1"]
    assert (joined.cpu_ms, joined.cpu_user_ms, joined.nodes) == (None, 2 * 90_500, 2), "nor is that of the others"
    record["usage"]["eusage"] = {**own, "cpu": 0}
    assert runs([json.dumps(record).encode()])["1"].cpu_ms == 0
    record["usage"]["eusage"] = {**own, "cpu": 1.7e308}
    assert runs([json.dumps(record).encode()])["1"].cpu_ms is None, "its number of milliseconds is not finite"


def test_no_field_takes_the_value_of_another() -> None:
    """The parsers give more than twenty values by position, since names would take a tenth of the time of a record."""
    usage = [b"0"] * 18
    usage[1], usage[2], usage[3] = b"21", b"22", b"23"  # ru_utime, ru_stime, ru_maxrss
    colon = [
        *b"queue:host:group:owner:name:11:account:0:1800000001:1800000012:1800000123:100:9".split(b":"), *usage,
        *b"project:department:parallel:7:13:40.5:0:0:NONE:0:NONE:51200:0:0".split(b":"),
    ]  # fmt: skip
    jsonl = {
        "qname": "queue", "hostname": "host", "group": "group", "owner": "owner", "job_name": "name", "job_number": 11,
        "task_number": 13, "account": "account", "submission_time": 1_800_000_001_000_000, "failed": 100,
        "start_time": 1_800_000_012_000_000, "end_time": 1_800_000_123_000_000, "exit_status": 9, "project": "project",
        "department": "department", "granted_pe": "parallel", "slots": 7, "submit_host": "client", "deleted_by": "user",
        "usage": {
            "rusage": {"ru_utime": 21, "ru_stime": 22}, "usage": {"cpu": 40.5, "maxvmem": 51_200, "maxrss": 23_552},
        },
    }  # fmt: skip
    from_colon, from_jsonl = (runs([line])["11.13"] for line in (b":".join(colon), json.dumps(jsonl).encode()))
    for job in (from_colon, from_jsonl):
        assert (job.queue, job.hosts, job.local_group, job.local_user) == ("queue", (Host("host"),), "group", "owner")
        assert (job.name, job.array_id, job.array_task, job.account) == ("name", "11", 13, "account")
        assert (job.submit, job.start, job.end) == (1_800_000_001, 1_800_000_012, 1_800_000_123)
        assert (job.project, job.department, job.parallel_environment) == ("project", "department", "parallel")
        assert (job.slots, job.exit_code, job.wall_ms, job.cpu_ms) == (7, 9, 111_000, 40_500)
        assert (job.cpu_user_ms, job.cpu_system_ms) == (21_000, 22_000)
        assert (job.memory_rss_kib, job.memory_virtual_kib) == (23, 50)
        assert str(job.end_reason).startswith("100 ")
    assert (from_jsonl.client_host, from_jsonl.status, from_colon.status) == ("client", "cancelled", "failed")


def test_what_never_ran_is_skipped_and_slaves_are_merged(folder: Path) -> None:
    (page,) = source(folder / "accounting-8.1.9").pages({})
    assert (len(page.jobs), page.skipped, page.merged) == (19, 2, 2)


def test_slaves_are_folded_into_their_master(folder: Path) -> None:
    job = runs(lines_of(folder / "accounting-8.1.9"))["20"]
    assert (job.slots, job.nodes, job.cpu_ms, job.wall_ms, job.exit_code) == (4, 3, 151_000, 100_000, 0)
    assert [host.name for host in job.hosts] == [f"node{n}.cluster.example" for n in (1, 2, 3)]
    assert (job.memory_virtual_kib, job.extras["pe_task_count"], job.extras["mem"]) == (20480, 2, 4.5)


def test_versions_by_their_fields(folder: Path) -> None:
    jobs = runs(lines_of(folder / "accounting-variants"))
    assert jobs["61"].extras["category"] == "-l cpu=24:00:00"
    assert jobs["61"].memory_virtual_kib == 10240
    univa = jobs["63"]
    assert (univa.start, univa.wall_ms, univa.memory_rss_kib) == (1800000010, 100_500, 204_800)
    assert univa.extras["submit_cmd_line"] == "qsub -v A=b"
    assert jobs["64"].slots == 16
    assert (jobs["65"].status, jobs["65"].extras["deleted_by"]) == ("cancelled", "ada@login")
    assert jobs["67"].cpu_ms == 21_540_800
    assert (jobs["68"].wall_ms, jobs["68"].extras["ru_wallclock"]) == (100_000, 80.25)
    assert "66" not in jobs


def test_both_formats_give_the_same_record_id(folder: Path) -> None:
    colon, json = (runs(lines_of(folder / name))["1"] for name in ("accounting-8.1.9", "accounting.jsonl"))
    assert colon.record_id == json.record_id == run_record_id("gridengine", "cell", "1", 1800000010)


def test_every_field_of_the_manual_is_kept(folder: Path) -> None:
    job = runs(lines_of(folder / "accounting.jsonl"))["1"]
    assert (job.queue, job.local_group, job.local_user, job.name) == ("long.q", "chem", "ada", "job")
    assert (job.account, job.project, job.department, job.parallel_environment) == (
        "sge",
        "atlas",
        "defaultdepartment",
        "smp",
    )
    kept = {
        "arid",
        "ar_submission_time",
        "wallclock",
        "mem",
        "io",
        "ioops",
        "iow",
        "maxrss",
        "maxpss",
        "failed",
        "priority",
    }
    assert kept | {"ru_wallclock", "ru_nvcsw", "submit_cmd_line"} <= set(job.extras)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (9, "1900000000", "ends before it starts"),
        (10, "0", "has no end"),
        (9, "-5", "field 10"),
        (13, "abc", "field 14"),
        (36, "-1", "CPU time is negative"),
        (36, "9" * 20, "CPU time"),
        (34, "1.5", "field 35"),
        (42, "x", "after the category"),
        (5, "1,2", "field 6"),
    ],
)
def test_a_wrong_field_is_named(plain: bytes, field: int, value: str, reason: str) -> None:
    fields = plain.decode().split(":")
    fields[field] = value
    parser = GridEngineParser("c")
    outcome = parser.parse(":".join(fields).encode())
    if outcome is Line.IGNORED:  # it does not end as a record does: a later line may be its rest
        (outcome,) = parser.release()
    assert isinstance(outcome, UnreadableLine)
    assert reason in outcome.reason


@given(cut=st.integers(1, 300))
def test_torn_and_glued_lines_are_never_a_wrong_job(cut: int) -> None:
    plain = b"q:h:g:o:n:1:sge:0:1800000000:1800000010:1800000110:0:0:100:" + b"0:" * 17 + b"NONE:d:NONE:1:0:1.5:0:0"
    plain += b":-l a=1:0.0:NONE:3231744.0:0:0"
    other = plain.replace(b":1:sge", b":77:sge")
    parser = GridEngineParser("c")
    whole = parser.parse(plain)
    assert isinstance(whole, Job)
    glued = parser.parse(plain[:cut] + other)
    if isinstance(glued, Job):  # torn inside the first field, or nothing torn: one whole record is there
        assert glued.local_id == "77"
        assert b":" not in plain[:cut]


@given(data=st.data())
def test_a_corrupt_line_costs_only_itself(data: st.DataObject, fixtures: Path) -> None:
    for name in FILES:
        lines = lines_of(fixtures / "gridengine" / name)
        parallel = {at for at, line in enumerate(lines) if b"mpi" in line}
        at = data.draw(st.sampled_from([at for at in range(len(lines)) if at not in parallel]))
        damaged = [*lines[:at], b"\xff" + lines[at][:5] + b"\0", *lines[at + 1 :]]
        whole, _ = parse_all(GridEngineParser("c"), lines)
        left, refused = parse_all(GridEngineParser("c"), damaged)
        assert refused == [at]
        lost = set(whole.jobs) - set(left.jobs)
        assert len(lost) <= 1
        assert {key: whole.jobs[key] for key in left.jobs} == left.jobs


@given(cuts=st.lists(st.integers(0, 9000), max_size=6), rotate=st.booleans())
def test_any_split_gives_the_same_runs(
    tmp_path_factory: pytest.TempPathFactory, fixtures: Path, cuts: list[int], rotate: bool
) -> None:
    content = (fixtures / "gridengine" / "accounting-8.1.9").read_bytes()
    place = tmp_path_factory.mktemp("ge")
    file = place / "accounting"
    file.write_bytes(content)
    whole = read_on(source(file), Seen())
    file.unlink()
    file.touch()
    seen = Seen()
    done = 0
    for number, cut in enumerate([*sorted(cuts), len(content)]):
        with file.open("ab") as log:
            log.write(content[done:cut])
        done = max(done, min(cut, len(content)))
        read_on(source(file), seen)
        if rotate and content[:done].endswith(b"\n"):
            file.rename(place / f"accounting-202611{number + 1:02}")
            file.touch()
    assert seen.jobs == whole.jobs
    assert seen.unreadable == []
    assert seen.at_end


def test_slaves_wait_for_a_master_in_another_read(tmp_path: Path, folder: Path) -> None:
    lines = [line + b"\n" for line in lines_of(folder / "accounting-8.1.9") if b":mpi:20:" in line]
    file = tmp_path / "accounting"
    file.write_bytes(b"".join(lines[:2]))
    seen = read_on(source(file), Seen())
    assert seen.jobs == {}
    assert seen.cursor["parser"]
    file.rename(tmp_path / "accounting.0")
    file.write_bytes(lines[2])
    (job,) = read_on(source(file), seen).jobs.values()
    assert job.cpu_ms == 151_000
    assert "parser" not in seen.cursor


def test_slaves_without_master_are_given_up_aloud(folder: Path) -> None:
    slave = next(line for line in lines_of(folder / "accounting-8.1.9") if b"1.node2" in line)
    parser = GridEngineParser("c")
    for number in range(MOST_GROUPS):
        assert parser.parse(slave.replace(b":mpi:20:", f":mpi:{number + 1000}:".encode())) is Line.MERGED
    outcome = parser.parse(slave)
    assert isinstance(outcome, list)
    assert isinstance(outcome[1], UnreadableLine)
    assert "had no master record" in outcome[1].reason


def test_slaves_of_an_earlier_run_are_not_added(folder: Path) -> None:
    early, _, master = (line for line in lines_of(folder / "accounting-8.1.9") if b":mpi:20:" in line)
    parser = GridEngineParser("c")
    parser.parse(early.replace(b"18000002", b"17000002").replace(b"18000003", b"17000003"))
    outcome = parser.parse(master)
    assert isinstance(outcome, list)
    job, stray = outcome
    assert isinstance(job, Job)
    assert isinstance(stray, UnreadableLine)
    assert job.cpu_ms == 1000


def test_bytes_that_are_not_text_are_kept_visible(plain: bytes) -> None:
    job = GridEngineParser("c").parse(plain.replace(b":job:", b":caf\xe9:"))
    assert isinstance(job, Job)
    assert job.name == r"caf\xe9"


def test_where_the_file_is(tmp_path: Path, folder: Path) -> None:
    common = tmp_path / "prod" / "common"
    common.mkdir(parents=True)
    for name in ("accounting", "accounting.jsonl", "accounting.0"):
        (common / name).write_bytes((folder / "accounting-variants").read_bytes())
    settings = Settings(type="gridengine")
    found = GridEngineSource("ge", settings, {"SGE_ROOT": str(tmp_path), "SGE_CELL": "prod"})
    assert [Path(file).name for file in found.reader.files()] == ["accounting.0", "accounting", "accounting.jsonl"]
    assert read_on(found, Seen()).jobs.popitem()[1].cluster == "prod"
    with pytest.raises(ConfigError, match="SGE_ROOT"):
        GridEngineSource("ge", settings, {})
    assert cell_of(Path("/var/log/accounting")) == "default"


def test_a_window_is_read_again(folder: Path) -> None:
    log = source(folder / "accounting-8.1.9")
    seen = read_on(log, Seen())
    (page,) = log.pages(seen.cursor, Window(1800000111, 1800000301))
    assert page.cursor == seen.cursor
    assert {job.local_id for job in page.jobs} == {"4.3", "20"}
    assert {job.record_id: job for job in page.jobs}.items() <= seen.jobs.items()
    assert next(iter(log.pages(seen.cursor))).read == 0


def test_copies_in_the_folder_of_the_cell(folder: Path, tmp_path: Path) -> None:
    """With any name that a rotation gives them; the messages and statistics in the same folder are not part of the
    log."""
    lines = lines_of(folder / "accounting.jsonl")
    names = (
        *("accounting-20261120.jsonl.gz", "accounting.1.jsonl", "accounting.jsonl.0", "accounting.jsonl-20261121"),
        *("accounting.2026-11-21", "accounting.old.jsonl", "accounting.jsonl", "accounting"),
    )
    for number, name in enumerate(names):
        line = lines[0].replace(b'"job_number":1,', b'"job_number":%d,' % (100 + number)) + b"\n"
        (tmp_path / name).write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    for name in ("reporting", "accounting_summary", "accounting.jsonl.tmp", "statistics.jsonl"):
        (tmp_path / name).write_bytes(lines[0] + b"\n")
    seen = read_on(source(tmp_path), Seen())
    assert {job.local_id for job in seen.jobs.values()} == {str(100 + number) for number in range(len(names))}


FORMATS = {"colon": FILES[:2], "jsonl": FILES[2:]}


@pytest.mark.parametrize("form", FORMATS)
def test_fuzz(folder: Path, form: str) -> None:
    assert _fuzzed(folder, form, 10_000) > 300


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", FORMATS)
def test_fuzz_long(folder: Path, form: str) -> None:
    assert _fuzzed(folder, form, 1_000_000) > 50_000


def _fuzzed(folder: Path, form: str, rounds: int) -> int:
    """Runs that came out of mutated lines; of JSON, half of them damaged in one value only."""
    lines = [line for name in FORMATS[form] for line in lines_of(folder / name) if len(line) > 1]
    parser = GridEngineParser("c")
    if form == "colon":
        return fuzz(parser, lines, rounds)
    chance = random.Random(20261121)
    runs = sum(fed(parser, odd_value(lines, chance)) for _ in watched(rounds // 2))
    return runs + fuzz(parser, lines, rounds - rounds // 2)


def test_the_samples_of_8_1_9(shared: Path) -> None:
    seen, refused = parse_all(GridEngineParser("c"), lines_of(shared / "samples" / "gridengine" / "accounting"))
    assert refused == []
    assert len(seen.jobs) == 33 - 3 - 2  # badout, badwd and a rescheduled one never ran; two slaves
    jobs = {(job.local_id, job.start): job for job in seen.jobs.values()}
    tight = jobs["14", 1795228692]
    assert (tight.cpu_ms, tight.slots, tight.wall_ms, tight.nodes) == (1288, 2, 3000, 1)
    assert sum(job.local_id == "13" for job in seen.jobs.values()) == 2
    assert (jobs["17", 1795228698].status, jobs["17", 1795228698].wall_ms) == ("failed", 67_000)


def test_the_samples_of_other_versions(shared: Path) -> None:
    jobs = runs(lines_of(shared / "samples" / "sge-variants" / "accounting-by-version"))
    assert jobs["6972834"].slots == 9
    assert jobs["4"].slots == 128
    assert (jobs["10245"].memory_virtual_kib, jobs["3872561"].wall_ms) == (12_456, 220_488)
    assert jobs["1630912"].wall_ms == 20_572_000
    assert len(jobs) == 10


def test_the_samples_of_open_cluster_scheduler(shared: Path) -> None:
    folder = shared / "samples" / "ocs-jsonl"
    jobs = runs(lines_of(folder / "accounting.jsonl") + lines_of(folder / "SYNTHETIC-9.1-shape.jsonl"))
    assert (jobs["4"].wall_ms, jobs["4"].cpu_ms, jobs["10.1"].wall_ms) == (100_293, 198, 549)
    assert (jobs["5.2"].status, jobs["5.2"].extras["gpu.nvidia.0.name"]) == ("cancelled", "H200")


FORCED = (
    b"q:h:g:o:n:7:sge:0:1800000000:1800000000:1800000029:0:0:" + b"0:" * 18 + b"NONE:d:NONE:1:0:0:0:0:NONE:0:NONE:0:0:0"
)
"""Deleted by force: started when it was submitted, 29 s, and nothing used."""
FORCED_JSON = (
    b'{"job_number":7,"task_number":0,"start_time":1800000000000000,"end_time":1800000029000000,"owner":"o",'
    b'"group":"g","account":"sge","qname":"q","hostname":"h","slots":1,"job_name":"n","submission_time":'
    b'1800000000000000,"failed":0,"exit_status":0,"usage":{"rusage":{%s},"eusage":{"wallclock":0.0,"cpu":0.0}}}'
) % b",".join(b'"%s":0' % name.encode() for name in RUSAGE)


@pytest.mark.parametrize("line", [FORCED, FORCED_JSON], ids=["colon", "jsonl"])
def test_a_record_without_usage_is_of_a_run_that_was_deleted_by_force(line: bytes) -> None:
    job = runs([line])["7"]
    assert (job.status, job.wall_ms, job.cpu_ms, job.exit_code) == ("lost", 29_000, None, None)
    assert (job.start, job.end, job.extras["estimated"]) == (1_800_000_000, 1_800_000_029, 1)


@pytest.mark.parametrize("place", [11, 12, 13, 14, 16, 21, 29, 36, 42])
def test_one_figure_of_usage_shows_that_a_host_reported_it(place: int) -> None:
    fields = FORCED.split(b":")
    fields[place] = b"1"
    job = runs([b":".join(fields)])["7"]
    assert job.status != "lost"
    assert job.cpu_ms is not None
    assert "estimated" not in job.extras


def test_a_short_run_may_use_nothing_and_unknown_usage_is_not_zero() -> None:
    short = FORCED_JSON.replace(b'"end_time":1800000029000000', b'"end_time":1800000000900000')
    assert runs([short])["7"].status == "completed"
    assert runs([FORCED_JSON.replace(b'"ru_minflt":0,', b"")])["7"].status == "completed"
