"""APEL's text messages: golden files, the server's reading of them, and reading them back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.apel.fold import Fold, Group, SyncFold, normalised_seconds
from formats.apel.job import ApelJobFormat, read_job
from formats.apel.summary import SummaryFormat, SyncFormat, read_count, read_group
from formats.apel.text import carried, parse
from formats.check.apel import check_text
from formats.job import Benchmark, Job
from formats.registry import UnknownFormatError, names_of, record_format, totals_format
from formats.rule_codes import CannotRenderError
from formats.text import duration_seconds
from formats.view import SummaryCounts, View
from tests.formats.apel import apel_server
from tests.formats.golden_jobs import CREATED, GOLDEN
from tests.formats.test_summary import NOVEMBER, job
from tests.strategies import hostile_text, jobs, often, plain_jobs

JOB_VERSIONS = ("0.3", "0.4")
SUMMARY_VERSIONS = (
    ("apel-summary", "0.2"), ("apel-summary", "0.4"), ("apel-normalised-summary", "0.3"),
    ("apel-normalised-summary", "0.4"),
)  # fmt: skip

HOSTILE: list[dict[str, object]] = [
    {},
    {"user_dn": "CN=Zo\u00eb \u674e,O=Grid", "local_id": "17.a%%b", "local_user": "a\nb"},
    {"queue": "q" * 101, "vo": "null", "fqans": (), "project": "p", "memory_rss_kib": 2**31, "nodes": -1},
    {"endpoint_url": None, "cluster": "pbs.example.org", "user_dn": None, "infrastructure": "local", "cores": None},
    {
        "local_id": None,
        "global_id": "https://ce1.example.org/jobs/7",
        "vo": "v" * 256,
        "queue": "application/pkcs7-mime",
    },
    {"end": NOVEMBER - 1, "start": NOVEMBER - 100, "benchmarks": (Benchmark("si2k", 2501.3336),), "wall_ms": 1_500},
    {"end": NOVEMBER + 2_591_999, "user_dn": "/O=grid/CN=ada", "wall_ms": 499, "cpu_ms": 0},
]
"""Changes of a plain run: what the golden files hold."""


def hostile_jobs() -> list[Job]:
    return [job(**change) for change in HOSTILE]


def compare(path: Path, message: bytes, *, rewrite: bool) -> None:
    if rewrite:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(message)
    assert path.read_bytes() == message


@pytest.mark.parametrize("version", JOB_VERSIONS)
def test_golden_job_messages(version: str, fixtures: Path, rewrite_golden: bool) -> None:
    renderer = ApelJobFormat(View(site="EXAMPLE-SITE", version=version))
    message = renderer.message([renderer.record(one, 0).body for one in hostile_jobs()])
    compare(fixtures / "golden" / "apel-job" / f"hostile-{version}.txt", message, rewrite=rewrite_golden)


@pytest.mark.parametrize("job_name", sorted(GOLDEN))
def test_golden_job_records(job_name: str, fixtures: Path, rewrite_golden: bool) -> None:
    renderer = ApelJobFormat(View(site="EXAMPLE-SITE"))
    try:
        rendered = renderer.record(GOLDEN[job_name], CREATED)
    except CannotRenderError as error:
        content = f"held: {error}\n"
    else:
        notes = [f"# {note.field}: {note.rule}: {note.before} -> {note.after}\n" for note in rendered.notes]
        content = renderer.message([rendered.body]).decode("ascii") + "".join(notes)
    path = fixtures / "golden" / "apel-job" / f"{job_name}.txt"
    compare(path, content.encode("ascii"), rewrite=rewrite_golden)


@pytest.mark.parametrize(("name", "version"), SUMMARY_VERSIONS)
def test_golden_summaries(name: str, version: str, fixtures: Path, rewrite_golden: bool) -> None:
    view = View(site="EXAMPLE-SITE", version=version)
    renderer = totals_format(name, view)
    made = Fold(view, normalised=renderer.normalised)
    for each in hostile_jobs():
        made.add(each)
    groups = list(made.groups())
    message = renderer.message([renderer.record(group).body for group in [*groups, groups[0].zeroed]])
    compare(fixtures / "golden" / name / f"hostile-{version}.txt", message, rewrite=rewrite_golden)


@pytest.mark.parametrize(("name", "version"), [*SUMMARY_VERSIONS, ("apel-sync", "0.1")])
def test_golden_summaries_and_counts_of_wrong_input(
    name: str, version: str, fixtures: Path, rewrite_golden: bool
) -> None:
    """Each of the hostile runs alone: the message, what was altered, or why the run is held."""
    view = View(site="EXAMPLE-SITE", version=version)
    content = ""
    for job_name, one in sorted(GOLDEN.items()):
        content += f"== {job_name}\n"
        try:
            if name == "apel-sync":
                counts = SyncFold(view)
                counts.add(one)
                content += SyncFormat(view).message([SyncFormat(view).record(c).body for c in counts.groups()]).decode()
                continue
            renderer = totals_format(name, view)
            fold = Fold(view, normalised=renderer.normalised)
            fold.add(one)
            rendered = [renderer.record(group) for group in fold.groups()]
        except CannotRenderError as error:
            content += f"held: {error}\n"
            continue
        content += renderer.message([record.body for record in rendered]).decode("ascii")
        notes = [note for record in rendered for note in record.notes]
        content += "".join(f"# {note.field}: {note.rule}: {note.before} -> {note.after}\n" for note in notes)
    path = fixtures / "golden" / "wrong-input" / name / f"{version}.txt"
    compare(path, content.encode("ascii"), rewrite=rewrite_golden)


def test_golden_sync(fixtures: Path, rewrite_golden: bool) -> None:
    view = View(site="EXAMPLE-SITE")
    renderer, made = totals_format("apel-sync", view), SyncFold(view)
    for one in hostile_jobs():
        made.add(one)
    message = renderer.message([renderer.record(count).body for count in made.groups()])
    compare(fixtures / "golden" / "apel-sync" / "hostile-0.1.txt", message, rewrite=rewrite_golden)


@pytest.mark.parametrize("version", JOB_VERSIONS)
@often
@given(one=jobs() | plain_jobs())
def test_any_run_renders_to_what_the_server_takes_or_is_held(version: str, one: Job) -> None:
    renderer = ApelJobFormat(View(site="EXAMPLE-SITE", version=version, dn="hash", dn_key=b"k"))
    try:
        rendered = renderer.record(one, 0)
    except CannotRenderError:
        return
    message = renderer.message([rendered.body])
    (row,) = apel_server.load(message)
    assert [found for found in check_text(message.decode("ascii")) if found.level == "error"] == []
    assert row["EndTime"] == one.end
    back = read_job(parse(message.decode("ascii")).records[0])
    assert (back.start, back.end) == (one.start, one.end)
    assert back.wall_ms == duration_seconds(one.wall_ms or 0) * 1000


@pytest.mark.parametrize("version", JOB_VERSIONS)
@often
@given(one=plain_jobs())
def test_a_plain_run_reads_back(version: str, one: Job) -> None:
    renderer = ApelJobFormat(View(site="EXAMPLE-SITE", version=version))
    rendered = renderer.record(one, 0)
    back = read_job(parse(renderer.message([rendered.body]).decode("ascii")).records[0])
    for field in ("local_id", "local_user", "vo", "queue", "nodes", "cores", "infrastructure", "start", "end",
                  "wall_ms", "cpu_ms", "memory_rss_kib", "memory_virtual_kib", "benchmarks"):  # fmt: skip
        assert getattr(back, field) == getattr(one, field), field
    assert back.fqans == one.fqans[:1]
    assert back.endpoint_url == f"arcrest:{one.endpoint_url}"
    assert {note.field for note in rendered.notes} <= {"GlobalUserName"}


WARM = ApelJobFormat(View(site="EXAMPLE-SITE"))


@given(one=jobs() | plain_jobs())
def test_what_is_kept_of_other_runs_changes_no_record(one: Job) -> None:
    def attempt(renderer: ApelJobFormat) -> object:
        try:
            return renderer.record(one, 0)
        except CannotRenderError as error:
            return str(error)

    assert attempt(WARM) == attempt(ApelJobFormat(View(site="EXAMPLE-SITE"))) == attempt(WARM)


@pytest.mark.parametrize(
    "change",
    [
        {"site": "T"}, {"endpoint_url": "https://ce9.example.org"}, {"endpoint_type": None}, {"queue": "q"},
        {"endpoint_url": None, "cluster": "c1"}, {"endpoint_url": None, "cluster": "c2"}, {"local_user": "u"},
        {"user_dn": "/CN=B"}, {"user_dn": None}, {"vo": "cms"}, {"fqans": ()}, {"fqans": ("/cms",)}, {"lrms": "lsf"},
        {"middleware": "m"}, {"system": "slurm"}, {"infrastructure": "local"}, {"token_subject": "s"},
        {"user_dn": None, "fqans": (), "endpoint_url": None}, {"benchmarks": (Benchmark("si2k", 1.0),)},
        {"user_dn": None, "fqans": (), "endpoint_url": None, "token_subject": "s"}, {"local_id": "2"}, {"nodes": 2},
        {"cores": None, "slots": 3}, {"memory_rss_kib": 5}, {"memory_virtual_kib": 6}, {"end": NOVEMBER + 99},
    ],
)  # fmt: skip
def test_every_fact_of_a_run_reaches_its_record_also_from_a_warm_cache(change: dict[str, object]) -> None:
    warm = ApelJobFormat(View(site="S"))
    warm.record(job(), 0)
    assert warm.record(job(**change), 0) == ApelJobFormat(View(site="S")).record(job(**change), 0)


@pytest.mark.parametrize(("name", "version"), SUMMARY_VERSIONS)
@given(runs=st.lists(jobs() | plain_jobs(), max_size=6))
def test_summaries_of_any_runs_are_taken_and_read_back(name: str, version: str, runs: list[Job]) -> None:
    view = View(site="EXAMPLE-SITE", version=version)
    renderer = totals_format(name, view)
    made = Fold(view, normalised=renderer.normalised)
    for one in runs:
        try:
            made.add(one)
        except CannotRenderError:
            continue
    groups = list(made.groups())
    bodies = [renderer.record(group).body for group in groups]
    message = renderer.message(bodies)
    text = message.decode("ascii")
    assert len(message) == renderer.overhead_bytes + sum(map(len, bodies)) + renderer.separator_bytes * max(
        0, len(bodies) - 1
    )
    rows = apel_server.load(message)
    keys = {apel_server.key(row, text) for row in rows}
    assert len(keys) == len(groups), "no row replaces another"
    assert [found for found in check_text(text) if found.level == "error"] == []
    for group, record in zip(groups, parse(text).records, strict=True):
        back = read_group(record)
        spelled = group.spelling if renderer.normalised else back.spelling
        assert msgspec.structs.replace(back.key, score_milli=0, benchmark="") == msgspec.structs.replace(
            group.key, score_milli=0, benchmark=""
        )
        assert spelled.score_milli == group.spelling.score_milli
        assert (back.jobs, back.earliest, back.latest) == (group.jobs, group.earliest, group.latest)
        assert back.wall_ms == duration_seconds(group.wall_ms) * 1000
        if renderer.normalised:
            assert normalised_seconds(back.normalised_wall) == normalised_seconds(group.normalised_wall)


def test_a_zeroed_group_is_taken() -> None:
    renderer = SummaryFormat(View(site="S"))
    made = Fold(View(site="S"))
    made.add(job())
    (group,) = made.groups()
    (row,) = apel_server.load(renderer.message([renderer.record(group.zeroed).body]))
    assert (row["NumberOfJobs"], row["WallDuration"], row.get("EarliestEndTime")) == (0, 0, None)


@pytest.mark.parametrize("name", ["apel-summary", "apel-normalised-summary"])
def test_a_summary_has_a_description_only_if_it_is_configured(name: str) -> None:
    made = Fold(View(site="S"), normalised=name != "apel-summary")
    made.add(job())
    (group,) = made.groups()
    without, described = (
        totals_format(name, View(site="S", summary_description=text)).record(group).body for text in (None, "ARC-Zoë")
    )
    assert b"InfrastructureDescription" not in without
    lines = described.decode().splitlines()
    place = next(at for at, line in enumerate(lines) if line.startswith("Infrastructure"))
    assert lines.pop(place + 1) == "InfrastructureDescription: ARC-Zoe", "after the type, as in APEL's own messages"
    assert "\n".join(lines) == without.decode().rstrip("\n")
    renderer = totals_format(name, View(site="S"))
    (row,) = apel_server.load(renderer.message([described]))
    assert row["InfrastructureDescription"] == "ARC-Zoe"


def test_records_and_summaries_of_a_run_fall_under_one_key_and_sync_counts_them() -> None:
    view = View(site="S")
    made, counted = Fold(view), SyncFold(view)
    made.add(job())
    counted.add(job())
    (group,), (count,) = made.groups(), counted.groups()
    records, summaries, sync = ApelJobFormat(view), SummaryFormat(view), SyncFormat(view)
    messages = [
        records.message([records.record(job(), 0).body]),
        summaries.message([summaries.record(group).body]),
        sync.message([sync.record(count).body]),
    ]
    rows = [apel_server.load(message)[0] for message in messages]
    assert len({row["SubmitHost"] for row in rows}) == 1
    assert read_count(parse(messages[2].decode("ascii")).records[0]) == count
    for field in ("GlobalUserName", "VO", "VOGroup", "VORole", "Processors", "NodeCount", "ServiceLevel"):
        assert rows[0][field] == rows[1][field], field


@pytest.mark.parametrize(
    ("spelling", "fqans", "group", "role"),
    [
        ("plain", ("/atlas/no/Role=production/Capability=NULL",), "/atlas/no", "Role=production"),
        ("plain", ("/atlas/Role=NULL",), "/atlas", "None"),
        ("plain", (), "None", "None"),
        ("arc", ("/atlas/Role=production",), "/atlas", "/Role=production"),
        ("arc", ("/atlas",), "/atlas", "Role=NULL"),
        ("arc", (), "/atlas", "Role=NULL"),
        ("arc-6.20", ("/atlas/no/Role=production/Capability=NULL",), "/atlas/no/Role", "Role=NULL"),
        ("arc-6.20", (), "/atlas", "Role=NULL"),
        ("arc-6.17", ("/atlas/no/Role=production/Capability=NULL",), "/atlas/no/Role", "Role=NULL"),
        ("arc-6.17", ("/icecube.wisc.edu",), "/icecube.wisc.edu", "Role=NULL"),
        ("arc-6.17", ("atlas",), "/atlas", "Role=NULL"),
        ("arc-6.17", (), "/atlas", "Role=NULL"),
        ("apel-client", ("/atlas/no/role=production",), "/atlas/no", "role=production"),
        ("apel-client", ("/cms/Role=NULL/Capability=NULL",), "/cms", "Role=NULL"),
        ("apel-client", ("/cms/Capability=NULL",), "/cms/Capability=NULL", "None"),
        ("apel-client", ("/ops",), "/ops", "None"),
        ("apel-client", ("/atlas/Role=pilot;/atlas/no",), "/atlas", "Role=pilot"),
        ("apel-client", ("atlas",), "None", "None"),
    ],
)
def test_vo_group_and_role(spelling: str, fqans: tuple[str, ...], group: str, role: str) -> None:
    view = msgspec.convert({"site": "S", "vo_spelling": spelling}, View)
    key = next(_groups(view, job(fqans=fqans))).spelling
    assert (key.vo_group, key.vo_role) == (group, role)


@pytest.mark.parametrize("group", ["physics", None])
def test_local_jobs_as_the_apel_client_has_them(group: str | None) -> None:
    view = View(site="S", vo_spelling="apel-client", submit_host="apel-client")
    local = job(fqans=(), vo=None, user_dn=None, endpoint_url=None, infrastructure="local", local_group=group)
    key = next(_groups(view, local)).spelling
    assert (key.vo, key.vo_group, key.vo_role, key.submit_host) == (group or "None", "None", "None", "None")
    others = msgspec.structs.replace(local, local_group="chem")
    assert len(list(_groups(view, local, others))) == 2, "of the same fold"
    counts = SyncFold(view)
    counts.add(local)
    assert [count.key.submit_host for count in counts.groups()] == ["none"]


@pytest.mark.parametrize(
    ("counts", "nodes", "processors"), [("nodes-and-cores", 2, 8), ("cores", 0, 8), ("none", 0, 0)]
)
def test_nodes_and_processors_that_summaries_have(counts: SummaryCounts, nodes: int, processors: int) -> None:
    view = View(site="S", summary_counts=counts)
    key = next(_groups(view, job(nodes=2, cores=8))).spelling
    assert (key.nodes, key.processors) == (nodes, processors)


@pytest.mark.parametrize(
    ("spelling", "fields"),
    [
        ("plain", ("None", "None", "None")),
        ("arc", ("None", "None", "None")),
        ("arc-6.20", ("None", "None", "None")),
        ("arc-6.17", ("None", "/", "Role=NULL")),
    ],
)
def test_vo_group_and_role_of_a_run_without_a_vo(spelling: str, fields: tuple[str, str, str]) -> None:
    view = msgspec.convert({"site": "S", "vo_spelling": spelling}, View)
    key = next(_groups(view, job(fqans=(), vo=None))).spelling
    assert (key.vo, key.vo_group, key.vo_role) == fields


def _groups(view: View, *runs: Job) -> Iterator[Group]:
    made = Fold(view)
    for each in runs:
        made.add(each)
    return made.groups()


@pytest.mark.parametrize(
    "change",
    [
        {"benchmarks": ()}, {"local_id": "none", "global_id": "null"}, {"local_id": "x" * 256}, {"wall_ms": None},
        {"start": None}, {"start": NOVEMBER + 101}, {"end": 253_402_300_799}, {"start": -2_208_988_800},
        {"wall_ms": 2**31 * 1000}, {"cpu_ms": -1}, {"status": "running"}, {"endpoint_url": "u" * 300},
    ],
)  # fmt: skip
def test_a_run_that_the_server_would_refuse_is_held(change: dict[str, object]) -> None:
    with pytest.raises(CannotRenderError):
        ApelJobFormat(View(site="S")).record(job(**change), 0)


def test_alterations_are_noted() -> None:
    rendered = ApelJobFormat(View(site="S")).record(job(queue="a\tb", user_dn="/CN=Zo\u00eb", memory_rss_kib=2**31), 0)
    assert [(note.field, note.after) for note in rendered.notes] == [
        ("Queue", "a b"), ("GlobalUserName", "/CN=Zoe"), ("MemoryReal", None),
    ]  # fmt: skip


@given(hostile_text)
def test_what_is_carried_is_one_ascii_line_and_stays(text: str) -> None:
    once = carried(text)
    assert carried(once) == once
    assert once.isascii()
    assert once == once.strip()
    assert len(once.splitlines()) <= 1
    assert "%%" not in once


def test_names_that_are_not_latin_stay_separate() -> None:
    assert carried("\u674e") != carried("\u738b")
    assert carried("Bj\u00f8rn \u00c9") == "Bj\\xC3\\xB8rn E"


def test_versions_and_names() -> None:
    assert ApelJobFormat(View(site="S")).type.version == "0.3"
    assert totals_format("apel-summary", View(site="S")).type.version == "0.2"
    assert totals_format("apel-normalised-summary", View(site="S")).type.version == "0.4"
    assert record_format("apel-job", View(site="S")).name == "apel-job"
    summaries = names_of("totals")
    assert [totals_format(name, View(site="S")).name for name in summaries] == list(summaries)
    with pytest.raises(ValueError, match=r"0\.2, 0\.4"):
        totals_format("apel-summary", View(site="S", version="0.3"))
    with pytest.raises(UnknownFormatError, match="apel-normalised-summary, apel-summary"):
        totals_format("apel-job", View(site="S"))


def test_arcs_own_summaries_are_read(shared: Path) -> None:
    folder = shared / "samples" / "arc" / "jura-6.17"
    groups = []
    for path in sorted((folder / "summaries").glob("*.payload")):
        message = parse(path.read_text("ascii"))
        if message.kind == "APEL-summary-job-message":
            groups += [read_group(record) for record in message.records]
    counts = [
        read_count(record)
        for path in sorted((folder / "sync").glob("*.payload"))
        for record in parse(path.read_text("ascii")).records
    ]
    assert len(groups) == 183
    assert sum(group.jobs for group in groups) == sum(count.jobs for count in counts)
    assert {group.spelling.site for group in groups} == {"TEST-SITE"}
    assert all(group.wall_ms >= 0 and group.spelling.benchmark == "HEPSPEC" for group in groups)
