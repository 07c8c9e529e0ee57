"""The settings of a target of AUDITOR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from formats.auditor.record import APEL_COMPONENTS, AuditorOptions, Component
from publisher.config.file import parse
from publisher.config.target_kind import SecondVersion
from publisher.errors import ConfigError


def target(tmp_path: Path, **settings: Any) -> Any:
    table = {
        "site": {"name": "EXAMPLE-SITE"},
        "store": {"url": "sqlite:///store.db"},
        "sources": {"ce1": {"type": "arc", "path": "x"}},
        "targets": {"auditor": {"type": "auditor", "url": "https://auditor.example.org:8443/", **settings}},
    }
    return parse(table, tmp_path / "publisher.toml").targets["auditor"]


def test_defaults_are_what_the_apel_plugin_reads(tmp_path: Path) -> None:
    made = target(tmp_path)
    assert made.format_options == AuditorOptions(APEL_COMPONENTS, "wall", "run")
    assert (made.second_version, made.evidence_source) == (SecondVersion.REFUSES_REPEATS, "records")
    assert made.destination == ("https://auditor.example.org:8443",)


def test_components(tmp_path: Path) -> None:
    made = target(tmp_path, components={"GPUs": {"amount": "gpus", "scores": {"hs06": "hepspec"}}}, start_from="start")
    assert made.format_options == AuditorOptions((Component("GPUs", "gpus", (("hs06", "hepspec"),)),), "start", "run")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"record_id": "auditor"}, r"targets\.auditor\.record_id_prefix: is missing"),
        ({"components": {"C": {"amount": "threads"}}}, "components.C.amount: must be .cores.*gpus"),
        ({"components": {"C": {"amount": "cores", "scores": {"s": "speed"}}}}, "'speed' is not a benchmark"),
        ({"components": {"C": {}}}, "amount: is missing"),
        ({"components": {" ": {"amount": "cores"}}}, "components: names have 1 to 256 characters"),
        ({"records": "ogf-ur"}, "records.*auditor-record"),
        ({"url": "http://auditor.example.org"}, "https"),
        ({"start_from": "end"}, "wall"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        target(tmp_path, **settings)
