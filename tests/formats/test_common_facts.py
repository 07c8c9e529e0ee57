"""VO, submit host, benchmark, machine and registry: what all formats ask of a run in one place."""

from __future__ import annotations

import pytest

from formats.base import Note
from formats.benchmark import choose_benchmark, require_benchmark
from formats.hosts import car_submit_host, submit_host_of
from formats.job import Benchmark, Job
from formats.names import Fqan, distinct_fqans, parse_fqan, vo_of
from formats.registry import UnknownFormatError, record_format
from formats.rule_codes import CannotRenderError
from formats.view import View


def run(**facts: object) -> Job:
    return Job(**{"record_id": "ur-1", "system": "arc", "status": "completed", **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fqan", "parsed"),
    [
        ("/atlas", Fqan("atlas", "/atlas")),
        ("/atlas/no/Role=production/Capability=NULL", Fqan("atlas", "/atlas/no", "production")),
        ("/atlas/Role=NULL", Fqan("atlas", "/atlas")),
        ("/atlas/Role=a;/cms", Fqan("atlas", "/atlas", "a")),
        ("atlas", Fqan("atlas")),
        ("/Role=x", Fqan("", None, "x")),
        ("", Fqan("")),
    ],
)
def test_fqan_as_the_server_parses_it(fqan: str, parsed: Fqan) -> None:
    assert parse_fqan(fqan) == parsed


def test_each_group_and_role_once() -> None:
    assert distinct_fqans(("/a", "/a/Role=NULL", "/a/b")) == (Fqan("a", "/a"), Fqan("a", "/a/b"))


def test_vo_of_a_run() -> None:
    assert vo_of(run(vo="cms", fqans=("/atlas",))) == "cms"
    assert vo_of(run(fqans=("/atlas",))) == "atlas"
    assert vo_of(run(fqans=("/",))) is None
    assert vo_of(run()) is None


@pytest.mark.parametrize(
    ("spelling", "interface", "expected"),
    [
        ("arc", "org.nordugrid.arcrest", "arcrest:https://h.example.org/arex"),
        ("arc", "org.nordugrid.internal", "internal:https://h.example.org/arex"),
        ("arc-6.21", "org.nordugrid.internal", "ternal:https://h.example.org/arex"),
        ("arc-6.21", "org.nordugrid.arcrest", "arcrest:https://h.example.org/arex"),
        ("arc", "org.ogf.glue.emies.activitycreation", "https://h.example.org/arex"),
        ("arc", "org.nordugrid.gridftpjob", "https://h.example.org/arex"),
        ("arc", None, "https://h.example.org/arex"),
        ("url", "org.nordugrid.arcrest", "https://h.example.org/arex"),
        ("host", "org.nordugrid.arcrest", "h.example.org"),
    ],
)
def test_submit_host_keeps_the_spelling_of_a_sites_history(spelling: str, interface: str, expected: str) -> None:
    job = run(endpoint_url="https://h.example.org/arex", endpoint_type=interface)
    assert submit_host_of(job, View(site="S", submit_host=spelling)) == expected  # type: ignore[arg-type]


def test_submit_host_without_an_endpoint() -> None:
    view = View(site="S", machine_name="m.example.org")
    assert submit_host_of(run(cluster="cell"), view) == "cell"
    assert submit_host_of(run(), view) == "m.example.org"
    assert submit_host_of(run(), View(site="S")) == "None"
    assert car_submit_host(run(cluster="cell"), view) is None
    assert car_submit_host(run(cluster="cell", user_dn="/CN=a"), view) == "cell"


def test_benchmark_preference_and_spelling() -> None:
    scores = (Benchmark("custom", 9.0), Benchmark("SI2K", 2500.0), Benchmark("hepspec", 10.0004))
    assert choose_benchmark(run(benchmarks=scores), View(site="S")) == Benchmark("HEPSPEC", 10.0)
    assert choose_benchmark(run(benchmarks=scores), View(site="S", benchmark="si2k")) == Benchmark("Si2k", 2500.0)
    assert choose_benchmark(run(benchmarks=scores[:1]), View(site="S")) is None


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), float("-inf"), 0.0001, 1e8])
def test_scores_that_the_server_cannot_hold_are_none(value: float) -> None:
    assert choose_benchmark(run(benchmarks=(Benchmark("HEPSPEC", value),)), View(site="S")) is None


def test_an_unusable_benchmark_does_not_hide_the_others_and_is_noted() -> None:
    scores = (Benchmark("CloudMark", 5.0), Benchmark("HEPSPEC:1:2", 0.0), Benchmark("HEPscore23", 14.2))
    notes: list[Note] = []
    assert require_benchmark(run(benchmarks=scores), View(site="S"), notes) == Benchmark("HEPscore23", 14.2)
    (note,) = notes
    assert (note.field, note.before, note.after) == ("ServiceLevel", "CloudMark:5, HEPSPEC:1:2", "HEPscore23:14.2")


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ((), "ServiceLevel: the job has no usable benchmark; the receiver takes HEPscore23, HEPSPEC, Si2k with "),
        ((Benchmark("CloudMark", 5.0),), "ServiceLevel: CloudMark:5 is not a usable benchmark; the receiver takes "),
        ((Benchmark("HEPSPEC:1:2", 0.0),), "ServiceLevel: HEPSPEC:1:2 is not a usable benchmark; the receiver takes "),
        ((Benchmark("HEPSPEC", 1e8),), "ServiceLevel: HEPSPEC:1e+08 is not a usable benchmark; the receiver takes "),
    ],
)
def test_the_reason_says_what_was_there_and_which_setting_helps(scores: tuple[Benchmark, ...], said: str) -> None:
    with pytest.raises(CannotRenderError) as caught:
        require_benchmark(run(benchmarks=scores), View(site="S"), [])
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith("Set `benchmark`, or a rule that matches in `benchmarks`, of the source")


@pytest.mark.parametrize("name", ["emi-car", "ogf-ur", "apel-job"])
def test_an_unusable_benchmark_is_noted_in_every_record(name: str) -> None:
    facts = {"cluster": "ce1.example.org", "local_id": "1", "wall_ms": 1000, "cpu_ms": 1000, "start": 1, "end": 2}
    scores = (Benchmark("HEPscore23", 14.2), Benchmark("CloudMark", 5.0))
    renderer = record_format(name, View(site="S"))
    for _ in range(2):  # what is cached never shows
        rendered = renderer.record(run(benchmarks=scores, **facts), 1_795_000_000)
        assert b"14.2" in rendered.body
        assert b"CloudMark" not in rendered.body
        assert [(each.before, each.after) for each in rendered.notes if each.field == "ServiceLevel"] == [
            ("CloudMark:5", "HEPscore23:14.2")
        ]


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(UnknownFormatError, match=r"emi-car.*ogf-ur"):
        record_format("nonsense", View(site="S"))
