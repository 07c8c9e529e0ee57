"""Rules for every request and response: host names, methods, security headers, time limits, and proxies.

The page is read-only. Browsers must not frame a response, guess its type, cache it, or give it to pages of other sites.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from publisher.page.addresses import MOST_QUERY_BYTES
from publisher.page.html import policy
from publisher.security.connections import LOOPBACK_NAMES, Listener, requested_host

_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_A_YEAR: Final = "max-age=31536000"
_MOST_PATH: Final = 1_000
"""Python converts at most 4,300 digits to a number, such as that of a run."""
_PIECE_BYTES: Final = 1 << 16
_METHODS: Final = frozenset({"GET", "HEAD", "POST"})
"""POST logs in and out; every other path answers it with 405."""


class TimeoutMiddleware:
    """The application with time limits. It reports to its listener which connections have sent a whole request.

    Each part of a body must arrive within `wait_s`, and the client must read each piece of a response within it.
    """

    def __init__(self, app: ASGIApp, listener: Listener, wait_s: float) -> None:
        self._app = app
        self._listener = listener
        self._wait_s = wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        client = scope["client"]

        async def received() -> Message:
            try:
                async with asyncio.timeout(self._wait_s):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    408, "The rest of the request did not arrive in time.", {"Connection": "close"}
                ) from None
            if message["type"] == "http.disconnect":
                raise HTTPException(400, "The request was not complete.", {"Connection": "close"})
            return message

        async def sent(message: Message) -> None:
            try:
                async with asyncio.timeout(self._wait_s):
                    await send(message)
            except TimeoutError:
                self._listener.drop(client)
                await send(message)  # returns once the connection is gone

        async def sent_in_pieces(message: Message) -> None:
            body: bytes = message.get("body", b"")
            for start in range(0, max(0, len(body) - _PIECE_BYTES), _PIECE_BYTES):
                piece = body[start : start + _PIECE_BYTES]
                await sent({"type": message["type"], "body": piece, "more_body": True})
            rest = len(body) % _PIECE_BYTES or _PIECE_BYTES
            await sent({**message, "body": body[-rest:]} if body else message)

        with self._listener.answering(client):
            await self._app(scope, received, sent_in_pieces)


class SecurityMiddleware:
    """The application with security rules. It answers to `names` and to loopback names: see `requested_host`."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = LOOPBACK_NAMES | {name.lower().strip("[]") for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI), or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tls = scope.get("scheme") == "https"

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = policy(served=True)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if tls:
                    headers["Strict-Transport-Security"] = _A_YEAR
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and ("content-length" in headers or scope["http_version"] == "1.0"):
            # Servers differ in where such a request ends (RFC 9112, 6.1).
            return PlainTextResponse("The length of the request is ambiguous.\n", 400, {"Connection": "close"})
        if requested_host(headers.get("host", "")) not in self._names:
            return PlainTextResponse("This server does not answer to this name. Add it to `names` in [serve].\n", 421)
        if scope["method"] not in _METHODS:
            return PlainTextResponse("This page is read-only.\n", 405, {"Allow": "GET, HEAD"})
        if len(scope["path"]) > _MOST_PATH:
            return PlainTextResponse("This page does not exist.\n", 404)
        if len(scope["query_string"]) > MOST_QUERY_BYTES:
            return PlainTextResponse("The query is too long.\n", 414)
        return None


class Proxies:
    """The addresses of trusted proxies."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def include(self, host: str) -> bool:
        """Whether the address is that of a trusted proxy."""
        address = _address(host)
        return address is not None and any(address in network for network in self._networks)

    def client(self, host: str, forwarded_for: Iterable[str]) -> str:
        """The client of the proxy at `host`: the last address in `X-Forwarded-For` that is not a trusted proxy.

        A text that is not an IP address, and all before it, is ignored.
        """
        for value in reversed([word.strip() for line in forwarded_for for word in line.split(",")]):
            address = _address(value)
            if address is None:
                break
            host = str(address)
            if not self.include(host):
                break
        return host


class ProxyMiddleware:
    """The application. A request of a trusted proxy gets the address and the scheme of the proxy's client."""

    def __init__(self, app: ASGIApp, proxies: Proxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        client = scope.get("client")
        if client is not None and self._proxies.include(client[0]):
            headers = Headers(scope=scope)
            who = self._proxies.client(client[0], headers.getlist("x-forwarded-for"))
            scheme = headers.get("x-forwarded-proto", "").strip().lower()
            scope = {**scope, "client": (who, client[1]), "scheme": scheme if scheme == "https" else scope["scheme"]}
        await self._app(scope, receive, send)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
