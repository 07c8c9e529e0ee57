"""HTTP over TLS, as all services are reached: the only module that knows httpcore.

An exchange ends in a `Reply` or in a `Failure` that says whether the service may have processed the request: what was
certainly not sent waits, what may have arrived is sent again under the same ids. Nothing waits without a limit: one
clock runs from connecting to the last byte of the answer, so that an answer that comes in byte by byte ends as well.
When the program is stopped, the answer has a few seconds more.

Connections are kept. A service may close one between two posts; a request that finds it closed, with nothing read in
return, is sent once more on a new connection. Even if it was processed that does no harm: the ids are the same.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import httpcore
import msgspec

from publisher.errors import ConfigError
from publisher.security.connections import is_loopback
from publisher.security.credentials import ClientCredentials
from publisher.security.revocation import RevocationError, RevocationLists
from publisher.security.tls import Trust, make_context, verified_chain

FailureKind = Literal[
    "name", "closed", "untrusted", "client-refused", "tls", "timeout", "cut", "no-http", "too-large", "proxy", "stopped"
]

_E = TypeVar("_E", bound=BaseException)
_CONNECT_S = 20.0
_KEEPALIVE_S = 60.0
_LARGEST_ANSWER_BYTES = 16 << 20
_LARGEST_ERROR_BYTES = 64 << 10
_WRITE_BYTES = 64 << 10
_HEADERS: Final = (
    ("Connection", "keep-alive"),
    ("User-Agent", "usage-publisher"),
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),
)
_PORTS: Final = {b"http": 80, b"https": 443}
_SAFE_IN_TARGET: Final = "!#$%&'()*+,/:;=?@[\\]^`{|}"
"""Besides letters, digits, and `_.-~`: what a path and a query keep as it is written; escapes stay escapes."""
_CHECK_EVERY_S = 0.25
"""How often, during a wait for an answer, the deadline is checked, and whether the program is to stop."""
_GRACE_S = 3.0
"""How long an answer may still take once the program is to stop."""
_HINTS: dict[FailureKind, str] = {
    "name": "Check the host name in the URL and the name service of this host",
    "closed": "Check host and port in the URL, the firewall, and that the service runs",
    "untrusted": "Check ca_directory or ca_file, and that the URL has the name in the server's certificate",
    "client-refused": "Check that the service trusts the authority of our certificate and knows its name",
    "timeout": "It is tried again; a longer timeout can be set for the target",
    "proxy": "Check the proxy setting of the target",
    "stopped": "The next run sends it again",
}


class Reply(msgspec.Struct, frozen=True):
    """An answer: header names in lower case. The body of an error is kept only at its beginning."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Failure(msgspec.Struct, frozen=True):
    """No answer. `sent`: the service may have received the whole request, so its outcome is not known."""

    kind: FailureKind
    message: str
    sent: bool

    @property
    def hint(self) -> str:
        """What to do now."""
        return _HINTS.get(self.kind, "")


class Parts(Protocol):
    """The body of a request in parts: `len` is their size in bytes; each iteration gives the same bytes."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes]: ...


class HttpClient:
    """Requests to one service over one kept connection. Used by one thread at a time."""

    def __init__(
        self,
        url: str,
        *,
        trust: Trust,
        credentials: Callable[[], ClientCredentials | None],
        timeout_s: float,
        proxy: str | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`credentials` is asked when a connection is first needed, and again after `close`; `stopping` at any time.

        Raises `ConfigError` for a URL that would send credentials in plain text.
        """
        _service_url(url)
        self._trust = trust
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._proxy = None if proxy is None else _proxy_url(proxy)
        self._progress = _Progress(stopping)
        self._pool: httpcore.ConnectionPool | None = None

    def request(
        self, method: str, url: str, *, content: bytes | Parts = b"", headers: Mapping[str, str] | None = None
    ) -> Reply | Failure:
        """One exchange. Raises `CredentialError` where ours, or the authorities to trust, cannot be used."""
        service = _service_url(url)
        sent = False
        while True:
            outcome = self._attempt(method, service, content, headers or {})
            if isinstance(outcome, Reply):
                return outcome
            failure = _classified(outcome, self._progress, self._proxy or service)
            if sent and not failure.sent:
                failure = msgspec.structs.replace(failure, sent=True)
            if failure.kind != "cut" or not self._progress.reused or self._progress.read_bytes:
                return failure
            sent = sent or failure.sent

    def close(self) -> None:
        """Close the connection. The next request opens a new one, with credentials and authorities read anew."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def _attempt(
        self, method: str, url: httpcore.URL, content: bytes | Parts, headers: Mapping[str, str]
    ) -> Reply | httpcore.NetworkError | httpcore.ProtocolError | httpcore.TimeoutException | httpcore.ProxyError:
        pool = self._connected()
        self._progress.begin(self._timeout_s)
        sent = [("Host", _host_of(url)), *_HEADERS, *headers.items()]
        if content or method == "POST":
            sent.append(("Content-Length", str(len(content))))
        limits = dict.fromkeys(("read", "write", "pool"), self._timeout_s)
        limits["connect"] = min(_CONNECT_S, self._timeout_s)
        extensions = {"trace": self._progress.trace, "timeout": limits}
        body = iter((content,)) if isinstance(content, bytes) else iter(content)
        try:
            with pool.stream(
                method, url, headers=sent, content=body if content else None, extensions=extensions
            ) as response:
                return _read(response)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.ProxyError) as error:
            return error

    def _connected(self) -> httpcore.ConnectionPool:
        if self._pool is None:
            context = make_context(self._trust, self._credentials())
            backend = _Backend(self._progress, self._trust.revocation_lists())
            if self._proxy is None:
                self._pool = httpcore.ConnectionPool(
                    ssl_context=context, max_connections=1, keepalive_expiry=_KEEPALIVE_S, network_backend=backend
                )
            else:
                self._pool = httpcore.HTTPProxy(
                    self._proxy,
                    proxy_ssl_context=make_context(self._trust, None) if self._proxy.scheme == b"https" else None,
                    ssl_context=context,
                    max_connections=1,
                    keepalive_expiry=_KEEPALIVE_S,
                    network_backend=backend,
                )
        return self._pool


class _TooLargeError(httpcore.NetworkError):
    """The answer has more bytes than any answer may have."""


class _Progress:
    """The progress of the present exchange, and its deadline."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._stopped_at: float | None = None
        self.begin(0.0)

    def begin(self, timeout_s: float) -> None:
        self.deadline = time.monotonic() + timeout_s
        self.reused = True
        self.written = False
        self.read_bytes = 0
        self._connecting = False

    @property
    def stopped(self) -> bool:
        """Whether the program was asked to stop during the exchange."""
        return self._stopped_at is not None

    def trace(self, event: str, information: Mapping[str, Any]) -> None:
        """Called by httpcore at each step. A CONNECT to a proxy is not our request."""
        if event.endswith("connect_tcp.started"):
            self.reused = False
        elif event == "http11.send_request_headers.started":
            self._connecting = information["request"].method == b"CONNECT"
        elif event == "http11.send_request_body.complete":
            self.written = not self._connecting

    def remaining_s(self, limit_s: float | None, timed_out: type[httpcore.TimeoutException]) -> float:
        now = time.monotonic()
        if self._stopped_at is None and self._stopping():
            self._stopped_at = now
        ends = self.deadline if self._stopped_at is None else min(self.deadline, self._stopped_at + _GRACE_S)
        remaining = ends - now
        if remaining <= 0:
            raise timed_out("the exchange took too long")
        return remaining if limit_s is None else min(limit_s, remaining)


class _Stream(httpcore.NetworkStream):
    """A connection whose reads and writes end at the deadline of the exchange, to a server that is not revoked."""

    def __init__(self, stream: httpcore.NetworkStream, progress: _Progress, lists: RevocationLists) -> None:
        self._stream = stream
        self._progress = progress
        self._lists = lists

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            remaining_s = self._progress.remaining_s(timeout, httpcore.ReadTimeout)
            try:
                data = self._stream.read(max_bytes, min(remaining_s, _CHECK_EVERY_S))
            except httpcore.ReadTimeout:
                continue
            self._progress.read_bytes += len(data)
            return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):
            remaining_s = self._progress.remaining_s(timeout, httpcore.WriteTimeout)
            self._stream.write(buffer[start : start + _WRITE_BYTES], remaining_s)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        remaining_s = self._progress.remaining_s(timeout, httpcore.ConnectTimeout)
        stream = self._stream.start_tls(ssl_context, server_hostname, remaining_s)
        try:
            self._lists.check(verified_chain(stream.get_extra_info("ssl_object")), datetime.now(UTC))
        except RevocationError as error:
            stream.close()
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(stream, self._progress, self._lists)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Opens connections that keep to the deadline."""

    def __init__(self, progress: _Progress, lists: RevocationLists) -> None:
        self._progress = progress
        self._lists = lists

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        remaining_s = self._progress.remaining_s(timeout, httpcore.ConnectTimeout)
        stream = super().connect_tcp(host, port, remaining_s, local_address, socket_options)
        return _Stream(stream, self._progress, self._lists)


def _read(response: httpcore.Response) -> Reply:
    """The whole answer. Of an error, a beginning is enough, and its status counts even where the rest is cut off."""
    success = response.status // 100 == 2
    limit = _LARGEST_ANSWER_BYTES if success else _LARGEST_ERROR_BYTES
    body = bytearray()
    try:
        for part in response.iter_stream():
            body += part
            if len(body) > limit:
                if success:
                    raise _TooLargeError(f"the answer has more than {limit} bytes")
                break
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException):
        if success:
            raise
    return Reply(status=response.status, headers=_joined(response.headers), body=bytes(body[:limit]))


def _joined(received: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name in lower case; the values of a repeated one after each other (RFC 9110, 5.3)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in received:
        name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _classified(error: Exception, progress: _Progress, peer: httpcore.URL) -> Failure:
    if isinstance(error, httpcore.TimeoutException) and progress.stopped:
        return Failure("stopped", "the program was stopped before the answer came", progress.written)
    unconnected = _handshake_failure(error) or _connect_failure(error, peer)
    if unconnected is not None:
        return unconnected
    sent = progress.written
    if isinstance(error, _TooLargeError):
        return Failure("too-large", str(error), sent)
    if isinstance(error, httpcore.TimeoutException):
        what = "no complete answer" if sent else "the request could not be written"
        return Failure("timeout", f"{what} within the time allowed", sent)
    if isinstance(error, httpcore.ProtocolError) and progress.read_bytes:
        return Failure("no-http", f"the answer is not complete HTTP: {error}", sent)
    return Failure("cut", "the connection was cut before the answer was complete", sent)


def _handshake_failure(error: Exception) -> Failure | None:
    """With TLS 1.3 a server refuses our certificate only after it began to read; it has not looked at the request."""
    revocation = _cause(error, RevocationError)
    if revocation is not None:
        return Failure("untrusted", f"the server's certificate is not trusted: {revocation}", sent=False)
    cause = _cause(error, ssl.SSLError)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Failure("untrusted", f"the server's certificate is not trusted: {cause.verify_message}", sent=False)
    if cause is not None and _is_about_our_certificate(cause.reason):
        other = ", or has no TLS version or cipher in common with us" if "HANDSHAKE" in (cause.reason or "") else ""
        return Failure("client-refused", f"the server refuses our certificate{other} ({cause.reason})", sent=False)
    if cause is not None and (cause.reason or "").endswith(("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")):
        what = f"the server has no TLS version or cipher in common with us ({cause.reason})"
        return Failure("tls", what, sent=False)
    if cause is not None and isinstance(error, httpcore.ConnectError):
        return Failure("tls", f"the TLS handshake failed: {cause.reason or cause}", sent=False)
    return None


def _connect_failure(error: Exception, peer: httpcore.URL) -> Failure | None:
    if isinstance(error, httpcore.ProxyError):
        return Failure("proxy", f"the proxy refused: {error}", sent=False)
    if isinstance(error, httpcore.ConnectTimeout):
        return Failure("timeout", f"no connection to {_host_and_port(peer)} within the time allowed", sent=False)
    if not isinstance(error, httpcore.ConnectError):
        return None
    cause = _cause(error, OSError)
    text = (cause.strerror if cause is not None else None) or str(error) or "no connection"
    if isinstance(cause, socket.gaierror):
        return Failure("name", f"the name {peer.host.decode()} does not resolve: {text}", sent=False)
    return Failure("closed", f"cannot connect to {_host_and_port(peer)}: {text}", sent=False)


def _host_and_port(url: httpcore.URL) -> str:
    """Host and port of a URL, for people."""
    return f"{_bracketed(url)} port {url.port or _PORTS[url.scheme]}"


def _host_of(url: httpcore.URL) -> str:
    """The value of the header Host: with the port where it is not that of the scheme."""
    return _bracketed(url) if url.port in {None, _PORTS[url.scheme]} else f"{_bracketed(url)}:{url.port}"


def _bracketed(url: httpcore.URL) -> str:
    host = url.host.decode("ascii")
    return f"[{host}]" if ":" in host else host


def _is_about_our_certificate(reason: str | None) -> bool:
    words = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")
    return reason is not None and "ALERT" in reason and any(word in reason for word in words)


def _cause(error: BaseException, kind: type[_E]) -> _E | None:
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, kind):
            return current
        current = current.__cause__ or current.__context__  # httpcore raises anew "from None"
    return None


def _service_url(url: str) -> httpcore.URL:
    """The URL of a service. Raises `ConfigError` where it is not one, or would send credentials in plain text."""
    try:
        parsed = _parsed(url)
    except ValueError as error:
        raise ConfigError(f"not a URL: {error}", key="url") from error
    if parsed is None:
        raise ConfigError("a URL must hold no user name or password", key="url", hint="Secrets are read from files")
    host = parsed.host.decode("ascii")
    if not host or parsed.scheme not in _PORTS:
        raise ConfigError("a URL begins with https:// and a host", key="url")
    if parsed.scheme == b"http" and not is_loopback(host):
        raise ConfigError(
            f"http://{host} would send records and credentials in plain text",
            key="url",
            hint="Use https://; plain http is allowed for this very host only (localhost, 127.0.0.1, ::1)",
        )
    return parsed


def _parsed(url: str) -> httpcore.URL | None:
    """The parts of a URL, its target percent-encoded; None for one with a user name. Raises ValueError."""
    if not url.isprintable():
        raise ValueError("it has a character that is not printable")
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return None
    host, port = (parts.hostname or "").encode("idna"), parts.port
    if b" " in host:
        raise ValueError("its host has a blank")
    query = f"?{parts.query}" if parts.query else ""
    target = quote((parts.path or "/") + query, safe=_SAFE_IN_TARGET)
    return httpcore.URL(scheme=parts.scheme, host=host, port=port, target=target)


def _proxy_url(proxy: str) -> httpcore.URL:
    try:
        parsed = _parsed(proxy)
    except ValueError:
        parsed = None
    if parsed is None or not parsed.host or parsed.scheme not in _PORTS:
        raise ConfigError("a proxy is written http://host:port, without a password", key="proxy")
    return httpcore.URL(scheme=parsed.scheme, host=parsed.host, port=parsed.port, target="/")
