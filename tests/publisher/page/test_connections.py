"""The page's connections, on real sockets and TLS: idle connections do not block others; what is not HTTP is
refused."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from publisher.api import Publisher
from publisher.page import server as page_server
from publisher.publish.context import Tools
from publisher.simulator.pki import Pki, make_pki
from tests.publisher.cli.program import Program
from tests.publisher.page.conftest import TOKENS, Served, token_file

FORM = "Host: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
CLOSE = "Connection: close\r\n\r\n"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def trusting(pki: Pki) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=pki.ca_file)


@pytest.fixture(scope="module")
def tls_site(month: Program, pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Program:
    site = month.copy(tmp_path_factory.mktemp("tls"))
    token_file(site.folder)
    settings = f'tokens = "tokens.toml"\ncertificate = "{pki.server.certificate}"\nkey = "{pki.server.key}"\n'
    site.configure(site.config.read_text(encoding="utf-8") + settings)
    return site


def connected(url: str, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(url)), 60, source_address=(host, 0))


def port_of(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2])


def ended(connection: socket.socket) -> bytes:
    """All that comes until the other side ends."""
    answer = b""
    with connection:
        while part := connection.recv(1 << 16):
            answer += part
    return answer


def asked(connection: socket.socket, text: str) -> bytes:
    connection.sendall(text.encode())
    return ended(connection)


@pytest.mark.parametrize("greeted", [False, True], ids=["silent", "silent after the handshake"])
def test_silent_connections_do_not_block_others(tls_site: Program, trusting: ssl.SSLContext, greeted: bool) -> None:
    with Served(tls_site) as served, ExitStack() as stack:
        for _ in range(240):
            silent = stack.enter_context(connected(served.url))
            if greeted:
                stack.enter_context(trusting.wrap_socket(silent, server_hostname="localhost"))
        for host in ("127.0.0.2", "127.0.0.1"):
            mine = trusting.wrap_socket(connected(served.url, host), server_hostname="localhost")
            answer = asked(mine, f"GET /login HTTP/1.1\r\nHost: localhost\r\n{CLOSE}")
            assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]
        assert served.stop() == ""


@contextmanager
def impatient(site: Program) -> Iterator[str]:
    """The address of a page that waits a moment only."""
    stop = threading.Event()
    tools = Tools(lambda: int(time.time()), lambda _: None, stopping=stop.is_set)
    with Publisher.from_file(site.config, tools, read_only=True) as publisher:
        server = page_server.PageServer(publisher, publisher.config.serve, lambda _: None, wait_s=0.2)
        thread = threading.Thread(target=server.run)
        url = server.url
        thread.start()
        try:
            yield url
        finally:
            stop.set()
            thread.join()


def test_a_handshake_that_does_not_come_is_not_waited_for(tls_site: Program) -> None:
    with impatient(tls_site) as url:
        assert ended(connected(url)) == b""


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ("", b""),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b""),
        ("GET /help HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT", b"HTTP/1.1 303"),
        (f"POST /login HTTP/1.1\r\n{FORM}Content-Length: 100\r\n\r\ntoken=", b"HTTP/1.1 408"),
    ],
    ids=["nothing", "half a header", "half of the next request", "half a body"],
)
def test_half_a_request_is_not_waited_for(
    tls_site: Program, trusting: ssl.SSLContext, sent: str, answer: bytes
) -> None:
    with impatient(tls_site) as url:
        connection = trusting.wrap_socket(connected(url), server_hostname="localhost", suppress_ragged_eofs=True)
        found = asked(connection, sent)
        assert found.startswith(answer)
        assert found.count(b"HTTP/1.1") == (1 if answer else 0)


def test_an_answer_that_is_not_read_is_not_waited_for(month: Program) -> None:
    with impatient(month) as url, connected(url) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(60)
        query = "since=2026-11-01&days=30&job=*"
        for _ in range(200):  # more than the buffers of both sides hold
            try:
                reader.sendall(f"GET /job.json?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            except ConnectionError:
                return  # it was left: nothing is taken from it any more
        with pytest.raises(ConnectionError):
            reader.sendall(bytes(1 << 28))


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("Host: [::1]", b"303"),
        ("Host: [::1]:8642", b"303"),
        ("Host: [::1]evil", b"421"),
        ("Host: [::1]evil:80", b"421"),
        ("Host: localhost:80evil", b"421"),
        ("Host: user@localhost", b"421"),
        ("Host: ", b"421"),
        ("Host: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", b"400"),
        ("Host: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3", b"400"),
        ("Host: localhost\r\nHost: localhost", b"400"),
        ("Host: localhost\r\nContent-Length: 3\r\nContent-Length: 4", b"400"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(guarded_page: str, head: str, code: bytes) -> None:
    # After each, the request that a server that reads it the other way would take for the next one.
    smuggled = "0\r\n\r\nGET /help HTTP/1.1\r\nHost: localhost\r\n"
    answer = asked(connected(guarded_page), f"GET / HTTP/1.1\r\n{head}\r\n{CLOSE}{smuggled}")
    assert answer.startswith(b"HTTP/1.1 " + code)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_chunked_request_of_http_1_0_is_refused(guarded_page: str) -> None:
    answer = asked(connected(guarded_page), "GET / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")


def logged_in(url: str, head: str, host: str = "127.0.0.1") -> bytes:
    body = f"token={TOKENS['root']}"
    return asked(
        connected(url, host),
        f"POST /login HTTP/1.1\r\n{FORM}{head}Content-Length: {len(body)}\r\n{CLOSE}{body}",
    )


FORWARDED = "X-Forwarded-For: 203.0.113.9, 198.51.100.7\r\nX-Forwarded-Proto: https\r\n"


def test_the_client_is_who_connects_unless_a_proxy_is_configured(month: Program, tmp_path: Path) -> None:
    site = month.copy(tmp_path / "site")
    token_file(site.folder)
    settings = site.config.read_text(encoding="utf-8") + 'tokens = "tokens.toml"\n'
    site.configure(settings)
    with Served(site) as served:
        assert b"session=" in (found := logged_in(served.url, FORWARDED))
        assert b"Secure" not in found
        logged_in(served.url, "X-Forwarded-For: \x1b[2Jnobody\r\n")
    site.configure(settings + 'proxies = ["127.0.0.3", "198.51.100.0/24"]\n')
    with Served(site) as served:
        assert b"__Host-session=" in logged_in(served.url, FORWARDED, "127.0.0.3")
        logged_in(served.url, FORWARDED, "127.0.0.2")
        logged_in(served.url, "X-Forwarded-For: 203.0.113.9, nobody, 198.51.100.7\r\n", "127.0.0.3")
        logged_in(served.url, "X-Forwarded-For: ::ffff:203.0.113.8\r\n", "127.0.0.3")
    entries = site("store", "audit", "--json").ok().object["records"]
    found_addresses = sorted(entry["detail"].rpartition(" from ")[2] for entry in entries)
    assert found_addresses == ["127.0.0.1", "127.0.0.1", "127.0.0.2", "198.51.100.7", "203.0.113.8", "203.0.113.9"]


@pytest.mark.parametrize("wrong", ["localhost", "192.0.2.1/24", ""])
def test_a_proxy_is_named_by_its_address(month: Program, tmp_path: Path, wrong: str) -> None:
    site = month.copy(tmp_path / "site")
    site.configure(site.config.read_text(encoding="utf-8") + f'proxies = ["{wrong}"]\n')
    done = site("serve")
    assert done.code == 2
    assert "must be an IP address or network" in done.err
