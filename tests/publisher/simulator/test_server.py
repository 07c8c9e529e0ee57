"""The server: TLS and certificates as nginx has them, keep-alive, bounds, and every fault on real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Credential, Pki, make_pki
from publisher.simulator.server import server_context
from tests.publisher.simulator.records import Client, message, record

Connect = Callable[..., Client]


def test_without_a_certificate(simulator: Simulator, connect: Connect) -> None:
    client = connect(simulator)
    reply = client("POST", "/sgas/ur", message(record(1)))
    assert (reply.status, b"No required SSL certificate was sent" in reply.body) == (400, True)
    assert client("GET", "/_simulator/stats").status == 200
    token = client("GET", "/v1/service-types/ams/hosts/localhost:authx509")
    assert (token.status, token.json["error"]["message"]) == (400, "No certificate provided")


def wrong(pki: Pki, kind: str) -> Credential:
    if kind == "revoked":
        credential = pki.issue("revoked", "ce1.example.org", key="ec")
        pki.revoke(credential)
        return credential
    if kind == "proxy":
        return pki.issue_proxy("proxy")
    return pki.issue(kind, "ce1.example.org", key="ec", validity="expired" if kind == "expired" else "future")


@pytest.mark.parametrize("kind", ["expired", "future", "proxy", "revoked"])
def test_certificates_that_are_refused(tmp_path: Path, connect: Connect, kind: str) -> None:
    pki = make_pki(tmp_path / "pki", client_key="ec")
    credential = wrong(pki, kind)
    with Simulator(pki) as simulator:
        client = connect(simulator, credential)
        reply = client("POST", "/sgas/ur", message(record(1)))
        assert (reply.status, b"The SSL certificate error" in reply.body) == (400, True)
        token = client("GET", "/v1/service-types/ams/hosts/localhost:authx509")
        assert (token.status, token.json["error"]["status"]) == (403, "ACCESS_FORBIDDEN")
        assert connect(simulator, pki.client)("POST", "/sgas/ur", message(record(1))).status == 200


def test_certificates_of_another_authority_end_in_the_handshake(
    simulator: Simulator, tmp_path: Path, connect: Connect
) -> None:
    other = make_pki(tmp_path / "other", client_key="ec", ca_cn="Another CA")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(simulator, other.client)("GET", "/sgas")


def test_tls_below_1_2_is_refused(pki: Pki) -> None:
    assert server_context(pki).minimum_version == ssl.TLSVersion.TLSv1_2


def test_listens_on_loopback_only(simulator: Simulator) -> None:
    for server in simulator._servers:
        assert server._listener.getsockname()[0] == "127.0.0.1"


@contextmanager
def connected(simulator: Simulator) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(simulator.pki.ca_file))
    with (
        socket.create_connection(("127.0.0.1", simulator.port), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=True) as tls,
    ):
        yield tls


def exchange(simulator: Simulator, request: bytes) -> bytes:
    """What comes back for these bytes until the server ends the connection."""
    with connected(simulator) as tls:
        tls.sendall(request)
        answer = b""
        while got := tls.recv(65536):
            answer += got
        return answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GARBAGE\r\n\r\n",
        b"GET sgas HTTP/1.1\r\n\r\n",
        b"get /sgas HTTP/1.1\r\n\r\n",
        b"GET /sgas HTTP/2.0\r\n\r\n",
        b"GET /sgas HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /sgas HTTP/1.1\r\nA: b\r\n folded: x\r\n\r\n",
        b"POST /sgas/ur HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /sgas/ur HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
        b"POST /sgas/ur HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /sgas/ur HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /sgas/ur HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /sgas/ur HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"POST /sgas/ur HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 40000,
    ],
)
def test_what_is_not_http_is_refused(simulator: Simulator, request_bytes: bytes) -> None:
    line, end, rest = request_bytes.partition(b"\r\n")
    request_bytes = line + end + b"Host: localhost\r\n" + rest  # what lacks it is refused for that alone
    assert exchange(simulator, request_bytes).startswith(b"HTTP/1.1 400 ")


def test_a_request_that_names_no_host_is_refused(simulator: Simulator) -> None:
    assert exchange(simulator, b"GET /_simulator/stats HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_requests_that_come_together_are_answered_one_by_one(simulator: Simulator) -> None:
    chunked = b"POST /_simulator/reset HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"2;a=b\r\n{}\r\n0\r\nA: b\r\n\r\n"
    get = b"GET /_simulator/stats HTTP/1.1\r\nHost: x\r\n"
    answer = exchange(simulator, chunked + chunked + get + b"\r\n" + get + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert answer.count(b'{"reset":true}') == 2
    assert answer.count(b"Connection: close") == 1


def test_a_client_that_waits_for_leave_to_send_gets_it(simulator: Simulator) -> None:
    head = b"POST /_simulator/reset HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
    with connected(simulator) as tls:
        tls.sendall(head + b"Content-Length: 2\r\nConnection: close\r\n\r\n")
        assert tls.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        tls.sendall(b"{}")
        assert tls.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "path", ["/../etc/passwd", "/sgas/../_simulator/stats", "/%2e%2e/", "//", "/sgasx", "/_simulator/"]
)
def test_paths_name_nothing_but_the_services(client: Client, path: str) -> None:
    assert client("GET", path).status == 404


def test_a_connection_is_kept(client: Client) -> None:
    client("GET", "/sgas")
    kept = client.connection.sock
    for _ in range(3):
        client("POST", "/sgas/ur", message(record(1)))
    assert client.connection.sock is kept


def test_without_keep_alive(simulator: Simulator) -> None:
    answer = exchange(simulator, b"GET /_simulator/stats HTTP/1.0\r\n\r\nGET /_simulator/stats HTTP/1.0\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    ("fault", "status", "body"),
    [
        (Fault("status"), 500, b"Processing Failed"),
        (Fault("status", code=503), 503, b"Database currently unavailable"),
        (Fault("status", code=413), 413, b"413"),
        (Fault("status", code=429, retry_after="7"), 429, b""),
        (Fault("html", code=200), 200, b"<html>"),
        (Fault("json", code=200), 200, b"what"),
        (Fault("slow", code=502, interval_s=0.0001), 502, b"502"),
        (Fault("slow", stored=True, interval_s=0.0001), 200, b"ur-1"),
        (Fault("html", code=200, stored=True), 200, b"<html>"),
    ],
)
def test_answers_of_faults(simulator: Simulator, client: Client, fault: Fault, status: int, body: bytes) -> None:
    simulator.faults.replace([fault])
    reply = client("POST", "/sgas/ur", message(record(1)))
    assert (reply.status, body in reply.body) == (status, True)
    assert reply.headers.get("retry-after") == fault.retry_after
    assert len(simulator.sgas.holdings()) == int(fault.stored)
    assert simulator.faults.applied() == [(fault, 1)]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("kind", ["close", "reset"])
def test_no_answer(simulator: Simulator, client: Client, kind: Any, stored: bool) -> None:
    simulator.faults.replace([Fault(kind, stored=stored, count=1)])
    with pytest.raises((http.client.HTTPException, OSError)):
        client("POST", "/sgas/ur", message(record(1)))
    client.close()
    assert len(simulator.sgas.holdings()) == int(stored)
    assert client("POST", "/sgas/ur", message(record(1))).status == 200
    assert simulator.sgas.holdings()["ur-1"].received == 1 + int(stored)


def test_hang_until_the_client_gives_up(simulator: Simulator, client: Client) -> None:
    simulator.faults.replace([Fault("hang", count=1)])
    client.connection.timeout = 0.05
    with pytest.raises(TimeoutError):
        client("POST", "/sgas/ur", message(record(1)))
    client.close()
    client.connection.timeout = 20
    assert client("POST", "/sgas/ur", message(record(1))).status == 200


def test_closing_ends_what_hangs(pki: Pki, connect: Connect) -> None:
    with Simulator(pki, faults=[Fault("hang")]) as simulator:
        client = connect(simulator, pki.client)
        client.connection.request("POST", "/sgas/ur", message(record(1)))
        threads = [thread for server in simulator._servers for thread in server._connections.values()]
        assert len(threads) == 1
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises((http.client.HTTPException, OSError)):
        client.connection.getresponse()


def test_administration(simulator: Simulator, client: Client) -> None:
    faults = {"faults": [{"kind": "status", "code": 503, "count": 1, "match": "ur-1\\b"}], "seed": 3}
    assert client("POST", "/_simulator/faults", json.dumps(faults)).json == {"faults": 1}
    assert client("POST", "/sgas/ur", message(record(1))).status == 503
    assert client("POST", "/sgas/ur", message(record(1))).status == 200
    stats = client("GET", "/_simulator/stats").json
    assert stats["sgas"]["records"] == 1
    assert stats["sgas"]["refused"] == 1
    assert stats["faults"][0]["applied"] == 1
    held = client("GET", "/_simulator/holdings").json
    assert held["sgas"]["ur-1"]["received"] == 1
    assert held["apel"]["messages"] == 0
    assert client("POST", "/_simulator/reset").status == 200
    assert client("GET", "/_simulator/holdings").json["sgas"] == {}


@pytest.mark.parametrize(
    "body",
    ["", "[]", '{"faults": [{"kind": "explode"}]}', '{"faults": [{"kind": "status", "code": 99}]}',
     '{"faults": [{"kind": "status", "match": "("}]}', '{"faults": [{"kind": "status", "cuont": 1}]}',
     '{"faults": [{"kind": "status", "retry_after": "1\\r\\nX: y"}]}',
     '{"faults": [{"kind": "slow", "interval_s": 0}]}',
     '{"faults": [{"kind": "status", "probability": 2}]}'],
)  # fmt: skip
def test_invalid_faults_change_nothing(simulator: Simulator, client: Client, body: str) -> None:
    simulator.faults.replace([Fault("status", code=502)])
    assert client("POST", "/_simulator/faults", body).status == 400
    assert client("POST", "/sgas/ur", message(record(1))).status == 502
