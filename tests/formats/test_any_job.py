"""Every job that can exist renders to something valid that reads back, or is held with a reason; nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from lxml import etree

from formats.base import RecordFormat, Rendered
from formats.check.grammar import standard_part, validate
from formats.job import Benchmark, Job
from formats.registry import record_format
from formats.rule_codes import CannotRenderError
from formats.rules import is_host_name
from formats.signed_text import why_not_signable
from formats.text import duration_seconds
from formats.view import NamespaceStyle, View
from formats.xml.read import read
from tests.strategies import HOSTILE, jobs, often, plain_jobs

CREATED = 1_795_000_000
VIEWS = (
    View(site="EXAMPLE-SITE"),
    View(site="S\u00e9", machine_name="ce1.example.org", dn="hash", dn_key=b"k", service_class_as_service_level=True),
    View(site="EXAMPLE-SITE", record_id_prefix="p-", local_id_prefix="q-", vo_groups_for_sgas="arc", submit_host="url"),
)
XML_NAMES = ["emi-car", "ogf-ur"]
SCHEMAS = {"ogf-ur": "urf.xsd", "emi-car": "car_v1.2.xsd"}
WARM = {(name, view): record_format(name, view) for name in XML_NAMES for view in VIEWS}


def attempt(renderer: RecordFormat, job: Job) -> Rendered | str:
    try:
        return renderer.record(job, CREATED)
    except CannotRenderError as error:
        return str(error)


@pytest.mark.parametrize("name", XML_NAMES)
@often
@given(job=jobs())
def test_any_job_is_valid_ascii_or_held(name: str, job: Job) -> None:
    for view in VIEWS:
        renderer = record_format(name, view)
        rendered = attempt(renderer, job)
        assert rendered == attempt(WARM[name, view], job), "what is cached never shows"
        if isinstance(rendered, str):
            assert rendered.split(": ", 1)[1], "a reason is given"
            continue
        assert rendered.body.isascii()
        message = renderer.message([rendered.body])
        assert len(message) == renderer.overhead_bytes + len(rendered.body)
        assert why_not_signable(message) is None
        assert validate(name, message) == []
        assert [record.problems for record in read(message)] == [()]


@pytest.mark.parametrize("name", XML_NAMES)
@often
@given(job=jobs() | plain_jobs())
def test_any_job_is_valid_against_the_official_schema(name: str, job: Job, shared: Path) -> None:
    renderer = WARM[name, VIEWS[1]]
    rendered = attempt(renderer, job)
    if isinstance(rendered, Rendered):
        root = etree.fromstring(renderer.message([rendered.body]))
        official_schema(shared, name).assertValid(with_names_of_the_schema(standard_part(root)))


def with_names_of_the_schema(root: etree._Element) -> etree._Element:
    """The tree with `localhost` for every host name that services take and the schemas' domainNameType may not."""
    for element in root.iter(tag=etree.Element):
        local_name = etree.QName(element).localname
        if local_name in {"MachineName", "SubmitHost", "Host"} and element.text and is_host_name(element.text):
            element.text = "localhost"
    return root


_schemas: dict[str, etree.XMLSchema] = {}


def official_schema(shared: Path, name: str) -> etree.XMLSchema:
    if name not in _schemas:
        _schemas[name] = etree.XMLSchema(etree.parse(str(shared / "schemas" / SCHEMAS[name])))
    return _schemas[name]


@often
@given(job=plain_jobs())
def test_usage_record_reads_back(job: Job) -> None:
    renderer = record_format("ogf-ur", VIEWS[0])
    rendered = renderer.record(job, CREATED)
    (record,) = read(renderer.message([rendered.body]))
    assert record.created == CREATED
    back = record.job
    for field in (
        "record_id", "status", "global_id", "local_id", "name", "user_dn", "local_user", "local_group", "vo", "project",
        "queue", "client_host", "hosts", "nodes", "cores", "runtime_environments", "submit", "start", "end", "wall_ms",
        "cpu_ms", "cpu_user_ms", "cpu_system_ms", "exit_code", "benchmarks", "transfers",
    ):  # fmt: skip
        assert getattr(back, field) == getattr(job, field), field
    assert back.fqans == tuple(dict.fromkeys(job.fqans))
    assert back.cluster == "ce1.example.org"
    assert back.memory_rss_kib == (job.memory_rss_kib or None)
    assert back.memory_virtual_kib == (job.memory_virtual_kib or None)
    assert back.scratch_bytes == (job.scratch_bytes or None)
    assert back.extras.get("network_bytes", 0) == (job.stage_in_bytes or 0) + (job.stage_out_bytes or 0)
    assert rendered.notes == ()


@often
@given(job=plain_jobs())
def test_compute_record_reads_back(job: Job) -> None:
    renderer = record_format("emi-car", VIEWS[0])
    rendered = renderer.record(job, CREATED)
    (record,) = read(renderer.message([rendered.body]))
    assert record.created == CREATED
    assert record.site == "EXAMPLE-SITE"
    back = record.job
    for field in (
        "record_id", "status", "global_id", "local_id", "name", "user_dn", "local_user", "local_group", "vo", "project",
        "queue", "hosts", "nodes", "cores", "infrastructure", "middleware", "submit", "start", "end", "wall_ms",
        "cpu_ms", "cpu_user_ms", "cpu_system_ms", "exit_code", "benchmarks",
    ):  # fmt: skip
        assert getattr(back, field) == getattr(job, field), field
    assert back.fqans == tuple(dict.fromkeys(job.fqans))
    assert back.endpoint_url == "arcrest:https://ce1.example.org:443/arex"
    assert rendered.notes == ()


@given(job=jobs())
@example(job=Job(record_id="ur-1", system="slurm", status="completed", cluster="cc", name="a\x00b", wall_ms=1499))
def test_every_alteration_of_a_text_is_noted(job: Job) -> None:
    renderer = record_format("ogf-ur", VIEWS[1])
    rendered = attempt(renderer, job)
    if isinstance(rendered, str):
        return
    (record,) = read(renderer.message([rendered.body]))
    noted = {note.field for note in rendered.notes}
    if job.name and record.job.name != job.name:
        assert "JobName" in noted
    if job.queue and record.job.queue != job.queue:
        assert "Queue" in noted
    if job.local_id and record.job.local_id != job.local_id:
        assert "LocalJobId" in noted
    if any(not is_host_name(host.name) for host in job.hosts if host.name):
        assert "Host" in noted
    if job.wall_ms is not None:
        assert record.job.wall_ms == duration_seconds(job.wall_ms) * 1000


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", XML_NAMES)
def test_a_hostile_text_stops_nothing_but_itself(name: str, text: str) -> None:
    job = Job(
        record_id="ur-1", system="arc", status="completed", local_id="1", name=text, queue=text, user_dn=text, vo=text,
        fqans=(text,), project=text, runtime_environments=(text,), cluster="ce1.example.org", wall_ms=1, cpu_ms=1,
        start=1, end=2, benchmarks=(Benchmark("HEPSPEC", 10.0),), extras={text: 1},
    )  # fmt: skip
    renderer = record_format(name, VIEWS[0])
    rendered = renderer.record(job, CREATED)
    message = renderer.message([rendered.body, rendered.body])
    assert validate(name, message) == []
    assert why_not_signable(message) is None


@pytest.mark.parametrize("text", ["application/pkcs7-mime", "my application/x-pkcs7-mime; ë"])
@pytest.mark.parametrize("style", ["default", "prefixed"])
@pytest.mark.parametrize("name", XML_NAMES)
def test_the_media_type_of_encrypted_messages_reads_back_and_does_not_occur(
    name: str, style: NamespaceStyle, text: str
) -> None:
    """SSM takes a message for an encrypted one where the type occurs anywhere in it."""
    job = Job(
        record_id="ur-1/application/pkcs7-mime", system="arc", status="completed", local_id=text, global_id=text,
        name=text, queue=text, user_dn=f"/CN={text}", local_user=text, vo=text, project=text,
        cluster="ce1.example.org", wall_ms=1, cpu_ms=1, start=1, end=2, benchmarks=(Benchmark("HEPSPEC", 10.0),),
    )  # fmt: skip
    renderer = record_format(name, View(site="EXAMPLE-SITE", namespace_style=style))
    rendered = renderer.record(job, CREATED)
    message = renderer.message([rendered.body])
    assert b"pkcs7-mime" not in message
    (record,) = read(message)
    for field in ("record_id", "local_id", "global_id", "name", "queue", "user_dn", "local_user", "vo", "project"):
        assert getattr(record.job, field) == getattr(job, field), field
    assert rendered.record_id == job.record_id
    assert rendered.notes == ()


@pytest.mark.parametrize("name", XML_NAMES)
@given(job=jobs() | plain_jobs())
def test_the_namespace_style_changes_spelling_and_nothing_else(name: str, job: Job) -> None:
    plain, prefixed = (
        record_format(name, View(site="S", machine_name="ce1.example.org", namespace_style=style))
        for style in ("default", "prefixed")
    )
    body = attempt(plain, job)
    styled = attempt(prefixed, job)
    if isinstance(body, str) or isinstance(styled, str):
        assert body == styled
        return
    message = prefixed.message([styled.body])
    assert b"<JobUsageRecord" not in message
    assert b"<UsageRecord>" not in message
    assert len(message) == prefixed.overhead_bytes + len(styled.body)
    assert validate(name, message) == []
    assert read(message) == read(plain.message([body.body]))
