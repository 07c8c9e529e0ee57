"""What is printed, where, and that nothing from outside is obeyed by a terminal; private files; closed pipes."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from publisher.cli.output import write_configuration
from tests.publisher.cli.program import COMMAND, Program

HOSTILE = "x\x1b]0;owned\x07\x1b[2J\nFORGED line\r\u202egnp.exe\x9b31m\x00"
UNSAFE = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u2066", "\u200f"]


def harmless(text: str) -> bool:
    return not any(character in text.replace("\n", "") for character in UNSAFE)


@pytest.fixture(scope="module")
def hostile(fresh_site: Program, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """One site for all tests: a change by one command does not affect what the others show."""
    fresh = fresh_site.copy(tmp_path_factory.mktemp("hostile"))
    name = HOSTILE.replace("\x00", "")
    fresh.change_database("UPDATE Users SET Name = ? WHERE ID = 1", f"/CN={name}")
    fresh.change_database("UPDATE Queues SET Name = ? WHERE ID = 1", name)
    fresh.change_database("UPDATE WLCGVOs SET Name = ? WHERE ID = 1", name)
    fresh.change_database("UPDATE AAR SET LocalJobID = ? WHERE RecordID = 1", name)
    fresh.change_database("UPDATE AAR SET JobID = ? WHERE RecordID = 2", name)
    fresh("collect")
    return fresh


@pytest.mark.parametrize(
    "command",
    [
        ("jobs",),
        ("jobs", "ur-ce1.example.org-avAbsO63BBh600000001"),
        ("jobs", "nosuch" + HOSTILE.replace("\x00", "")),
        ("jobs", "--queue", HOSTILE.replace("\x00", "")),
        ("publish", HOSTILE.replace("\x00", "")),
        ("status",),
        ("render", "ogf-ur"),
        ("render", "emi-car", "--since", "2026-09"),
        ("render", "apel-summary"),
        ("-v", "publish"),
        ("records", "list", "--state", "held"),
        ("collect", "--unreadable"),
        ("collect", "-v", "--since", "2026-09"),
        ("check",),
        (
            "store",
            "audit",
        ),
        (HOSTILE.replace("\x00", ""),),
    ],
    ids=lambda command: repr(command[0][:10]),
)
def test_hostile_names_are_shown_harmlessly(hostile: Program, command: tuple[str, ...]) -> None:
    done = hostile(*command)
    assert harmless(done.out), repr(done.out)
    assert harmless(done.err), repr(done.err)
    assert not any(line.startswith("FORGED") for line in (done.out + done.err).splitlines())


def test_hostile_names_are_whole_in_json(hostile: Program) -> None:
    (job,) = hostile("jobs", "ur-ce1.example.org-avAbsO63BBh600000001", "--json").ok().object["records"]
    assert job["facts"]["queue"] == HOSTILE.replace("\x00", "")


def test_data_and_messages_are_kept_separate(collected: Program) -> None:
    done = collected("render", "ogf-ur").ok()
    assert done.out.startswith("<?xml")
    assert "37 records" in done.err
    assert "37 records" not in done.out


def test_tables_show_what_was_done(fresh: Program) -> None:
    done = fresh("run").ok()
    assert "│ ce1    │   40 │   39 │  39 │" in done.out
    assert "│ files     │       37 │" in done.out
    confirmed = "files: 37 of 37 accepted jobs are confirmed by the service's evidence"
    assert re.fullmatch(rf"created a new store: .*\n{confirmed}\n", done.err)


def test_quiet_says_nothing_when_all_is_well(fresh: Program) -> None:
    done = fresh("run", "--quiet").ok()
    assert (done.out, done.err) == ("", "")


@pytest.mark.parametrize("option", ["--quiet", "--json"])
@pytest.mark.parametrize("command", ["collect", "run"])
def test_a_problem_of_a_source_is_reported_with_any_options(fresh: Program, command: str, option: str) -> None:
    fresh.configure(fresh.config.read_text().replace('path = "accounting.db"', 'path = "nosuch.db"'))
    done = fresh(command, option)
    assert done.code == 1
    assert "nosuch.db does not exist" in done.err
    assert done.err.count("does not exist") == 1


def test_verbose_shows_the_steps(fresh: Program) -> None:
    done = fresh("run", "--verbose").ok()
    assert "ce1: 40 read, 39 new, 0 changed" in done.err
    assert "37 records, accepted" in done.err


def test_no_progress_bar_without_a_terminal(fresh: Program) -> None:
    assert "\r" not in fresh("run").ok().err


@pytest.mark.parametrize("command", [("status",), ("jobs", "--json"), ("render", "ogf-ur"), ("--help",), ("run",)])
def test_a_closed_pipe_is_not_an_error(collected: Program, command: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*COMMAND, *command], cwd=collected.folder, env=collected.environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    messages = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 0, messages
    assert "Traceback" not in messages
    assert "Broken pipe" not in messages


def test_what_it_writes_is_private(fresh: Program) -> None:
    fresh("run").ok()
    fresh("render", "ogf-ur", "--since", "2026-09", "--output", "rendered").ok()
    made = [
        path
        for path in fresh.folder.rglob("*")
        if not path.name.startswith(("accounting", "publisher.toml")) and not path.is_symlink()
    ]
    assert any(path.name == "store.db" for path in made)
    assert {path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077} == set()


def test_help_names_every_command(fresh: Program) -> None:
    text = fresh("--help").ok().out
    for command in ("init", "run", "collect", "publish", "republish", "render", "jobs", "status", "records", "store"):
        assert f"\n  {command} " in text


def test_no_command_is_a_wrong_command_line(fresh: Program) -> None:
    done = fresh()
    assert (done.code, done.out) == (2, "")
    assert "Commands:" in done.err


def test_the_version(fresh: Program) -> None:
    assert fresh("--version").ok().out.startswith("usage-publisher ")


@pytest.mark.parametrize(("folder", "mode"), [(0o755, 0o600), (0o2750, 0o640)])
def test_the_group_of_a_set_group_id_folder_may_read_the_configuration(tmp_path: Path, folder: int, mode: int) -> None:
    """As root writes /etc/usage-publisher/publisher.toml for the service's user, to whose group the folder belongs."""
    place = tmp_path / "etc"
    place.mkdir()
    place.chmod(folder)
    before = os.umask(0o077)
    try:
        write_configuration(place / "publisher.toml", "", force=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE((place / "publisher.toml").stat().st_mode) == mode
