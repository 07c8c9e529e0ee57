"""HTTP/1.1 over TLS on loopback: a thread for each connection, with limits, and fast enough for benchmarks.

A client certificate is requested and not required: each service has its own answer to a client without one.
Certificates of other CAs fail in the handshake. Expired, revoked, and proxy certificates reach the service, which
answers as nginx does. Requests are parsed with h11, within limits, since any program may connect. Ambiguous requests
are refused as nginx does (Content-Length together with chunks, folded headers). No path of a request names a file.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol

import h11
import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from publisher.security.credentials import is_proxy
from publisher.security.distinguished_name import slash_dn
from publisher.security.revocation import RevocationError, RevocationLists
from publisher.simulator.pki import Pki

_MOST_HEAD_BYTES = 32 * 1024
_LONGEST_TARGET = 8000
_READ_BYTES = 64 * 1024
_FOLDED = re.compile(rb"\n[ \t]")


class BadRequestError(Exception):
    """The request is not valid HTTP, or ambiguous. The text says why."""


class TooLargeError(Exception):
    """The body is larger than the limit of its path."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Head(msgspec.Struct, frozen=True):
    """Request line and headers; names in lower case, repeated ones joined by a comma."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    keep_alive: bool


class HttpReader:
    """Reads the requests of one connection, one after the other.

    Each request has a separate parser, which does not see the answers: a fault may be an answer that h11 does not
    send.
    """

    def __init__(self, connection: socket.socket) -> None:
        """`connection` is blocking, with a time-out; its `OSError` and `TimeoutError` are passed on."""
        self._connection = connection
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD_BYTES)

    def head(self) -> Head:
        """The head of the next request. Raises `BadRequestError`, and `ConnectionResetError` if the client is gone."""
        data, _ = self._parser.trailing_data
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD_BYTES)
        received = bytearray(data)
        while not isinstance(request := self._parsed(data), h11.Request):
            data = self._receive()
            received += data
        rest, _ = self._parser.trailing_data
        if _FOLDED.search(received, 0, len(received) - len(rest)):
            raise BadRequestError("a header is folded")
        method, target = request.method.decode("ascii"), request.target.decode("ascii")
        if not method.isupper() or not target.startswith("/") or len(target) > _LONGEST_TARGET:
            raise BadRequestError("the request line has no such method or path")
        if request.http_version not in {b"1.0", b"1.1"}:
            raise BadRequestError("the version of HTTP is neither 1.0 nor 1.1")
        headers: dict[str, str] = {}
        for raw_name, raw_value in request.headers:
            name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if "content-length" in headers and "transfer-encoding" in headers:
            raise BadRequestError("its length is ambiguous")
        path, _, query = target.partition("?")
        connection = headers.get("connection", "").lower()
        keep_alive = connection == "keep-alive" if request.http_version == b"1.0" else connection != "close"
        return Head(method, path, query, headers, keep_alive)

    def body(self, head: Head, limit_bytes: int) -> bytes:
        """The body of the request. Raises `BadRequestError` and, before more is read, `TooLargeError`."""
        if int(head.headers.get("content-length", 0)) > limit_bytes:
            raise TooLargeError(head.path)
        if self._parser.they_are_waiting_for_100_continue:
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts: list[bytes] = []
        while not isinstance(event := self._parsed(b""), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                parts.append(event.data)
                limit_bytes -= len(event.data)
                if limit_bytes < 0:
                    raise TooLargeError(head.path)
            else:
                self._parser.receive_data(self._receive())
        return b"".join(parts)

    def discard(self, limit_bytes: int) -> None:
        """Read until the client closes, so that it can read the answer while it still sends."""
        while limit_bytes > 0 and (received := self._connection.recv(_READ_BYTES)):
            limit_bytes -= len(received)

    def _receive(self) -> bytes:
        data = self._connection.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the client left")
        return data

    def _parsed(self, data: bytes) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        try:
            if data:  # h11 takes empty data as the end of the connection
                self._parser.receive_data(data)
            return self._parser.next_event()
        except h11.RemoteProtocolError as error:
            raise BadRequestError(str(error)) from error


class Peer(msgspec.Struct, frozen=True):
    """The client of a connection. `problem`: why nginx refuses its certificate, or empty."""

    dn: str
    cn: str
    problem: str


def peer_of(der: bytes, authority: x509.Certificate, lists: RevocationLists) -> Peer:
    """Check a certificate whose issuer the handshake has verified: its dates, whether it is a proxy, or revoked."""
    certificate = x509.load_der_x509_certificate(der)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Peer(
        dn=slash_dn(certificate.subject),
        cn=str(names[-1].value) if names else "",
        problem=_problem(certificate, authority, lists),
    )


def _problem(certificate: x509.Certificate, authority: x509.Certificate, lists: RevocationLists) -> str:
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        return "certificate has expired"
    if now < certificate.not_valid_before_utc:
        return "certificate is not yet valid"
    if is_proxy(certificate):
        return "proxy certificates not allowed"
    try:
        lists.check((certificate, authority), now)
    except RevocationError:
        return "certificate revoked"
    return ""


_IDLE_S = 120.0
_MOST_CONNECTIONS = 256
_DISCARDED_BYTES = 64 * 2**20
_X509_V_FLAG_ALLOW_PROXY_CERTS = 0x40
_X509_V_FLAG_NO_CHECK_TIME = 0x200000
_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    406: "Not Acceptable", 408: "Request Timeout", 409: "Conflict", 413: "Request Entity Too Large",
    429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip

Delivery = Literal["send", "close", "reset", "slow", "hang"]


class Request(msgspec.Struct, frozen=True):
    """A request as the services see it. Names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    peer: Peer | None


class Response(msgspec.Struct, frozen=True):
    """An answer, and how it is sent (`delivery`: all but "send" close the connection)."""

    status: int
    body: bytes
    content_type: str = "text/html"
    headers: tuple[tuple[str, str], ...] = ()
    delivery: Delivery = "send"
    interval_s: float = 1.0


class SimulatedSite(Protocol):
    """The services behind a server."""

    def limit_bytes(self, path: str) -> int:
        """The largest body of a request to this path, bytes."""
        ...

    def too_large(self, path: str) -> Response:
        """The answer to a request with a larger body."""
        ...

    def handle(self, request: Request) -> Response:
        """Answer a request. Called by several threads at the same time."""
        ...


class SimulatorServer:
    """Listens on 127.0.0.1 from its construction; `close` ends the threads."""

    def __init__(self, site: SimulatedSite, pki: Pki, *, port: int = 0) -> None:
        """Raises `OSError` for a port in use."""
        self._site = site
        self._context = server_context(pki)
        self._authority = pki.ca.load()
        self._lists = RevocationLists(pki.ca_directory)
        self._closing = threading.Event()
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name=f"simulator-{self.port}", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Stop listening, close the connections, and wait for their threads. May be called twice."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        threads = self._cut()
        self._acceptor.join(timeout=10)
        threads += self._cut()  # again: a client may have connected in between
        for thread in threads:
            thread.join(timeout=10)

    def _cut(self) -> list[threading.Thread]:
        with self._lock:
            connections = list(self._connections.items())
        for raw, _ in connections:
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)
        return [thread for _, thread in connections]

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            self._slots.acquire()
            thread = threading.Thread(target=self._connection, args=(raw,), daemon=True)
            with self._lock:
                self._connections[raw] = thread
            thread.start()

    def _connection(self, raw: socket.socket) -> None:
        """Handle one connection from handshake to end. A TLS socket takes over the descriptor, so a duplicate of the
        raw socket is kept, by which `close` can wake the thread."""
        try:
            with contextlib.suppress(OSError, ssl.SSLError):  # a client may disconnect at any time
                raw.settimeout(_IDLE_S)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._context.wrap_socket(raw.dup(), server_side=True) as tls:
                    self._serve_requests(tls)
        finally:
            with self._lock:
                del self._connections[raw]
            raw.close()
            self._slots.release()

    def _serve_requests(self, tls: ssl.SSLSocket) -> None:
        der = tls.getpeercert(binary_form=True)
        peer = peer_of(der, self._authority, self._lists) if der else None
        reader = HttpReader(tls)
        while not self._closing.is_set():
            try:
                head = reader.head()
                body = reader.body(head, self._site.limit_bytes(head.path))
            except TooLargeError as error:
                self._send(tls, self._site.too_large(error.path), keep=False)
                reader.discard(_DISCARDED_BYTES)
                return
            except BadRequestError as error:
                self._send(tls, Response(400, f"400 Bad Request: {error}\n".encode(), "text/plain"), keep=False)
                return
            response = self._site.handle(_request(head, body, peer))
            if not self._deliver(tls, response, keep=head.keep_alive):
                return

    def _deliver(self, tls: ssl.SSLSocket, response: Response, *, keep: bool) -> bool:
        """Whether the connection goes on."""
        if response.delivery == "send":
            self._send(tls, response, keep=keep)
            return keep
        if response.delivery == "slow":
            for byte in _encoded(response, keep=False):
                tls.sendall(bytes((byte,)))
                if self._closing.wait(response.interval_s):
                    break
        elif response.delivery == "hang":
            tls.recv(1)  # returns when the client disconnects, or sends more
        elif response.delivery == "reset":
            tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _send(self, tls: ssl.SSLSocket, response: Response, *, keep: bool) -> None:
        tls.sendall(_encoded(response, keep=keep))


def server_context(pki: Pki) -> ssl.SSLContext:
    """TLS 1.2 or later with requested client certificates; the docstring of the module says which are accepted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(pki.server.certificate, pki.server.key)
    context.load_verify_locations(pki.ca_file)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags = ssl.VerifyFlags(
        context.verify_flags | _X509_V_FLAG_ALLOW_PROXY_CERTS | _X509_V_FLAG_NO_CHECK_TIME
    )
    return context


def _request(head: Head, body: bytes, peer: Peer | None) -> Request:
    return Request(head.method, head.path, head.query, head.headers, body, peer)


def _encoded(response: Response, *, keep: bool) -> bytes:
    lines: Sequence[str] = [
        f"HTTP/1.1 {response.status} {_REASONS.get(response.status, 'Status')}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        f"Connection: {'keep-alive' if keep else 'close'}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + response.body
