"""What stands around every answer: by which names and methods it may be asked for, and what browsers are told.

The page is read, never written: no answer may be framed, guessed at, kept by others or fetched from other pages.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from publisher.page.markup import policy

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
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
_MOST_QUERY: Final = 4_000
_METHODS: Final = frozenset({"GET", "HEAD", "POST"})
"""POST logs in and out; every other path answers it with 405."""


def is_loopback(host: str) -> bool:
    """Whether only this host can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guarded:
    """The application behind these rules. `names` are what it may be called besides the loopback names.

    A page elsewhere whose name was made to lead to us (DNS rebinding) is not answered.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = _LOOPBACK_NAMES | {name.lower().strip("[]") for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tls = scope.get("scheme") == "https"

        async def dressed(message: Message) -> None:
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
            await refusal(scope, receive, dressed)
        else:
            await self._app(scope, receive, dressed)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if _host(headers.get("host", "")) not in self._names:
            return PlainTextResponse("This is not a name of this server; [serve] names tells more.\n", 421)
        if scope["method"] not in _METHODS:
            return PlainTextResponse("This page is only read.\n", 405, {"Allow": "GET, HEAD"})
        if len(scope["query_string"]) > _MOST_QUERY:
            return PlainTextResponse("This asks for too much.\n", 414)
        return None


def _host(header: str) -> str:
    """The name of a Host header, without its port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
