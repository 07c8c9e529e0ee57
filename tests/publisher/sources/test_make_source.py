"""Sources by the type in the configuration: built in, of an add-on, unknown."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from publisher import plugins, sources
from publisher.config import schema
from publisher.config.sources import SOURCE_KINDS
from publisher.errors import ConfigError
from publisher.sources.arc.source import ArcSource
from publisher.sources.logs.sniff import KINDS as LOG_KINDS
from publisher.sources.plugin import AddedSource
from tests.publisher.add_on import install


def test_every_built_in_type_can_be_loaded() -> None:
    for kind in SOURCE_KINDS.values():
        module, _, attribute = kind.factory.partition(":")
        assert callable(getattr(import_module(module), attribute))
    assert set(SOURCE_KINDS) <= set(sources.known_kinds())


def test_every_log_that_shows_its_kind_is_one_that_can_be_seen() -> None:
    """No log is of two kinds, except that TORQUE and PBS Pro write the same."""
    logs = [log for name, kind in SOURCE_KINDS.items() for log in kind.logs if name != "pbs"]
    assert sorted(set(logs)) == sorted(logs)
    assert SOURCE_KINDS["pbs"].logs == SOURCE_KINDS["torque"].logs
    assert set(logs) <= set(LOG_KINDS)


def test_a_built_in_type(tmp_path: Path) -> None:
    made = sources.make_source("ce1", schema.SourceSettings(type="arc", path=tmp_path))
    assert isinstance(made, ArcSource)
    assert (made.name, made.kind) == ("ce1", "arc")


def test_an_unknown_type_names_the_known() -> None:
    """The configuration names the nearest: such a type comes here from programs only."""
    with pytest.raises(ConfigError, match=r"sources\.ce1\.type: unknown type of source 'ark'; known: .*arc") as caught:
        sources.make_source("ce1", schema.SourceSettings(type="ark"))
    assert caught.value.hint == "Install the add-on that has it"


def test_a_type_of_an_add_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path, monkeypatch, plugins.SOURCES, mine="publisher.sources.arc.source:ArcSource")
    made = sources.make_source("x", schema.SourceSettings(type="mine", path=tmp_path))
    assert (type(made), made.name, made.kind) == (AddedSource, "x", "arc")
    assert [finding.level for finding in made.check()] == ["red"]


@pytest.mark.parametrize("value", ["no_such_module_at_all:Source", "publisher.sources.arc.source:NoSuchName"])
def test_an_add_on_that_cannot_be_loaded(value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path, monkeypatch, plugins.SOURCES, mine=value)
    with pytest.raises(ConfigError, match="cannot be loaded"):
        sources.make_source("x", schema.SourceSettings(type="mine"))


def test_an_add_on_cannot_replace_a_built_in_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path, monkeypatch, plugins.SOURCES, arc="no_such_module_at_all:Source")
    assert isinstance(sources.make_source("x", schema.SourceSettings(type="arc", path=tmp_path)), ArcSource)
