"""docs/reference/configuration.md and conf/publisher.toml know every setting there is, and none that there is not."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from publisher.config.auditor_source import AuditorSourceSettings, Components, MetaKeys
from publisher.config.energy import Energy, EnergyMeter, PowerRule
from publisher.config.file import load, parse
from publisher.config.reports import Adjustment, Charges, Factor, Node, Price, StatementRecipient, StatementSettings
from publisher.config.schema import (
    TARGET_KINDS,
    BenchmarkRule,
    BenchmarkSettings,
    Config,
    Credentials,
    GridLog,
    MapRule,
    ReportingSettings,
    Settings,
    SiteSettings,
    SourceSettings,
    SpoolContext,
    StoreSettings,
    TargetSettings,
    When,
)
from tests.docs import reference

BEGIN = "<!-- made from the types by `pytest tests/docs --rewrite-golden`; edit publisher/config instead -->\n"
SETTING_THAT_IS_OFF = re.compile(r"^#(?=[a-z_]+ = |\[)", re.MULTILINE)


def test_every_table_is_in_the_reference() -> None:
    def of(model: type[Settings]) -> Iterator[type[Settings]]:
        for child in model.__subclasses__():
            yield from of(child)
            yield child

    tables = {model for model in of(Settings) if not model.__subclasses__()}
    assert tables - set(reference.TABLES.values()) == {Config}  # the whole file


def test_every_setting_is_described() -> None:
    undescribed = [
        f"{heading} {name}"
        for heading, model in reference.TABLES.items()
        for name, field in reference.own_fields(model)
        if not field.description
    ]
    assert undescribed == []


def test_the_reference_is_that_of_the_types(root: Path, *, rewrite_golden: bool) -> None:
    page = root / "docs" / "reference" / "configuration.md"
    prose, begin, _ = page.read_text(encoding="utf-8").partition(BEGIN)
    assert begin, "the line that the generated part starts with is gone"
    expected = prose + BEGIN + "\n" + reference.render()
    if rewrite_golden:
        page.write_text(expected, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == expected


def test_the_example_is_a_configuration(root: Path) -> None:
    config = load(root / "conf" / "publisher.toml")
    assert config.site.name == "EXAMPLE-SITE"
    assert {target.type for target in config.targets.values()} == {"sgas", "ams"}


@pytest.fixture
def switched_on(root: Path) -> dict[str, Any]:
    """The example with every setting that is off in it switched on."""
    text = (root / "conf" / "publisher.toml").read_text(encoding="utf-8")
    return tomllib.loads(SETTING_THAT_IS_OFF.sub("", text))


def test_the_example_with_all_settings_on_is_a_configuration(switched_on: dict[str, Any], tmp_path: Path) -> None:
    config = parse(switched_on, tmp_path / "publisher.toml")
    assert {target.type for target in config.targets.values()} == TARGET_KINDS.keys()


def test_the_example_has_every_setting(switched_on: dict[str, Any]) -> None:
    source = switched_on["sources"]["ce1"]
    targets: dict[str, dict[str, Any]] = {target["type"]: target for target in switched_on["targets"].values()}
    shown: list[tuple[type[Settings], dict[str, Any]]] = [
        (SiteSettings, switched_on["site"]),
        (StoreSettings, switched_on["store"]),
        (Credentials, switched_on["credentials"] | switched_on["targets"]["api"]["credentials"]),
        (Node, switched_on["nodes"][0]),
        (Energy, switched_on["energy"] | {"carbon_file": "carbon.csv"}),
        (EnergyMeter, switched_on["energy"]["measured"][0]),
        (PowerRule, switched_on["energy"]["power"][0]),
        (Charges, switched_on["charges"]),
        (Price, switched_on["charges"]["prices"][0]),
        (Factor, switched_on["charges"]["group_factors"][0] | switched_on["charges"]["job_factors"][0]),
        (Adjustment, switched_on["charges"]["adjustments"][0]),
        (StatementSettings, switched_on["statements"]),
        (StatementRecipient, switched_on["statements"]["recipients"][0]),
        (SourceSettings, source | switched_on["sources"]["k8s"]),
        (AuditorSourceSettings, switched_on["sources"]["k8s"]["auditor"]),
        (Components, switched_on["sources"]["k8s"]["auditor"]["components"]),
        (MetaKeys, switched_on["sources"]["k8s"]["auditor"]["meta"]),
        (BenchmarkSettings, source["benchmark"]),
        (BenchmarkRule, source["benchmarks"][0]),
        (MapRule, source["map"][0] | source["map"][1]),
        (GridLog, source["grid_log"]),
        (SpoolContext, switched_on["spool"]["texts"] | switched_on["spool"]["warehouse"]),
        (TargetSettings, targets["sgas"]),
        (ReportingSettings, targets["https"]),
        *((kind.settings, targets[name]) for name, kind in TARGET_KINDS.items()),
    ]
    absent = {
        f"{model.__name__}.{name}"
        for model, table in shown
        for name, _ in reference.own_fields(model)
        if name not in table
    }
    assert absent == {"SourceSettings.options"}  # for the types of add-ons alone


def test_the_example_names_every_condition_of_a_mapping_rule(root: Path) -> None:
    text = (root / "conf" / "publisher.toml").read_text(encoding="utf-8")
    assert [name for name in When.model_fields if not re.search(rf"\b{name}\b", text)] == []


def off_keys(text: str) -> Iterator[tuple[str, str]]:
    """Table and key of every setting that is off."""
    table = ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"#?\[(.+)\]", line):
            table = heading[1]
        elif key := re.match(r"#([a-z_]+) = ", line):
            yield table, key[1]


def test_a_setting_that_is_off_shows_its_default(root: Path, switched_on: dict[str, Any], tmp_path: Path) -> None:
    config = parse(switched_on, tmp_path / "publisher.toml")
    tables: dict[str, Settings] = {"store": config.store, "credentials": config.credentials}
    tables |= {f"sources.{name}": source for name, source in config.sources.items()}
    tables |= {f"targets.{name}": target for name, target in config.targets.items()}
    different = []
    for table, key in off_keys((root / "conf" / "publisher.toml").read_text(encoding="utf-8")):
        if table not in tables:
            continue  # a rule: all of it is an example
        field = type(tables[table]).model_fields[key]
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        if default not in (None, (), "") and getattr(tables[table], key) != default:
            different.append(f"{table}.{key}")
    assert different == ["targets.portal.records"]  # which makes it one that is sent reports
