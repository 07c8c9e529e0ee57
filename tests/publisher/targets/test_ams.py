"""The target of AMS on real sockets: tokens, signing, encryption, size, and what each answer means."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.errors import SigningError
from publisher.security.verify import decrypt, is_enveloped, open_signed
from publisher.simulator.pki import Pki
from publisher.targets.ams import Body
from publisher.targets.base import (
    Accepted,
    Message,
    Outcome,
    Oversized,
    Refused,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, serve
from tests.publisher.targets.scripted_targets import MESSAGE, always, ams, outcome_of, target


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
    assert is_enveloped(data)
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from publisher.security.credentials import load_key

    key = load_key(receiver.key)
    assert isinstance(key, RSAPrivateKey)
    assert open_signed(decrypt(data, receiver.load(), key)).payload == MESSAGE.payload


def test_ams_renews_its_token_once(pki: Pki) -> None:
    given_out: list[str] = []

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
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
        (502, Unknown),
        (504, Unknown),
    ],
)
def test_what_ams_means_by_a_status_and_no_answer_shows_the_token(pki: Pki, status: int, kind: type[Outcome]) -> None:
    outcome = outcome_of(pki, "ams", ams(status, b'{"error":{"message":"s3cr3t"}}'))
    assert isinstance(outcome, kind)
    assert "s3cr3t" not in repr(outcome)
    assert not isinstance(outcome, Refused) or outcome.certain


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Welcome</html>",
        b"",
        b"{}",
        b'{"messageIds": []}',
        b'{"messageIds": [1]}',
        b'{"messageIds": [""]}',
        b'{"messageIds": ["1", "2"]}',
    ],
)
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
@given(limit=st.integers(30_000, 2_000_000), encrypted=st.booleans(), batch=st.text(max_size=300))
def test_what_is_cut_by_the_limit_fits(pki: Pki, limit: int, encrypted: bool, batch: str) -> None:
    encrypt: dict[str, Any] = {"encrypt_to": str(pki.client.certificate)} if encrypted else {}
    made = target(pki, "ams", "https://localhost", batch_bytes=limit, **encrypt)
    size = made.payload_limit_bytes()
    assert size is not None
    payload = b"x\n" * (size // 2) + b"y" * (size % 2)
    signed = made._identity.signer(made._encrypt_to).sign_in_parts(payload)  # type: ignore[attr-defined]
    length = len(Body(batch, signed))
    assert length <= min(limit, 1_400_000)
    assert length > min(limit, 1_400_000) - 800


@given(
    batch=st.text(max_size=120),
    parts=st.lists(st.tuples(st.binary(max_size=200), st.sampled_from([1, 700, 1_000])), max_size=4),
)
def test_the_body_is_made_in_parts_as_it_would_be_at_once(batch: str, parts: list[tuple[bytes, int]]) -> None:
    signed = [part * times for part, times in parts]
    body = Body(batch, signed)
    made = b"".join(body)
    (message,) = json.loads(made)["messages"]
    assert message["data"] == base64.b64encode(b"".join(signed)).decode()
    assert len(body) == len(made)
    assert b"".join(body) == made, "it may be sent again"
