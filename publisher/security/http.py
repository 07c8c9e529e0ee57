"""HTTP over TLS for all services: the only module that uses httpx.

Requests and answers are those of httpx, over a transport with one connection. Its client would merge URLs, headers, and
cookies, and follow authentication and redirects, none of which a service needs: a third of the time of an exchange.

An exchange ends in a `Reply` or in a `Failure` that says whether the service may have processed the request: what was
certainly not sent waits, what may have arrived is sent again with the same ids. Every wait has a limit: one deadline
applies from connecting to the last byte of the answer, also to an answer that arrives byte by byte. When the program is
stopped, the answer has a few more seconds.

Connections are kept open. A service may close one between two posts; a request on a closed connection, to which no byte
was answered, is sent once more on a new connection. This is harmless even if it was processed: the ids are the same.
But a refusal then says nothing about the request before it, so it is no reply to a request that may change something:
it would be recorded as certainly not taken, and its next version could be sent beside it under another key.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Protocol

import httpcore
import httpx
import msgspec

from publisher.errors import ConfigError
from publisher.security.connections import is_loopback
from publisher.security.credentials import ClientCredentials
from publisher.security.exchange import (
    USUAL_TIMING,
    AnswerTooLargeError,
    Exchange,
    Failure,
    ServicePlace,
    Timing,
    classified,
)
from publisher.security.revocation import RevocationError, RevocationLists
from publisher.security.secret_text import without
from publisher.security.tls import Trust, make_context, verified_chain

# At the level debug it logs the headers of answers, in which a service may repeat a token.
logging.getLogger("httpcore").setLevel(logging.WARNING)

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
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Reply(msgspec.Struct, frozen=True):
    """An answer: header names in lower case. Of the body of an error only the beginning is kept.

    `secrets`: what the request contained and nobody may read; a service may repeat it in its answer.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Reply({self.status}, {len(self.body)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("status", self.status)]


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
        self._progress = Exchange(stopping, timing)
        self._transport: _Transport | None = None

    def request(
        self,
        method: str,
        url: str,
        *,
        content: bytes | Parts = b"",
        headers: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
    ) -> Reply | Failure:
        """Make one exchange. `secrets`: what of the request must not be shown, see `Reply`.

        Raises `CredentialError` if our credentials, or the trusted authorities, cannot be used.
        """
        to = _parsed(url, allows_plain=self._allows_plain)
        sent = False
        while True:
            outcome = self._attempt(method, to, content, headers or {})
            if isinstance(outcome, Reply):
                if sent and method != "GET" and outcome.status // 100 != 2:
                    text = f"the connection was cut before an answer came; sent again, it was answered {outcome.status}"
                    return Failure("cut", text, sent=True)
                return msgspec.structs.replace(outcome, secrets=secrets) if secrets else outcome
            peer = _peer(httpx.URL(self._proxy_url or url))
            failure = classified(outcome, self._progress, peer, plain=to.scheme == "http")
            failure = msgspec.structs.replace(failure, message=without(failure.message, secrets))
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
        if method in _WITH_BODY:
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


class _RequestBody(httpx.SyncByteStream):
    """The body of a request. It notes when it was written: a connection takes the next part when it has written the
    previous one.

    It can be freed when the exchange is over: request and answer refer to each other, and stay in memory until Python
    searches for cycles.
    """

    def __init__(self, content: bytes | Parts, progress: Exchange) -> None:
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

    def __init__(self, stream: httpcore.NetworkStream, progress: Exchange, lists: RevocationLists) -> None:
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

    def __init__(self, progress: Exchange, lists: RevocationLists) -> None:
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
                    raise AnswerTooLargeError(
                        f"the answer has more than {limit >> 20} MiB. Check what answers at the URL"
                    )
                break
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException):
        if success:
            raise
    return Reply(status=response.status_code, headers=dict(response.headers), body=bytes(body[:limit]))


def _peer(url: httpx.URL) -> ServicePlace:
    return ServicePlace(url.host, url.port or (443 if url.scheme == "https" else 80))


def same_origin(url: str, other: str) -> bool:
    """Whether two URLs have the same scheme, host, and port."""
    first, second = httpx.URL(url), httpx.URL(other)
    return first.scheme == second.scheme and _peer(first) == _peer(second)


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
