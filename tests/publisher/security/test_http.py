"""Every way in which an exchange can end, on real sockets and TLS; and the mapping of httpcore's errors with respx."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from collections.abc import Iterator

import httpcore
import pytest
import respx

from publisher.errors import ConfigError
from publisher.security.exchange import Failure, Timing
from publisher.security.http import HttpClient, Reply
from publisher.security.tls import Trust
from publisher.simulator.pki import Pki, make_pki
from tests.publisher.http_client import client, ok, post
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, ScriptedServer, serve, unused_port


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def test_when_stopped_it_waits_a_few_seconds_for_an_answer(pki: Pki) -> None:
    stop = threading.Event()

    def silent(_request: ScriptedRequest, connection: ScriptedConnection) -> None:
        stop.set()
        connection.wait()

    with serve(silent, pki) as server:
        failure = post(client(server, pki, timeout_s=3600.0, stopping=stop.is_set, timing=Timing(grace_s=0.3)), server)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("stopped", True)
    assert "was stopped" in failure.message


def test_a_stop_while_it_connects_is_not_a_timeout(pki: Pki) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}/"
        stopped = HttpClient(
            url,
            trust=Trust(None, pki.ca_file),
            credentials=lambda: None,
            timeout_s=3600.0,
            stopping=lambda: True,
            timing=Timing(grace_s=0.1),
        )
        failure = stopped.request("POST", url, content=b"x")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("stopped", False)


def test_when_stopped_it_still_takes_the_answer_of_the_present_message(pki: Pki) -> None:
    stop = threading.Event()

    def answers(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        stop.set()
        ok(request, connection)

    with serve(answers, pki) as server:
        reply = post(client(server, pki, stopping=stop.is_set), server)
    assert isinstance(reply, Reply)
    assert reply.body == b"fine records"


def test_an_answer_that_is_late_is_taken_though_it_was_looked_for_before(pki: Pki) -> None:
    looks = 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        return False

    def late(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        while looks < 12:
            connection.stopped.wait(0.01)
        ok(request, connection)

    with serve(late, pki) as server:
        reply = post(client(server, pki, stopping=look, timing=Timing(check_every_s=0.01)), server)
    assert isinstance(reply, Reply)
    assert reply.body == b"fine records"


class Pieces:
    def __len__(self) -> int:
        return 200_003

    def __iter__(self) -> Iterator[bytes]:
        yield from (b"a" * 100_000, b"b" * 100_000, b"end")


def test_what_is_made_in_parts_comes_whole_with_its_length(pki: Pki) -> None:
    with serve(ok, pki) as server:
        http = client(server, pki)
        reply = http.request("POST", f"{server.url}/x", content=Pieces(), headers={"X-A": "b"})
        http.close()
    assert isinstance(reply, Reply)
    assert reply.body == b"fine " + b"".join(Pieces())
    (request,) = server.requests
    assert (request.headers["content-length"], request.headers["x-a"]) == ("200003", "b")
    assert "transfer-encoding" not in request.headers


def test_a_body_is_freed_with_its_answer_and_not_when_python_searches_for_cycles(pki: Pki) -> None:
    """A message has up to a megabyte, and Python searches rarely."""
    pieces = Pieces()
    freed = weakref.ref(pieces)
    with serve(ok, pki) as server:
        http = client(server, pki)
        gc.disable()
        try:
            http.request("POST", f"{server.url}/x", content=pieces)
            del pieces
            assert freed() is None
        finally:
            gc.enable()
        http.close()


def test_one_connection_serves_all_requests(pki: Pki) -> None:
    with serve(ok, pki) as server:
        http = client(server, pki)
        for number in range(3):
            body = f"{number}".encode()
            assert http.request("POST", f"{server.url}/x", content=body) == Reply(
                200, {"content-length": "6"}, b"fine " + body
            )
        http.close()
        assert {request.connection for request in server.requests} == {1}
        assert http.request("GET", server.url) == Reply(200, {"content-length": "5"}, b"fine ")
        http.close()
        assert server.connections == 2


def test_closed_port_and_unknown_name(pki: Pki) -> None:
    closed = client(f"https://localhost:{unused_port()}", pki)
    port = unused_port()
    failure = closed.request("GET", f"https://localhost:{port}")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("closed", False)
    assert "refused" in failure.message
    assert f"localhost port {port}" in failure.message
    unknown = client("https://host.invalid", pki)
    failure = unknown.request("GET", "https://host.invalid")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("name", False)
    assert "host.invalid" in failure.message


def test_what_was_written_and_not_answered_is_unknown(pki: Pki) -> None:
    with serve(lambda _, connection: connection.wait(), pki) as server:
        failure = post(client(server, pki, timeout_s=0.5), server)
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.sent) == ("timeout", True)


def test_what_could_not_be_written_was_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://localhost:{silent.getsockname()[1]}"
        failure = client(url, timeout_s=0.5).request("POST", url, content=b"x" * 50_000_000)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("write-timeout", False)


@pytest.mark.parametrize("drip", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_an_answer_that_drips_in_ends_with_the_time_allowed(drip: bytes) -> None:
    def script(_: ScriptedRequest, connection: ScriptedConnection) -> None:
        connection.sock.sendall(drip)
        while not connection.stopped.wait(0.05):
            connection.sock.sendall(b"x")

    with serve(script) as server:
        failure = post(client(server, timeout_s=1.0), server)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("timeout", True)


def test_an_answer_cut_after_acceptance_is_unknown(pki: Pki) -> None:
    def script(_: ScriptedRequest, connection: ScriptedConnection) -> None:
        connection.answer(200, b'{"id"', length=100)
        connection.cut()

    with serve(script, pki) as server:
        failure = post(client(server, pki), server)
    assert isinstance(failure, Failure)
    assert failure.kind in {"cut", "no-http"}
    assert failure.sent
    assert len(server.requests) == 1


def test_the_status_of_an_error_counts_even_where_its_text_is_cut() -> None:
    def script(_: ScriptedRequest, connection: ScriptedConnection) -> None:
        connection.answer(500, b"Processing", length=100)
        connection.sock.shutdown(socket.SHUT_RDWR)

    with serve(script) as server:
        assert post(client(server), server) == Reply(500, {"content-length": "100"}, b"Processing")


def test_answers_are_bounded() -> None:
    with serve(lambda _, connection: connection.answer(200, b"x" * (17 << 20))) as server:
        failure = post(client(server), server)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("too-large", True)
    with serve(lambda _, connection: connection.answer(500, b"x" * (17 << 20))) as server:
        reply = post(client(server), server)
    assert isinstance(reply, Reply)
    assert (reply.status, len(reply.body)) == (500, 64 << 10)


def test_an_answer_that_is_not_http_is_reported_as_such() -> None:
    with serve(lambda _, connection: connection.sock.sendall(b"220 mail.example.org ESMTP\r\n\r\n")) as server:
        failure = post(client(server), server)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("no-http", True)


def test_a_connection_closed_between_two_posts_is_opened_again(pki: Pki) -> None:
    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.body == b"second" and request.connection == 1:
            connection.cut()
        else:
            connection.answer(200, request.body)

    with serve(script, pki) as server:
        http = client(server, pki)
        for body in (b"first", b"second", b"third"):
            reply = http.request("POST", server.url, content=body)
            assert isinstance(reply, Reply)
            assert reply.body == body
        http.close()
    assert [request.body for request in server.requests] == [b"first", b"second", b"second", b"third"]


def test_a_second_failure_after_reopening_is_unknown(pki: Pki) -> None:
    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.body == b"second":
            connection.cut()
        else:
            connection.answer(200)

    with serve(script, pki) as server:
        http = client(server, pki)
        http.request("POST", server.url, content=b"first")
        failure = http.request("POST", server.url, content=b"second")
        http.close()
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("cut", True)
    assert len(server.requests) == 3


@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("status", [400, 401, 409, 413, 429, 500])
def test_a_refusal_after_reopening_says_nothing_of_the_request_before(pki: Pki, method: str, status: int) -> None:
    """The service may have processed what it did not answer: its record would be taken for certainly not there."""

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.path.endswith("first"):
            connection.answer(200)
        elif request.connection == 1:
            connection.cut()
        else:
            connection.answer(status)

    with serve(script, pki) as server:
        http = client(server, pki)
        http.request(method, f"{server.url}/first")
        outcome = http.request(method, f"{server.url}/second")
        http.close()
    assert len(server.requests) == 3
    if method == "GET":
        assert isinstance(outcome, Reply)
        assert outcome.status == status
    else:
        assert isinstance(outcome, Failure)
        assert (outcome.kind, outcome.sent) == ("cut", True)
        assert str(status) in outcome.message


def test_an_early_answer_to_a_large_request_is_read() -> None:
    answered = b"HTTP/1.1 413 X\r\nContent-Length: 9\r\n\r\ntoo large"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_at_once() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(answered)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 20):
                    pass

        thread = threading.Thread(target=answer_at_once)
        thread.start()
        url = f"http://localhost:{listener.getsockname()[1]}"
        http = client(url)
        reply = http.request("POST", url, content=b"x" * 5_000_000)
        http.close()
        thread.join()
    assert reply == Reply(413, {"content-length": "9"}, b"too large")


@pytest.mark.parametrize(
    "url",
    [
        "http://sgas.example.org/sgas",
        "http://localhost.example.org",
        "http://192.0.2.1",
        "http://[2001:db8::1]/",
        "https://user:secret@sgas.example.org",
        "ftp://localhost",
        "https://",
        "https://exa\0mple",
        "localhost",
    ],
)
def test_addresses_that_would_show_credentials_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        client(url)
    assert "secret" not in str(raised.value)


def test_a_request_has_these_headers_and_a_repeated_header_of_an_answer_is_one(pki: Pki) -> None:
    def repeats(_request: ScriptedRequest, connection: ScriptedConnection) -> None:
        connection.answer(200, headers={"Via": "a", "via": "b"})

    with serve(repeats, pki) as server:
        http = client(server, pki)
        reply = http.request("GET", f"{server.url}/a b?c")
        post(http, server, b"abc")
    assert reply == Reply(200, {"content-length": "0", "via": "a, b"}, b"")
    asked, posted = server.requests
    common = {
        "host": f"localhost:{server.port}",
        "connection": "keep-alive",
        "user-agent": "usage-publisher",
        "accept": "*/*",
        "accept-encoding": "identity",
    }
    assert (asked.path, asked.headers) == ("/a%20b?c", common)
    assert (posted.path, posted.headers) == ("/x", {**common, "content-length": "3"})


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.9", "http://[::1]:80/x"])
def test_plain_http_is_for_this_host(url: str) -> None:
    client(url)


def test_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "http://localhost:1")
    with serve(ok) as server:
        assert isinstance(post(client(server), server), Reply)


def test_a_proxy_is_used_where_it_is_configured(pki: Pki) -> None:
    with serve(ok) as proxy:
        reply = post(client("http://localhost:1", proxy=proxy.url), ScriptedServer(1, "http"))
    assert isinstance(reply, Reply)
    assert proxy.requests[0].path == "http://localhost:1/x"
    with serve(lambda _, connection: connection.answer(403)) as proxy:
        failure = client("https://localhost:1", pki, proxy=proxy.url).request("POST", "https://localhost:1")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == ("proxy", False)
    assert proxy.requests[0].method == "CONNECT"
    for wrong in ("socks5://localhost", "http://user:secret@localhost", "localhost:3128"):
        with pytest.raises(ConfigError) as raised:
            client("http://localhost:1", proxy=wrong)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("error", "kind", "sent"),
    [
        (httpcore.ConnectTimeout("x"), "timeout", False),
        (httpcore.ReadTimeout("x"), "timeout", True),
        (httpcore.ConnectError("x"), "closed", False),
        (httpcore.ProxyError("x"), "proxy", False),
    ],
)
def test_errors_map_to_failures(error: Exception, kind: str, sent: bool, respx_mock: respx.MockRouter) -> None:
    """The body is read before the error; `test_what_could_not_be_written_was_not_sent` has a write that times out."""
    respx_mock.get("https://sgas.example.org/").mock(side_effect=error)
    failure = client("https://sgas.example.org").request("GET", "https://sgas.example.org/")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.sent) == (kind, sent)


def test_what_is_sent_says_who_sends(respx_mock: respx.MockRouter) -> None:
    route = respx_mock.post("https://sgas.example.org/sgas/ur").respond(204)
    http = client("https://sgas.example.org")
    headers = {"x-api-key": "secret"}
    reply = http.request("POST", "https://sgas.example.org/sgas/ur", content=b"x", headers=headers)
    assert isinstance(reply, Reply)
    assert reply.status == 204
    sent = route.calls.last.request
    assert sent.headers["user-agent"] == "usage-publisher"
    assert sent.headers["accept-encoding"] == "identity"
    assert sent.headers["x-api-key"] == "secret"
    assert sent.content == b"x"
