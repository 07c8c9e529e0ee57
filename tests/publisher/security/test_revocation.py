"""Revocation lists of a chain root, authority below it, server: over TLS, and of a signer."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from publisher.security import verify
from publisher.security.exchange import Failure
from publisher.security.http import HttpClient, Reply
from publisher.security.revocation import RevocationLists
from publisher.security.tls import Trust
from publisher.simulator.pki import Pki, make_pki
from tests.publisher.certificate_chain import Chain, certificate_of, indirect, only
from tests.publisher.http_client import client, ok, post
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, serve


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def sub_of(chain: Chain) -> list:  # type: ignore[type-arg]
    return [certificate_of(chain.sub)]


ACCEPTED: dict[str, Callable[[Chain], object]] = {
    "no list": lambda _: None,
    "empty lists": lambda chain: (chain.write_list(chain.root), chain.write_list(chain.sub)),
    "another is revoked": lambda chain: chain.write_list(chain.sub, [certificate_of(chain.sub)]),
    "one of two lists is good": lambda chain: (
        chain.write_list(chain.root, days=-1), chain.write_list(chain.root, number=1),
    ),
    "a list about authorities names the server": lambda chain: chain.write_list(
        chain.sub, [chain.leaf], scope=only(authorities=True)
    ),
    "a list that our clock, some minutes behind, sees as one of the future": lambda chain: chain.write_list(
        chain.sub, age_s=-120
    ),
    "an indirect list names the serial number, of another authority": lambda chain: chain.write_list(
        chain.sub, [certificate_of(chain.sub), chain.leaf], scope=indirect(), entry_issuer=chain.root
    ),
    "an entry of another authority in a list that is not called indirect": lambda chain: chain.write_list(
        chain.sub, [chain.leaf], entry_issuer=chain.root
    ),
    "a delta list that has expired, and the complete list": lambda chain: (
        chain.write_list(chain.sub), chain.write_list(chain.sub, number=1, base=1, days=-1),
    ),
}  # fmt: skip
REFUSED: dict[str, tuple[Callable[[Chain], object], str]] = {
    "the authority below, by the root; it has no list": (
        lambda chain: chain.write_list(chain.root, sub_of(chain)), "was revoked",
    ),
    "the authority below, by the root; it has a list": (
        lambda chain: (chain.write_list(chain.root, sub_of(chain)), chain.write_list(chain.sub)), "was revoked",
    ),
    "the server; the root has no list": (lambda chain: chain.write_list(chain.sub, [chain.leaf]), "was revoked"),
    "the server; the root has a list": (
        lambda chain: (chain.write_list(chain.sub, [chain.leaf]), chain.write_list(chain.root)), "was revoked",
    ),
    "the server, by a list that has expired": (
        lambda chain: chain.write_list(chain.sub, [chain.leaf], days=-1), "was revoked",
    ),
    "the second list names it": (
        lambda chain: (chain.write_list(chain.sub), chain.write_list(chain.sub, [chain.leaf], number=1)), "was revoked",
    ),
    "a list about others than authorities": (
        lambda chain: chain.write_list(chain.sub, [chain.leaf], scope=only(authorities=False)), "was revoked",
    ),
    "the second list of a file names it": (
        lambda chain: (chain.write_list(chain.sub), chain.write_list(chain.sub, [chain.leaf], append=True)),
        "was revoked",
    ),
    "an indirect list names it": (
        lambda chain: chain.write_list(chain.sub, [chain.leaf], scope=indirect(), entry_issuer=chain.sub),
        "was revoked",
    ),
    "an indirect list names it, without an issuer": (
        lambda chain: chain.write_list(chain.sub, [chain.leaf], scope=indirect()), "was revoked",
    ),
    "a delta list names it": (
        lambda chain: (chain.write_list(chain.sub), chain.write_list(chain.sub, [chain.leaf], number=1, base=1)),
        "was revoked",
    ),
    "the complete list has expired, the delta list has not": (
        lambda chain: (chain.write_list(chain.sub, days=-1), chain.write_list(chain.sub, number=1, base=1)),
        "has expired",
    ),
    "a list that is not valid yet": (lambda chain: chain.write_list(chain.sub, age_s=-3600), "check the clock"),
    "the second list of a file is damaged": (
        lambda chain: chain.write_list(chain.sub).write_bytes(
            chain.write_list(chain.sub).read_bytes() + b"-----BEGIN X509 CRL-----\ndamaged\n-----END X509 CRL-----\n"
        ),
        "cannot be read",
    ),
    "the root's list has expired": (lambda chain: chain.write_list(chain.root, days=-1), "has expired"),
    "the other's list has expired": (
        lambda chain: (chain.write_list(chain.root), chain.write_list(chain.sub, days=-1)), "has expired",
    ),
    "a list of another's making": (
        lambda chain: chain.write_list(chain.root, signer=chain.sub), "is not signed by",
    ),
    "a damaged list": (lambda chain: chain.write_list(chain.sub).write_bytes(b"damaged"), "cannot be read"),
}  # fmt: skip


def answered(chain: Chain, pki: Pki, **more: object) -> Reply | Failure:
    with serve(ok, pki, certificate=chain.server, ask=ssl.CERT_NONE) as server:
        outcome = post(client(server, trust=Trust(ca_directory=chain.directory), **more), server)  # type: ignore[arg-type]
    assert bool(server.requests) == isinstance(outcome, Reply)
    return outcome


@pytest.mark.parametrize("both", [False, True], ids=["root installed", "both installed"])
@pytest.mark.parametrize("case", ACCEPTED)
def test_a_server_that_is_not_revoked_is_answered(chain: Chain, pki: Pki, case: str, both: bool) -> None:
    if both:
        chain.add(chain.sub)
    ACCEPTED[case](chain)
    assert isinstance(answered(chain, pki), Reply)


@pytest.mark.parametrize("both", [False, True], ids=["root installed", "both installed"])
@pytest.mark.parametrize("case", REFUSED)
def test_nothing_is_sent_where_a_certificate_of_the_chain_is_revoked(
    chain: Chain, pki: Pki, case: str, both: bool
) -> None:
    if both:
        chain.add(chain.sub)
    prepare, said = REFUSED[case]
    prepare(chain)
    failure = answered(chain, pki)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("untrusted", False)
    assert said in failure.message


def verify_signer(chain: Chain) -> None:
    authorities = [certificate_of(chain.root), certificate_of(chain.sub)]
    verify.verify_issued(chain.leaf, authorities, datetime.now(UTC), RevocationLists(chain.directory))


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_signer_that_is_not_revoked_is_accepted(chain: Chain, case: str) -> None:
    ACCEPTED[case](chain)
    verify_signer(chain)


@pytest.mark.parametrize("case", REFUSED)
def test_a_signer_is_refused_where_a_certificate_of_the_chain_is_revoked(chain: Chain, case: str) -> None:
    prepare, said = REFUSED[case]
    prepare(chain)
    with pytest.raises(verify.SmimeError, match=said):
        verify_signer(chain)


def test_the_connection_to_a_proxy_is_checked_as_well(chain: Chain, pki: Pki) -> None:
    chain.write_list(chain.root, sub_of(chain))
    with serve(ok, pki, certificate=chain.server, ask=ssl.CERT_NONE) as proxy:
        trust = Trust(ca_directory=chain.directory)
        http = HttpClient(
            "https://elsewhere.example", trust=trust, credentials=lambda: None, timeout_s=20, proxy=proxy.url
        )
        failure = http.request("GET", "https://elsewhere.example/")
        http.close()
    assert isinstance(failure, Failure)
    assert "was revoked" in failure.message
    assert proxy.requests == []


def relayed(request: ScriptedRequest, connection: ScriptedConnection) -> None:
    """A proxy's answer to CONNECT: data go to the requested port, and back, until one side ends."""
    with socket.create_connection(("127.0.0.1", int(request.path.rpartition(":")[2])), 30) as server:
        connection.answer(200)
        others: dict[socket.socket, socket.socket] = {connection.sock: server, server: connection.sock}
        while True:
            for ready in select.select(list(others), [], [], 30)[0]:
                data = ready.recv(1 << 16)  # more than a record of TLS holds
                if not data:
                    raise ConnectionAbortedError
                others[ready].sendall(data)


@pytest.mark.parametrize("proxy_has_tls", [False, True])
@pytest.mark.parametrize("revoked", [False, True])
def test_the_server_beyond_a_proxy_is_checked(
    chain: Chain, pki: Pki, tmp_path: Path, proxy_has_tls: bool, revoked: bool
) -> None:
    other = Chain(tmp_path / "proxy")
    chain.add(other.root)
    if revoked:
        chain.write_list(chain.root, sub_of(chain))
    options = {"certificate": other.server, "ask": ssl.CERT_NONE} if proxy_has_tls else {}
    with (
        serve(ok, pki, certificate=chain.server, ask=ssl.CERT_NONE) as server,
        serve(relayed, pki if proxy_has_tls else None, **options) as proxy,  # type: ignore[arg-type]
    ):
        outcome = post(client(server, trust=Trust(ca_directory=chain.directory), proxy=proxy.url), server)
    assert [request.method for request in proxy.requests] == ["CONNECT"]
    assert isinstance(outcome, Failure if revoked else Reply)
    assert bool(server.requests) != revoked


def test_lists_are_read_again_after_close(chain: Chain, pki: Pki) -> None:
    with serve(ok, pki, certificate=chain.server, ask=ssl.CERT_NONE) as server:
        http = client(server, trust=Trust(ca_directory=chain.directory))
        assert isinstance(post(http, server), Reply)
        chain.write_list(chain.root, sub_of(chain))
        assert isinstance(post(http, server), Failure)
