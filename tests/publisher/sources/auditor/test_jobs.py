"""What a record of AUDITOR becomes, by the settings; and records that are refused, with the reason."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.job import Benchmark, Host, Job
from formats.registry import record_format
from formats.view import View
from publisher.config.auditor_source import COLLECTORS
from publisher.sources.auditor.jobs import RunReader
from publisher.sources.auditor.record import instant_us, record_of, time_text
from publisher.sources.base import Line
from publisher.sources.fields import LineError
from tests.publisher.site import make_job
from tests.publisher.sources.auditor.auditor_records import NOW, component, record, settings, text

URL = "http://127.0.0.1:8000"


def made(found: dict[str, Any], **more: Any) -> Job | Line:
    given = settings(URL, **more)
    assert given.auditor is not None
    return RunReader(given.auditor, given.cluster, NOW).outcome(record_of(found))


def job(found: dict[str, Any], **more: Any) -> Job:
    run = made(found, **more)
    assert isinstance(run, Job)
    return run


def test_what_our_target_wrote_is_left_out() -> None:
    """It was read from its batch system: published from here once more, it would count twice."""
    written = record_format("auditor-record", View(site="S")).record(make_job(1, start=NOW - 160, end=NOW - 60), NOW)
    found = msgspec.json.decode(written.body)
    assert made(found, collector="slurm") is Line.SKIPPED
    del found["meta"]["publisher"]
    assert isinstance(made(found, collector="slurm"), Job)


def test_a_record_of_the_usual_names() -> None:
    found = record("slurm-4711", voms="/atlas/Role=production", subject="/DC=org/CN=Ada", headnode="ce1.example.org")
    run = job(found, collector="slurm", record_prefix="slurm", cluster="c")
    assert run.known() == {
        "record_id": f"ur-auditor/c/slurm-4711/{NOW - 7_200}",
        "system": "auditor",
        "status": "completed",
        "user_dn": "/DC=org/CN=Ada",
        "fqans": ("/atlas/Role=production",),
        "cluster": "c",
        "endpoint_url": "ce1.example.org",
        "nodes": 1,
        "cores": 4,
        "benchmarks": (Benchmark("HEPscore23", 14.2),),
        "local_user": "ada",
        "global_id": "slurm-4711",
        "local_id": "4711",
        "start": NOW - 7_200,
        "end": NOW - 3_600,
        "wall_ms": 3_600_000,
        "cpu_ms": 7_200_000,
        "extras": {
            "record_id": "slurm-4711",
            "meta.site_id": "A",
            "component.Cores": 4,
            "component.TotalCPU": 7_200,
            "component.NNodes": 1,
        },
    }


def test_wall_time_is_exact_and_a_run_ends_in_its_second() -> None:
    run = job(record("a", NOW - 10.25, wall=5.5, cpu=9))
    assert (run.start, run.end, run.wall_ms) == (NOW - 16, NOW - 11, 5_500)


def test_an_id_that_returns_is_another_run() -> None:
    first, again = job(record("slurm-1", NOW - 90_000)), job(record("slurm-1", NOW - 3_600))
    assert first.record_id != again.record_id
    assert first.global_id == again.global_id


def test_htcondor_ids_agree_with_those_of_the_schedd() -> None:
    run = job(record("htc-ce1.example.org#12.3#1789990000"), collector="htcondor", record_prefix="htc")
    assert (run.local_id, run.global_id) == ("12.3", "ce1.example.org#12.3#1789990000")
    assert run.cluster == "ce1.example.org"


def test_a_pod_has_no_cores_and_its_limit_is_not_cpu_time() -> None:
    found = record("k8s-ns-pod-uid", namespace="physics", podname="train", status="Failed")
    found["components"] = [component("naive_cpu_time", 14_000), component("cpu", 900), component("memory", 2**30)]
    run = job(found, collector="kubernetes", record_prefix="k8s")
    assert (run.cores, run.cpu_ms, run.memory_rss_kib) == (None, 900_000, 2**20)
    assert (run.project, run.name, run.status) == ("physics", "train", "failed")
    run = job(found, collector="kubernetes", components={"cores": {"name": "naive_cpu_time", "unit": "s"}})
    assert (run.cores, run.cpu_ms) == (4, 900_000)


def test_units_change_on_a_day() -> None:
    before, after = record("a", NOW - 90_000, cpu=7_200_000), record("b", cpu=7_200)
    rules = [{"name": "TotalCPU", "unit": "ms", "until": text(NOW - 86_400)}, {"name": "TotalCPU", "unit": "s"}]
    assert [job(each, components={"cpu": rules}).cpu_ms for each in (before, after)] == [7_200_000] * 2


def test_milliseconds_read_as_seconds_are_refused() -> None:
    with pytest.raises(LineError, match="is its unit wrong"):
        made(record("a", cpu=7_200_000))
    assert job(record("a", cpu=7_200_000), most_cpu=1_000).cpu_ms == 7_200_000_000
    assert job(record("short", wall=0, cpu=1)).wall_ms == 0


def test_meta_and_hosts() -> None:
    found = record("a", node="wn1")
    found["meta"]["node"].append("wn2")
    run = job(found, meta={"host": "node", "vo": "site_id", "queue": "none"})
    assert (run.hosts, run.vo, run.queue) == ((Host("wn1"), Host("wn2")), "A", None)


def test_a_score_of_zero_is_none() -> None:
    assert job(record("a", score=0)).benchmarks == ()


def test_what_is_left_out() -> None:
    assert made(record("a", end=None)) is Line.SKIPPED
    assert made(record("a", publisher="usage-publisher")) is Line.SKIPPED
    assert isinstance(made(record("a", publisher="another")), Job)
    assert made(record("other-1"), record_prefix="slurm") is Line.IGNORED
    assert made(record("a"), where={"site_id": "B"}) is Line.IGNORED


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"record_id": " "}, "record_id is not a text"),
    "an id that is too long": ({"record_id": "x" * 5_000}, "record_id has 5000 characters"),
    "a time that is none": ({"start_time": "yesterday"}, "start_time is not a time"),
    "a day that is none": ({"start_time": "2026-02-30T00:00:00Z"}, "start_time is not a time"),
    "a number for a time": ({"stop_time": 17}, "stop_time is not a time"),
    "a time before 1970": ({"start_time": "1969-12-31T23:59:59Z"}, "before 1970"),
    "an end before the start": ({"stop_time": "1970-01-01T00:00:00Z", "runtime": None}, "stop_time is before start"),
    "a clock that is wrong": ({"stop_time": "2036-01-01T00:00:00Z"}, "in the future"),
    "another run time": ({"runtime": 17}, "runtime is 17 s, but stop_time - start_time is 3600 s"),
    "a run time that is none": ({"runtime": 1.5}, "runtime is not"),
    "meta that is none": ({"meta": ["a"]}, "meta is not an object"),
    "an entry that is no list": ({"meta": {"voms": "x"}}, "an entry of meta is not a list"),
    "a value that is no text": ({"meta": {"voms": [17]}}, "a value of meta is not a text"),
    "a NUL": ({"meta": {"voms": ["a\0"]}}, "contains NUL"),
    "too many values": ({"meta": {"voms": ["a"] * 2_000}}, "has 2000 parts"),
    "no components": ({"components": None}, "components is not a list"),
    "a component that is none": ({"components": [17]}, "a component is not an object"),
    "a negative amount": ({"components": [component("Cores", -1)]}, "amount of a component"),
    "a huge amount": ({"components": [component("Cores", 2**63)]}, "amount of a component"),
    "many cores": ({"components": [component("Cores", 2**62)]}, "the component for cores has"),
    "more CPU time than a run has": ({"components": [component("TotalCPU", 2**62)]}, "larger than possible"),
    "twice a component": ({"components": [component("Cores", 1), component("Cores", 2)]}, "have the same name"),
    "scores that are none": ({"components": [{"name": "a", "amount": 1, "scores": 1}]}, "scores of a component"),
    "a score that is none": ({"components": [{"name": "a", "amount": 1, "scores": [1]}]}, "a score is not an object"),
    "an endless score": ({"components": [component("Cores", 1, hepscore23=float("inf"))]}, "value of a score"),
    "a negative score": ({"components": [component("Cores", 1, hepscore23=-1.0)]}, "value of a score"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    change, reason = REFUSED[name]
    with pytest.raises(LineError, match=reason):
        made({**record("a"), **change})


def test_core_time_that_makes_too_many_cores_is_refused() -> None:
    found = record("a", wall=0.001, cpu=72_000)
    with pytest.raises(LineError, match="gives 72000000: at most"):
        made(found, components={"cores": {"name": "TotalCPU", "unit": "s"}})


@given(st.integers(0, 253_402_300_799_999_999))
def test_times_are_read_as_they_are_written(instant: int) -> None:
    assert instant_us(time_text(instant), "t") == instant


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*record("a"), "runtime"]), JSON)
def test_any_value_anywhere_is_a_run_or_a_reason(key: str, value: Any) -> None:
    with contextlib.suppress(LineError):
        run = made({**record("a"), key: value})
        assert isinstance(run, Line) or msgspec.msgpack.encode(run)


@pytest.mark.parametrize("name", COLLECTORS)
def test_every_collector_can_be_configured(name: str) -> None:
    assert isinstance(made(record("a"), collector=name), Job)
