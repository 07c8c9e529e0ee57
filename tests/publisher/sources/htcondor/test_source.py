"""Source htcondor: histories in every spelling, APEL's log, evicted and removed jobs, damage."""

from __future__ import annotations

import io
import json
import re
import shutil
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.job import Benchmark, Job
from publisher.config import schema
from publisher.errors import ConfigError
from publisher.sources.base import Line, UnreadableLine
from publisher.sources.htcondor.lines import HTCondorParser
from publisher.sources.htcondor.source import HTCondorSource
from publisher.sources.htcondor.xml import ads
from publisher.sources.logs.sniff import looks_like
from tests.extent import short_or_whole
from tests.publisher.sources.log_reading import Seen, compare, fuzz, fuzz_records, read_on
from tests.publisher.sources.saved_reading import grown, parse_to_end

FILES = ("history", "per-job", "long.txt", "history.json", "history.xml")
LOST_ENDS = {"the last ad is incomplete; it is read when it is complete"}


def source(path: Path) -> HTCondorSource:
    return HTCondorSource("condor", schema.SourceSettings(type="htcondor", path=path))


def parser() -> HTCondorParser:
    return HTCondorParser(None)


@pytest.fixture(scope="module")
def seen(fixtures: Path) -> Seen:
    return read_on(source(fixtures / "htcondor" / "history"), Seen())


def one(seen: Seen, local_id: str) -> Job:
    (job,) = (job for job in seen.jobs.values() if job.local_id == local_id)
    return job


@pytest.mark.parametrize("name", ["history", "apel-batch.log"])
def test_the_fixtures(fixtures: Path, name: str, rewrite_golden: bool) -> None:
    found = read_on(source(fixtures / "htcondor" / name), Seen())
    compare(fixtures / "htcondor" / f"{name}.jobs.json", list(found.jobs.values()), rewrite=rewrite_golden)
    assert (found.unreadable, found.at_end) == ([], True)


@pytest.mark.parametrize("name", FILES)
def test_every_spelling_gives_the_same(seen: Seen, fixtures: Path, name: str) -> None:
    found = read_on(source(fixtures / "htcondor" / name), Seen())
    assert found.jobs == seen.jobs
    assert found.unreadable == []
    again = read_on(source(fixtures / "htcondor" / name), Seen(cursor=found.cursor))
    assert (again.jobs, again.unreadable, again.at_end) == ({}, [], True)


def test_per_job_files_stay(fixtures: Path, tmp_path: Path) -> None:
    shutil.copytree(fixtures / "htcondor" / "per-job", tmp_path / "per-job")
    read_on(source(tmp_path / "per-job"), Seen())
    assert len(list((tmp_path / "per-job").iterdir())) == 13


def test_an_evicted_job_is_one_record_of_all_its_runs(seen: Seen) -> None:
    job = one(seen, "4.0")
    assert (job.wall_ms, job.cpu_ms, (job.end or 0) - (job.start or 0)) == (544_000, 501_500, 900)
    assert (job.extras["NumJobStarts"], job.extras["CommittedTime"]) == (2, 383)
    assert job.extras["cpu_from"] == "CumulativeRemoteUserCpu+CumulativeRemoteSysCpu"
    assert one(seen, "12.0").extras["cpu_from"] == "RemoteUserCpu+RemoteSysCpu"


@pytest.mark.parametrize(
    ("local_id", "expected"),
    [
        ("1.0", ("completed", 0, None)),
        ("2.0", ("failed", 3, None)),
        ("3.0", ("failed", None, 9)),
        ("5.0", ("cancelled", None, None)),
        ("6.0", ("aborted", None, None)),
    ],
)
def test_endings(seen: Seen, local_id: str, expected: tuple[object, ...]) -> None:
    job = one(seen, local_id)
    assert (job.status, job.exit_code, job.exit_signal) == expected


def test_what_never_started_is_not_a_run(seen: Seen) -> None:
    assert "7.0" not in {job.local_id for job in seen.jobs.values()}


def test_identities(seen: Seen) -> None:
    proxy, token = one(seen, "9.0"), one(seen, "10.0")
    assert (proxy.user_dn, proxy.vo) == ("/DC=org/DC=example/CN=Alice", "atlas")
    assert proxy.fqans == ("/atlas/Role=production/Capability=NULL", "/atlas/Role=NULL/Capability=NULL")
    assert (token.token_subject, token.token_issuer) == ("a1b2", "https://issuer.example.org/")


def test_cores_are_those_granted_and_noted_where_they_were_only_asked_for(seen: Seen) -> None:
    assert (one(seen, "8.0").cores, one(seen, "8.0").gpus, one(seen, "11.0").cores) == (8, 2, 4)
    assert (one(seen, "12.0").cores, one(seen, "12.0").extras["cores_from"]) == (2, "RequestCpus")
    assert (one(seen, "13.0").cores, one(seen, "13.0").nodes) == (12, 3)


def test_scores_count_with_their_type_only(seen: Seen) -> None:
    job = one(seen, "11.0")
    assert job.benchmarks == (Benchmark("HEPscore23", 14.2), Benchmark("Si2k", 2793.0))
    assert job.extras["machineattrapelscaling0"] == 1.25
    assert one(seen, "1.0").benchmarks == ()


def test_commands_are_never_kept(fixtures: Path) -> None:
    assert "run.sh" not in (fixtures / "htcondor" / "history.jobs.json").read_text(encoding="utf-8")


def test_apels_line() -> None:
    job = parser().parse(b"schedd#12.3#1793491000|alice|287|107|11|1793491100|1793491400|26636|26832|2|1.1|")
    assert isinstance(job, Job)
    assert (job.record_id, job.local_id, job.submit) == ("ur-htcondor/schedd/12.3/1793491100", "12.3", 1_793_491_000)
    assert (job.wall_ms, job.cpu_ms, job.cores, job.extras["scale"]) == (287_000, 118_000, 2, 1.1)
    assert (job.global_id, job.exit_code) == ("schedd#12.3#1793491000", None)
    never = b"schedd#12.4#1793491000|alice|0|0|0|undefined|1793491400|undefined|0|1|1|"
    assert parser().parse(never) is Line.SKIPPED
    assert isinstance(parser().parse(b"schedd#12.5#1793491000|alice|x|0|0|1|2|3|4|1|1|"), UnreadableLine)


def test_what_it_looks_like(fixtures: Path) -> None:
    kinds = {"history": "htcondor", "apel-batch.log": "apel-condor", "history.xml": "htcondor-xml"}
    for name, kind in {**kinds, "history.json": "htcondor-json"}.items():
        assert looks_like((fixtures / "htcondor" / name).read_bytes().splitlines()[:50]) == kind


def test_a_banner_of_another_job_is_reported() -> None:
    reading = parser()
    for line in (b"ClusterId = 1", b"ProcId = 0", b"JobStatus = 4"):
        reading.parse(line)
    assert isinstance(reading.parse(b"*** Offset = 0 ClusterId = 2 ProcId = 0 Owner = x"), UnreadableLine)


def test_entities_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.xml"
    path.write_text(
        '<?xml version="1.0"?><!DOCTYPE classads [<!ENTITY x "y">]>'
        '<classads><c><a n="Owner"><s>&x;</s></a></c></classads>',
        encoding="utf-8",
    )
    found = read_on(source(path), Seen())
    assert [each.reason for each in found.unreadable] == [
        "job 1 of the document: the document declares entities; HTCondor's do not"
    ]


@pytest.mark.parametrize("name", ["history.xml", "history.json"])
def test_a_document_that_is_cut_off_is_reported(fixtures: Path, tmp_path: Path, seen: Seen, name: str) -> None:
    whole = (fixtures / "htcondor" / name).read_bytes()
    path = tmp_path / name
    path.write_bytes(whole[: len(whole) // 2])
    found = read_on(source(path), Seen())
    assert 0 < len(found.jobs) < len(seen.jobs)
    assert len(found.unreadable) == 1
    path.write_bytes(whole)
    assert read_on(source(path), found).jobs == seen.jobs


@pytest.mark.parametrize("between", [b"", b"\n", b"\xef\xbb\xbf", b"\r\n \n"])
@pytest.mark.parametrize("name", ["history.xml", "history.json"])
def test_documents_one_after_the_other_are_all_read(
    fixtures: Path, tmp_path: Path, seen: Seen, name: str, between: bytes
) -> None:
    whole = (fixtures / "htcondor" / name).read_bytes()
    path = tmp_path / name
    path.write_bytes(whole + between + whole.replace(b"schedd.example.org", b"schedd2.example.org") + between)
    found = read_on(source(path), Seen())
    assert (found.unreadable, found.at_end) == ([], True)
    assert len(found.jobs) == 2 * len(seen.jobs)


_AD = b'<c><a n="ClusterId"><i>%d</i></a></c>\n'
_XML = b'<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n%s</classads>\n'
_CUT = "the XML is cut off or damaged in line"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (_XML % (_AD % 1) + _XML % (_AD % 2), [1, 2]),
        (b"<classads>%s</classads >" % (_AD % 1) * 2, [1, 1]),
        (_AD % 1, [1]),
        ((_XML % (_AD % 1 + _AD % 2))[:-20] + _XML % (_AD % 3), [1, 5, 3]),
        (_XML % (_AD % 1) + b"-- no jobs\n" + _XML % (_AD % 2), [1, 6, 2]),
        (_XML % (_AD % 1 + b'<c><a n="x"></c>' + _AD % 2) + _XML % (_AD % 3), [1, 5, 3]),
        (_XML % (_AD % 1) + _XML % (_AD % 2 + b"\xff\x01\xef\xbf\xbe" + _AD % 3), [1, 2, 3]),
        (b'<?xml version="1.0"?>\n' * 3 + _XML % (_AD % 1), [0, 0, 0, 1]),
        (b'<!DOCTYPE classads [<!ENTITY x "y">]>' + _XML % (_AD % 1) + _XML % (_AD % 2), [0, 1, 2]),
        (_XML % (_AD % 1) + _XML % b"" + b"  \n", [1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_a_damaged_document_costs_no_other(content: bytes, expected: list[int], size: int) -> None:
    """Ids of the ads in their order; for what is refused the line of the file, 0 for the entity."""
    file = io.BytesIO(content)
    reported: list[object] = []
    for each in ads(lambda most: file.read(min(most, size))):
        if isinstance(each, UnreadableLine):
            reported.append(int(each.reason.removeprefix(_CUT).split()[0]) if each.reason.startswith(_CUT) else 0)
        else:
            reported.append(each["clusterid"])
    assert reported == expected


def test_documents_one_after_the_other_need_no_more_memory() -> None:
    """A parser is for one document: nothing of the earlier ones is kept."""
    document = _XML % b"".join(_AD % n for n in range(500))
    blocks = iter([document] * 40)
    tracemalloc.start()
    try:
        assert sum(1 for _ in ads(lambda _: next(blocks, b""))) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@settings(max_examples=short_or_whole(8, 25))
@given(data=st.data())
def test_any_split_into_reads_gives_the_same(
    data: st.DataObject, fixtures: Path, seen: Seen, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = fixtures / "htcondor"
    content = (place / "history.20261101T001000").read_bytes() + (place / "history").read_bytes()
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=5))
    found = grown(source, tmp_path_factory.mktemp("condor") / "history", content, cuts)
    assert found.jobs == seen.jobs
    assert {each.reason for each in found.unreadable} <= LOST_ENDS


@pytest.mark.parametrize("damage", [b"\0garbage", b"x|y", b"Owner", b"*** ", b"ClusterId = 1"])
def test_a_damaged_line_costs_only_its_own_job(fixtures: Path, damage: bytes) -> None:
    lines = (fixtures / "htcondor" / "history").read_bytes().splitlines()
    whole = parse_to_end(parser(), lines)
    number = 0
    order = list(whole.jobs)
    for index, line in enumerate(lines):
        found = parse_to_end(parser(), [*lines[:index], damage, *lines[index + 1 :]])
        lost = [key for key in order if key not in found.jobs]
        assert len(lost) <= 1, (index, line)
        number += bool(lost)
    assert number > 0


def test_an_ad_is_bounded() -> None:
    reading = parser()
    for index in range(10_000):
        reading.parse(b"MachineAttrX%d = 1" % index)
        reading.parse(b'Owner = "' + b"x" * 20_000 + b'"')
    assert len(json.dumps(reading.state())) < 100_000


LOGS = ("apel-batch.log", "history")


@pytest.mark.parametrize("name", LOGS)
def test_fuzz(fixtures: Path, name: str) -> None:
    assert _fuzzed(fixtures / "htcondor" / name, 5_000) > 100


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LOGS)
def test_fuzz_long(fixtures: Path, name: str) -> None:
    assert _fuzzed(fixtures / "htcondor" / name, 1_000_000) > 20_000


def _fuzzed(file: Path, rounds: int) -> int:
    """Runs from mutated lines of APEL's log, or from complete ads of a history."""
    reading = parser()
    content = file.read_bytes()
    if file.name == "history":
        found = fuzz_records(reading, re.findall(rb"(?s).+?\n\*\*\*[^\n]*\n", content), rounds)
    else:
        found = fuzz(reading, content.splitlines(), rounds)
    assert len(json.dumps(reading.state())) < 10_000_000
    return found


def test_the_path_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"sources\.condor\.path"):
        HTCondorSource("condor", schema.SourceSettings(type="htcondor"))


def test_check(fixtures: Path) -> None:
    for name in (*FILES, "apel-batch.log"):
        assert [finding.level for finding in source(fixtures / "htcondor" / name).check()] == ["green"], name


def test_the_samples(shared: Path) -> None:
    samples = shared / "samples" / "htcondor"
    (job,) = read_on(source(samples / "apel-batch.log"), Seen()).jobs.values()
    assert (job.cluster, job.local_id, job.wall_ms, job.cpu_ms) == ("arcce.rl.ac.uk", "2376.0", 287_000, 118_000)
    assert (job.start, job.end, job.memory_rss_kib) == (1_435_671_643, 1_435_671_930, 26_636)
    # a few attributes without an identity are not a record, which is reported
    selected = read_on(source(samples / "condor_history-selected-evicted.txt"), Seen())
    assert (selected.jobs, len(selected.unreadable)) == ({}, 1)
