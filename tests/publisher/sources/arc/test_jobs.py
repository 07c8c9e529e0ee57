"""ARC's rows as jobs, field by field."""

from __future__ import annotations

import ast
import inspect
import itertools
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from formats.identity import decode, encode
from formats.job import Benchmark, Events, Host, Job, Transfer
from publisher.sources.arc import jobs
from publisher.sources.arc.database import SEPARATOR, SIDE_COLUMNS, ArcDatabase, Sides
from publisher.sources.arc.jobs import RowReader, UnreadableRowError
from publisher.sources.pbs import jobs as pbs_jobs
from tests.generators import arc_database
from tests.generators.arc_database import ArcWriter
from tests.generators.arc_jobs import ArcJob
from tests.publisher.sources.arc.arc_reading import Read, source

FULL = ArcJob(
    job_id="AbCdEf0000001",
    submit=1_793_500_000,
    local_id="4711",
    endpoint=("org.nordugrid.arcrest", "https://ce1.example.org:443/arex"),
    queue="main",
    user="/DC=org/DC=example/CN=Miles O%27Brien",
    vo="atlas",
    exit_code=3,
    status="failed",
    end=1_793_503_700,
    nodes=2,
    cores=16,
    memory=1000,
    virtual=2000,
    wall=3000,
    cpu_user=40_000,
    cpu_kernel=500,
    scratch=7,
    volume_in=8,
    volume_out=-1,
    attributes=[("vomsfqan", "/atlas"), ("mainfqan", "/atlas/Role=production"), ("vomsfqan", "/atlas/Role=production")],
    events=[
        ("ACCEPTED", "2026-11-01T02:26:40Z"),
        ("PREPARING", "2026-11-01T02:26:41Z"),
        ("SUBMIT", "2026-11-01T02:27:00Z"),
        ("LRMSSTART", "2026-11-01T02:37:00Z"),
        ("LRMSEND", "2026-11-01T03:27:00Z"),
        ("FINISHING", "2026-11-01T03:28:00Z"),
        ("FINISHED", "2026-11-01T03:28:20Z"),
    ],
    environments=["ENV/RTE", "APPS/%23 1"],
    transfers=[
        ("davs://se.example.org/in", 5, 1_793_500_002, 1_793_500_010, 10),
        ("davs://se.example.org/cached", 6, 0, 0, 11),
        ("davs://se.example.org/out", -1, 1_793_503_681, 1_793_503_690, 20),
    ],
    extra=[
        ("benchmark", "HEPscore23:14.20"),
        ("clienthost", "198.51.100.7:40001"),
        ("jobname", "simulation"),
        ("localuser", "atlas001:atlas"),
        ("lrms", "slurm"),
        ("nodenames", "wn1:wn2"),
        ("projectname", "p1"),
        ("systemsoftware", "AlmaLinux 9"),
        ("wninstance", "bigmem"),
        ("something", "else"),
    ],
)


def _folder(path: Path, name: str) -> Path:
    (path / name).mkdir()
    return path / name


def read_one(path: Path, job: ArcJob, **settings: Any) -> Job:
    """The job that the source makes of this one."""
    with ArcWriter(path / "accounting.db", new=True) as writer:
        writer.add(job)
    read = Read(source(path / "accounting.db", **settings))
    assert not read.unreadable, read.unreadable
    (found,) = read.given
    return found


def test_every_field(tmp_path: Path) -> None:
    assert read_one(tmp_path, FULL) == Job(
        record_id="ur-ce1.example.org-AbCdEf0000001",
        system="arc",
        status="failed",
        global_id="AbCdEf0000001",
        local_id="4711",
        name="simulation",
        user_dn="/DC=org/DC=example/CN=Miles O'Brien",
        local_user="atlas001",
        local_group="atlas",
        vo="atlas",
        fqans=("/atlas/Role=production", "/atlas"),
        project="p1",
        queue="main",
        endpoint_url="https://ce1.example.org:443/arex",
        endpoint_type="org.nordugrid.arcrest",
        client_host="198.51.100.7",
        hosts=(Host("wn1"), Host("wn2")),
        nodes=2,
        cores=16,
        infrastructure="grid",
        lrms="slurm",
        middleware="arc",
        service_class="bigmem",
        system_software="AlmaLinux 9",
        runtime_environments=("ENV/RTE", "APPS/# 1"),
        submit=1_793_500_000,
        lrms_submit=1_793_500_020,
        start=1_793_500_000,
        end=1_793_503_700,
        execution_start=1_793_500_620,
        execution_end=1_793_503_620,
        events=Events(
            "ACCEPTED PREPARING SUBMIT LRMSSTART LRMSEND FINISHING FINISHED",
            (
                1_793_500_000,
                1_793_500_001,
                1_793_500_020,
                1_793_500_620,
                1_793_503_620,
                1_793_503_680,
                1_793_503_700,
            ),
        ),
        wall_ms=3_000_000,
        cpu_ms=40_500_000,
        cpu_user_ms=40_000_000,
        cpu_system_ms=500_000,
        memory_rss_kib=1000,
        memory_virtual_kib=2000,
        scratch_bytes=7,
        stage_in_ms=19_000,
        stage_out_ms=20_000,
        stage_in_bytes=8,
        stage_out_bytes=2**64 - 1,
        transfers=(
            Transfer("download", "davs://se.example.org/in", 5, 1_793_500_002, 1_793_500_010),
            Transfer("download", "davs://se.example.org/cached", 6, from_cache=True),
            Transfer("upload", "davs://se.example.org/out", 2**64 - 1, 1_793_503_681, 1_793_503_690),
        ),
        exit_code=3,
        benchmarks=(Benchmark("HEPscore23", 14.2),),
        extras={"something": "else"},
    )


@pytest.mark.parametrize("module", [jobs, pbs_jobs], ids=["arc", "pbs"])
def test_positions_are_those_of_the_fields(module: ModuleType) -> None:
    """Of what a source gives by position and no job shows, since it has no value there: a comment names its field."""
    read = ast.parse(inspect.getsource(module))
    (call,) = (node for node in ast.walk(read) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Job")
    lines = inspect.getsource(module).splitlines()
    for field, value in zip(Job.__struct_fields__, call.args, strict=False):  # the last fields are left out
        if (isinstance(value, ast.Constant) and not value.value) or ast.unparse(value) == "()":
            assert lines[value.lineno - 1].partition("# ")[2] == field


def test_times_of_the_payload_when_asked_for(tmp_path: Path) -> None:
    job = read_one(tmp_path, FULL, start_time="execution", end_time="lrms")
    assert (job.start, job.end) == (1_793_500_620, 1_793_503_620)
    assert job.submit == 1_793_500_000


def test_without_events_the_times_are_those_of_the_row(tmp_path: Path) -> None:
    job = read_one(tmp_path, replace(FULL, events=[]), start_time="execution", end_time="lrms")
    assert (job.start, job.end) == (1_793_500_000, 1_793_503_700)
    assert (job.lrms_submit, job.stage_in_ms, job.stage_out_ms, job.events) == (None, None, None, None)


def test_a_job_in_progress_has_no_usage_yet(tmp_path: Path) -> None:
    job = read_one(tmp_path, replace(FULL, status="in-progress", end=0))
    assert (job.status, job.finished, job.end) == ("running", False, None)
    assert (job.wall_ms, job.cpu_ms, job.scratch_bytes, job.exit_code) == (None, None, None, None)


@pytest.mark.parametrize("settings", [{}, {"start_time": "execution"}])
@pytest.mark.parametrize(("events", "start"), [(["ACCEPTED"], None), (["ACCEPTED", "LRMSSTART"], 1_793_500_620)])
def test_a_job_in_progress_starts_with_its_payload(
    tmp_path: Path, settings: dict[str, str], events: list[str], start: int | None
) -> None:
    seen = [(kind, at) for kind, at in FULL.events if kind in events]
    job = read_one(tmp_path, replace(FULL, status="in-progress", end=0, events=seen), **settings)
    assert (job.submit, job.start) == (1_793_500_000, start)


@pytest.mark.parametrize("status", ["completed", "failed", "aborted"])
def test_states(tmp_path: Path, status: str) -> None:
    assert read_one(tmp_path, replace(FULL, status=status)).status == status


@pytest.mark.parametrize("local_id", [None, ""])
def test_a_job_the_batch_system_never_saw_has_no_local_id(tmp_path: Path, local_id: str | None) -> None:
    assert read_one(tmp_path, replace(FULL, local_id=local_id)).local_id is None


def test_issuer_and_groups_of_a_token_are_read_if_they_are_asked_for(tmp_path: Path) -> None:
    attributes = [("wlcg.groups", "/atlas"), ("wlcg.groups", "/atlas/production"), ("other", "x")]
    job = replace(FULL, user="https://atlas-auth.example.org//5f3c", attributes=attributes)
    read = read_one(_folder(tmp_path, "a"), job, token_groups=True)
    assert (read.token_issuer, read.token_groups) == (
        "https://atlas-auth.example.org/",
        ("/atlas", "/atlas/production"),
    )
    plain = read_one(_folder(tmp_path, "b"), job)
    assert (plain.token_issuer, plain.token_groups) == (None, None)
    certificate = read_one(_folder(tmp_path, "c"), FULL, token_groups=True)
    assert (certificate.token_issuer, certificate.token_groups) == (None, None)


def test_no_vo(tmp_path: Path) -> None:
    job = read_one(tmp_path, replace(FULL, vo="", attributes=[]))
    assert (job.vo, job.fqans) == (None, ())


@pytest.mark.parametrize(
    ("url", "record_id"),
    [
        ("ce3.example.org:443/arex", "ur-ce3.example.org-AbCdEf0000001"),
        ("ce3.example.org", "ur-ce3.example.org-AbCdEf0000001"),
        ("https://[2001:db8::c3]:443/arex", "ur-2001:db8::c3-AbCdEf0000001"),
    ],
)
def test_record_ids_of_odd_endpoints(tmp_path: Path, url: str, record_id: str) -> None:
    job = read_one(tmp_path, replace(FULL, endpoint=("org.nordugrid.arcrest", url)))
    assert (job.record_id, job.endpoint_url) == (record_id, url)


def test_a_benchmark_written_twice_counts_once(tmp_path: Path) -> None:
    extra: list[tuple[str, str | bytes]] = [
        ("benchmark", "HEPSPEC:12"),
        ("benchmark", "HEPscore23:14.2"),
        ("benchmark", "HEPSPEC:13"),
    ]
    job = read_one(tmp_path, replace(FULL, extra=extra))
    assert job.benchmarks == (Benchmark("HEPSPEC", 12.0), Benchmark("HEPscore23", 14.2))


def test_a_benchmark_that_is_none_is_kept_as_text_and_not_guessed(tmp_path: Path) -> None:
    job = read_one(tmp_path, replace(FULL, extra=[("benchmark", "HEPSPEC:fast")]))
    assert job.benchmarks == (Benchmark("HEPSPEC:fast", 0.0),)


def test_nodename_is_read_where_nodenames_is_missing(tmp_path: Path) -> None:
    assert read_one(tmp_path, replace(FULL, extra=[("nodename", "wn7")])).hosts == (Host("wn7"),)


def test_what_arc_writes_as_zero_for_unknown_is_unknown(tmp_path: Path) -> None:
    job = read_one(tmp_path, replace(FULL, nodes=0, cores=0, memory=0, virtual=-1, wall=0))
    assert (job.nodes, job.cores, job.memory_rss_kib, job.memory_virtual_kib, job.wall_ms) == (
        None,
        None,
        None,
        None,
        0,
    )


def test_an_exit_code_below_zero(tmp_path: Path) -> None:
    assert read_one(tmp_path, replace(FULL, exit_code=4294967295)).exit_code == -1


def test_what_is_odd_stays_visible(tmp_path: Path) -> None:
    odd = replace(
        FULL,
        events=[("LRMSSTART", "yesterday"), FULL.events[-1]],
        attributes=[("subject", "robot"), ("subject", "7")],
        transfers=[("file:/x", 1, 2, 3, 99)],
        extra=[],
    )
    job = read_one(tmp_path, odd)
    assert job.extras == {"LRMSSTART": "yesterday", "subject": "robot, 7", "DataTransfers file:/x": "99 1 2 3"}
    assert job.execution_start is None
    assert job.transfers == ()


def test_a_value_cannot_pass_for_another_key(tmp_path: Path) -> None:
    job = read_one(tmp_path, replace(FULL, extra=[("jobname", "x\x1fbenchmark\x1fHEPscore23:1000")]))
    assert job.name == "x benchmark HEPscore23:1000"
    assert job.benchmarks == ()


def test_text_that_is_not_utf_8_costs_nothing_but_itself(tmp_path: Path) -> None:
    job = read_one(tmp_path, replace(FULL, extra=[("jobname", b"caf\xe9"), ("lrms", "slurm")]))
    assert (job.name, job.lrms) == ("caf\\xe9", "slurm")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "vanished"}, "status 'vanished' is unknown"),
        ({"status": ""}, "status None is unknown"),
        ({"end": 0}, "status is failed, but EndTime is 0"),
        ({"wall": -5, "cpu_kernel": -1}, "UsedWalltime, UsedCPUKernelTime is negative"),
        ({"submit": -1}, "SubmitTime is negative"),
        ({"end": 2**62}, "SubmitTime or EndTime is after the year 9999"),
        ({"wall": 2**62}, "UsedWalltime, UsedCPUUserTime or UsedCPUKernelTime is larger than possible"),
        ({"cpu_user": 2**63 - 1}, "UsedWalltime, UsedCPUUserTime or UsedCPUKernelTime is larger than possible"),
        ({"cores": "many"}, "CPUCount is not a whole number"),
        ({"end": "soon"}, "EndTime is not a whole number"),
        ({"job_id": ""}, "JobID is empty, or not printable ASCII text"),
        ({"job_id": "a b"}, "JobID is empty, or not printable ASCII text"),
        ({"job_id": b"a\xe9"}, "JobID is empty, or not printable ASCII text"),
    ],
)
def test_rows_no_record_can_be_made_of(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with ArcWriter(tmp_path / "accounting.db", new=True) as writer:
        writer.add(replace(FULL, **{"job_id": "good", **changes}))
        writer.add(replace(FULL, job_id="neighbour"))
    read = Read(source(tmp_path / "accounting.db"))
    assert [job.global_id for job in read.given] == ["neighbour"]
    (one,) = read.unreadable
    assert (one.reason, one.offset, one.line, one.file) == (reason, 1, None, str(tmp_path / "accounting.db"))
    assert b'"RecordID":1' in one.raw


@pytest.mark.parametrize("table", ["Endpoints", "Queues", "Users", "WLCGVOs", "Status"])
def test_a_row_whose_names_are_missing(tmp_path: Path, table: str) -> None:
    with ArcWriter(tmp_path / "accounting.db", new=True) as writer:
        writer.add(FULL)
        writer.connection.execute(f"DELETE FROM {table}")
    (one,) = Read(source(tmp_path / "accounting.db")).unreadable
    assert one.reason == f"{table} has no row 1"


def test_side_rows_of_a_page_are_those_of_each_job_read_alone(tmp_path: Path) -> None:
    arc_database.create(tmp_path / "accounting.db", 300, 8, "hostile")
    with closing(sqlite3.connect(tmp_path / "accounting.db")) as plain, plain:
        plain.execute("INSERT INTO JobExtraInfo VALUES (7, 'jobname', 'a' || char(31) || 'b')")
        plain.execute("INSERT INTO DataTransfers VALUES (8, 'x' || char(31), 1, 2, 3, 10)")
    plain.close()
    with closing(ArcDatabase(tmp_path / "accounting.db", 5)) as database:
        rows = database.after(0, 1_000)
    with closing(sqlite3.connect(tmp_path / "accounting.db")) as plain:
        for table, groups in SIDE_COLUMNS.items():
            alone = {row[0]: _side_rows(plain, table, groups, row[0]) for row in rows.aar}
            assert rows.sides[table] == {number: found for number, found in alone.items() if found is not None}


def _side_rows(plain: sqlite3.Connection, table: str, groups: tuple[tuple[str, ...], ...], number: int) -> Any:
    columns = ", ".join(column for group in groups for column in group)
    found = plain.execute(f"SELECT {columns} FROM {table} WHERE RecordID = ? ORDER BY rowid", (number,)).fetchall()
    texts: list[list[str]] = [[] for _ in groups]
    for values in found:
        rest = iter(values)
        for text, group in zip(texts, groups, strict=True):
            text += [_plain_text(value) for value in itertools.islice(rest, len(group))]
    return (number, *map(SEPARATOR.join, texts), len(found)) if found else None


def _plain_text(value: Any) -> str:
    if value is None:
        return ""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text.replace(SEPARATOR, " ")


def test_fuzz(tmp_path: Path) -> None:
    assert _fuzzed(tmp_path / "accounting.db", 10_000) > 1_000


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fuzz_long(tmp_path: Path) -> None:
    assert _fuzzed(tmp_path / "accounting.db", 1_000_000) > 100_000


def _fuzzed(path: Path, rounds: int) -> int:
    """Jobs that came out of rows with some of their values changed; every one can be stored."""
    chance = random.Random(20261121)
    odd = (None, 0, 1, -1, 2**31, 2**32 - 1, 2**62, -(2**63), 0.5, "", "7", "x%27%0a", b"\xff")
    texts = ("", "benchmark", "-9", "10", "%23", "HEPscore23:x", "9" * 30, "2026-11-01T00:00:60Z")
    with ArcWriter(path, new=True) as writer:
        for number in range(20):
            writer.add(replace(FULL, job_id=f"fuzz{number}", events=FULL.events[number % 3 :]))
    found = 0
    with closing(ArcDatabase(path, 5)) as database:
        rows = database.after(0, 100)
        reader = RowReader(database.names)
        for _ in range(rounds):
            row = list(chance.choice(rows.aar))
            for _ in range(chance.randint(0, 2)):
                row[chance.randrange(1, len(row))] = chance.choice(odd)
            sides: Sides = {table: {} for table in rows.sides}
            for table, packed in rows.sides.items():
                record_id, *read, number = packed[row[0]]
                columns = [text.split(SEPARATOR) for text in read]
                if chance.random() < 0.4:
                    values = chance.choice(columns)
                    values[chance.randrange(len(values))] = chance.choice(texts)
                sides[table][row[0]] = (record_id, *(SEPARATOR.join(values) for values in columns), number)
            try:
                job = reader.job(tuple(row), sides)
            except UnreadableRowError:
                continue
            found += 1
            assert decode(encode(job)) == job
    return found
