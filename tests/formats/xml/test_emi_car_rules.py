"""The rules of the APEL server for CAR (facts on formats, 2.1; facts on receivers, 2), each a test named after it."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from formats.apel.fold import Fold
from formats.base import Rendered
from formats.job import Benchmark, Job
from formats.registry import record_format
from formats.rule_codes import CannotRenderError
from formats.rules import compared
from formats.view import View, VoSpelling
from formats.xml.emi_car import ComputeRecordFormat
from publisher.simulator.apel_tables import read_car
from tests.formats.apel.apel_server import load
from tests.strategies import any_text, fqans, often, plain_jobs

CREATED = 1_795_000_000
VIEW = View(site="EXAMPLE-SITE")
FACTS: dict[str, Any] = {
    "record_id": "ur-1", "system": "slurm", "status": "completed", "local_id": "42", "local_user": "ada",
    "cluster": "ce1.example.org", "queue": "main", "wall_ms": 10_000, "cpu_ms": 15_000, "start": 1_790_000_000,
    "end": 1_790_000_010, "benchmarks": (Benchmark("hepscore23", 14.2),),
}  # fmt: skip


def render(view: View = VIEW, /, **facts: Any) -> Rendered:
    return ComputeRecordFormat(view).record(Job(**{**FACTS, **facts}), CREATED)


def values(rendered: Rendered, element: str, kind: str = "") -> list[str]:
    attributes = f' [^>]*"{kind}"' if kind else "(?: [^>]*)?"
    return re.findall(f"<{element}{attributes}>([^<]*)</{element}>", rendered.body.decode())


@pytest.mark.parametrize("field", ["wall_ms", "cpu_ms", "start", "end", "cluster"])
def test_mandatory_fields_hold_the_record(field: str) -> None:
    with pytest.raises(CannotRenderError):
        render(VIEW, **{field: None})


def test_site_is_mandatory() -> None:
    with pytest.raises(CannotRenderError, match="Site"):
        render(View(site=""))


@pytest.mark.parametrize("scores", [(), (Benchmark("custom", 1.0),), (Benchmark("HEPSPEC", 0.0),)])
def test_no_benchmark_is_held_never_a_default(scores: tuple[Benchmark, ...]) -> None:
    with pytest.raises(CannotRenderError, match="ServiceLevel"):
        render(benchmarks=scores)


def test_the_first_service_level_is_the_chosen_benchmark() -> None:
    scores = (Benchmark("si2k", 2500.0), Benchmark("HEPSPEC", 10.0), Benchmark("hepscore23", 11.5))
    assert values(render(benchmarks=scores), "ServiceLevel") == ["11.5", "10", "2500"]
    chosen = render(View(site="S", benchmark="hepspec"), benchmarks=scores)
    assert re.findall(r'ServiceLevel urf:type="(\w+)"', chosen.body.decode())[0] == "HEPSPEC"


def test_cpu_duration_all_is_there_and_first() -> None:
    rendered = render(cpu_ms=None, cpu_user_ms=10_000, cpu_system_ms=5_000)
    assert re.findall(r'usageType="(\w+)">PT(\d+)S', rendered.body.decode()) == [
        ("all", "15"),
        ("user", "10"),
        ("system", "5"),
    ]


def test_end_before_start_is_held() -> None:
    with pytest.raises(CannotRenderError, match="before the start"):
        render(end=FACTS["start"] - 1)


def test_end_more_than_two_days_ahead_is_held() -> None:
    render(end=CREATED + 2 * 86_400)
    with pytest.raises(CannotRenderError, match="future"):
        render(end=CREATED + 2 * 86_400 + 1)


@pytest.mark.parametrize("wall_ms", [-1000, 2**31 * 1000])
def test_durations_are_signed_32_bits_and_not_negative(wall_ms: int) -> None:
    with pytest.raises(CannotRenderError, match="WallDuration"):
        render(wall_ms=wall_ms)


def test_local_job_id_longer_than_255_is_held() -> None:
    with pytest.raises(CannotRenderError, match="LocalJobId"):
        render(local_id="1" * 256)


def test_without_a_local_job_id_the_global_one_is_used() -> None:
    rendered = render(local_id=None, global_id="g")
    assert values(rendered, "LocalJobId") == ["g"]
    assert [note.field for note in rendered.notes] == ["LocalJobId"]


def test_fqan_overrides_so_the_primary_one_comes_first() -> None:
    rendered = render(fqans=("/atlas/no/Role=production", "/atlas"), vo="atlas")
    assert values(rendered, "GroupAttribute", "FQAN") == ["/atlas/no/Role=production", "/atlas"]
    assert values(rendered, "GroupAttribute", "group") == ["/atlas/no"]
    assert values(rendered, "GroupAttribute", "vo-role") == ["Role=production"]
    assert values(rendered, "Group") == ["atlas"]


def test_a_primary_fqan_that_does_not_fit_takes_the_others_with_it() -> None:
    rendered = render(fqans=("/" + "a" * 300, "/atlas"))
    assert b"FQAN" not in rendered.body


@pytest.mark.parametrize(
    ("vo", "fqans", "counted"),
    [
        ("atlas", ("notafqan",), "atlas"),
        ("cms", ("/atlas/Role=production",), "cms"),
        (None, ("notafqan",), "notafqan"),
        (None, ("/Role=x",), None),
        (None, ("//atlas",), "atlas"),
        ("atlas", ("/atlasx", "/atlas"), "atlas"),
    ],
)
def test_no_fqan_is_sent_with_which_apel_would_count_another_vo(
    vo: str | None, fqans: tuple[str, ...], counted: str | None
) -> None:
    rendered = render(vo=vo, fqans=fqans)
    assert values(rendered, "GroupAttribute", "FQAN") == []
    assert values(rendered, "Group") == ([counted] if counted else [])
    assert [(note.before, note.after) for note in rendered.notes if note.field.endswith("FQAN")] == [
        (", ".join(fqans), None)
    ]


def test_the_fqan_of_the_same_vo_is_sent_in_any_case_and_what_is_not_an_fqan_is_not() -> None:
    rendered = render(vo="ATLAS", fqans=("/atlas/Role=NULL/Capability=NULL", "notafqan", "/cms"))
    assert values(rendered, "GroupAttribute", "FQAN") == ["/atlas/Role=NULL/Capability=NULL", "/cms"]
    assert [note.before for note in rendered.notes] == ["notafqan"]


def test_the_parts_of_an_fqan_that_is_not_sent_are() -> None:
    rendered = render(vo="cms", fqans=("/atlas/no/Role=production",))
    assert (
        values(rendered, "GroupAttribute", "group") == values(rendered, "GroupAttribute", "vo-group") == ["/atlas/no"]
    )
    assert values(rendered, "GroupAttribute", "role") == ["Role=production"]


@pytest.mark.parametrize("spelling", get_args(VoSpelling))
@often
@given(
    job=plain_jobs(),
    vo=st.none() | any_text,
    fqan_list=st.lists(fqans | any_text, max_size=3),
    local_group=st.none() | any_text,
    infrastructure=st.sampled_from(["grid", "local", None]),
)
@example(Job(**FACTS), "null", ["/atlas"], None, None)
@example(Job(**FACTS), None, ["none"], None, None)
@example(Job(**FACTS), "atlas", ["/ atlas", "/ops"], None, None)
@example(Job(**FACTS), None, [], "physics", "local")
@example(Job(**FACTS), "atlas", ["/atlas"], "physics", "local")
@example(Job(**FACTS), None, ["/cms/Role=NULL"], "physics", "grid")
def test_every_format_counts_a_run_under_the_same_vo(
    spelling: VoSpelling,
    job: Job,
    vo: str | None,
    fqan_list: list[str],
    local_group: str | None,
    infrastructure: Literal["grid", "local"] | None,
) -> None:
    job = msgspec.structs.replace(
        job, vo=vo, fqans=tuple(fqan_list), local_group=local_group, infrastructure=infrastructure
    )
    view = View(site="S", ascii_names=True, vo_spelling=spelling)
    renderers = [record_format(name, view) for name in ("emi-car", "apel-job")]
    car, text = (each.message([each.record(job, CREATED).body]) for each in renderers)
    (as_car,), (as_text,) = read_car(car, CREATED), load(text)
    assert compared(as_car["VO"]) == compared(str(as_text["VO"]))
    fold = Fold(view)
    assert compared(fold.add(job).vo) == compared(as_car["VO"])


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"local_group": "physics"}, ("physics", "None", "None")),
        (
            {"local_group": "physics", "fqans": ("/atlas/Role=x",), "infrastructure": "local"},
            ("physics", "None", "None"),
        ),
        ({"local_group": None}, ("None", "None", "None")),
        ({"local_group": "grid", "fqans": ("/cms/Role=NULL",)}, ("cms", "/cms", "Role=NULL")),
        ({"local_group": "grid", "vo": "atlas", "user_dn": "/CN=Ada"}, ("atlas", "None", "None")),
    ],
)
def test_with_the_spelling_of_the_apel_client_every_format_has_the_same_vo_group_and_role(
    facts: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    view = View(site="S", vo_spelling="apel-client")
    (as_car,) = read_car(ComputeRecordFormat(view).message([render(view, **facts).body]), CREATED)
    (as_text,) = load(_text_message(view, Job(**{**FACTS, **facts})))
    names = ("VO", "VOGroup", "VORole")
    assert tuple(as_car[name] for name in names) == tuple(as_text[name] for name in names) == expected


def test_a_cached_user_is_not_one_of_another_infrastructure() -> None:
    renderer = ComputeRecordFormat(View(site="S", vo_spelling="apel-client"))
    kinds: tuple[Literal["grid", "local"], ...] = ("local", "grid", "local")
    records = [
        renderer.record(Job(**{**FACTS, "vo": "atlas", "local_group": "physics", "infrastructure": kind}), CREATED)
        for kind in kinds
    ]
    assert [values(record, "Group") for record in records] == [["physics"], ["atlas"], ["physics"]]


NAMES: dict[str, Any] = {
    "user_dn": "/CN=Zo\u00eb \u0160korpil", "local_user": "zo\u00eb", "vo": "\u03b1tlas",
    "fqans": ("/\u03b1tlas/Role=\u0160",), "queue": "\u4f5c\u696d", "project": "\u00e9", "local_group": "\u0448",
    "middleware": "\u0431",
}  # fmt: skip


def test_names_in_ascii_are_those_of_the_text_messages() -> None:
    view = View(site="S", ascii_names=True, infrastructure_description="\u0416")
    rendered = render(view, **NAMES)
    assert b"&#" not in rendered.body
    (row,) = load(_text_message(view, Job(**{**FACTS, **NAMES})))
    for element, key in (
        ("GlobalUserName", "GlobalUserName"),
        ("Group", "VO"),
        ("LocalUserId", "LocalUserId"),
        ("Queue", "Queue"),
    ):
        assert values(rendered, element) == [row[key]]
    assert values(rendered, "GlobalUserName") == ["/CN=Zoe Skorpil"]
    assert values(rendered, "GroupAttribute", "group") == [row["VOGroup"]] == ["/\\xCE\\xB1tlas"]
    noted = [note.field for note in rendered.notes]
    assert {"GlobalUserName", "Group", "LocalUserId", "Queue"} <= set(noted)
    assert b"&#" in render(View(site="S"), **NAMES).body


def _text_message(view: View, job: Job) -> bytes:
    renderer = record_format("apel-job", view)
    return renderer.message([renderer.record(job, CREATED).body])


@pytest.mark.parametrize("facts", [{"local_id": "\u00e9"}, {"site": "\u00e9"}])
def test_names_in_ascii_never_change_the_key(facts: dict[str, Any]) -> None:
    assert b"&#233;" in render(**facts).body
    with pytest.raises(CannotRenderError, match="is not ASCII, and `ascii_names` does not change"):
        render(View(site="S", ascii_names=True), **facts)


@given(job=plain_jobs())
def test_names_in_ascii_change_nothing_of_summaries_and_text_records(job: Job) -> None:
    job = msgspec.structs.replace(job, **NAMES)
    plain, in_ascii = View(site="S"), View(site="S", ascii_names=True)
    assert _text_message(plain, job) == _text_message(in_ascii, job)
    folds = Fold(plain), Fold(in_ascii)
    assert folds[0].add(job) == folds[1].add(job)
    assert [group.spelling for group in folds[0].groups()] == [group.spelling for group in folds[1].groups()]


def test_what_the_schema_needs_and_the_source_lacks_is_none() -> None:
    rendered = render(local_user=None, queue=None)
    assert values(rendered, "LocalUserId") == ["None"]
    assert values(rendered, "Queue") == ["None"]
    assert [note.field for note in rendered.notes] == ["LocalUserId", "Queue"]


def test_submit_host_is_for_grid_jobs_only() -> None:
    assert values(render(), "SubmitHost") == []
    grid = render(endpoint_url="https://ce1.example.org:443/arex", endpoint_type="org.nordugrid.arcrest")
    assert values(grid, "SubmitHost") == ["arcrest:https://ce1.example.org:443/arex"]


def test_queue_longer_than_100_is_shortened() -> None:
    assert values(render(queue="q" * 101), "Queue") == ["q" * 100]


def test_nothing_is_before_the_root() -> None:
    message = ComputeRecordFormat(VIEW).message([])
    assert re.fullmatch(rb"<\?xml [^>]*\?>\n<UsageRecords [^>]*>\n</UsageRecords>\n", message)


def test_cancelled_is_aborted() -> None:
    assert values(render(status="cancelled"), "Status") == ["aborted"]


@pytest.mark.parametrize("host", ["ce1.t.example.org", "ce_2.example.org", "130.237.1.40"])
def test_machine_name_is_any_host_name(host: str) -> None:
    rendered = render(endpoint_url=f"https://{host}:443/arex", endpoint_type="org.nordugrid.arcrest")
    assert values(rendered, "MachineName") == [host]
    assert values(rendered, "SubmitHost") == [f"arcrest:https://{host}:443/arex"]


def test_an_ipv6_endpoint_is_held_and_the_remedy_named() -> None:
    facts: dict[str, Any] = {"endpoint_url": "https://[2001:db8::1]:443/arex", "endpoint_type": "org.nordugrid.arcrest"}
    with pytest.raises(CannotRenderError, match=r"2001:db8::1 is not a host name, or .*. Set `machine_name` of"):
        render(**facts)
    rendered = render(View(site="S", machine_name="ce1.example.org"), **facts)
    assert values(rendered, "MachineName") == ["ce1.example.org"]
    assert values(rendered, "SubmitHost") == ["arcrest:https://[2001:db8::1]:443/arex"]
