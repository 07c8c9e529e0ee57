"""Who asks, where a proxy asks for somebody: believed of the proxies that the configuration names only."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send


class Proxies:
    """The addresses of trusted proxies."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def include(self, host: str) -> bool:
        """Whether this is the address of one of them."""
        address = _address(host)
        return address is not None and any(address in network for network in self._networks)

    def client(self, host: str, forwarded_for: Iterable[str]) -> str:
        """Who asks through the proxy at `host`: the last of `X-Forwarded-For` that is not a trusted proxy itself.

        What is not an IP address, and all before it, is not believed: then it is the last address that is.
        """
        for value in reversed([each.strip() for line in forwarded_for for each in line.split(",")]):
            address = _address(value)
            if address is None:
                break
            host = str(address)
            if not self.include(host):
                break
        return host


class BehindProxies:
    """The application, for which a request from a trusted proxy is one of its client, with the client's scheme."""

    def __init__(self, app: ASGIApp, proxies: Proxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
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
