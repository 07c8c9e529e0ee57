"""Standard output and error as they can be: in another locale, on a terminal, full, closed, and interrupted early."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from publisher.text import safe
from tests.publisher.cli.program import COMMAND, Done, Program, run_command

NAME = "Zo\u00eb \u6f22\u5b57 \U0001f600"
"""A letter of Latin-1, two that it lacks, and one beyond 16 bits."""
HOSTILE = "x\x1b]0;owned\x07\x9b31m\u202egnp\u2066"
JOB = "ur-ce1.example.org-avAbsO63BBh600000001"
LATIN_1 = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
COMMANDS = [
    ("--help",),
    ("--version",),
    ("report", "--help"),
    ("report", "totals", "--help"),
    ("run",),
    ("collect",),
    ("collect", "--unreadable"),
    ("publish",),
    ("republish", "files", "--since", "2026-09", "--until", "2026-10", "--yes"),
    ("reconcile",),
    ("render", "ogf-ur"),
    ("render", "emi-car"),
    ("render", "apel-summary", "--diff"),
    ("render", "ogf-ur", "--target", "files", "--explain", JOB),
    *(
        ("report", "totals", "--by", "vo,queue", "--since", "2026-09", "--until", "2026-10", "--format", form)
        for form in ("table", "csv", "json", "md")
    ),
    ("report", "totals", "--by", "queue", "--since", "2026-09", "--until", "2026-10", "--format", "svg"),
    ("jobs",),
    ("jobs", JOB),
    ("status",),
    ("records", "list", "--state", "held"),
    ("records", "list", "--state", "rejected"),
    ("records", "list", "--state", "superseded"),
    ("check",),
    ("check", "--nagios"),
    (
        "store",
        "audit",
    ),
    ("store", "check"),
    ("nosuch",),
]


def named(fresh_site: Program, folder: Path, name: str) -> Program:
    """A site with names of this kind in every place that is shown, collected and published."""
    site = fresh_site.copy(folder)
    site.change_database("UPDATE Users SET Name = ? WHERE ID = 1", f"/CN={name}")
    for table in ("Queues", "WLCGVOs"):
        site.change_database(f"UPDATE {table} SET Name = ? WHERE ID = 1", name)
    site.change_database("UPDATE AAR SET LocalJobID = ? WHERE RecordID = 1", name)
    site("run")
    return site


@pytest.fixture(scope="module")
def lettered(fresh_site: Program, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return named(fresh_site, tmp_path_factory.mktemp("lettered"), NAME)


@pytest.fixture(scope="module")
def hostile(fresh_site: Program, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return named(fresh_site, tmp_path_factory.mktemp("hostile"), HOSTILE)


def started(site: Program, command: tuple[str, ...], **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A command in a new interpreter, which reads the variables of the locale itself."""
    return subprocess.run(
        [*COMMAND, *command], cwd=site.folder, env=site.environment | variables, stdin=subprocess.DEVNULL,
        capture_output=True, check=False, timeout=120,
    )  # fmt: skip


def ended(site: Program, command: tuple[str, ...], *, stdout: int | None = None, stderr: int | None = None) -> Done:
    return run_command(command, site.folder, site.environment, stdout=stdout, stderr=stderr)


# --- in another locale


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_in_latin_1_everything_is_shown(lettered: Program, command: tuple[str, ...]) -> None:
    done = run_command(command, lettered.folder, lettered.environment | LATIN_1, encoding="latin-1")
    assert "Traceback" not in done.err
    assert done.code in {0, 1, 2, 3}


def test_json_is_the_same_in_every_locale(lettered: Program) -> None:
    there, here = (started(lettered, ("jobs", "--json"), **each).stdout for each in (LATIN_1, {}))
    assert there.isascii()
    assert json.loads(there) == json.loads(here)
    assert NAME in json.dumps(json.loads(there), ensure_ascii=False)


def test_tables_have_lines_of_ascii_where_there_are_no_others(lettered: Program) -> None:
    table = started(lettered, ("jobs",), **LATIN_1).stdout.decode("latin-1")
    assert "Zo\u00eb \\u6f22\\u5b57 \\U0001f600" in table
    assert "| " in table
    assert len({len(line) for line in table.splitlines() if line.startswith(("|", "+"))}) == 1


@pytest.mark.parametrize("form", ["csv", "md"])
def test_data_are_utf_8_in_every_locale(lettered: Program, form: str) -> None:
    command = next(each for each in COMMANDS if each[-1] == form)
    there, here = (started(lettered, command, **each).stdout for each in (LATIN_1, {}))
    assert there == here
    assert NAME in there.decode()


# --- on a terminal


def on_terminal(site: Program, *command: str) -> str:
    """What a terminal is sent."""
    ours, theirs = pty.openpty()
    shown = b""

    def read() -> None:
        nonlocal shown
        with suppress(OSError):  # the error of Linux when no process has the terminal open any more
            while part := os.read(ours, 1 << 16):
                shown += part

    reader = threading.Thread(target=read)
    reader.start()
    done = ended(site, command, stdout=theirs)
    os.close(theirs)
    reader.join()
    os.close(ours)
    assert done.code in {0, 3}
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "command", [each for each in COMMANDS if each[-1] != "svg" and each != ("nosuch",)], ids=" ".join
)
def test_a_terminal_is_sent_nothing_that_it_obeys(hostile: Program, command: tuple[str, ...]) -> None:
    shown = on_terminal(hostile, *command)
    for colour in ("\x1b[0m", "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m", "\x1b[1;32m", "\x1b[3m"):  # rich's own
        shown = shown.replace(colour, "")
    assert [line for line in shown.split("\n") if safe(line) != line] == []


@pytest.mark.parametrize("form", ["csv", "md"])
def test_text_of_users_is_spelled_out_in_a_pipe_and_on_a_terminal(hostile: Program, form: str) -> None:
    command = next(each for each in COMMANDS if each[-1] == form)
    piped = ended(hostile, command).out
    assert (safe(HOSTILE) if form == "csv" else "gnp") in piped
    assert on_terminal(hostile, *command) == "\n".join(safe(line) for line in piped.replace("\r\n", "\n").split("\n"))


def test_json_on_a_terminal_is_the_same_object(hostile: Program) -> None:
    piped = ended(hostile, ("jobs", "--json")).out
    shown = on_terminal(hostile, "jobs", "--json")
    assert json.loads(shown) == json.loads(piped)
    assert "\\u202e" in shown
    assert "\\u009b" in shown


# --- full or closed


@pytest.mark.parametrize(
    "command",
    [
        *(("--help",), ("--version",), ("report", "--help"), ("run",), ("run", "--json"), ("collect", "--json")),
        *(
            ("render", "emi-car"),
            ("render", "ogf-ur", "--target", "files", "--explain", JOB),
            ("render", "ogf-ur", "--json"),
        ),
        *(command for command in COMMANDS if command[:2] == ("report", "totals")),
        *(
            ("jobs",),
            ("jobs", JOB),
            ("jobs", "--json"),
            ("status",),
            ("records", "list", "--state", "held", "--json"),
            ("check", "--nagios"),
        ),
        *(("store", "audit", "--json"), ("nosuch", "--json")),
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_reported(published: Program, command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = ended(published, command, stdout=full.fileno())
    said = done.err
    assert done.code == 2, said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert "standard output cannot be written: No space left on device" in said


def test_messages_that_cannot_be_written_change_nothing(fresh: Program) -> None:
    with Path("/dev/full").open("w") as full:
        done = ended(fresh, ("run", "--verbose"), stderr=full.fileno())
    assert done.code == 0
    assert fresh("status", "--json").object["targets"]["files"]["accepted"] == 37


@pytest.mark.parametrize("command", [("--help",), ("run",), ("status", "--json")], ids=" ".join)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_not_an_error(published: Program, command: tuple[str, ...], closed: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *command], cwd=published.folder,
        env=published.environment, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert published("store", "check").code == 0


def test_a_run_that_stays_continues_where_its_output_cannot_be_written(fresh: Program) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [*COMMAND, "run", "--every", "1h"], cwd=fresh.folder, env=fresh.environment, stdin=subprocess.DEVNULL,
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert process.stderr is not None
    while "cannot be written" not in (line := process.stderr.readline()):
        assert line, process.wait()
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


# --- interrupted while it is loaded


@pytest.mark.parametrize("module", ["typer", "sqlalchemy", "pydantic"])
def test_ctrl_c_while_it_is_loaded_ends_it(collected: Program, tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n", encoding="utf-8"
    )
    before = os.environ.get("PYTHONPATH")
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # children inherit that a background job ignores it
    try:
        done = collected("status", PYTHONPATH=os.pathsep.join(filter(None, [str(tmp_path), before])))
    finally:
        signal.signal(signal.SIGINT, ours)
    assert (done.code, done.out) == (130, "")
    assert done.err == "usage-publisher: interrupted\n"


# --- files


@pytest.mark.parametrize("form", ["csv", "svg", "html"])
def test_a_report_is_not_written_through_a_link(published: Program, form: str) -> None:
    window = ("report", "totals", "--by", "queue", "--since", "2026-09", "--until", "2026-10")
    precious = published.folder / "precious"
    precious.write_bytes(b"before")
    (published.folder / "link").symlink_to(precious)
    done = published(*window, "--format", form, "--output", "link")
    assert (done.code, precious.read_bytes()) == (2, b"before")
    assert "link cannot be written: it is a symbolic link" in done.err
    published(*window, "--format", form, "--output", "report").ok()
    assert (published.folder / "report").stat().st_size > 0


@pytest.mark.parametrize("command", ["report", "archive"])
def test_no_folder_that_is_a_link_is_written_to(published: Program, command: str) -> None:
    (published.folder / "elsewhere").mkdir()
    made = published.folder / "made"
    if command == "archive":
        published("archive", "made").ok()
        month = min(path.parent for path in made.rglob("*.parquet"))
        for path in month.iterdir():
            path.unlink()
        month.rmdir()
        given: tuple[str, ...] = ("archive", "made")
    else:
        month = made / "2026-09"
        made.mkdir()
        prices = '[charges]\n[[charges.prices]]\nresource = "cores"\nprice = "0.02"\n'
        published.configure(published.config.read_text() + prices)
        given = ("report", "statements", "--month", "2026-09", "--output", "made", "--format", "text", "--by", "vo")
    month.symlink_to(published.folder / "elsewhere")
    done = published(*given)
    assert done.code == 2, done.err
    assert "symbolic link" in done.err
    assert list((published.folder / "elsewhere").iterdir()) == []
