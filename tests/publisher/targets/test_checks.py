"""What `check` says of targets over HTTP. It sends no record."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from publisher.errors import CredentialError
from publisher.simulator.pki import Pki
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, serve, unused_port
from tests.publisher.targets.scripted_targets import MESSAGE, always, ams, levels, target


def test_check_of_a_well_sgas(pki: Pki) -> None:
    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        date = {"Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())}
        connection.answer(405 if request.path.endswith("/ur") else 200, b"", date)

    with serve(script, pki) as server:
        made = target(pki, "sgas", f"{server.url}/sgas")
        name = next(finding for finding in made.check() if finding.subject == "t: name")
        assert levels(made) == {
            "certificate": "green",
            "reached": "green",
            "clock": "green",
            "inserting": "green",
            "name": "green",
            "version": "green",
        }
    assert "/DC=org/DC=example/CN=ce1.example.org" in name.message
    assert "CN=ce1.example.org,DC=example,DC=org" in name.message
    assert {request.method for request in server.requests} == {"GET"}


@pytest.mark.parametrize(
    ("query", "custom_query", "message", "hint"),
    [
        ((400, b"Query field - not understood/allowed."), (404, b""), "LUTS as released", "sgas-released.conf"),
        ((404, b"No Such Resource"), (400, b"Query does not exist"), "LUTS as released", "sgas-released.conf"),
        ((500, b"Processing Failed"), (404, b""), "LUTS from its master branch", "is sgas.conf"),
        ((404, b"No Such Resource"), (500, b"did not return bytes"), "LUTS from its master branch", "is sgas.conf"),
        ((404, b""), (404, b""), "unknown", ""),
        ((400, b"Bad Request"), (200, b""), "unknown", ""),
        ((None, b""), (None, b""), "unknown", ""),
    ],
)
def test_check_of_sgas_says_which_luts_answers(
    pki: Pki, query: tuple[int | None, bytes], custom_query: tuple[int | None, bytes], message: str, hint: str
) -> None:
    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.path.startswith(("/sgas/query", "/sgas/customquery")):
            status, body = query if request.path.startswith("/sgas/query") else custom_query
            if status is None:
                connection.cut()
            else:
                connection.answer(status, body)
        else:
            connection.answer(405 if request.path.endswith("/ur") else 200, b"")

    with serve(script, pki) as server:
        made = target(pki, "sgas", f"{server.url}/sgas")
        (finding,) = (finding for finding in made.check() if finding.subject == "t: version")
        made.close()
    assert finding.level == "green"
    assert finding.message.startswith(message)
    assert hint in finding.hint


@pytest.mark.parametrize("kind", ["sgas", "ams", "https"])
def test_check_says_that_nothing_answers(pki: Pki, kind: str) -> None:
    url = f"https://localhost:{unused_port()}"
    more: dict[str, Any] = {"auth_url": url} if kind == "ams" else {}
    found = levels(target(pki, kind, url, **more))
    assert found["reached"] == "red"
    assert found.get("name", "green") == "green", "that nobody answers says nothing of our name"


@pytest.mark.parametrize("kind", ["ams", "https"])
def test_check_of_whom_messages_are_encrypted_to(pki: Pki, tmp_path: Path, kind: str) -> None:
    url = f"https://localhost:{unused_port()}"
    more: dict[str, Any] = {"auth_url": url} if kind == "ams" else {"sign": True}
    missing = target(pki, kind, url, encrypt_to=str(tmp_path / "missing.pem"), **more)
    assert levels(missing)["encrypt_to"] == "red"
    assert levels(target(pki, kind, url, encrypt_to=str(pki.client.certificate), **more))["encrypt_to"] == "green"


def test_check_of_a_wrong_path(pki: Pki) -> None:
    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        connection.answer(404 if request.path.endswith("/ur") else 200, b"")

    with serve(script, pki) as server:
        assert levels(target(pki, "sgas", f"{server.url}/sgas"))["inserting"] == "red"


def test_check_of_clock_and_refusal(pki: Pki) -> None:
    with serve(always(403, b"no", {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"}), pki) as server:
        assert levels(target(pki, "sgas", server.url))["reached"] == "red"
        assert levels(target(pki, "sgas", server.url))["clock"] == "red"


def test_check_of_ams_fetches_a_token_and_sends_no_record(pki: Pki) -> None:
    with serve(ams(403), pki) as server:
        found = levels(target(pki, "ams", server.url, auth_url=server.url))
    assert found == {"certificate": "green", "reached": "green", "name": "green", "topic": "green"}
    assert {request.method for request in server.requests} == {"GET"}
    with serve(ams(404, b"Topic doesn't exist"), pki) as server:
        assert levels(target(pki, "ams", server.url, auth_url=server.url))["topic"] == "red"
    with serve(always(403, b"ACCESS_FORBIDDEN"), pki) as server:
        found = levels(target(pki, "ams", server.url, auth_url=server.url))
    assert found == {"certificate": "green", "reached": "red", "name": "red"}


def test_check_of_https_is_harmless(pki: Pki) -> None:
    with serve(always(405), pki) as server:
        found = levels(target(pki, "https", server.url))
    assert found == {"certificate": "green", "reached": "green", "name": "green"}
    assert {request.method for request in server.requests} == {"OPTIONS"}


def test_check_of_a_bad_certificate_connects_to_nothing(pki: Pki) -> None:
    expired = pki.issue("expired", "ce1.example.org", validity="expired")
    own = {"certificate": str(expired.certificate), "key": str(expired.key)}
    for kind in ("sgas", "ams", "https"):
        assert levels(target(pki, kind, "https://localhost:1", credentials=own)) == {"certificate": "red"}


def test_check_of_missing_authorities_connects_to_nothing(pki: Pki, tmp_path: Path) -> None:
    own = {"ca_directory": str(tmp_path)}
    for kind in ("sgas", "ams", "https"):
        made = target(pki, kind, "https://localhost:1", credentials=own)
        assert levels(made) == {"certificate": "red"}
        with pytest.raises(CredentialError, match="no certificate authority"):
            made.post(MESSAGE)
