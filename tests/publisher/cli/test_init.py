"""init: a configuration from answers, usable at once; nothing that is there is overwritten."""

from __future__ import annotations

import stat

import pytest

from publisher.simulator.pki import Pki
from tests.publisher.cli.program import Program


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


def test_by_options(fresh: Program, pki: Pki) -> None:
    new = fresh.folder / "etc" / "new.toml"
    done = fresh("--config", new, "init", "--json", *answers(fresh, pki)).ok()
    assert done.object == {"file": str(new), "problems": []}
    assert stat.S_IMODE(new.stat().st_mode) & 0o077 == 0
    assert fresh("--config", new, "check").code == 0
    found = fresh("--config", new, "run", "--json").object
    assert found["sources"]["ce1"]["new"] == 39
    assert found["targets"]["directory"]["batches"] >= 0


def test_asked(fresh: Program, pki: Pki) -> None:
    lines = answers(fresh, pki)[1::2]
    done = fresh("--config", "new.toml", "init", answers="\n".join(lines) + "\n").ok()
    assert "wrote new.toml" in done.err
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
    assert "is there already" in done.err
    assert "--force" in done.err
    assert fresh.config.read_bytes() == before
    fresh("init", "--force", *answers(fresh, pki)).ok()
    assert fresh.config.read_bytes() != before


def test_problems_are_told_and_the_file_is_written(fresh: Program, pki: Pki) -> None:
    wrong = answers(fresh, pki, source="/nosuch/accounting.db", key=str(pki.server.key))
    found = fresh("--config", "new.toml", "init", "--json", *wrong).ok().object
    assert len(found["problems"]) == 2
    assert any("/nosuch/accounting.db" in problem for problem in found["problems"])
    assert (fresh.folder / "new.toml").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("target", "fax"), ("url", "not-a-url"), ("site", "")], ids=["target", "url", "site"]
)
def test_an_answer_that_cannot_be(fresh: Program, pki: Pki, option: str, value: str) -> None:
    kind = {"target": "sgas"} if option == "url" else {}
    done = fresh("--config", "new.toml", "init", *answers(fresh, pki, **kind, **{option: value}))
    assert done.code == 2
    assert not (fresh.folder / "new.toml").exists()


def test_an_answer_is_never_taken_for_toml(fresh: Program, pki: Pki) -> None:
    hostile = 'X"\n[targets.evil]\ntype = "https'
    fresh("--config", "new.toml", "init", *answers(fresh, pki, site=hostile)).ok()
    assert "evil" not in fresh("--config", "new.toml", "status", "--json").ok().object["targets"]


def test_nobody_answers(fresh: Program) -> None:
    done = fresh("--config", "new.toml", "init")
    assert done.code == 2
    assert not (fresh.folder / "new.toml").exists()
