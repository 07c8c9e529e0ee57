"""HTTP over TLS for all services: the only module that uses httpx.

Requests and answers are those of httpx, over a transport with one connection. Its client would merge URLs, headers, and
cookies, and follow authentication and redirects, none of which a service needs: a third of the time of an exchange.

An exchange ends in a `Reply` or in a `Failure` that says whether the service may have processed the request: what was
certainly not sent waits, what may have arrived is sent again with the same ids. Every wait has a limit: one deadline
applies from connecting to the last byte of the answer, also to an answer that arrives byte by byte. When the program is
stopped, the answer has a few more seconds.

Connections are kept open. A service may close one between two posts; a request on a closed connection, to which no byte
was answered, is sent once more on a new connection. This is harmless even if it was processed: the ids are the same.
"""

# ruff: noqa: E402 - a line before the imports is for them
from __future__ import annotations

import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, TypeVar

# httpx offers a command of its own, which loads rich and pygments where they are installed: 35 ms and 5 MiB that no
# service needs. A module that is None is not found, and httpx does without its command.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

import httpcore
import httpx
import msgspec

from publisher.errors import ConfigError
from publisher.security.connections import is_loopback
from publisher.security.credentials import ClientCredentials
from publisher.security.revocation import RevocationError, RevocationLists
from publisher.security.tls import Trust, make_context, verified_chain

FailureKind = Literal[
    "name", "closed", "untrusted", "client-refused", "tls", "timeout", "write-timeout", "cut", "no-http", "too-large",
    "proxy", "stopped",
]  # fmt: skip

_E = TypeVar("_E", bound=BaseException)
_CONNECT_S = 20.0
_KEEPALIVE_S = 60.0
_LARGEST_ANSWER_BYTES = 16 << 20
_LARGEST_ERROR_BYTES = 64 << 10
_WRITE_BYTES = 64 << 10
_HEADERS = {
    "Connection": "keep-alive",
    "User-Agent": "usage-publisher",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
}
_HINTS: dict[FailureKind, str] = {
    "name": "Check the host name in the URL and the name service of this host",
    "closed": "Check host and port in the URL, the firewall, and that the service runs",
    "untrusted": "Check ca_directory or ca_file, and that the URL has the name in the server's certificate",
    "client-refused": "Check that the service trusts the authority of our certificate and knows its name",
    "timeout": "It is tried again; a longer timeout can be set for the target",
    "write-timeout": "It is tried again; a longer timeout can be set for the target",
    "proxy": "Check the proxy setting of the target",
    "stopped": "The next run sends it again",
}


class Timing(msgspec.Struct, frozen=True):
    """How the time of an exchange is measured.

    `clock`: seconds, monotonic. `check_every_s`: how often the deadline and a request to stop are checked while waiting
    for an answer; `grace_s`: how long an answer may take after a request to stop.
    """

    clock: Callable[[], float] = time.monotonic
    check_every_s: float = 0.25
    grace_s: float = 3.0


USUAL_TIMING = Timing()


class Reply(msgspec.Struct, frozen=True):
    """An answer: header names in lower case. Of the body of an error only the beginning is kept."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Failure(msgspec.Struct, frozen=True):
    """No answer. `sent`: the service may have received the whole request, so its outcome is unknown."""

    kind: FailureKind
    message: str
    sent: bool

    @property
    def hint(self) -> str:
        """What to do now."""
        return _HINTS.get(self.kind, "")


class Parts(Protocol):
    """The body of a request in parts: `len` is their total size in bytes; each iteration gives the same bytes."""

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
        timing: Timing = USUAL_TIMING,
        allows_plain: bool = False,
    ) -> None:
        """`credentials` is called when a connection is first needed, and again after `close`; `stopping` at any time.
        `allows_plain`: the configuration allows http:// to another host.

        Raises `ConfigError` for a URL that would send credentials in plain text.
        """
        _parsed(url, allows_plain=allows_plain)
        self._allows_plain = allows_plain
        self._trust = trust
        self._credentials = credentials
        self._timeout_s = timeout_s
        connect_s = min(_CONNECT_S, timeout_s)
        self._timeouts = {"connect": connect_s, "read": timeout_s, "write": timeout_s, "pool": timeout_s}
        self._proxy_url = proxy
        self._proxy = None if proxy is None else _proxy_url(proxy)
        self._progress = _Exchange(stopping, timing)
        self._transport: _Transport | None = None

    def request(
        self, method: str, url: str, *, content: bytes | Parts = b"", headers: Mapping[str, str] | None = None
    ) -> Reply | Failure:
        """Make one exchange. Raises `CredentialError` if our credentials, or the trusted authorities, cannot be
        used."""
        to = _parsed(url, allows_plain=self._allows_plain)
        sent = False
        while True:
            outcome = self._attempt(method, to, content, headers or {})
            if isinstance(outcome, Reply):
                return outcome
            failure = _classified(outcome, self._progress, httpx.URL(self._proxy_url or url), plain=to.scheme == "http")
            if sent and not failure.sent:
                failure = msgspec.structs.replace(failure, sent=True)
            if failure.kind != "cut" or not self._progress.reused or self._progress.read_bytes:
                return failure
            sent = sent or failure.sent

    def close(self) -> None:
        """Close the connection. The next request opens a new one, and reads credentials and authorities again."""
        if self._transport is not None:
            self._transport.close()
        self._transport = None

    def _attempt(
        self, method: str, url: httpx.URL, content: bytes | Parts, headers: Mapping[str, str]
    ) -> Reply | httpcore.NetworkError | httpcore.ProtocolError | httpcore.TimeoutException | httpcore.ProxyError:
        transport = self._connected()
        self._progress.begin(self._timeout_s)
        headers = {"Host": url.netloc.decode("ascii"), **_HEADERS, **headers}
        if method == "POST":
            headers["Content-Length"] = str(len(content))
        body = _RequestBody(content, self._progress)
        request = httpx.Request(method, url, headers=headers, stream=body, extensions={"timeout": self._timeouts})
        try:
            with closing(transport.handle_request(request)) as response:
                return _read(response)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.ProxyError) as error:
            return error
        finally:
            body.free()

    def _connected(self) -> _Transport:
        if self._transport is None:
            context = make_context(self._trust, self._credentials())
            authorities = make_context(self._trust, None) if self._proxy else None
            backend = _Backend(self._progress, self._trust.revocation_lists())
            self._transport = _Transport(context, self._proxy, authorities, backend)
        return self._transport


class _AnswerTooLargeError(httpcore.NetworkError):
    """The answer has more bytes than allowed."""


class _Exchange:
    """The progress of the current exchange, and its deadline."""

    def __init__(self, stopping: Callable[[], bool], timing: Timing) -> None:
        self._stopping = stopping
        self._timing = timing
        self._stopped_at: float | None = None
        self.begin(0.0)

    def begin(self, timeout_s: float) -> None:
        self.deadline = self._timing.clock() + timeout_s
        self.reused = True
        self.written = False
        self.read_bytes = 0

    @property
    def check_every_s(self) -> float:
        """How long to wait for a part of the answer before the next check."""
        return self._timing.check_every_s

    @property
    def stopped(self) -> bool:
        """Whether the program was asked to stop during the exchange."""
        return self._stopped_at is not None

    def remaining_s(self, limit_s: float | None, timed_out: type[httpcore.TimeoutException]) -> float:
        now = self._timing.clock()
        if self._stopped_at is None and self._stopping():
            self._stopped_at = now
        ends = (
            self.deadline if self._stopped_at is None else min(self.deadline, self._stopped_at + self._timing.grace_s)
        )
        remaining = ends - now
        if remaining <= 0:
            raise timed_out("the exchange took too long")
        return remaining if limit_s is None else min(limit_s, remaining)


class _RequestBody(httpx.SyncByteStream):
    """The body of a request. It notes when it was written: a connection takes the next part when it has written the
    previous one.

    It can be freed when the exchange is over: request and answer refer to each other, and stay in memory until Python
    searches for cycles.
    """

    def __init__(self, content: bytes | Parts, progress: _Exchange) -> None:
        self._parts: Iterable[bytes] = (content,) if isinstance(content, bytes) else content
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        yield from self._parts
        self._progress.written = True

    def free(self) -> None:
        """Forget the content."""
        self._parts = ()


class _Stream(httpcore.NetworkStream):
    """A connection whose reads and writes end at the deadline of the exchange. The server's certificate is not
    revoked."""

    def __init__(self, stream: httpcore.NetworkStream, progress: _Exchange, lists: RevocationLists) -> None:
        self._stream = stream
        self._progress = progress
        self._lists = lists

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            remaining_s = self._progress.remaining_s(timeout, httpcore.ReadTimeout)
            try:
                data = self._stream.read(max_bytes, min(remaining_s, self._progress.check_every_s))
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
    """Opens connections with the deadline."""

    def __init__(self, progress: _Exchange, lists: RevocationLists) -> None:
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
        self._progress.reused = False
        remaining_s = self._progress.remaining_s(timeout, httpcore.ConnectTimeout)
        stream = super().connect_tcp(host, port, remaining_s, local_address, socket_options)
        return _Stream(stream, self._progress, self._lists)


class _Transport(httpx.BaseTransport):
    """httpx over one connection of ours."""

    def __init__(
        self,
        context: ssl.SSLContext,
        proxy: httpcore.URL | None,
        proxy_context: ssl.SSLContext | None,
        backend: httpcore.NetworkBackend,
    ) -> None:
        self._pool = (
            httpcore.ConnectionPool(
                ssl_context=context, max_connections=1, keepalive_expiry=_KEEPALIVE_S, network_backend=backend
            )
            if proxy is None
            else httpcore.HTTPProxy(
                proxy,
                proxy_ssl_context=proxy_context if proxy.scheme == b"https" else None,
                ssl_context=context,
                max_connections=1,
                keepalive_expiry=_KEEPALIVE_S,
                network_backend=backend,
            )
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_AnswerBody(answer))

    def close(self) -> None:
        self._pool.close()


class _AnswerBody(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        return self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


def _read(response: httpx.Response) -> Reply:
    """The complete answer. For an error the beginning is enough, and its status counts even if the rest is cut off."""
    success = response.status_code // 100 == 2
    limit = _LARGEST_ANSWER_BYTES if success else _LARGEST_ERROR_BYTES
    body = bytearray()
    try:
        for part in response.iter_raw():
            body += part
            if len(body) > limit:
                if success:
                    raise _AnswerTooLargeError(f"the answer has more than {limit} bytes")
                break
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException):
        if success:
            raise
    return Reply(status=response.status_code, headers=dict(response.headers), body=bytes(body[:limit]))


def _classified(error: Exception, progress: _Exchange, peer: httpx.URL, *, plain: bool) -> Failure:
    """`plain`: the URL begins with http://; a service that expects TLS gives an answer to this that cannot be read."""
    hint = ". The URL begins with http://: if the service uses TLS, write https://" if plain else ""
    if isinstance(error, httpcore.TimeoutException) and progress.stopped:
        return Failure("stopped", "the program was stopped before the answer came", progress.written)
    unconnected = _handshake_failure(error) or _connect_failure(error, peer)
    if unconnected is not None:
        return unconnected
    sent = progress.written
    if isinstance(error, _AnswerTooLargeError):
        return Failure("too-large", str(error), sent)
    if isinstance(error, httpcore.TimeoutException):
        what = "no complete answer" if sent else "the request could not be written"
        return Failure("timeout" if sent else "write-timeout", f"{what} within the time allowed", sent)
    if isinstance(error, httpcore.ProtocolError) and progress.read_bytes:
        return Failure("no-http", f"the answer is not complete HTTP: {error}{hint}", sent)
    return Failure("cut", f"the connection was cut before the answer was complete{hint}", sent)


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


def _connect_failure(error: Exception, peer: httpx.URL) -> Failure | None:
    if isinstance(error, httpcore.ProxyError):
        return Failure("proxy", f"the proxy refused: {error}", sent=False)
    if isinstance(error, httpcore.ConnectTimeout):
        return Failure("timeout", f"no connection to {_place(peer)} within the time allowed", sent=False)
    if not isinstance(error, httpcore.ConnectError):
        return None
    cause = _cause(error, OSError)
    text = (cause.strerror if cause is not None else None) or str(error) or "no connection"
    if isinstance(cause, socket.gaierror):
        return Failure("name", f"the name {peer.host} does not resolve: {text}", sent=False)
    return Failure("closed", f"cannot connect to {_place(peer)}: {text}", sent=False)


def _place(url: httpx.URL) -> str:
    """Host and port of a URL."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host} port {url.port or (443 if url.scheme == 'https' else 80)}"


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


def _parsed(url: str, *, allows_plain: bool = False) -> httpx.URL:
    """The parts of a URL. Raises `ConfigError` if it cannot be read, or what is sent could be read by others."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"not a URL: {error}", key="url") from error
    if parsed.userinfo:
        raise ConfigError(
            "a URL must not contain a user name or a password", key="url", hint="Secrets are read from files"
        )
    if not parsed.host or parsed.scheme not in {"http", "https"}:
        raise ConfigError("a URL must begin with https:// and the name of a host", key="url")
    if parsed.scheme == "http" and not allows_plain and not is_loopback(parsed.host):
        raise ConfigError(
            f"http://{parsed.host} would send records and credentials in plain text",
            key="url",
            hint="Use https://; plain http is allowed on the same host only (localhost, 127.0.0.1, ::1)",
        )
    return parsed


def _proxy_url(proxy: str) -> httpcore.URL:
    try:
        parsed = httpx.URL(proxy)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.userinfo:
        raise ConfigError("a proxy must be written as http://host:port, without a password", key="proxy")
    return httpcore.URL(scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=b"/")
