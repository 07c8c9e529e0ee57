"""VOMS attributes from groups of a token: only of a configured issuer, within its VO, and if they leave no doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from formats.job import Job
from formats.names import token_groups_of_vo
from publisher.collect.enrich import Enrichers
from publisher.collect.target_filter import TargetFilter
from publisher.config.file import parse
from publisher.config.schema import Config
from publisher.encoded_run import class_key, decode_run, encode_run
from publisher.errors import ConfigError
from publisher.grid_identity import GridLogEntry
from publisher.sources.htcondor.lines import from_ad
from tests.publisher.site import ListSource, Site, make_job

ISSUER = "https://atlas-auth.example.org/"
RULE = {"when": {"token_issuer": ISSUER}, "vo": "atlas", "fqans_from": "token_groups"}


def config_of(*rules: dict[str, Any], **source: Any) -> Config:
    sources = {"ce1": {"type": "arc", "path": "x", "token_groups": True, "map": list(rules), **source}}
    targets = {"spool": {"type": "directory", "path": "out"}}
    return parse({"site": {"name": "A"}, "sources": sources, "targets": targets}, Path("publisher.toml"))


def with_token(*groups: str, issuer: str = ISSUER, **facts: Any) -> Job:
    return make_job(1, **{"vo": None, "token_issuer": issuer, "token_groups": groups or None} | facts)


@pytest.mark.parametrize(
    ("groups", "within"),
    [
        (("/atlas",), ("/atlas",)),
        (("/atlas", "/atlas/production"), ("/atlas/production",)),
        (("/atlas/production", "/atlas"), ("/atlas/production",)),
        (("/atlas/no/prod", "/atlas/no", "/atlas", "/atlas"), ("/atlas/no/prod",)),
        (("/atlas/production", "/atlas/pilot"), ("/atlas/pilot", "/atlas/production")),
        (("/atlas/prod", "/atlas/production"), ("/atlas/prod", "/atlas/production")),
        (("/atlasx", "/cms/atlas", "atlas", "/ATLAS", ""), ()),
        (("/atlas/Role=production", "/atlas/", "/atlas//x", "/atlas/../cms", "/atlas/x\n", "/atlas/x;/cms"), ()),
    ],
)
def test_groups_within_a_vo(groups: tuple[str, ...], within: tuple[str, ...]) -> None:
    assert token_groups_of_vo(groups, "atlas") == token_groups_of_vo(groups[::-1], "atlas") == within


@pytest.mark.parametrize(
    ("job", "vo", "fqans"),
    [
        (with_token("/atlas", "/atlas/production"), "atlas", ("/atlas/production",)),
        (with_token("/atlas/production", "/atlas/pilot"), "atlas", ()),
        (with_token("/atlasx/production"), "atlas", ()),
        (with_token(), "atlas", ()),
        (with_token("/atlas", issuer="https://atlas-auth.example.org"), None, ()),
        (with_token("/atlas", issuer="https://evil.example.org/"), None, ()),
        (with_token("/atlas/production", fqans=("/atlas/Role=pilot",)), None, ("/atlas/Role=pilot",)),
        (with_token("/atlas/production", vo="atlas"), "atlas", ("/atlas/production",)),
        (with_token("/atlas/production", vo="cms"), "cms", ()),
    ],
)
def test_what_a_rule_gives(job: Job, vo: str | None, fqans: tuple[str, ...]) -> None:
    found = Enrichers(config_of(RULE)).apply("ce1", job)
    assert (found.vo, found.fqans) == (vo, fqans)


def test_jobs_that_differ_only_in_groups_are_told_apart() -> None:
    enrichers = Enrichers(config_of(RULE))
    given = [enrichers.apply("ce1", with_token(group)).fqans for group in ("/atlas/a", "/atlas/b")]
    assert given == [("/atlas/a",), ("/atlas/b",)]


@pytest.mark.parametrize(
    ("rule", "source", "said"),
    [
        ({"when": {}}, {}, "map.0.when.token_issuer: is missing: anyone's token may have any group"),
        ({"when": {"token_issuer": "https://*"}}, {}, "map.0.when.token_issuer: must be literal"),
        ({"vo": None}, {}, "map.0.vo: is missing: `fqans_from` takes the groups below `/VO`"),
        ({"vo": "atlas/no"}, {}, "map.0.vo: 'atlas/no' cannot be the first part of a group"),
        ({"fqans": ["/atlas"]}, {}, "map.0.fqans: cannot be set together with `fqans_from`"),
        ({"fqans_from": "groups"}, {}, "map.0.fqans_from: must be 'token_groups'"),
        ({}, {"token_groups": False}, "map.0.fqans_from: needs `token_groups = true` of the source"),
        ({}, {"type": "slurm"}, "token_groups: is not for a source of type slurm"),
    ],
)
def test_wrong_settings_are_named(rule: dict[str, Any], source: dict[str, Any], said: str) -> None:
    table = {name: value for name, value in (RULE | rule).items() if value is not None}
    with pytest.raises(ConfigError) as caught:
        config_of(table, **source)
    assert said in str(caught.value)


def test_rules_of_before_plan_nothing_anew() -> None:
    config = config_of({"vo": "atlas"})
    assert "fqans_from" not in TargetFilter("spool", config.targets["spool"], config).text


def test_a_run_without_groups_is_in_the_class_of_before_and_one_with_them_in_another() -> None:
    job = with_token()
    assert class_key(job).hex() == "af460143e866b3c87801d72ef05e5700"
    assert class_key(with_token("/atlas")) != class_key(job)


@pytest.mark.parametrize("cores", [(), ("0-3",)])
@pytest.mark.parametrize("groups", [(), ("/atlas", "/atlas/production")])
def test_groups_are_stored(groups: tuple[str, ...], cores: tuple[str, ...]) -> None:
    job = with_token(*groups, core_numbers=cores)
    run = encode_run(job)
    assert decode_run(run.stored, run.facts, run.digest) == job
    assert run.digest == encode_run(msgspec.structs.replace(job, core_numbers=())).digest
    assert (run.digest == encode_run(with_token()).digest) == (not groups)


def test_the_groups_of_an_entry_are_of_its_issuer_only() -> None:
    entry = GridLogEntry(1, "1", token_subject="s", token_issuer=ISSUER, token_groups=("/atlas",))
    bare = make_job(1, user_dn=None)
    assert entry.given_to(bare).token_groups == ("/atlas",)
    assert entry.given_to(msgspec.structs.replace(bare, token_issuer="https://other/")).token_groups is None


def test_a_schedd_has_groups_only_if_it_is_declared_a_computing_element() -> None:
    ad: dict[str, Any] = {
        "globaljobid": "ce#1.0#1795190000", "jobstatus": 4, "jobstartdate": 1_795_200_000, "remotewallclocktime": 9,
        "completiondate": 1_795_203_600, "authtokensubject": "5f3c", "authtokenissuer": ISSUER,
        "authtokengroups": "/atlas, /atlas/production,/atlas",
    }  # fmt: skip
    declared, plain = from_ad(ad, None, has_token_groups=True), from_ad(ad, None)
    assert isinstance(declared, Job)
    assert isinstance(plain, Job)
    assert (declared.token_groups, plain.token_groups) == (("/atlas", "/atlas/production"), None)
    claimed = {name.replace("auth", "orig_auth"): value for name, value in ad.items()}
    without = from_ad(claimed, None, has_token_groups=True)
    assert isinstance(without, Job)
    assert (without.token_groups, without.token_issuer) == (None, None)


def test_explained(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [])
    site.table["sources"]["ce1"].update(token_groups=True, map=[RULE])
    site.table["targets"]["spool"] = {"type": "directory", "path": "out", "records": "emi-car"}
    jobs = [with_token("/atlas", "/atlas/production"), make_job(2)]
    several = msgspec.structs.replace(
        with_token("/atlas/b", "/atlas/a", "/x"), record_id="ur-3", local_id="3", global_id="3"
    )
    site.sources["ce1"].add(*jobs, several)
    site.collect()
    said = [site.publisher.explanations("emi-car", "spool", each.record_id)[0].fqan for each in (*jobs, several)]
    within = "the lowest within /atlas:"
    assert said == [
        f"groups of the token: /atlas, /atlas/production; {within} /atlas/production is the VOMS attribute",
        None,
        (
            f"groups of the token: /atlas/b, /atlas/a, /x; {within} /atlas/a, /atlas/b: several, and their order is no "
            "rank, so there is only the VO"
        ),
    ]
