"""A new store is reported, once: if an existing one was expected, its place is mistyped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.generators.arc_database import load
from tests.publisher.cli.program import WHOLE, Inside


@pytest.mark.parametrize(
    "command",
    [
        ("records", "list", "--state", "held"),
        ("records", "list"),
        ("store", "audit"),
        ("jobs",),
        ("status",),
    ],
)
def test_where_there_is_none_this_is_reported(fixtures: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    done = Inside(tmp_path)(*command)
    assert f"the store {tmp_path}/store.db does not exist" in done.err
    assert done.code == 0


@pytest.mark.parametrize("command", ["run", "collect", "publish"])
def test_a_new_store_is_announced_once(fixtures: Path, tmp_path: Path, command: str) -> None:
    site = Inside(tmp_path)
    load(fixtures / "arc" / "accounting.sql", tmp_path / "accounting.db")
    assert f"created a new store: sqlite:///{tmp_path}/store.db" in site(command).err
    assert "a new store" not in site(command).err
    site.configure(WHOLE.replace("store.db", "stoer.db"))
    assert "check store.url" in site(command).err


@pytest.mark.parametrize(
    "command", [("records", "list", "--state", "held"), ("jobs",), ("status", "--json"), ("report", "utilization")]
)
def test_a_store_that_cannot_be_looked_at_is_an_error_of_the_store(tmp_path: Path, command: tuple[str, ...]) -> None:
    """As one in a folder that is closed to this user, which tests that run as root cannot have."""
    (tmp_path / "store.db").symlink_to("store.db")
    done = Inside(tmp_path)(*command)
    assert done.code == 5
    assert f"the store {tmp_path}/store.db cannot be created or opened" in done.err
