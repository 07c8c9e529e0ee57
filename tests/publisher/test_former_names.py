"""Former names are accepted with a message that has the new one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from publisher.cli.main import show_warning
from publisher.config.file import parse
from publisher.errors import ConfigError
from publisher.former_names import FormerNames, FormerNameWarning, present_arguments
from publisher.plugins import SOURCES, _points
from tests.docs.interface import _former

FORMER = FormerNames(
    commands={"send": "publish", "store drop": "store purge"},
    options={"publish --try": "--dry-run", "store purge --month": "--before"},
)
KEYS = FormerNames(settings={"site.title": "name", "targets.*.package": "batch_records"})


def test_settings_by_their_former_names(tmp_path: Path) -> None:
    table = {"site": {"title": "S"}, "targets": {"a": {"type": "directory", "path": "out", "package": 7}}}
    with pytest.warns(FormerNameWarning) as seen:
        config = parse(table, tmp_path / "publisher.toml", former=KEYS)
    assert (config.site.name, config.targets["a"].batch_records) == ("S", 7)
    assert str(seen[1].message) == (
        f"{tmp_path}/publisher.toml: targets.a.package is called batch_records now; the former name is accepted until "
        "the next major version"
    )


def test_a_setting_by_both_names_is_refused(tmp_path: Path) -> None:
    table = {"site": {"title": "S", "name": "S"}}
    with pytest.raises(ConfigError, match=r"site\.title: is the former name of `name`, which is set too"):
        parse(table, tmp_path / "publisher.toml", former=KEYS)


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ("--json send neic --try", "--json publish neic --dry-run"),
        ("--config send publish --try", "--config send publish --dry-run"),
        ("store drop --month=2026-09 --yes", "store purge --before=2026-09 --yes"),
        ("store --try", ""),
        ("jobs send", ""),
        ("publish -- --try", ""),
    ],
)
def test_commands_and_options_by_their_former_names(given: str, now: str) -> None:
    if not now:
        assert present_arguments(given.split(), FORMER) == given.split()
        return
    with pytest.warns(FormerNameWarning, match="is called"):
        assert present_arguments(given.split(), FORMER) == now.split()


def test_add_ons_in_a_former_group(tmp_path: Path) -> None:
    (tmp_path / "add_on-1.dist-info").mkdir()
    (tmp_path / "add_on-1.dist-info" / "entry_points.txt").write_text("[former.group]\nmine = add_on:Source\n")
    (tmp_path / "add_on-1.dist-info" / "METADATA").write_text("Name: add-on\nVersion: 1\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.warns(FormerNameWarning, match="the entry-point group former.group is called"):
            assert "mine" in [point.name for point in _points(SOURCES, {"former.group": SOURCES})]
    finally:
        sys.path.remove(str(tmp_path))


def test_the_program_shows_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    show_warning(FormerNameWarning("--old is called --new now"), FormerNameWarning, "file.py", 1)
    assert capsys.readouterr().err == "usage-publisher: --old is called --new now\n"
    show_warning(UserWarning("of a library"), UserWarning, "file.py", 1)
    assert "UserWarning: of a library" in capsys.readouterr().err


def test_former_names_are_names_of_the_interface() -> None:
    now = {"setting [site] name", "command publish", "command publish --dry-run", "command publishing"}
    former = FormerNames({"site.title": "name"}, {"send": "publish"}, {"publish --try": "--dry-run"})
    assert {*_former(now, former)} == {
        "setting [site] title", "command send", "command send --dry-run", "command publish --try",
    }  # fmt: skip
