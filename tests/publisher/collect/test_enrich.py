"""What rules add: they never override the source, the first with a value counts, and a class gets the same as its
runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.apel.fold import SyncFold
from formats.job import Benchmark, Host, Job
from formats.rule_codes import CannotRenderError
from formats.view import View
from publisher.collect.enrich import Enrichers
from publisher.collect.target_filter import TargetFilter
from publisher.config.file import parse
from publisher.config.schema import TARGET_KINDS, Config, SourceSettings
from publisher.config.types import planning_settings
from publisher.errors import ConfigError
from publisher.store.classes import JobClass, _facts_of
from tests.strategies import jobs

END = 1_795_200_000


def config_of(source: dict[str, Any], *, common: list[Any] | None = None, **target: Any) -> Config:
    table = {
        "site": {"name": "EXAMPLE-SITE"},
        "sources": {"ce1": {"type": "torque", "path": "x", **source}},
        "targets": {"spool": {"type": "directory", "path": "out", **target}},
        "map": common or [],
    }
    return parse(table, Path("publisher.toml"))


def job_of(**facts: Any) -> Job:
    usual: dict[str, Any] = {
        "record_id": "ur-1",
        "system": "torque",
        "status": "completed",
        "end": END,
        "local_id": "1",
    }
    return Job(**(usual | facts))


def enriched(source: dict[str, Any], job: Job, common: list[Any] | None = None) -> Job:
    return Enrichers(config_of(source, common=common)).apply("ce1", job)


def test_without_settings_a_job_is_as_read() -> None:
    job = job_of(local_user="ada")
    assert enriched({}, job) is job
    assert Enrichers(config_of({})).apply("gone", job) is job


@pytest.mark.parametrize(
    "reported", [Benchmark("CloudMark", 5.0), Benchmark("HEPSPEC:1:2", 0.0), Benchmark("Si2k", 1e9)]
)
def test_a_benchmark_that_apel_does_not_take_leaves_room_for_the_configured_one(reported: Benchmark) -> None:
    score = {"type": "HEPscore23", "value": 14.2}
    job = job_of(benchmarks=(reported,), hosts=(Host("old1"),))
    configured = Benchmark("HEPscore23", 14.2)
    assert enriched({"benchmark": score}, job).benchmarks == (configured, reported)
    rule = {"type": "HEPSPEC", "value": 9.8, "host": "old*"}
    assert enriched({"benchmark": score, "benchmarks": [rule]}, job).benchmarks == (Benchmark("HEPSPEC", 9.8), reported)
    assert enriched({}, job).benchmarks == (reported,)
    assert _facts_of(job, None).hosts == job.hosts


def test_a_benchmark_that_apel_takes_is_not_overridden() -> None:
    job = job_of(benchmarks=(Benchmark("CloudMark", 5.0), Benchmark("hepspec", 10.0)))
    assert enriched({"benchmark": {"type": "HEPscore23", "value": 14.2}}, job) is job


def test_the_first_rule_that_matches_and_gives_a_value_counts() -> None:
    rules = [
        {"when": {"local_user": "bob"}, "vo": "cms"},
        {"when": {"local_user": ["ada", "eve"]}, "dn": "/CN=Ada"},
        {"when": {"local_group": "phys*", "queue": "grid?"}, "vo": "atlas", "fqans": ["/atlas/no"], "dn": "/CN=Pool"},
        {"vo": "ops", "infrastructure": "grid"},
    ]
    found = enriched({"map": rules}, job_of(local_user="ada", local_group="physics", queue="grid1"))
    assert (found.user_dn, found.vo, found.fqans, found.infrastructure) == ("/CN=Ada", "atlas", ("/atlas/no",), "grid")
    other = enriched({"map": rules}, job_of(local_user="ada", local_group="physics", queue="grid"))
    assert (other.user_dn, other.vo, other.fqans) == ("/CN=Ada", "ops", ())


def test_rules_of_a_source_take_precedence_over_those_of_all() -> None:
    found = enriched({"map": [{"vo": "atlas"}]}, job_of(), [{"vo": "cms", "dn": "/CN=All"}])
    assert (found.vo, found.user_dn) == ("atlas", "/CN=All")


@pytest.mark.parametrize(
    ("condition", "facts"),
    [
        ("local_user", {"local_user": "x1"}),
        ("local_group", {"local_group": "x1"}),
        ("account", {"account": "x1"}),
        ("project", {"project": "x1"}),
        ("department", {"department": "x1"}),
        ("queue", {"queue": "x1"}),
        ("dn", {"user_dn": "x1"}),
        ("token_issuer", {"token_issuer": "x1"}),
        ("token_subject", {"token_subject": "x1"}),
    ],
)
def test_every_condition_looks_at_its_fact(condition: str, facts: dict[str, str]) -> None:
    rule = {"map": [{"when": {condition: "x?"}, "vo": "atlas"}]}
    assert enriched(rule, job_of(**facts)).vo == "atlas"
    assert enriched(rule, job_of(**dict.fromkeys(facts, "y1"))).vo is None
    assert enriched(rule, job_of(**dict.fromkeys(facts, "X1"))).vo is None
    assert enriched({"map": [{"when": {condition: "*"}, "vo": "atlas"}]}, job_of()).vo is None


def test_nothing_that_the_source_gives_is_overridden() -> None:
    rule = {
        "vo": "cms", "fqans": ["/cms/Role=pilot"], "dn": "/CN=Rule", "infrastructure": "local", "submit_host": "ce9",
    }  # fmt: skip
    reported = job_of(
        user_dn="/CN=Ada", vo="atlas", fqans=("/atlas",), infrastructure="grid", endpoint_url="https://ce1/arex"
    )
    assert enriched({"map": [rule]}, reported) == reported


def test_voms_attributes_of_another_vo_are_not_put_beside_the_one_that_is_given() -> None:
    rules = [{"vo": "cms", "fqans": ["/cms/Role=pilot"]}, {"fqans": ["/atlas/Role=pilot"]}]
    assert enriched({"map": rules}, job_of(vo="atlas")).fqans == ("/atlas/Role=pilot",)
    assert enriched({"map": rules[:1]}, job_of(vo="atlas")).fqans == ()
    assert enriched({"map": rules}, job_of(fqans=("/lhcb",))).vo is None


def test_local_facts_are_not_used_for_a_job_with_user_and_vo() -> None:
    rule = {"map": [{"when": {"local_user": "ada"}, "submit_host": "ce9"}]}
    assert enriched(rule, job_of(local_user="ada", user_dn="/CN=Ada")).endpoint_url == "ce9"
    assert enriched(rule, job_of(local_user="ada", user_dn="/CN=Ada", vo="atlas")).endpoint_url is None


def test_a_benchmark_of_the_source_stays() -> None:
    reported = job_of(benchmarks=(Benchmark("HEPSPEC", 9.0),))
    rule = {"type": "HEPscore23", "value": 12}
    assert enriched({"benchmark": rule, "benchmarks": [rule]}, reported) is reported


@pytest.mark.parametrize(("end", "value"), [(END - 1, 1.0), (END, 2.0), (END + 9, 2.0), (END + 10, 3.0), (None, 3.0)])
def test_since_is_inclusive_and_until_exclusive(end: int | None, value: float) -> None:
    at = "2026-11-20T18:40:00Z"
    behind = "2026-11-20T18:40:10Z"
    rules = [
        {"type": "HEPscore23", "value": 1, "until": at},
        {"type": "HEPscore23", "value": 2, "since": at, "until": behind},
        {"type": "HEPscore23", "value": 3},
    ]
    assert enriched({"benchmarks": rules}, job_of(end=end)).benchmarks == (Benchmark("HEPscore23", value),)


def test_a_job_without_hosts_matches_no_host_pattern() -> None:
    rule = {"benchmarks": [{"type": "HEPscore23", "value": 1, "host": "*"}]}
    assert enriched(rule, job_of()).benchmarks == ()
    assert enriched(rule, job_of(hosts=(Host("wn1"),))).benchmarks != ()


# --- a class and its runs

_WORDS = st.sampled_from(("atlas", "main", "ada", "42", "physics", "/CN=Ada", "cms"))
_PATTERNS = st.sampled_from(("*", "a*", "main", "?2", "/CN=*", "[am]*", "ph*", "x"))
_CONDITIONS = st.dictionaries(
    st.sampled_from(
        (
            "local_user",
            "local_group",
            "account",
            "project",
            "department",
            "queue",
            "dn",
            "token_issuer",
            "token_subject",
        )
    ),
    _PATTERNS,
    max_size=2,
)
_RULES = st.lists(
    st.fixed_dictionaries(
        {"when": _CONDITIONS, "submit_host": st.sampled_from(("ce1", "ce2:9619/x"))},
        optional={
            "vo": st.sampled_from(("atlas", "cms")),
            "fqans": st.sampled_from((("/atlas/Role=pilot",), ("/cms",))),
            "dn": st.sampled_from(("/CN=One", "/CN=Two")),
            "infrastructure": st.sampled_from(("grid", "local")),
        },
    ),
    max_size=4,
)
_TOLD = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        (
            "local_user", "local_group", "account", "project", "department", "queue", "user_dn", "token_issuer",
            "token_subject", "vo", "endpoint_url", "cluster",
        ),
        st.none() | _WORDS,
    ),
)  # fmt: skip
_BENCHMARK = {"type": "HEPscore23", "value": 1.5, "since": "2026-01-01", "host": "wn*"}


@given(jobs(), _TOLD, _RULES, _RULES, st.sampled_from(({}, {"vo": ["atlas"]}, {"vo": ["cms"], "unknown_vo": "skip"})))
def test_a_class_is_given_what_its_runs_are(
    job: Job, reported: dict[str, Any], rules: list[Any], common: list[Any], settings: dict[str, Any]
) -> None:
    job = msgspec.structs.replace(job, **reported)
    config = config_of(
        {"map": rules, "benchmarks": [_BENCHMARK], "submit_host": "ce0"}, common=common, local_jobs="skip", **settings
    )
    enrichers = Enrichers(config)
    facts = _facts_of(job, None)
    run, of_class = enrichers.apply("ce1", job), enrichers.apply("ce1", facts)
    names = (
        "user_dn", "token_subject", "token_issuer", "vo", "fqans", "cluster", "endpoint_url", "endpoint_type",
        "infrastructure", "site", "status", "system", "nodes", "cores", "slots",
    )  # fmt: skip
    assert [getattr(run, name) for name in names] == [getattr(of_class, name) for name in names]
    by_class = TargetFilter("spool", config.targets["spool"], config).selects_class(JobClass(1, "ce1", facts))
    by_run = TargetFilter("spool", config.targets["spool"], config).selects_class(JobClass(1, "ce1", job))
    assert by_class == by_run
    assert _counted(run) == _counted(msgspec.structs.replace(of_class, end=job.end))


def _counted(job: Job) -> object:
    fold = SyncFold(View(site="EXAMPLE-SITE"))
    try:
        fold.add(job)
    except CannotRenderError as error:
        return str(error)
    return list(fold.groups())


# --- settings

READING = {
    "type", "path", "timezone", "expect_every", "cluster", "start_time", "overlap", "busy_timeout",
    "options", "stat_file", "retired", "rotated_to", "auditor", "token_groups",
}  # fmt: skip
"""Where and how a source is read: what was read is in the store, so a change plans nothing anew."""


def test_every_key_of_a_source_either_decides_or_only_says_how_to_read() -> None:
    assert set(SourceSettings.model_fields) - planning_settings(SourceSettings) == READING


@pytest.mark.parametrize(
    ("source", "common"),
    [
        ({"benchmark": {"type": "HEPscore23", "value": 1}}, []),
        ({"benchmarks": [{"type": "HEPscore23", "value": 1}]}, []),
        ({"infrastructure": "grid"}, []),
        ({"site": "OTHER"}, []),
        ({"submit_host": "ce1"}, []),
        ({"local_id_prefix": "a-"}, []),
        ({"map": [{"vo": "atlas"}]}, []),
        ({"grid_log": {"path": "blah"}}, []),
        ({}, [{"vo": "atlas"}]),
    ],
)
def test_a_change_of_what_is_added_plans_again(source: dict[str, Any], common: list[Any]) -> None:
    plain, changed = config_of({}), config_of(source, common=common)
    assert (
        TargetFilter("spool", plain.targets["spool"], plain).text
        != TargetFilter("spool", changed.targets["spool"], changed).text
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"map": [{"vo": "a"}, {"when": {"local_usr": "x"}, "vo": "a"}]}, "sources.ce1.map.1.when.local_usr: unknown"),
        ({"map": [{"when": {"queue": ""}, "vo": "a"}]}, "sources.ce1.map.0.when.queue: must be a pattern such as"),
        ({"map": [{"when": {"queue": []}, "vo": "a"}]}, "sources.ce1.map.0.when.queue: must be a pattern such as"),
        ({"map": [{"when": {"queue": "x"}}]}, "sources.ce1.map.0: a mapping rule needs at least one of"),
        ({"map": {"vo": "a"}}, "sources.ce1.map: must be a list of tables: write [[sources.ce1.map]]"),
        ({"map": [{"fqans": ["atlas"]}]}, "sources.ce1.map.0.fqans: 'atlas' is not a VOMS attribute"),
        ({"map": [{"fqans": ["/Role=x"]}]}, "sources.ce1.map.0.fqans: '/Role=x' is not a VOMS attribute"),
        ({"map": [{"dn": "Ada"}]}, "sources.ce1.map.0.dn: must be a distinguished name"),
        ({"map": [{"infrastructure": "cloud"}]}, "sources.ce1.map.0.infrastructure: must be 'grid' or 'local'"),
        ({"benchmarks": [{"type": "HEPSPEC", "value": 0}]}, "sources.ce1.benchmarks.0.value: must be greater than 0"),
        ({"benchmarks": [{"value": 1}]}, "sources.ce1.benchmarks.0.type: is missing"),
        ({"benchmarks": [{"type": "HEPSPEC", "value": 1, "from": 1}]}, "sources.ce1.benchmarks.0.from: unknown key"),
        (
            {"benchmarks": [{"type": "HEPSPEC", "value": 1, "since": "2026-02-01", "until": "2026-02-01"}]},
            "sources.ce1.benchmarks.0: since must be before until",
        ),
        ({"grid_log": {}}, "sources.ce1.grid_log.path: is missing"),
        ({"options": {"a": 1}}, "sources.ce1.options: is only for add-ons"),
    ],
)
def test_errors_name_the_key(source: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(source)
    assert f"publisher.toml: {said}" in str(caught.value)


def test_an_unknown_kind_of_target_or_format_names_those_there_are() -> None:
    with pytest.raises(
        ConfigError,
        match=r"targets.spool.type: 'dir' is not a type of target; allowed: sgas, ams, https, directory, auditor, "
        "waldur; did you mean 'directory'",
    ):
        config_of({}, type="dir")
    with pytest.raises(
        ConfigError, match=r"targets.spool.records: 'ur' is not a format; allowed: apel-job, apel-normal"
    ):
        config_of({}, records="ur")
    assert set(TARGET_KINDS) == {"sgas", "ams", "https", "directory", "auditor", "waldur"}
