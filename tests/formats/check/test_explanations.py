"""Every value of every record is explained, by facts that it is made of."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from formats.apel.fold import Fold
from formats.check.fields import explain, fields_of
from formats.job import Benchmark, Job
from formats.registry import FORMATS, names_of, record_format, totals_format
from formats.view import View
from publisher.config.auditor import AuditorSettings
from publisher.config.targets import AmsSettings
from tests.formats.golden_jobs import ARC, CREATED, GOLDEN
from tests.strategies import plain_jobs

VIEW = View(site="EXAMPLE-SITE", service_class_as_service_level=True)


def unexplained(name: str, job: Job) -> list[str]:
    renderer = record_format(name, VIEW)
    job = msgspec.structs.replace(job, benchmarks=(*job.benchmarks, Benchmark("HEPscore23", 14.2)))
    fields = fields_of(name, renderer.message([renderer.record(job, CREATED).body]))
    return [one.field for one in explain(FORMATS[name], fields, job) if one.rule == "no rule is known"]


@given(plain_jobs())
def test_no_value_is_without_a_rule(job: Job) -> None:
    for name in names_of("record"):
        assert not unexplained(name, job), name


@pytest.mark.parametrize("name", names_of("record"))
@pytest.mark.parametrize("job_name", ["arc", "gridengine", "slurm"])
def test_no_value_of_the_golden_records_is_without_a_rule(name: str, job_name: str) -> None:
    assert not unexplained(name, GOLDEN[job_name])


@pytest.mark.parametrize("name", names_of("record"))
def test_origins_name_facts_and_settings_that_there_are(name: str) -> None:
    facts = set(Job.__struct_fields__)
    settings = {*AmsSettings.model_fields, *AuditorSettings.model_fields}
    for field, origin in FORMATS[name].origins.items():
        assert set(origin.facts) <= facts, field
        assert set(origin.settings) <= settings, field
        assert origin.how, field


@pytest.mark.parametrize(
    ("name", "field", "fact", "changed"),
    [
        ("ogf-ur", "WallDuration", "wall_ms", 1_000),
        ("ogf-ur", "Memory[KB,max,shared]", "memory_virtual_kib", 7),
        ("emi-car", "Processors", "cores", 3),
        ("emi-car", "UserIdentity/Group", "vo", "cms"),
        ("apel-job", "Queue", "queue", "long"),
        ("apel-job", "GlobalUserName", "user_dn", "/CN=Other"),
    ],
)
def test_the_fact_named_is_the_one_that_changes_the_value(name: str, field: str, fact: str, changed: object) -> None:
    def value(job: Job) -> str:
        renderer = record_format(name, VIEW)
        fields = fields_of(name, renderer.message([renderer.record(job, CREATED).body]))
        (one,) = [one for one in explain(FORMATS[name], fields, job) if one.field == field]
        assert fact in one.facts
        return one.value

    assert value(ARC) != value(msgspec.structs.replace(ARC, **{fact: changed}))


@pytest.mark.parametrize("name", ["apel-summary", "apel-normalised-summary"])  # Waldur's: with its target
@pytest.mark.parametrize("version", ["", "0.4"])
def test_no_value_of_a_summary_is_without_a_rule(name: str, version: str) -> None:
    view = View(site="EXAMPLE-SITE", version=version)
    form = totals_format(name, view)
    fold = Fold(view, normalised=form.normalised)
    fold.add(ARC)
    (group,) = fold.groups()
    fields = fields_of(name, form.message([form.record(group).body]))
    reported = {one.field: one for one in explain(FORMATS[name], fields, ARC)}
    assert [one.field for one in reported.values() if one.rule == "no rule is known"] == []
    assert "the first in sort order" in reported["GlobalUserName"].rule
    for field, origin in FORMATS[name].origins.items():
        assert set(origin.facts) <= set(Job.__struct_fields__), field


@pytest.mark.parametrize("name", ["auditor-record", "waldur-usage"])
def test_the_energy_of_a_component_is_among_its_facts(name: str) -> None:
    assert "energy_j" in FORMATS[name].origins["components/amount"].facts


def test_formats_that_no_one_job_is_in() -> None:
    assert {name for name, form in FORMATS.items() if not form.origins} == {"apel-sync", "utilization"}
