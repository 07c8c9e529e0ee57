"""SGAS, AMS and HTTPS targets against real servers: each answer and each fault becomes the outcome it should."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from publisher import config
from publisher.errors import ConfigError, CredentialError, SigningError
from publisher.simulator.pki import Pki, make_pki
from publisher.smime import decrypt, is_encrypted, open_signed
from publisher.targets import answers, make_target
from publisher.targets.ams import Body
from publisher.targets.base import (
    Accepted,
    Message,
    Outcome,
    Oversized,
    Refused,
    Target,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)
from publisher.targets.context import TargetContext
from publisher.transport import Reply
from tests.publisher.server import Connection, Request, Script, serve, unused_port

SETTINGS: TypeAdapter[config.Target] = TypeAdapter(config.Target)
MESSAGE = Message(
    batch_id="run-7/batch 1",
    format="ogf-ur",
    content_type="application/xml",
    payload=b"<UsageRecords/>\n",
    record_ids=("a", "b"),
)
NGINX_400 = (
    b"<html><head><title>400</title></head><body><h1>400 Bad Request</h1>No required SSL certificate was sent</body>"
)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def context(pki: Pki, clock: Callable[[], float] = time.time) -> TargetContext:
    return TargetContext(
        credentials=config.Credentials(
            certificate=pki.client.certificate, key=pki.client.key, ca_directory=pki.ca_directory
        ),
        clock=clock,
    )


def target(pki: Pki, kind: str, url: str, clock: Callable[[], float] = time.time, **more: Any) -> Target:
    made = SETTINGS.validate_python({"type": kind, "url": url, "timeout": 10, **more})
    return make_target("t", made, context(pki, clock))


def outcome_of(pki: Pki, kind: str, script: Script, message: Message = MESSAGE, **more: Any) -> Outcome:
    with serve(script, pki) as server:
        if kind == "ams":
            more["auth_url"] = server.url
        made = target(pki, kind, server.url, **more)
        try:
            return made.post(message)
        finally:
            made.close()


def always(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Script:
    return lambda _, connection: connection.answer(status, body, headers)


def ams(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Script:
    """A messaging service that gives a token, and this answer to what is published."""

    def script(request: Request, connection: Connection) -> None:
        if request.path.endswith(":authx509"):
            connection.answer(200, b'{"token": "s3cr3t"}')
        else:
            connection.answer(status, body, headers)

    return script


# SGAS


@pytest.mark.parametrize("suffix", ["/sgas", "/sgas/", "/sgas/ur", "/sgas/ur/"])
def test_sgas_posts_to_ur(pki: Pki, suffix: str) -> None:
    with serve(always(200, b'{"b": "2", "a": "1"}'), pki) as server:
        made = target(pki, "sgas", server.url + suffix)
        assert made.post(MESSAGE) == Accepted(receipt={"a": "1", "b": "2"})
        made.close()
    request = server.requests[0]
    assert (request.method, request.path, request.body) == ("POST", "/sgas/ur", MESSAGE.payload)
    assert request.headers["content-type"] == "application/xml"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": "1"}', Accepted(receipt={"a": "1"}, missing=("b",))),
        (b'{"a": 1, "x": 2}', Accepted(receipt={"a": "1", "b": "2"}, rewritten={"b": "x"})),
        (b'{"x": "1", "y": "2"}', Accepted(receipt={"a": "1", "b": "2"}, rewritten={"a": "x", "b": "y"})),
        (b'{"a": "1", "x": "2", "y": "3"}', Accepted(receipt={"a": "1"}, missing=("b",))),
        (b"null", None),
        (b"{}", None),
        (b"", None),
        (b"[]", None),
        (b"<html>Welcome</html>", None),
        (b'{"a": {"b": 1}}', None),
        (b"\xff\xfe", None),
    ],
)
def test_the_receipt_of_sgas_is_checked_record_by_record(pki: Pki, body: bytes, expected: Accepted | None) -> None:
    outcome = outcome_of(pki, "sgas", always(200, body))
    assert isinstance(outcome, Unknown) if expected is None else outcome == expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, NGINX_400, Unauthorised("HTTP 400: Bad Request No required SSL certificate was sent")),
        (400, b"bad", Refused("HTTP 400: bad", certain=False)),
        (401, b"", Unauthorised("HTTP 401")),
        (403, b"No insert rights.", Unauthorised("HTTP 403: No insert rights.")),
        (404, b"", Unauthorised("HTTP 404. Check the URL of this target", misdirected=True)),
        (406, b"not allowed", Refused("HTTP 406: not allowed", certain=True)),
        (408, b"", Transient("HTTP 408")),
        (413, b"<h1>too\nlarge</h1>", Oversized("HTTP 413: too large")),
        (429, b"", Throttled("HTTP 429", None)),
        (500, b"Processing Failed", Refused("HTTP 500: Processing Failed", certain=False)),
        (502, b"", Transient("HTTP 502")),
        (503, b"Database", Transient("HTTP 503: Database")),
        (504, b"", Transient("HTTP 504")),
        (204, b"", Unknown("HTTP 204")),
        (500, b"\x1b[31mred\x00", Refused("HTTP 500: [31mred", certain=False)),
    ],
)
def test_what_sgas_means_by_a_status(pki: Pki, status: int, body: bytes, expected: Outcome) -> None:
    assert outcome_of(pki, "sgas", always(status, body)) == expected


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("value", "expected_s"),
    [("120", 120.0), ("99999999999", 86400.0), ("Thu, 01 Jan 1970 00:00:30 GMT", 30.0)],
)
def test_a_service_may_ask_to_wait(pki: Pki, status: int, value: str, expected_s: float) -> None:
    from publisher.targets.sgas import judge
    from publisher.transport import Reply

    outcome = judge(Reply(status, {"retry-after": value}, b""), ("a",), now_s=0.0)
    assert outcome == Throttled(f"HTTP {status}", expected_s)
    through_the_socket = outcome_of(pki, "sgas", always(status, b"", {"Retry-After": "7"}))
    assert through_the_socket == Throttled(f"HTTP {status}", 7.0)


def test_a_redirect_is_not_followed(pki: Pki) -> None:
    outcome = outcome_of(pki, "sgas", always(302, b"", {"Location": "https://other.example.org/"}))
    assert isinstance(outcome, Unauthorised)
    assert "other.example.org" in outcome.answer


@pytest.mark.parametrize("kind", ["sgas", "https"])
def test_faults_before_the_request_wait_and_after_it_are_unknown(pki: Pki, kind: str, tmp_path: Path) -> None:
    assert isinstance(target(pki, kind, f"https://localhost:{unused_port()}").post(MESSAGE), Transient)
    assert isinstance(target(pki, kind, "https://host.invalid").post(MESSAGE), Transient)
    stranger = make_pki(tmp_path / "stranger", ca_cn="A Stranger")
    with serve(always(200), stranger) as server:
        assert isinstance(target(pki, kind, server.url).post(MESSAGE), Transient)
    with serve(always(200), pki, certificate=pki.server) as server:
        made = make_target(
            "t",
            SETTINGS.validate_python({"type": kind, "url": server.url}),
            TargetContext(
                credentials=config.Credentials(
                    certificate=stranger.client.certificate, key=stranger.client.key, ca_file=pki.ca_file
                )
            ),
        )
        assert isinstance(made.post(MESSAGE), Unauthorised)
        made.close()
    assert isinstance(outcome_of(pki, kind, lambda _, connection: connection.cut()), Unknown)
    assert isinstance(outcome_of(pki, kind, lambda _, connection: connection.wait(), timeout=0.5), Unknown)


@pytest.mark.parametrize("kind", ["sgas", "ams", "https"])
def test_credentials_in_plain_text_are_a_configuration_error(pki: Pki, kind: str) -> None:
    with pytest.raises(ConfigError, match="plain text"):
        target(pki, kind, "http://service.example.org")


@pytest.mark.parametrize("kind", ["sgas", "ams", "https"])
def test_a_bad_key_stops_the_message(pki: Pki, kind: str) -> None:
    with serve(always(200), pki) as server:
        own = {"certificate": str(pki.client.certificate), "key": str(pki.other_key("other"))}
        with pytest.raises(CredentialError, match="is not that of the certificate"):
            target(pki, kind, server.url, credentials=own).post(MESSAGE)
    assert server.connections == 0


@pytest.mark.parametrize("kind", ["sgas", "ams", "https"])
def test_a_certificate_renewed_on_disk_is_taken_when_the_old_one_expires(pki: Pki, kind: str, tmp_path: Path) -> None:
    files = {"certificate": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}

    def install(name: str) -> None:
        issued = pki.issue(name, "ce1.example.org")
        for what, path in files.items():
            path.write_bytes(getattr(issued, what).read_bytes())
            path.chmod(0o600)

    install("old")
    offset_s = [0.0]
    body = b'{"token": "x", "messageIds": ["1"]}' if kind == "ams" else b'{"a": "1", "b": "2"}'
    with serve(always(200, body), pki) as server:
        more: dict[str, Any] = {"auth_url": server.url} if kind == "ams" else {}
        own = {what: str(path) for what, path in files.items()}
        made = target(pki, kind, server.url, lambda: time.time() + offset_s[0], credentials=own, **more)
        assert isinstance(made.post(MESSAGE), Accepted)
        offset_s[0] = 40 * 86400.0
        with pytest.raises(CredentialError, match="expired"):
            made.post(MESSAGE)
        install("renewed")
        offset_s[0] = 1.0
        assert isinstance(made.post(MESSAGE), Accepted)
        made.close()


# AMS


def test_ams_publishes_one_signed_message_with_a_token(pki: Pki) -> None:
    with serve(ams(200, b'{"messageIds": ["12"]}'), pki) as server:
        made = target(pki, "ams", server.url, auth_url=server.url, project="accounting", topic="gLite-APEL")
        assert made.post(MESSAGE) == Accepted(receipt={"messageIds": "12"})
        assert made.post(MESSAGE) == Accepted(receipt={"messageIds": "12"})
        made.close()
    token, first, second = server.requests
    assert (token.method, token.path) == ("GET", "/v1/service-types/ams/hosts/localhost:authx509")
    assert (first.method, first.path) == ("POST", "/v1/projects/accounting/topics/gLite-APEL:publish")
    assert first.headers["x-api-key"] == second.headers["x-api-key"] == "s3cr3t"
    [sent] = json.loads(first.body)["messages"]
    assert sent["attributes"] == {"empaid": "run-7/batch-1"}
    opened = open_signed(base64.b64decode(sent["data"], validate=True))
    assert (opened.payload, opened.certificate) == (MESSAGE.payload, pki.client.load())


def test_ams_encrypts_to_the_receiver(pki: Pki) -> None:
    receiver = pki.issue("receiver", "apel.example.org")
    with serve(ams(200, b'{"messageIds": ["12"]}'), pki) as server:
        made = target(pki, "ams", server.url, auth_url=server.url, encrypt_to=str(receiver.certificate))
        assert isinstance(made.post(MESSAGE), Accepted)
        made.close()
    data = base64.b64decode(json.loads(server.requests[1].body)["messages"][0]["data"])
    assert is_encrypted(data)
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from publisher.credentials import load_key

    key = load_key(receiver.key)
    assert isinstance(key, RSAPrivateKey)
    assert open_signed(decrypt(data, receiver.load(), key)).payload == MESSAGE.payload


def test_ams_renews_its_token_once(pki: Pki) -> None:
    given_out: list[str] = []

    def script(request: Request, connection: Connection) -> None:
        if request.path.endswith(":authx509"):
            given_out.append(f"token-{len(given_out)}")
            connection.answer(200, json.dumps({"token": given_out[-1]}).encode())
        elif request.headers["x-api-key"] == "token-1":
            connection.answer(200, b'{"messageIds": ["1"]}')
        else:
            connection.answer(401, b'{"error": {"message": "bad token-0"}}')

    assert isinstance(outcome_of(pki, "ams", script), Accepted)
    assert given_out == ["token-0", "token-1"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Refused),
        (401, Unauthorised),
        (403, Unauthorised),
        (404, Unauthorised),
        (408, Transient),
        (413, Oversized),
        (429, Throttled),
        (500, Transient),
        (502, Transient),
        (504, Transient),
    ],
)
def test_what_ams_means_by_a_status_and_no_answer_shows_the_token(pki: Pki, status: int, kind: type[Outcome]) -> None:
    outcome = outcome_of(pki, "ams", ams(status, b'{"error":{"message":"s3cr3t"}}'))
    assert isinstance(outcome, kind)
    assert "s3cr3t" not in repr(outcome)
    assert not isinstance(outcome, Refused) or outcome.certain


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"", b"{}", b'{"messageIds": []}', b'{"messageIds": [1]}'])
def test_an_ams_answer_without_message_id_is_unknown(pki: Pki, body: bytes) -> None:
    assert isinstance(outcome_of(pki, "ams", ams(200, body)), Unknown)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b"no reverse name", Unauthorised),
        (403, b"", Unauthorised),
        (404, b"Host was not found", Unauthorised),
        (500, b"", Transient),
        (200, b"<html/>", Transient),
        (200, b'{"token": "with\\nnewline"}', Transient),
        (204, b"", Transient),
        (429, b"", Throttled),
        (418, b"", Transient),
    ],
)
def test_without_a_token_nothing_is_sent(pki: Pki, status: int, body: bytes, kind: type[Outcome]) -> None:
    with serve(always(status, body), pki) as server:
        made = target(pki, "ams", server.url, auth_url=server.url)
        assert isinstance(made.post(MESSAGE), kind)
        made.close()
    assert {request.method for request in server.requests} == {"GET"}
    with serve(lambda _, connection: connection.cut(), pki) as server:
        made = target(pki, "ams", server.url, auth_url=server.url)
        assert isinstance(made.post(MESSAGE), Transient)
        made.close()


def test_what_cannot_be_signed_is_not_sent(pki: Pki) -> None:
    with serve(ams(200), pki) as server:
        made = target(pki, "ams", server.url, auth_url=server.url)
        with pytest.raises(SigningError):
            made.post(Message(batch_id="b", format="apel-summary", content_type="text/plain", payload="å".encode()))
    assert server.connections == 0


def test_what_is_too_large_for_ams_is_not_sent(pki: Pki) -> None:
    with serve(ams(200), pki) as server:
        made = target(pki, "ams", server.url, auth_url=server.url, batch_bytes=9_000_000)
        large = Message(batch_id="b", format="x", content_type="text/plain", payload=b"x" * 1_050_000)
        assert isinstance(made.post(large), Oversized)
    assert server.connections == 0


@settings(max_examples=25, deadline=None)
@given(limit=st.integers(10_000, 2_000_000), encrypted=st.booleans(), batch=st.text(max_size=300))
def test_what_is_cut_by_the_limit_fits(pki: Pki, limit: int, encrypted: bool, batch: str) -> None:
    encrypt: dict[str, Any] = {"encrypt_to": str(pki.client.certificate)} if encrypted else {}
    made = target(pki, "ams", "https://localhost", batch_bytes=limit, **encrypt)
    size = made.payload_limit_bytes()
    assert size is not None
    payload = b"x\n" * (size // 2) + b"y" * (size % 2)
    signed = made._identity.signer(made._encrypt_to).sign(payload)  # type: ignore[attr-defined]
    length = len(Body(batch, signed))
    assert length <= min(limit, 1_400_000)
    assert length > min(limit, 1_400_000) - 800


@given(batch=st.text(max_size=120), signed=st.binary(max_size=200), times=st.sampled_from([1, 700, 1_000]))
def test_the_body_is_made_in_parts_as_it_would_be_at_once(batch: str, signed: bytes, times: int) -> None:
    body = Body(batch, signed * times)
    made = b"".join(body)
    (message,) = json.loads(made)["messages"]
    assert message["data"] == base64.b64encode(signed * times).decode()
    assert len(body) == len(made)
    assert b"".join(body) == made, "it may be sent again"


# HTTPS


def test_https_posts_any_format_with_a_token(pki: Pki, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("abc.def\n")
    token_file.chmod(0o600)
    with serve(always(202, b"thanks abc.def"), pki) as server:
        made = target(pki, "https", f"{server.url}/usage?site=x", token_file=str(token_file))
        assert made.post(MESSAGE) == Accepted(receipt={"status": "HTTP 202: thanks [token]"})
        made.close()
    [request] = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/usage?site=x", MESSAGE.payload)
    assert request.headers["authorization"] == "Bearer abc.def"
    assert request.headers["content-type"] == "application/xml"
    assert request.headers["idempotency-key"] == '"run-7/batch-1"'


def test_https_signs_if_asked(pki: Pki) -> None:
    with serve(always(200), pki) as server:
        made = target(pki, "https", server.url, sign=True, batch_bytes=20_000)
        assert isinstance(made.post(MESSAGE), Accepted)
        limit = made.payload_limit_bytes()
        made.close()
    assert limit is not None
    assert 15_000 < limit < 20_000
    assert server.requests[0].headers["content-type"] == "message/rfc822"
    assert open_signed(server.requests[0].body).payload == MESSAGE.payload


def test_a_token_file_must_be_private_and_a_token(pki: Pki, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("two words")
    token_file.chmod(0o644)
    made = target(pki, "https", "https://localhost:1", token_file=str(token_file))
    with pytest.raises(CredentialError, match="can be read by others"):
        made.post(MESSAGE)
    token_file.chmod(0o600)
    with pytest.raises(CredentialError, match="no bearer token") as raised:
        made.post(MESSAGE)
    assert "two words" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Refused),
        (401, Unauthorised),
        (403, Unauthorised),
        (404, Unauthorised),
        (407, Unauthorised),
        (408, Transient),
        (409, Refused),
        (413, Oversized),
        (422, Refused),
        (429, Throttled),
        (500, Transient),
        (503, Transient),
    ],
)
def test_what_https_services_mean_by_a_status(pki: Pki, status: int, kind: type[Outcome]) -> None:
    outcome = outcome_of(pki, "https", always(status, b"why"))
    assert isinstance(outcome, kind)
    assert not isinstance(outcome, Refused) or outcome.certain


# check


def levels(made: Target) -> dict[str, str]:
    findings = made.check()
    made.close()
    return {finding.subject.partition(": ")[2]: finding.level for finding in findings}


def test_check_of_a_well_sgas(pki: Pki) -> None:
    def script(request: Request, connection: Connection) -> None:
        date = {"Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())}
        connection.answer(405 if request.path.endswith("/ur") else 200, b"", date)

    with serve(script, pki) as server:
        made = target(pki, "sgas", f"{server.url}/sgas")
        name = next(finding for finding in made.check() if finding.subject == "t: name")
        assert levels(made) == {
            "certificate": "yellow",  # throw-away certificates live for less than thirty days
            "reached": "green",
            "clock": "green",
            "inserting": "green",
            "name": "green",
        }
    assert "/DC=org/DC=example/CN=ce1.example.org" in name.message
    assert "CN=ce1.example.org,DC=example,DC=org" in name.message
    assert {request.method for request in server.requests} == {"GET"}


@pytest.mark.parametrize("kind", ["sgas", "ams", "https"])
def test_check_says_that_nothing_answers(pki: Pki, kind: str) -> None:
    url = f"https://localhost:{unused_port()}"
    more: dict[str, Any] = {"auth_url": url} if kind == "ams" else {}
    found = levels(target(pki, kind, url, **more))
    assert found["reached"] == "red"
    assert found.get("name", "green") == "green", "that nobody answers says nothing of our name"


def test_check_of_a_wrong_path(pki: Pki) -> None:
    def script(request: Request, connection: Connection) -> None:
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
    assert found == {"certificate": "yellow", "reached": "green", "name": "green", "topic": "green"}
    assert {request.method for request in server.requests} == {"GET"}
    with serve(ams(404, b"Topic doesn't exist"), pki) as server:
        assert levels(target(pki, "ams", server.url, auth_url=server.url))["topic"] == "red"
    with serve(always(403, b"ACCESS_FORBIDDEN"), pki) as server:
        found = levels(target(pki, "ams", server.url, auth_url=server.url))
    assert found == {"certificate": "yellow", "reached": "red", "name": "red"}


def test_check_of_https_is_harmless(pki: Pki) -> None:
    with serve(always(405), pki) as server:
        found = levels(target(pki, "https", server.url))
    assert found == {"certificate": "yellow", "reached": "green", "name": "green"}
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


def test_an_unknown_kind_names_the_known_ones(pki: Pki) -> None:
    class Settings:
        type = "carrier-pigeon"

    with pytest.raises(ConfigError, match="sgas, ams, https, directory"):
        make_target("t", Settings(), context(pki))


def test_other_kinds_come_by_entry_point(pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pigeon_add_on.py").write_text(
        "class Pigeon:\n"
        "    kind = 'pigeon'\n"
        "    def __init__(self, name, settings, context):\n        self.limit = len(name + settings.type)\n"
        "    def payload_limit_bytes(self):\n        return self.limit\n"
    )
    information = tmp_path / "pigeon_add_on-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-add-on\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[usage_publisher.targets]\npigeon = pigeon_add_on:Pigeon\n")
    monkeypatch.syspath_prepend(tmp_path)

    class Settings:
        type = "pigeon"

    made = make_target("t", Settings(), context(pki))
    assert (made.name, made.kind, made.payload_limit_bytes()) == ("t", "pigeon", 7)


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (503, b"503", "HTTP 503"),
        (
            503,
            b"<html><head><title>503 X</title></head><h1>503 Service Unavailable</h1>",
            "HTTP 503: Service Unavailable",
        ),
        (500, b"5000 rows are locked", "HTTP 500: 5000 rows are locked"),
        (404, b"404 page not found", "HTTP 404: page not found"),
    ],
)
def test_a_status_is_told_once(status: int, body: bytes, told: str) -> None:
    assert answers.describe(Reply(status, {}, body)) == told
