"""init with services that take a token, and with keys of their own."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from publisher.simulator.pki import Pki
from tests.publisher.cli.program import Program
from tests.publisher.cli.test_init import CREDENTIALS, answers, pairs
from tests.publisher.waldur import OFFERING, WaldurDouble

NOBODY = "https://127.0.0.1:9"


def given(fresh: Program, pki: Pki, *more: str, **changes: str) -> list[str]:
    """Every answer as an option, without a certificate."""
    kept = [pair for pair in pairs(answers(fresh, pki, **changes)) if pair[0] not in CREDENTIALS]
    return [*(word for pair in kept for word in pair), *more]


def written(fresh: Program) -> dict[str, Any]:
    ((_, target),) = tomllib.loads((fresh.folder / "new.toml").read_text())["targets"].items()
    return dict(target)


@pytest.fixture
def token(fresh: Program) -> Path:
    file = fresh.folder / "service.token"
    file.touch(mode=0o600)
    file.write_text("staff\n")
    return file


def test_waldur_by_options(fresh: Program, pki: Pki, token: Path) -> None:
    """A token needs no certificate; the service is tested with it."""
    with WaldurDouble().running() as waldur:
        options = given(
            fresh, pki, "--set", f"offering={OFFERING}", "--token-file", str(token), target="waldur", url=waldur.url
        )
        done = fresh("--config", "new.toml", "init", "--json", *options).ok()
    assert done.object["problems"] == []
    assert written(fresh) == {
        "type": "waldur",
        "records": "waldur-usage",
        "offering": OFFERING,
        "url": waldur.url,
        "credentials": {"token_file": str(token)},
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "UUID of the offering whose resources are reported: standard input is not a terminal"),
        (("--set", "offering=mine"), "offering = 'mine': must be a UUID"),
        (("--set", "offerin=x"), "unknown key 'offerin'"),
        (("--set", "url=x"), "unknown key 'url'"),
        (("--set", "offering"), "write it as KEY=TEXT"),
        (("--set", f"offering={OFFERING}", "--set", "users=no"), "users = 'no': must be true or false"),
    ],
)
def test_keys_that_cannot_be(fresh: Program, pki: Pki, more: tuple[str, ...], said: str) -> None:
    done = fresh("--config", "new.toml", "init", *given(fresh, pki, *more, target="waldur", url=NOBODY))
    assert (done.code, said in done.err) == (2, True), done.err
    assert not (fresh.folder / "new.toml").exists()


def test_a_token_that_others_can_read_is_a_problem(fresh: Program, pki: Pki, token: Path) -> None:
    token.chmod(0o644)
    options = given(fresh, pki, "--token-file", str(token), target="https", url=NOBODY, records="ogf-ur")
    done = fresh("--config", "new.toml", "init", "--json", *options)
    assert done.code == 1
    assert any("service.token" in problem for problem in done.object["problems"]), done.object
    assert written(fresh)["credentials"] == {"token_file": str(token)}


def test_files_for_open_xdmod(fresh: Program, pki: Pki, fixtures: Path) -> None:
    """Files of whole days need to know since when the logs are complete."""
    log = str(fixtures / "slurm" / "sacct.psv")
    options = given(fresh, pki, source=log, records="xdmod-slurm", timezone="UTC")
    done = fresh("--config", "new.toml", "init", "--json", *options)
    assert done.code == 1
    assert any("--complete-since" in problem for problem in done.object["problems"]), done.object
    options = [*options, "--complete-since", "2026-01-01", "--force"]
    assert fresh("--config", "new.toml", "init", "--json", *options).ok().object["problems"] == []
    assert written(fresh)["records"] == "xdmod-slurm"


def test_a_service_without_tls_on_this_host_needs_no_certificate(fresh: Program, pki: Pki) -> None:
    url = "http://127.0.0.1:9/records"
    words = [word for pair in pairs(answers(fresh, pki, target="https", url=url)) for word in pair]
    kept = [pair for pair in pairs(words) if pair[0] not in CREDENTIALS | {"--store"}]
    lines = f"-\n{fresh.folder / 'state.db'}\n"
    asked = [word for pair in kept for word in pair if pair[0] != "--site"]
    done = fresh("--config", "new.toml", "init", *asked, answers=f"EXAMPLE-SITE\n{lines}")
    assert "Certificate" not in done.err, done.err
    assert "127.0.0.1:9" in done.err, "the service is tested"
    assert "credentials" not in tomllib.loads((fresh.folder / "new.toml").read_text())
