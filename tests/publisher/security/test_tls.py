"""Whom a client trusts and what it shows of itself, on real sockets and TLS."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest
from cryptography.x509 import Certificate

from publisher.errors import CredentialError
from publisher.security.credentials import ClientCredentials, load_credentials
from publisher.security.exchange import Failure
from publisher.security.http import HttpClient, Reply
from publisher.security.tls import Trust
from publisher.simulator.pki import Pki, make_pki
from tests.publisher.http_client import client, ok, post
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, serve


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("stranger"), ca_cn="A Stranger")


@pytest.mark.parametrize("highest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_authority_may_be_a_file(pki: Pki, highest: ssl.TLSVersion) -> None:
    with serve(ok, pki, highest=highest) as server:
        assert isinstance(post(client(server, pki, trust=Trust(ca_file=pki.ca_file)), server), Reply)


def test_old_tls_is_refused(pki: Pki) -> None:
    with pytest.warns(DeprecationWarning, match="TLSv1_1"), serve(ok, pki, highest=ssl.TLSVersion.TLSv1_1) as server:
        failure = post(client(server, pki), server)
    assert isinstance(failure, Failure)
    assert "no TLS version or cipher in common" in failure.message
    assert not failure.sent
    assert server.requests == []


def test_a_stranger_is_not_trusted(pki: Pki, stranger: Pki) -> None:
    with serve(ok, stranger) as server:
        failure = post(client(server, pki), server)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("untrusted", False)
    assert server.requests == []


def test_another_hosts_certificate_is_not_trusted(pki: Pki, tmp_path: Path) -> None:
    other = make_pki(tmp_path / "other", server_names=("elsewhere.example.org",))
    with serve(ok, other) as server:
        failure = post(client(server, other), server)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("untrusted", False)
    assert "Hostname mismatch" in failure.message


def test_without_authorities_nothing_is_sent(pki: Pki, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(pki.ca_file.read_bytes())  # only HASH.N counts
    with serve(ok, pki) as server:
        with pytest.raises(CredentialError, match=r"no certificate authority in a file named HASH\.0"):
            post(client(server, pki, trust=Trust(ca_directory=tmp_path)), server)
        with pytest.raises(CredentialError, match="cannot read the directory of certificate authorities"):
            post(client(server, pki, trust=Trust(ca_directory=tmp_path / "missing")), server)
        with pytest.raises(CredentialError, match="cannot use"):
            post(client(server, pki, trust=Trust(ca_file=tmp_path / "missing")), server)
    assert server.connections == 0


def test_revocation_lists_are_honoured_where_there_are_any(tmp_path: Path) -> None:
    pki = make_pki(tmp_path)
    with serve(ok, pki) as server:
        pki.revoke()
        assert isinstance(post(client(server, pki), server), Reply)
        pki.revoke(pki.server)
        failure = post(client(server, pki), server)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("untrusted", False)
    assert "revoked" in failure.message


def test_an_authority_without_revocation_list_is_trusted_beside_others_with_one(tmp_path: Path, stranger: Pki) -> None:
    pki = make_pki(tmp_path)
    other = make_pki(tmp_path / "other", ca_cn="Another CA")
    other_list = other.revoke()
    (pki.ca_directory / other_list.name).write_bytes(other_list.read_bytes())
    with serve(ok, pki) as server:
        assert isinstance(post(client(server, pki), server), Reply)
    with serve(ok, stranger) as server:
        failure = post(client(server, pki), server)
    assert isinstance(failure, Failure)
    assert failure.kind == "untrusted"


@pytest.mark.parametrize("highest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("shown", ["none", "stranger"])
def test_our_certificate_is_refused(pki: Pki, stranger: Pki, highest: ssl.TLSVersion, shown: str) -> None:
    with serve(ok, pki, highest=highest) as server:
        failure = post(client(server, pki, shown=None if shown == "none" else stranger.client), server, b"x")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("client-refused", False)
    assert server.requests == []


def test_an_expired_certificate_is_not_shown(pki: Pki) -> None:
    expired = pki.issue("expired", "ce1.example.org", validity="expired")
    with serve(ok, pki) as server, pytest.raises(CredentialError, match="expired"):
        post(client(server, pki, shown=expired), server)
    assert server.connections == 0


def test_credentials_are_read_again_after_close(pki: Pki, tmp_path: Path) -> None:
    seen: list[bytes] = []

    def script(_: ScriptedRequest, connection: ScriptedConnection) -> None:
        assert isinstance(connection.sock, ssl.SSLSocket)
        seen.append(connection.sock.getpeercert(binary_form=True) or b"")
        connection.answer(200)

    first, second = pki.client, pki.issue("renewed", "ce1.example.org")
    current = [first]

    def credentials() -> ClientCredentials:
        return load_credentials(current[0].certificate, current[0].key, now_s=time.time())

    with serve(script, pki) as server:
        trust = Trust(ca_directory=pki.ca_directory)
        http = HttpClient(server.url, trust=trust, credentials=credentials, timeout_s=20)
        http.request("GET", server.url)
        current[0] = second
        http.request("GET", server.url)
        http.close()
        http.request("GET", server.url)
        http.close()
    assert seen == [public(first.load()), public(first.load()), public(second.load())]


def public(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)
