"""init: a configuration from answers, usable at once; nothing that is there is overwritten."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import stat
import subprocess
import termios
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from publisher.cli import discovery
from publisher.simulator.pki import Pki
from publisher.store.file_owner import as_user, name_of
from tests.publisher.cli.program import COMMAND, Program


def answers(program: Program, pki: Pki, **changes: str) -> list[str]:
    """Every answer as an option."""
    given = {
        "--site": "EXAMPLE-SITE",
        "--source": str(program.folder / "accounting.db"),
        "--target": "directory",
        "--url": str(program.folder / "spool"),
        "--certificate": str(pki.client.certificate),
        "--key": str(pki.client.key),
        "--ca-directory": str(pki.ca_directory),
        "--store": str(program.folder / "state.db"),
    } | {f"--{name}": value for name, value in changes.items()}
    return [word for pair in given.items() for word in pair]


CREDENTIALS = {"--certificate", "--key", "--ca-directory"}


def pairs(words: list[str]) -> list[tuple[str, str]]:
    """Options with their values."""
    return list(zip(words[::2], words[1::2], strict=True))


def test_by_options(fresh: Program, pki: Pki) -> None:
    new = fresh.folder / "etc" / "new.toml"
    done = fresh("--config", new, "init", "--json", *answers(fresh, pki)).ok()
    assert done.object == {"file": str(new), "problems": []}
    assert stat.S_IMODE(new.stat().st_mode) & 0o077 == 0
    assert fresh("--config", new, "check").code == 0
    found = fresh("--config", new, "run", "--json").object
    assert found["sources"]["arc"]["new"] == 39
    assert found["targets"]["directory"]["batches"] >= 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_root_is_told_whose_commands_come_next(fresh: Program, pki: Pki) -> None:
    """The folder of the store belongs to another user, who then has to open it."""
    state = fresh.folder / "state"
    state.mkdir()
    os.chown(state, 65_534, -1)
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki, store=str(state / "store.db"))).ok()
    assert f"  {as_user(name_of(65_534))} usage-publisher --config new.toml check  " in done.err
    own = fresh("--config", "own.toml", "init", *answers(fresh, pki)).ok()
    assert "  usage-publisher --config own.toml check  " in own.err


def test_asked(fresh: Program, pki: Pki) -> None:
    lines = [answer for option, answer in pairs(answers(fresh, pki)) if option not in CREDENTIALS]
    lines.insert(4, "emi-car")
    done = fresh("--config", "new.toml", "init", answers="\n".join(lines) + "\n").ok()
    assert f"is written to {fresh.folder / 'new.toml'} after the last question" in done.err.splitlines()[0]
    assert "wrote new.toml" in done.err
    assert "  usage-publisher --config new.toml check  " in done.err
    table = tomllib.loads((fresh.folder / "new.toml").read_text())
    assert "credentials" not in table, "SSM signs what it takes"
    assert table["targets"]["directory"]["records"] == "emi-car"
    assert fresh("--config", "new.toml", "status").code == 0


def test_answers_are_relative_to_where_they_are_given(fresh: Program, pki: Pki) -> None:
    relative = answers(fresh, pki, source="accounting.db", url="spool", store="state.db")
    fresh("--config", "etc/new.toml", "init", *relative).ok()
    fresh("--config", "etc/new.toml", "collect").ok()
    text = (fresh.folder / "etc" / "new.toml").read_text()
    assert f'"{fresh.folder / "accounting.db"}"' in text
    assert f'"{fresh.folder / "spool"}"' in text


def test_what_is_there_stays(fresh: Program, pki: Pki) -> None:
    before = fresh.config.read_bytes()
    done = fresh("init", *answers(fresh, pki))
    assert done.code == 2
    assert "already exists" in done.err
    assert "--force" in done.err
    assert fresh.config.read_bytes() == before
    fresh("init", "--force", *answers(fresh, pki)).ok()
    assert fresh.config.read_bytes() != before


def test_problems_are_reported_and_the_file_is_written(fresh: Program, pki: Pki) -> None:
    wrong = answers(fresh, pki, source="/nosuch/accounting.db", key=str(pki.server.key))
    done = fresh("--config", "new.toml", "init", "--json", *wrong)
    found = done.object
    assert done.code == 1, "as `check` ends with a problem"
    assert len(found["problems"]) == 2
    assert any("/nosuch/accounting.db" in problem for problem in found["problems"])
    assert (fresh.folder / "new.toml").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("target", "fax"),
        ("url", "not-a-url"),
        ("url", "-"),
        ("site", ""),
        ("site", "My Site"),
        ("store", "-"),
        ("source", "-"),
        ("key", "-"),
    ],
)
def test_an_answer_that_cannot_be(fresh: Program, pki: Pki, option: str, value: str) -> None:
    kind = {"target": "sgas"} if (option, value) == ("url", "not-a-url") or option == "key" else {}
    kind |= {"url": "https://localhost:1/sgas"} if option == "key" else {}
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki, **kind, **{option: value}))
    assert done.code == 2
    assert not (fresh.folder / "new.toml").exists()


def test_a_wrong_answer_from_a_pipe_ends_it(fresh: Program, pki: Pki) -> None:
    """The next line answers the next question: it must not be taken for a better answer to this one."""
    lines = answers(fresh, pki, target="sgas", url="sgas")[1::2]
    done = fresh("--config", "new.toml", "init", answers="\n".join([*lines, "more", "more"]) + "\n")
    assert done.code == 2
    assert "targets.sgas.url: must be a URL that begins with https:// and the name of a host" in done.err
    assert done.err.count("URL of the service (https") == 1
    assert not (fresh.folder / "new.toml").exists()


def test_a_wrong_key_from_a_pipe_ends_it(fresh: Program, pki: Pki) -> None:
    lines = answers(fresh, pki, target="sgas", url="https://localhost:1/sgas", key=str(pki.server.key))[1::2]
    done = fresh("--config", "new.toml", "init", answers="\n".join(lines) + "\n")
    assert done.code == 2
    assert "does not belong to the certificate in" in done.err
    assert not (fresh.folder / "new.toml").exists()


def test_credentials_from_a_pipe_that_cannot_be_used_end_it(fresh: Program, pki: Pki) -> None:
    authorities = {"ca-directory": str(pki.ca_file)}
    lines = answers(fresh, pki, target="sgas", url="https://localhost:1/sgas", **authorities)[1::2]
    done = fresh("--config", "new.toml", "init", answers="\n".join(lines) + "\n")
    assert done.code == 2
    assert "problem: " in done.err
    assert "the certificate cannot be used. Correct the answers; nothing was written" in done.err
    assert not (fresh.folder / "new.toml").exists()


def test_problems_are_counted_at_the_end(fresh: Program, pki: Pki) -> None:
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki, source="/nosuch/accounting.db"))
    assert done.code == 1
    assert "1 problem above: correct new.toml, then run\n  usage-publisher --config new.toml check " in done.err
    assert "Next:" not in done.err


def test_an_answer_is_never_taken_for_toml(fresh: Program, pki: Pki) -> None:
    hostile = 'X"\n[targets.evil]\ntype = "https'
    fresh("--config", "new.toml", "init", *answers(fresh, pki, url=hostile)).ok()
    assert "evil" not in fresh("--config", "new.toml", "status", "--json").ok().object["targets"]


def test_without_a_terminal_it_is_an_error(fresh: Program) -> None:
    done = fresh("--config", "new.toml", "init")
    assert done.code == 2
    assert "Name of the site, as in GOCDB: standard input is not a terminal. Answer with --site:" in done.err
    assert not (fresh.folder / "new.toml").exists()


def test_a_wrong_answer_names_no_file_in_which_nothing_is_yet(fresh: Program, pki: Pki) -> None:
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki), "--records", "apel-sumary")
    assert done.code == 2
    assert "'apel-sumary' is not a format" in done.err
    assert "new.toml: targets" not in done.err


def test_a_source_that_is_not_there_is_reported_before_its_type_is_asked(fresh: Program) -> None:
    done = fresh("--config", "new.toml", "init", "--site", "X", "--source", "/nosuch/logs", answers="torque\n")
    assert done.err.index("/nosuch/logs does not exist yet") < done.err.index("Type of the source (")


def test_a_problem_without_a_hint_ends_where_it_ends(fresh: Program, pki: Pki) -> None:
    given = answers(fresh, pki, **{"ca-directory": str(pki.ca_file)})
    found = fresh("--config", "new.toml", "init", "--json", *given).object
    assert [text for text in found["problems"] if "authorities" in text] == [
        f"{pki.ca_file} is not a folder of trusted authorities"
    ]


def test_a_file_that_is_there_is_reported_before_the_first_question(fresh: Program) -> None:
    done = fresh("init", answers="EXAMPLE-SITE\n")
    assert done.code == 2
    assert "already exists" in done.err
    assert "Name of the site" not in done.err


def grid_engine_log(root: Path, program: Program) -> Path:
    log = program.folder / "acct"
    original = next(file for file in (root / "fixtures" / "gridengine").rglob("accounting*") if file.is_file())
    log.write_bytes(original.read_bytes())
    return log


def test_what_a_log_does_not_have_is_asked(fresh: Program, pki: Pki, root: Path) -> None:
    log = grid_engine_log(root, fresh)
    given = answers(fresh, pki)[1::2]
    lines = [given[0], str(log), *given[2:4], "apel", "apel-summary", "Oslo", "Europe/Oslo"]
    lines += ["HEPscore:14.2", "14.2", "HEPscore23:14.2", "soon", "2026-10-01", given[-1]]
    code, screen = on_terminal(fresh, lines, "--config", "new.toml", "init")
    assert code == 0, screen
    table = tomllib.loads((fresh.folder / "new.toml").read_text())
    assert table["sources"]["gridengine"] == {
        "type": "gridengine", "path": str(log), "timezone": "Europe/Oslo",
        "benchmark": {"type": "HEPscore23", "value": 14.2},
        "complete_since": "2026-10-01",
    }  # fmt: skip


@pytest.mark.parametrize("missing", ["site", "source", "target"])
def test_who_is_asked_for_one_answer_is_asked_for_all(fresh: Program, pki: Pki, root: Path, missing: str) -> None:
    """Also for what may stay unknown: benchmark and first day."""
    given = dict(pairs(answers(fresh, pki, source=str(grid_engine_log(root, fresh)))))
    answer = given.pop(f"--{missing}")
    options = [word for pair in given.items() for word in pair]
    lines = [answer, "Europe/Oslo", "HEPscore23:14.2", "2026-10-01"]
    code, screen = on_terminal(fresh, lines, "--config", "new.toml", "init", *options)
    assert code == 0, screen
    source = tomllib.loads((fresh.folder / "new.toml").read_text())["sources"]["gridengine"]
    assert source["benchmark"] == {"type": "HEPscore23", "value": 14.2}
    assert source["complete_since"] == "2026-10-01"


def test_only_formats_of_targets_are_offered(fresh: Program, pki: Pki) -> None:
    given = dict(pairs(answers(fresh, pki)))
    lines = ["directory", str(fresh.folder / "out"), "apel-sync", "ogf-ur", str(fresh.folder / "state.db")]
    code, screen = on_terminal(
        fresh, lines, "--config", "new.toml", "init", "--site", "A", "--source", given["--source"]
    )
    assert code == 0, screen
    (question,) = {line.partition(")")[0] for line in screen.splitlines() if line.startswith("Format of records (")}
    assert "ogf-ur" in question
    assert "apel-sync" not in question


def test_a_value_missing_in_log_and_answers_is_a_problem(fresh: Program, pki: Pki, root: Path) -> None:
    log = grid_engine_log(root, fresh)
    done = fresh("--config", "new.toml", "init", "--json", *answers(fresh, pki, source=str(log)))
    found = done.object
    assert done.code == 1
    assert ["--benchmark" in problem or "--complete-since" in problem for problem in found["problems"]] == [True, True]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--benchmark", "14.2", "HEPscore23:14.2"),
        ("--benchmark", "HEPscore23:-1", "sources.arc.benchmark"),
        ("--complete-since", "last year", "sources.arc.complete_since"),
        ("--source-type", "cobol", "gridengine"),
    ],
)
def test_an_answer_about_the_source_that_cannot_be(
    fresh: Program, pki: Pki, option: str, value: str, said: str
) -> None:
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki), option, value)
    assert done.code == 2
    assert said in done.err
    assert not (fresh.folder / "new.toml").exists()


def _own_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C interrupts, as a parent may have forbidden."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def on_terminal(
    program: Program, lines: list[str], *arguments: str, interrupts: Sequence[str] = (), **variables: str
) -> tuple[int, str]:
    """Run `init` on a new terminal in which these lines are typed; return its exit code and the screen.

    `interrupts` are typed one by one, each after a question. Ctrl-C is typed again each second: between a question and
    the reading of its answer Python does not see it before the next key.
    """
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=program.folder, env=program.environment | variables, stdin=slave, stdout=slave,
            stderr=slave, start_new_session=True,
            preexec_fn=_own_terminal if interrupts else None,  # noqa: PLW1509 - no threads here
        )  # fmt: skip
        os.close(slave)
        os.write(master, "".join(f"{line}\n" for line in lines).encode())
        screen = b""
        typed = [text if text == "\x03" else f"{text}\n" for text in interrupts]
        while True:
            while interrupts and not typed and not select.select([master], [], [], 1.0)[0]:
                os.write(master, interrupts[-1].encode())
            try:
                part = os.read(master, 65536)
            except OSError:  # the process has ended
                break
            if not part:
                break
            screen += part
            if typed and screen.rstrip().endswith(b":"):
                os.write(master, typed.pop(0).encode())
    finally:
        os.close(master)
    return process.wait(), screen.decode().replace("\r\n", "\n")


def test_what_is_mistyped_on_a_terminal_is_asked_for_again(fresh: Program, pki: Pki, root: Path) -> None:
    cell = fresh.folder / "sge" / "default" / "common"
    cell.mkdir(parents=True)
    grid_engine_log(root, fresh).rename(cell / "accounting")
    lines = [
        "my site", "EXAMPLE-SITE", "/nosuch/file", "n", "", "sgs", "sgas", "http://sgas.example.org",
        "https://127.0.0.1:9/sgas", "Europe/Oslo", "/nosuch/cert.pem", "n", str(pki.client.certificate),
        str(pki.server.key), "-", str(pki.client.key), str(pki.ca_directory), "n", "https://127.0.0.1:10/sgas", "y",
        "mysql://h/x", "-", str(fresh.folder / "state.db"),
    ]  # fmt: skip
    code, screen = on_terminal(
        fresh, lines, "--config", "new.toml", "init", SGE_ROOT=str(fresh.folder / "sge"), TZ="Europe/Oslo"
    )
    assert code == 1, screen
    assert [text for text in (
        "'my site' is not the name of a site in GOCDB", f"  {cell} (gridengine)", "/nosuch/file does not exist",
        "did you mean 'sgas'?", "write https://sgas.example.org", "[Europe/Oslo]", "/nosuch/cert.pem does not exist",
        "does not belong to the certificate in", "'-' is not a path. This answer is needed",
        "is not the URL of a store", "problem: ", "127.0.0.1:9/", "1 problem above: correct new.toml",
    ) if text not in screen] == []  # fmt: skip
    table = tomllib.loads((fresh.folder / "new.toml").read_text())
    assert table["sources"]["gridengine"] == {"type": "gridengine", "path": str(cell), "timezone": "Europe/Oslo"}
    assert table["targets"]["sgas"]["url"] == "https://127.0.0.1:10/sgas"
    assert table["credentials"]["key"] == str(pki.client.key)


def test_a_site_that_only_makes_reports_needs_no_target(fresh: Program, root: Path) -> None:
    log = grid_engine_log(root, fresh)
    lines = ["EXAMPLE-SITE", str(log), "none", "Europe/Oslo", "2026-10-01", str(fresh.folder / "state.db")]
    done = fresh("--config", "new.toml", "init", answers="\n".join(lines) + "\n").ok()
    assert "dry-run" not in done.err
    table = tomllib.loads((fresh.folder / "new.toml").read_text())
    assert table.keys() == {"site", "store", "sources"}
    assert table["sources"]["gridengine"]["complete_since"] == "2026-10-01"
    fresh("--config", "new.toml", "run").ok()
    words = ("--site", "A", "--source", str(log), "--target", "none", "--url", "https://127.0.0.1:9")
    refused = fresh("--config", "other.toml", "init", *words)
    assert (refused.code, "--target none has no other answers" in refused.err) == (2, True)


def test_what_fails_its_test_on_a_terminal_is_asked_for_again(fresh: Program, pki: Pki) -> None:
    """Token, authorities, and store are tested when they are answered, not by the service or the first collect."""
    token, notes, empty = (fresh.folder / name for name in ("a.token", "notes.txt", "empty"))
    token.touch(mode=0o600)
    notes.write_text("not a store\n" * 9)
    empty.mkdir()
    certificate, key = str(pki.client.certificate), str(pki.client.key)
    lines = [
        "EXAMPLE-SITE", str(token), "n", "-",
        certificate, key, str(pki.ca_file), "n",
        certificate, key, str(empty), "n",
        certificate, key, str(pki.ca_directory),
        str(empty), "n", str(notes), "n", str(fresh.folder / "accounting.db"), "n", str(fresh.folder / "state.db"),
    ]  # fmt: skip
    given = {"--source": str(fresh.folder / "accounting.db"), "--target": "https", "--url": "https://127.0.0.1:9/x"}
    options = [word for pair in given.items() for word in pair]
    code, screen = on_terminal(fresh, lines, "--config", "new.toml", "init", *options)
    assert code == 1, screen
    problems = [line.partition("problem: ")[2] for line in screen.splitlines() if "problem: " in line]
    expected = [
        f"the file {token} does not contain a bearer token",
        "is not a folder of trusted authorities",
        "certificates of authorities: 0", "127.0.0.1 port 9", f"{empty} is not a store: it is a folder",
        f"{notes} is not a store: it is not an SQLite database", "another program has its tables there (AAR",
    ]  # fmt: skip
    assert [text for text, problem in zip(expected, problems, strict=True) if text not in problem] == [], problems
    assert "1 problem above: correct new.toml" in screen, "the service is not there; the rest was corrected"
    table = tomllib.loads((fresh.folder / "new.toml").read_text())
    assert "credentials" not in table["targets"]["https"]
    assert table["credentials"]["ca_directory"] == str(pki.ca_directory)
    assert table["store"]["url"] == f"sqlite:///{fresh.folder / 'state.db'}"


@pytest.mark.parametrize("typed", [["\x03"], ["EXAMPLE-SITE", "\x03"]])
def test_ctrl_c_writes_nothing(fresh: Program, typed: list[str]) -> None:
    """The terminal sends SIGINT for the character, as soon as the program reads in cooked mode."""
    code, screen = on_terminal(fresh, [], "--config", "new.toml", "init", interrupts=typed)
    assert code == 130, screen
    assert "usage-publisher: interrupted; nothing was done" in screen
    assert not (fresh.folder / "new.toml").exists()


def test_what_apel_needs_is_asked(fresh: Program, pki: Pki) -> None:
    lines = answers(fresh, pki, target="ams", url="https://localhost:1")[1::2]
    lines[4:4] = ["2026-10-01", "send"]
    fresh("--config", "new.toml", "init", answers="\n".join(lines) + "\n")
    table = tomllib.loads((fresh.folder / "new.toml").read_text())["targets"]["ams"]
    assert (table["since"], table["local_jobs"], table["records"]) == ("2026-10-01", "send", "apel-summary")


def test_a_folder_of_torque_or_pbs_may_be_either(fresh: Program) -> None:
    logs = fresh.folder / "accounting"
    logs.mkdir()
    (logs / "20261101").write_text("11/01/2026 00:00:00;Q;1.srv;queue=batch\n")
    done = fresh("--config", "new.toml", "init", answers=f"X\n{logs}\n")
    assert "Type of the source (torque, pbs):" in done.err


def test_a_program_is_recognised_by_its_name(fresh: Program, pki: Pki) -> None:
    fresh("--config", "new.toml", "init", *answers(fresh, pki, source="/nosuch/bin/sacct"))
    assert tomllib.loads((fresh.folder / "new.toml").read_text())["sources"]["slurm"]["type"] == "slurm"


def program_on_path(fresh: Program, name: str) -> tuple[Path, dict[str, str]]:
    """A program that fails, and the variables with which a shell finds it."""
    program = fresh.folder / "bin" / name
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return program, {"PATH": f"{program.parent}:/usr/bin:/bin"}


def test_a_program_on_the_path_is_run_and_has_no_time_zone(fresh: Program) -> None:
    program, path = program_on_path(fresh, "sacct")
    lines = ["EXAMPLE-SITE", "sacct", "none", "-", str(fresh.folder / "state.db")]
    done = fresh("--config", "new.toml", "init", answers="\n".join(lines) + "\n", **path)
    source = tomllib.loads((fresh.folder / "new.toml").read_text())["sources"]["slurm"]
    assert (source["path"], "timezone" in source) == (str(program), False), done.err


def test_a_source_named_like_another_command_is_a_file(fresh: Program, pki: Pki) -> None:
    """Such as a folder `accounting` that is not there yet, on a host with a command of that name."""
    _, path = program_on_path(fresh, "accounting")
    given = answers(fresh, pki, source="accounting")
    fresh("--config", "new.toml", "init", *given, "--source-type", "torque", "--timezone", "UTC", **path)
    table = tomllib.loads((fresh.folder / "new.toml").read_text())
    assert table["sources"]["torque"]["path"] == str(fresh.folder / "accounting")


def test_a_source_that_fails_its_test_is_asked_for_again(fresh: Program, pki: Pki) -> None:
    notes = fresh.folder / "notes.db"
    notes.write_text("not a database\n" * 9)
    good = str(fresh.folder / "accounting.db")
    given = [word for pair in pairs(answers(fresh, pki)) if pair[0] != "--source" for word in pair]
    code, screen = on_terminal(fresh, [str(notes), "arc", "n", good, "arc"], "--config", "new.toml", "init", *given)
    assert code == 0, screen
    assert str(notes) in screen
    assert tomllib.loads((fresh.folder / "new.toml").read_text())["sources"]["arc"]["path"] == good


def test_the_time_zone_of_this_machine(tmp_path: Path) -> None:
    zone = tmp_path / "zoneinfo" / "Europe" / "Oslo"
    zone.parent.mkdir(parents=True)
    zone.write_bytes(b"")
    (tmp_path / "localtime").symlink_to(zone)
    assert discovery.time_zone({}, tmp_path / "localtime") == "Europe/Oslo"
    assert discovery.time_zone({"TZ": ":Asia/Tokyo"}, tmp_path / "localtime") == "Asia/Tokyo"
    assert discovery.time_zone({}, tmp_path / "nosuch") == "UTC"


def test_the_service_is_tried(fresh: Program, pki: Pki) -> None:
    given = answers(fresh, pki, target="sgas", url="https://127.0.0.1:9/sgas")
    found = fresh("--config", "new.toml", "init", "--json", *given).object
    assert any("127.0.0.1:9" in problem for problem in found["problems"])
