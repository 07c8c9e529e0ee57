"""Records of AUDITOR: what its APEL plugin reads, within what AUDITOR stores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from formats.auditor.read import AuditorRecord, compare, read_columns, read_message
from formats.auditor.record import AuditorFormat, AuditorOptions, Component
from formats.base import Rendered
from formats.job import Benchmark, Job
from formats.rule_codes import CannotRenderError
from formats.view import View
from tests.publisher.site import NOVEMBER, make_job


def rendered(job: Job, prefix: str = "", **options: Any) -> Rendered:
    view = View(site="EXAMPLE-SITE", record_id_prefix=prefix, options=AuditorOptions(**options))
    return AuditorFormat(view).record(job, 0)


def record(job: Job, prefix: str = "", **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rendered(job, prefix, **options).body)
    return found


def test_a_record_has_what_the_apel_plugin_reads() -> None:
    job = make_job(1, end=NOVEMBER, fqans=("/atlas/no/Role=production/Capability=NULL",), cores=8, cpu_ms=799_500)
    assert record(job) == {
        "record_id": job.record_id,
        "meta": {
            "site_id": ["EXAMPLE-SITE"],
            "voms": ["/atlas/no/Role=production"],
            "headnode": ["arcrest:https://ce1.example.org:443/arex"],
            "subject": ["/DC=org/CN=Ada"],
            "publisher": ["usage-publisher"],
        },
        "components": [
            {"name": "Cores", "amount": 8, "scores": [{"name": "hepscore23", "value": 14.2}]},
            {"name": "TotalCPU", "amount": 800, "scores": []},
            {"name": "NNodes", "amount": 1, "scores": []},
        ],
        "start_time": "2026-10-31T23:58:20Z",
        "stop_time": "2026-11-01T00:00:00Z",
    }


def test_components_are_configured() -> None:
    components = (
        Component("GPUs", "gpus"),
        Component("Wall", "wall-s", (("hs06", "hepspec"),)),
        Component("M", "memory-kib"),
    )
    job = make_job(1, gpus=2, memory_rss_kib=2**40, benchmarks=(Benchmark("HEPSPEC", 10.12345),))
    assert record(job, components=components)["components"] == [
        {"name": "GPUs", "amount": 2, "scores": []},
        {"name": "Wall", "amount": 100, "scores": [{"name": "hs06", "value": 10.123}]},
        {"name": "M", "amount": 2**40, "scores": []},
    ]


@pytest.mark.parametrize(
    ("options", "start", "started_at", "noted"),
    [
        ({}, "2026-10-31T23:58:20Z", ["2026-10-31T23:50:00Z"], "start_time"),
        ({"start_from": "start"}, "2026-10-31T23:50:00Z", None, "runtime"),
    ],
)
def test_a_wall_time_that_is_not_the_time_between_start_and_end(
    options: dict[str, Any], start: str, started_at: list[str] | None, noted: str
) -> None:
    """The run time, or the start, is right at AUDITOR; a note names the run."""
    job = make_job(1, end=NOVEMBER, start=NOVEMBER - 600)
    found = rendered(job, **options)
    made = json.loads(found.body)
    assert (made["start_time"], made["meta"].get("started_at")) == (start, started_at)
    assert [note.field for note in found.notes] == [noted]
    assert not rendered(make_job(1), **options).notes


def test_a_run_of_no_second_is_named() -> None:
    found = rendered(make_job(1, wall_s=0, cpu_ms=3))
    assert [note.rule for note in found.notes] == ["AUDITOR's APEL plugin does not read records of 0 s"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"system": "slurm", "global_id": None, "local_id": "12_3"}, "site-12_3"),
        ({"system": "htcondor", "global_id": "ce#1.0#17"}, "site-ce#1.0#17"),
        ({"system": "arc", "local_id": "99"}, "site-99"),
    ],
)
def test_ids_as_the_collectors_make_them(facts: dict[str, Any], expected: str) -> None:
    job = make_job(1, **facts)
    assert record(job, "site", record_id="auditor")["record_id"] == expected
    assert record(job, "site-")["record_id"] == f"site-{job.record_id}"


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (make_job(1, cpu_ms=None), "not-in-source"),
        (make_job(1, wall_ms=None), "not-in-source"),
        (make_job(1, cpu_ms=-5000), "out-of-range"),
        (make_job(1, cores=2**63), "out-of-range"),
        (make_job(1, wall_ms=-5000), "bad-times"),
        (make_job(1, end=None, start=None), "missing"),
        (make_job(1, status="running"), "status-not-published"),
        (make_job(1, benchmarks=(Benchmark("HEPSPEC", 10.0),)), "no-benchmark"),
        (make_job(1, record_id="x" * 256), "too-long"),
        (make_job(1, site="s" * 257), "too-long"),
        (make_job(1, vo="v" * 257), "too-long"),
    ],
)
def test_what_auditor_could_not_store_or_report_is_held(job: Job, code: str) -> None:
    with pytest.raises(CannotRenderError) as held:
        rendered(job)
    assert held.value.reason.code == code


@pytest.mark.parametrize("job_id", [None, ""])
def test_a_run_without_a_job_id_has_no_id_of_a_collector(job_id: str | None) -> None:
    with pytest.raises(CannotRenderError):
        rendered(make_job(1, local_id=job_id), "p", record_id="auditor")


def test_a_vo_that_is_not_that_of_the_attributes_is_sent_alone() -> None:
    assert record(make_job(1, vo="cms", fqans=("/atlas/Role=production",)))["meta"]["voms"] == ["/cms"]
    assert record(make_job(1, vo=None, fqans=("/atlas/Role=NULL/Capability=NULL",)))["meta"]["voms"] == ["/atlas"]
    assert "voms" not in record(make_job(1, vo=None))["meta"]


def test_texts_survive() -> None:
    name = '/DC=org/CN=Zoë "x" {[\\]} \x00\ud800'
    made = rendered(make_job(1, user_dn=name))
    assert made.body.isascii()
    assert json.loads(made.body)["meta"]["subject"] == ['/DC=org/CN=Zoë "x" {[\\]} ??']
    assert "subject" not in record(make_job(1, user_dn="/CN=" + "x" * 300))["meta"]


def test_columns_are_read_back() -> None:
    form = AuditorFormat(View(site="EXAMPLE-SITE"))
    job = make_job(1)
    (found,) = read_columns(form.message([form.record(job, 0).body]))
    assert (found.record_id, found.end, found.wall_ms, found.cpu_ms) == (job.record_id, job.end, job.wall_ms, None)
    assert found.columns == {
        "site": "EXAMPLE-SITE",
        "start": job.start,
        "components": "Cores 1 (hepscore23 14.2), NNodes 1, TotalCPU 50",
        "meta": "headnode arcrest:https://ce1.example.org:443/arex, publisher usage-publisher, subject /DC=org/CN=Ada, "
        "voms /atlas",
    }


def changed(**fields: Any) -> AuditorRecord:
    (found,) = read_message(json.dumps([record(make_job(1)) | fields]).encode())
    return found


@pytest.mark.parametrize(
    ("theirs", "difference", "is_correctable"),
    [
        ({}, "", False),
        ({"stop_time": "2026-11-01T02:00:01+01:00", "start_time": "2026-11-01T00:58:21.000Z"}, "", False),
        ({"stop_time": None}, "end unknown there, 2026-11-01T01:00:01Z here", True),
        ({"stop_time": "2026-11-01T01:00:01.5Z"}, "end 2026-11-01T01:00:01.5Z there, 2026-11-01T01:00:01Z here", True),
        (
            {"start_time": "2026-11-01T00:58:21.250Z"},
            "start 2026-11-01T00:58:21Z and 0.25 s there, 2026-11-01T00:58:21Z here",
            False,
        ),
        ({"meta": None, "stop_time": None}, None, False),
        ({"meta": {"site_id": ["OTHER"]}}, None, False),
        ({"components": []}, None, False),
    ],
)
def test_a_record_there_is_compared(theirs: dict[str, Any], difference: str | None, is_correctable: bool) -> None:
    found = compare(changed(**theirs), changed())
    assert found.is_correctable == is_correctable
    assert found.difference == difference if difference is not None else found.difference
