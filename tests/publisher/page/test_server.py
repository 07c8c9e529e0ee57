"""The command `serve` in a separate process: where it listens, whom it refuses, what it leaves when it ends."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import httpx
import pytest

from publisher.simulator.pki import Pki, make_pki
from tests.publisher.cli.program import Program
from tests.publisher.cli.test_extras import BASE_ONLY
from tests.publisher.page.conftest import JOBS, TOKENS, Served, token_file


@pytest.fixture
def site(month: Program, tmp_path: Path) -> Program:
    return month.copy(tmp_path / "site")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def configure(site: Program, text: str) -> None:
    site.configure(site.config.read_text(encoding="utf-8") + text)


def test_it_is_stopped_as_it_should_and_has_changed_nothing(site: Program) -> None:
    before = site.rows("SELECT count(*) FROM audit"), site.rows("SELECT count(*), sum(id) FROM runs")
    with Served(site) as served:
        assert served.url.startswith("http://127.0.0.1:")
        assert "Running jobs" in httpx.get(f"{served.url}/utilization?since=2026-11-01&days=30").text
        assert served.stop() == ""
    assert before == (site.rows("SELECT count(*) FROM audit"), site.rows("SELECT count(*), sum(id) FROM runs"))


def test_over_tls_with_tokens_it_may_be_public(site: Program, pki: Pki) -> None:
    token_file(site.folder)
    configure(site, f'tokens = "tokens.toml"\ncertificate = "{pki.server.certificate}"\nkey = "{pki.server.key}"\n')
    with Served(site, "--host", "0.0.0.0") as served:
        trusting = ssl.create_default_context(cafile=pki.ca_file)
        port = served.url.rpartition(":")[2]
        with httpx.Client(base_url=f"https://localhost:{port}", verify=trusting) as client:
            assert client.get("/").status_code == 303
            assert client.post("/login", data={"token": TOKENS["root"]}).status_code == 303
            answer = client.get("/records")
            assert answer.status_code == 200
            assert "strict-transport-security" in answer.headers
            assert TOKENS["root"] not in str(client.cookies)
        assert TOKENS["root"] not in served.stop()
    (entry,) = site("store", "audit", "--json").ok().object["records"]
    assert (entry["action"], entry["subject"]) == ("log in", "root")
    assert "as admin of operators, from 127.0.0.1" in entry["detail"]


@pytest.mark.parametrize(
    ("settings", "arguments", "code", "said"),
    [
        ("", ("--host", "0.0.0.0"), 2, "has no certificate and key and no tokens"),
        ("", ("--host", "::"), 2, "other hosts can reach"),
        ('tokens = "tokens.toml"\n', ("--host", "0.0.0.0"), 2, "has no certificate and key. "),
        ('tokens = "missing.toml"\n', (), 4, "missing.toml"),
        ('certificate = "x.pem"\n', (), 2, "certificate and key go together"),
        ("", ("--host", "192.0.2.1"), 2, "other hosts can reach"),
        ("", ("--host", "no such host"), 2, "other hosts can reach"),
        ("nosuch = 1\n", (), 2, "unknown key"),
    ],
)
def test_what_is_not_safe_or_not_there_is_refused(
    site: Program, settings: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    token_file(site.folder)
    configure(site, settings)
    done = site("serve", *arguments)
    assert (done.code, said in done.err) == (code, True), done.err


def test_a_port_that_is_taken_is_reported(site: Program) -> None:
    with Served(site) as served:
        done = site("serve", "--port", served.url.rpartition(":")[2])
        assert done.code == 2
        assert "cannot listen on" in done.err


def test_before_anything_was_collected_there_is_a_page(tmp_path: Path, month: Program) -> None:
    site = Program(tmp_path, month.config.read_text(encoding="utf-8"))
    with Served(site) as served:
        assert "collect" in httpx.get(served.url).text
        assert httpx.get(f"{served.url}/records").status_code == 200
        (tmp_path / "act_file").write_bytes((month.folder / "act_file").read_bytes())
        site("collect").ok()
        assert httpx.get(f"{served.url}/totals?since=&days=&shown=1").status_code == 200


def test_only_what_needs_a_missing_library_is_not_shown(site: Program) -> None:
    def command(*missing: str) -> tuple[str, ...]:
        return sys.executable, "-c", BASE_ONLY.format(missing=set(missing))

    hint = "pip install -c constraints.txt &#39;.[reports]&#39;"
    with Served(site, command=command("numpy", "pyarrow", "duckdb", "matplotlib")) as served:
        overview = httpx.get(served.url).text
        assert f"{JOBS:,}</span>" in overview
        assert "this needs numpy, which is not installed" in overview
        assert 'href="/totals"' not in overview
        assert httpx.get(f"{served.url}/records?state=waiting").status_code == 200
        report = httpx.get(f"{served.url}/totals")
        assert (report.status_code, hint in report.text) == (501, True)
        assert served.stop() == ""
    with Served(site, command=command("matplotlib")) as served:
        assert httpx.get(f"{served.url}/totals?since=2026-11-01&by=user").status_code == 200
        plot = httpx.get(f"{served.url}/totals.png?since=2026-11-01&by=user")
        assert (plot.status_code, hint in plot.text) == (501, True)
