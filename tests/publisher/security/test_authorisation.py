"""Tokens in headers on real sockets: of a file, of a token service; renewed, shared by workers, and never shown."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError
from rich.pretty import pretty_repr

from publisher.config.operation import Credentials
from publisher.errors import CredentialError
from publisher.security.authorisation import Header, expiry_s
from publisher.security.exchange import Failure
from publisher.security.http import Reply
from publisher.simulator.pki import Pki, make_pki
from publisher.targets import answers
from publisher.targets.base import Accepted, Transient, Unauthorised
from publisher.targets.identity import Identity, TargetContext
from tests.publisher import scripted_server
from tests.publisher.scripted_server import Script, ScriptedConnection, ScriptedRequest, unused_port
from tests.publisher.targets.scripted_targets import MESSAGE, always, target

SECRET = "s3cr3t/0f+client"
serve = partial(scripted_server.serve, ask=ssl.CERT_OPTIONAL)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def private(file: Path, content: str) -> Path:
    file.write_text(content)
    file.chmod(0o600)
    return file


def own(tmp_path: Path, url: str, **more: Any) -> dict[str, Any]:
    """The settings of a client of a token service."""
    file = private(tmp_path / "client.secret", SECRET + "\n")
    return {"token_url": f"{url}/token", "client_id": "site a", "client_secret_file": str(file), **more}


class TokensGiven:
    """Gives token-1, token-2, ..., each valid for `life_s`, to our client; the last one is accepted by the service."""

    def __init__(self, life_s: object = 3600, refuses: tuple[str, ...] = ()) -> None:
        self.life_s, self.given, self.refused = life_s, 0, set(refuses)
        self.lock = threading.Lock()
        self.seen: list[str] = []

    def __call__(self, request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.path == "/token":
            assert request.headers["authorization"] == "Basic " + b64encode(b"site%20a:s3cr3t%2F0f%2Bclient").decode(
                "ascii"
            )
            assert request.headers["content-type"] == "application/x-www-form-urlencoded"
            with self.lock:
                self.given += 1
                body = {"access_token": f"token-{self.given}", "token_type": "bearer", "expires_in": self.life_s}
            connection.answer(200, msgspec.json.encode(body))
            return
        authorisation = request.headers["authorization"]
        self.seen.append(authorisation)
        refused = authorisation.removeprefix("Bearer ") in self.refused
        connection.answer(401 if refused else 200, authorisation.encode())


def test_a_token_is_got_once_and_renewed_before_it_expires(pki: Pki, tmp_path: Path) -> None:
    now = [time.time()]
    service = TokensGiven(life_s="3600")
    with serve(service, pki) as server:
        made = target(pki, "https", server.url, lambda: now[0], credentials=own(tmp_path, server.url, scope="a b"))
        with closing(made):
            for later_s in (0, 3530, 20, 3500):
                now[0] += later_s
                assert isinstance(made.post(MESSAGE), Accepted)
    assert service.seen == ["Bearer token-1", "Bearer token-1", "Bearer token-2", "Bearer token-2"]
    assert server.requests[0].body == b"grant_type=client_credentials&scope=a+b"


def test_a_secret_is_sent_in_the_body_if_the_provider_wants_it_there(pki: Pki, tmp_path: Path) -> None:
    def service(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.path == "/token":
            assert "authorization" not in request.headers
            connection.answer(200, b'{"access_token": "token-1"}')
        else:
            connection.answer(200, request.headers["authorization"].encode())

    with serve(service, pki) as server:
        settings = own(tmp_path, server.url, client_auth="post")
        with closing(target(pki, "https", server.url, credentials=settings)) as made:
            outcome = made.post(MESSAGE)
    assert isinstance(outcome, Accepted)
    form = b"grant_type=client_credentials&client_id=site+a&client_secret=s3cr3t%2F0f%2Bclient"
    assert server.requests[0].body == form
    with pytest.raises(ValidationError, match="is for token_url"):
        Credentials.model_validate({"client_auth": "post"})


def test_a_refused_token_is_renewed_once(pki: Pki, tmp_path: Path) -> None:
    service = TokensGiven(refuses=("token-1",))
    with (
        serve(service, pki) as server,
        closing(target(pki, "https", server.url, credentials=own(tmp_path, server.url))) as made,
    ):
        assert isinstance(made.post(MESSAGE), Accepted)
        service.refused = {f"token-{number}" for number in range(9)}
        outcome = made.post(MESSAGE)
    assert service.given == 3
    assert len(service.seen) == 4
    assert outcome == Unauthorised(f"HTTP 401: Bearer [token]. {answers.REFUSED}")


def test_workers_renew_a_token_once(pki: Pki, tmp_path: Path) -> None:
    """All workers send token-1 and are refused at the same time."""
    workers = 4
    together = threading.Barrier(workers)
    service = TokensGiven(refuses=("token-1",))

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.headers["authorization"] == "Bearer token-1":
            together.wait(60)
        service(request, connection)

    with serve(script, pki) as server:
        given = Credentials(ca_file=pki.ca_file, certificate=pki.client.certificate, key=pki.client.key)
        context = TargetContext(given)
        settings = Credentials.model_validate(own(tmp_path, server.url))
        clients = [
            Identity(settings, context).authorised_client(server.url, timeout_s=30, proxy=None) for _ in range(workers)
        ]
        replies: list[object] = []
        threads = [threading.Thread(target=lambda c=c: replies.append(c.request("GET", server.url))) for c in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
    assert [reply.status for reply in replies if isinstance(reply, Reply)] == [200] * workers
    assert service.given == 2


def _failing(answer: Callable[[ScriptedConnection], None]) -> Script:
    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.path == "/token":
            answer(connection)
        else:
            connection.answer(200)

    return script


INVALID = b'{"error": "invalid_client", "error_description": "bad secret s3cr3t\\/0f+client\\u0007"}'
EXPIRED = b'{"access_token": "t", "expires_in": 0}'


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (
            lambda c: c.answer(400, INVALID),
            Unauthorised,
            "gives no token: HTTP 400: invalid_client: bad secret [token]",
        ),
        (lambda c: c.answer(401, b"<html>no s3cr3t/0f+client"), Unauthorised, "gives no token: HTTP 401"),
        (lambda c: c.answer(302, b"", {"Location": "https://e.test/"}), Unauthorised, "gives no token: HTTP 302"),
        (lambda c: c.answer(503, b"later"), Transient, "gives no token: HTTP 503"),
        (lambda c: c.answer(429, b"later"), Transient, "gives no token: HTTP 429"),
        (lambda c: c.answer(200, b"<html>Welcome"), Transient, "answered HTTP 200 without a token"),
        (lambda c: c.answer(200, b"[" * 200_000), Transient, "answered HTTP 200 without a token"),
        (lambda c: c.answer(200, b'{"access_token": "two words"}'), Transient, "is not a bearer token"),
        (lambda c: c.answer(200, b'{"access_token": "t", "token_type": "mac"}'), Transient, "is not a bearer token"),
        (lambda c: c.answer(200, EXPIRED), Transient, "gave a token that has expired. Check the clock"),
        (lambda c: c.cut(), Transient, "the connection was cut"),
        (lambda c: c.answer(200, b"", length=100 << 20) or _flood(c), Transient, "the answer has more than"),
    ],
)
def test_what_is_wrong_with_a_token_service(
    pki: Pki, tmp_path: Path, answer: Callable[[ScriptedConnection], None], kind: type, message: str
) -> None:
    """Nothing is sent to the service itself, and `check` says the same."""
    with (
        serve(_failing(answer), pki) as server,
        closing(target(pki, "https", server.url, credentials=own(tmp_path, server.url))) as made,
    ):
        outcome = made.post(MESSAGE)
        (finding,) = (found for found in made.check() if found.subject == "t: token")
    assert isinstance(outcome, kind)
    assert message in outcome.answer
    assert message in finding.message
    assert finding.level == "red"
    assert finding.hint
    assert {request.path for request in server.requests} == {"/token"}
    assert not [spelled for spelled in (SECRET, "0f+client") if spelled in outcome.answer + str(finding)]


def _flood(connection: ScriptedConnection) -> None:
    for _ in range(100):
        connection.sock.sendall(bytes(1 << 20))


def test_a_token_service_that_is_down_is_asked_once_for_all_workers(pki: Pki, tmp_path: Path) -> None:
    context = TargetContext(Credentials(ca_file=pki.ca_file))
    settings = Credentials.model_validate(own(tmp_path, f"https://localhost:{unused_port()}"))
    identity = Identity(settings, context)
    authorisation = identity.authorisation(timeout_s=30, proxy=None)
    assert authorisation is not None
    header = authorisation.header()
    assert isinstance(header, Failure)
    assert (header.kind, header.sent) == ("no-token", False)
    assert "cannot connect to localhost" in header.message


def test_a_token_that_is_still_valid_is_used_while_its_service_is_down(pki: Pki, tmp_path: Path) -> None:
    now = [time.time()]
    service = TokensGiven(life_s=100)
    down: list[bool] = []

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.path == "/token" and down:
            connection.answer(503)
        else:
            service(request, connection)

    with serve(script, pki) as server:
        made = target(pki, "https", server.url, lambda: now[0], credentials=own(tmp_path, server.url))
        with closing(made):
            assert isinstance(made.post(MESSAGE), Accepted)
            down.append(True)
            now[0] += 60
            assert isinstance(made.post(MESSAGE), Accepted)
            now[0] += 60
            assert isinstance(made.post(MESSAGE), Transient)


@pytest.mark.parametrize(
    ("settings", "header", "value"),
    [
        ({}, "authorization", f"Bearer {SECRET}"),
        ({"token_scheme": "Token"}, "authorization", f"Token {SECRET}"),
        ({"token_header": "X-API-Key"}, "x-api-key", SECRET),
        ({"token_header": "X-Auth", "token_scheme": "Key"}, "x-auth", f"Key {SECRET}"),
        ({"token_scheme": ""}, "authorization", SECRET),
    ],
)
def test_a_header_from_a_file_has_any_name_and_scheme(
    pki: Pki, tmp_path: Path, settings: dict[str, str], header: str, value: str
) -> None:
    given = {"token_file": str(private(tmp_path / "token", SECRET + "\n")), **settings}
    with (
        serve(always(200), pki) as server,
        closing(target(pki, "https", server.url, credentials=given)) as made,
    ):
        assert isinstance(made.post(MESSAGE), Accepted)
    assert server.requests[0].headers[header] == value


def test_a_file_that_changed_is_read_again_when_its_token_is_refused(pki: Pki, tmp_path: Path) -> None:
    file = private(tmp_path / "token", "old")

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        private(file, "new")
        connection.answer(200 if request.headers["authorization"] == "Bearer new" else 401)

    with (
        serve(script, pki) as server,
        closing(target(pki, "https", server.url, token_file=str(file))) as made,
    ):
        assert isinstance(made.post(MESSAGE), Accepted)
    assert len(server.requests) == 2


@pytest.mark.parametrize("which", ["token_file", "client_secret_file"])
def test_files_that_others_can_read_are_refused(pki: Pki, tmp_path: Path, which: str) -> None:
    given = own(tmp_path, "https://localhost:1") if which != "token_file" else {}
    given[which] = str(private(tmp_path / "open", SECRET))
    (tmp_path / "open").chmod(0o640)
    made = target(pki, "https", "https://localhost:1", credentials=given)
    with pytest.raises(CredentialError, match="can be read by other users"):
        made.post(MESSAGE)
    (finding,) = (found for found in made.check() if found.subject == "t: token")
    assert (finding.level, finding.hint) == ("red", f"chmod 0400 {tmp_path / 'open'}")


def test_a_token_goes_to_no_other_host(pki: Pki, tmp_path: Path) -> None:
    """Neither by a redirect, nor by a link of the service, such as that to the next page."""
    with serve(always(200), pki) as other:
        moved = always(307, b"", {"Location": f"{other.url}/elsewhere"})
        with serve(moved, pki) as server:
            given = {"token_file": str(private(tmp_path / "token", SECRET))}
            with closing(target(pki, "https", server.url, credentials=given)) as made:
                assert isinstance(made.post(MESSAGE), Unauthorised)
            context = TargetContext(Credentials(ca_file=pki.ca_file, **given))
            client = Identity(None, context).authorised_client(server.url, timeout_s=30, proxy=None)
            with closing(client):
                failure = client.request("GET", f"{other.url}/page/2")
            assert isinstance(failure, Failure)
            assert isinstance(answers.of_failure(failure), Unauthorised)
        assert other.connections == 0


def test_the_certificate_is_not_shown_to_the_token_service(pki: Pki, tmp_path: Path) -> None:
    service = TokensGiven()
    with (
        scripted_server.serve(service, pki) as server,
        closing(target(pki, "https", server.url, credentials=own(tmp_path, server.url))) as made,
    ):
        assert isinstance(made.post(MESSAGE), Transient), "the service asks for a certificate, and gets none"
    assert service.given == 0


def test_an_expired_token_of_a_file_is_reported_by_check(pki: Pki, tmp_path: Path) -> None:
    claims = urlsafe_b64encode(b'{"exp": 1700000000, "sub": "x"}').decode().rstrip("=")
    file = private(tmp_path / "token", f"e30.{claims}.c2ln")
    with (
        serve(always(204), pki) as server,
        closing(target(pki, "https", server.url, credentials={"token_file": str(file)})) as made,
    ):
        (finding,) = (found for found in made.check() if found.subject == "t: token")
    assert finding.level == "red"
    assert "expired at 2023-11-14T22:13:20Z" in finding.message
    assert server.connections == 0


@pytest.mark.parametrize("claims", [b"", b"[]", b'{"exp": "soon"}', b'{"exp": 1e300}', b'{"exp": -1}', b"[" * 99_999])
def test_a_token_without_a_readable_end_has_none(claims: bytes) -> None:
    assert expiry_s(f"a.{urlsafe_b64encode(claims).decode()}.b") is None


@pytest.fixture
def echoing(pki: Pki) -> Iterator[str]:
    """A service that repeats what it got, in its status line too."""

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        said = str(request.headers).encode()
        if request.method == "PATCH":
            connection.sock.sendall(b"HTTP/1.1 " + said + b"\r\n\r\n")
        else:
            connection.answer({"POST": 200, "PUT": 403}.get(request.method, 500), said, {"X-Echo": said.decode()})

    with serve(script, pki) as server:
        yield server.url


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_no_secret_is_in_outcomes_findings_logs_or_representations(
    pki: Pki, tmp_path: Path, echoing: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    given = {"token_file": str(private(tmp_path / "token", SECRET))}
    with closing(target(pki, "https", echoing, method=method, credentials=given)) as made:
        shown = [made.post(MESSAGE), made.check(), made, vars(made)]
    context = TargetContext(Credentials(ca_file=pki.ca_file, certificate=pki.client.certificate, key=pki.client.key))
    identity = Identity(Credentials.model_validate(given), context)
    with closing(identity.authorised_client(echoing, timeout_s=30, proxy=None)) as client:
        reply = client.request(method, echoing)
        authorisation = identity.authorisation(timeout_s=30, proxy=None)
        assert authorisation is not None
        header = authorisation.header()
        assert isinstance(header, Header)
        shown += [reply, client, vars(client), authorisation, vars(authorisation), header, context, identity]
        texts = "".join(f"{each}{each!r}{pretty_repr(each)}" for each in shown)
    assert SECRET not in texts
    assert "[token]" in texts
    assert not [record for record in caplog.records if SECRET in record.getMessage()]
