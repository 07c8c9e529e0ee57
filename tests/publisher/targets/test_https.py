"""The target of any HTTPS service on real sockets: tokens, signing, and what each answer means."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from publisher.errors import CredentialError
from publisher.security.verify import open_signed
from publisher.simulator.pki import Pki
from publisher.targets.base import Accepted, Outcome, Oversized, Refused, Throttled, Transient, Unauthorised
from tests.publisher.scripted_server import serve
from tests.publisher.targets.scripted_targets import MESSAGE, always, outcome_of, target


def test_https_posts_any_format_with_a_token(pki: Pki, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("abc.def\n")
    token_file.chmod(0o600)
    with serve(always(202, b"thanks abc.def"), pki) as server:
        made = target(pki, "https", f"{server.url}/usage?site=x", token_file=str(token_file))
        assert made.post(MESSAGE) == Accepted(receipt={"status": "HTTP 202: thanks [token]"})
        made.post(msgspec.structs.replace(MESSAGE, idempotency_key="run-7/batch-1-12"))
        made.close()
    request, another = server.requests
    assert another.headers["idempotency-key"] == '"run-7/batch-1-12"'
    assert (request.method, request.path, request.body) == ("POST", "/usage?site=x", MESSAGE.payload)
    assert request.headers["authorization"] == "Bearer abc.def"
    assert request.headers["content-type"] == "application/xml"
    assert request.headers["idempotency-key"] == '"run-7/batch-1"'


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_the_method_is_that_of_the_settings(pki: Pki, method: str) -> None:
    with serve(always(200), pki) as server:
        made = target(pki, "https", server.url, method=method)
        assert isinstance(made.post(MESSAGE), Accepted)
        made.close()
    assert [(request.method, request.body) for request in server.requests] == [(method, MESSAGE.payload)]


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
    with pytest.raises(CredentialError, match="can be read by other users"):
        made.post(MESSAGE)
    token_file.chmod(0o600)
    with pytest.raises(CredentialError, match="not contain a bearer token") as raised:
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
