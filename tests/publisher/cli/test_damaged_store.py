"""What commands print and exit with when the store is damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.extent import every
from tests.publisher.cli.program import Program

pytestmark = pytest.mark.inside
_PAGE: Final = 4096
_WINDOW: Final = ("--since", "2020-01-01", "--until", "2030-01-01")
_COMMANDS: Final[tuple[tuple[str, ...], ...]] = (
    ("run",), ("status",), ("collect",), ("publish",), ("publish", "--dry-run"), ("history",), ("jobs",), ("check",),
    ("records", "list"), ("store", "check"), ("store", "backup", "b.db"), ("store", "audit"), ("shadow", "summaries"),
    ("store", "copy", "sqlite:///store.db", "sqlite:///copy.db"), ("store", "export", "exported"), ("reconcile",),
    ("republish", "files", *_WINDOW, "--yes"), ("render", "ogf-ur", *_WINDOW), ("report", "totals", *_WINDOW),
    ("archive", "archived"), ("store", "purge", "--before", "2026-11", "--yes"), ("collect", "--unreadable"),
)  # fmt: skip


def _pages_but_the_first(content: bytearray) -> None:
    content[_PAGE:] = bytes(len(content) - _PAGE)


def _header(content: bytearray) -> None:
    content[:16] = random.Random(24).randbytes(16)


def _end(content: bytearray) -> None:
    del content[len(content) // 2 :]


def _schema(content: bytearray) -> None:
    """The names of the columns are no longer those of the program."""
    content[:] = content.replace(b"target_id", b"tarGet~id").replace(b"source_id", b"sourCe~id")


@pytest.mark.parametrize(
    ("damage", "command"),
    every(
        7,
        ((damage, command) for damage in (_pages_but_the_first, _header, _end, _schema) for command in _COMMANDS),
    ),
)
def test_a_damaged_file_is_an_error_of_the_store_that_says_how_to_restore_it(
    published: Program, damage: Callable[[bytearray], None], command: tuple[str, ...]
) -> None:
    store = published.folder / "store.db"
    for beside in Path(published.folder).glob("store.db-*"):
        beside.unlink()
    content = bytearray(store.read_bytes())
    damage(content)
    store.write_bytes(content)
    done = published(*command)
    if command == ("check",):  # which looks at everything else as well
        assert (done.code, "is damaged" in done.out) == (1, True)
    else:
        assert done.code == 5, (done.code, done.out, done.err)
        assert "store check" in done.err + done.out
        assert "lost-store.md" in done.err + done.out or "Restore the store" in done.out


def test_the_check_goes_as_far_as_it_can(published: Program) -> None:
    """Its own error must not be that `store check` shows all damage."""
    store = published.folder / "store.db"
    published("store", "check").ok()
    content = bytearray(store.read_bytes())
    for page in range(20, len(content) // _PAGE, 3):
        content[page * _PAGE + 100 : page * _PAGE + 400] = random.Random(page).randbytes(300)
    store.write_bytes(content)
    done = published("store", "check", "--json")
    findings = done.object["findings"]
    assert done.code == 5
    assert next(one["subject"] for one in findings if one["level"] == "red") == "database"
    assert all("store check" not in one["hint"] for one in findings if one["level"] == "red")


def test_a_run_that_stops_says_why_once_and_status_repeats_it(published: Program) -> None:
    """Also if a mail is due: then the store is opened a second time, and fails again."""
    with published.config.open("a") as configuration:
        configuration.write('[notices]\nmail_to = ["ops@example.org"]\nsmtp = "127.0.0.1:9"\n')
    published.change_store("ALTER TABLE grid_waits RENAME TO grid_wait")
    done = published("run")
    assert done.code == 5
    assert done.err.count("is damaged: ") == 1, done.err
    assert "Its problem: the store" in published("status").out
    store = published.folder / "store.db"
    store.write_bytes(b"\0" * 16 + store.read_bytes()[16:])
    done = published("run")
    assert (done.code, done.err.count("is damaged: ")) == (5, 1), done.err
    assert "the notice could not be mailed" in done.err


def test_damage_that_a_run_finds_is_shown_by_it_and_by_status(published: Program) -> None:
    published.change_store("UPDATE runs SET job = x'01ff00' WHERE id = 3")
    found = published("run", "--json")
    assert found.code == 5
    checked = found.object["checked"]
    assert (len(checked["damage"]), checked["damaged_jobs"], checked["error"]) == (1, 1, None)
    assert "found by this run" in found.err
    assert "store check" in found.err
    later = published("run", "--json").ok()
    assert (later.object["checked"]["damage"], later.object["checked"]["damaged_jobs"]) == ([], 1)
    assert "the store has 1 damaged job" in later.err
    status = published("status", "--json").object
    assert (status["damaged_jobs"], status["delivered"]) == (1, False)
    assert "Damaged:            1 stored job" in published("status").out


@pytest.mark.parametrize(
    "command",
    [("run",), ("publish",), ("republish", "files", "--since", "2026-01-01", "--until", "2027-01-01", "--yes")],
)
def test_what_was_sent_is_shown_though_the_store_cannot_be_read_afterwards(
    collected: Program, command: tuple[str, ...]
) -> None:
    collected.change_store("DROP TABLE check_progress")
    done = collected(*command, "--json")
    assert done.code == 5
    assert done.object["targets"]["files"]["accepted"] == 37
    assert "waiting" not in done.object["targets"]["files"]
    assert "check_progress" in done.object["error"]
    assert done.object["exit_code"] == 5
    assert "check_progress" in done.err
    shown = collected(*command)
    assert shown.code == 5
    assert "files" in shown.out
