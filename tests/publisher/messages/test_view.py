"""Each setting of a target that a format reads reaches its view, and with it what is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from formats.view import View
from publisher.config.schema import Config
from publisher.messages.item import view_of

SET: Final[dict[str, Any]] = {
    "version": "0.4",
    "record_id_prefix": "p-",
    "local_id_prefix": "q-",
    "submit_host": "url",
    "vo_spelling": "arc",
    "summary_counts": "cores",
    "infrastructure_description": "A-B-C",
    "summary_description": "D-E-F",
    "benchmark_type": "HEPSPEC",
    "ur_extensions": ["vo"],
    "namespace_style": "prefixed",
    "service_class_as_service_level": True,
    "machine_name": "m1",
    "start_from": "wall",
    "ascii_names": True,
    "dn": "hash",
}
"""A value of each setting that is not the default."""
OTHERWISE: Final = {"site", "vo_type", "signed", "options", "dn_key"}
"""Fields that other tests set: the site's name, what no target sets, and what follows from several keys."""


@pytest.fixture
def view(tmp_path: Path) -> View:
    key = tmp_path / "key"
    key.write_text("k" * 40)
    key.chmod(0o600)
    table = {"type": "directory", "path": "x", "records": "apel-job", "dn_key": str(key), **SET}
    config = Config.model_validate({"site": {"name": "S"}, "store": {"url": "sqlite:///x"}, "targets": {"x": table}})
    return view_of(config.targets["x"], config)


def test_every_setting_reaches_the_view(view: View) -> None:
    expected = {name: value for name, value in SET.items() if name != "benchmark_type"}
    expected |= {"benchmark": "HEPSPEC", "ur_extensions": frozenset({"vo"}), "vo_groups_for_sgas": "arc"}
    assert {name: getattr(view, name) for name in expected} == expected
    assert expected.keys() | OTHERWISE == set(View.__struct_fields__)
    assert view.dn_key


def test_no_value_of_these_is_the_default() -> None:
    usual = View(site="S")
    assert not [name for name, value in SET.items() if getattr(usual, name, None) == value]
