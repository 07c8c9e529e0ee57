"""Listening sockets with limits: of all connections, of those from one address, and of the time that a connection
waits.

The page and the listener for metrics use them. Idle connections must not block others: a connection without a complete
request for `wait_s` (during a TLS handshake, within a header, between two requests) is closed, and if there are too
many, the one that has waited longest is closed. Only the standard library is imported, so that a separate listener
process stays small.
"""

from __future__ import annotations

import ipaddress
import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_RESERVED_DESCRIPTORS: Final = 64
"""Descriptors reserved for other use than connections: the store, files of reports, libraries."""
_FEWEST: Final = 8
_CLOSING: Final = 32
"""The most connections that are shut down and not yet closed."""
_MAPPED: Final = bytes(10) + b"\xff\xff"
"""The beginning of an IPv6 address that is a mapped IPv4 address (RFC 4291, 2.5.5.2)."""


LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/@]+))(?::[0-9]{0,5})?", re.IGNORECASE | re.ASCII)
"""A Host header (RFC 9110, 7.2): an IPv6 address in brackets, or a name; then a port."""


def requested_host(header: str) -> str | None:
    """The name in a Host header, without port and brackets; None if it is not a host.

    A server compares it with its own names: a page of another site can make its own name lead to this host (DNS
    rebinding), and would read the answers.
    """
    match = _HOST.fullmatch(header)
    return (match[1] or match[2]).lower() if match is not None else None


def is_address(host: str) -> bool:
    """Whether it is an IP address: no name leads to another host."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this host can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bound_socket(host: str, port: int) -> socket.socket:
    """A TCP socket that listens at `host` and `port`; connections wait in its queue until they are accepted.

    Raises `OSError` if the name does not resolve, or the address is in use or not one of this host.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


class Connection(socket.socket):
    """An accepted connection. Its listener counts it until it is closed."""

    def __init__(self, plain: socket.socket, listener: Listener, address: Any) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._listener = listener
        self.place: tuple[str, int] = address[:2]
        self.client = _client(address[0])
        self.waits_since: float | None = time.monotonic()
        """A reading of the monotonic clock; None while a request is answered."""
        self.dropped = False

    def is_answered(self) -> None:
        """Note that a complete request has arrived: the connection does not wait until `waits` is called."""
        self.waits_since = None

    def waits(self) -> None:
        """Note that it waits from now on: for a request, or until the other side has read what was sent."""
        self.waits_since = time.monotonic()

    def drop(self) -> None:
        """Shut it down: its reader then reaches the end of the stream, and closes it."""
        self.dropped = True
        with suppress(OSError):  # the other side has closed
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it and forget it."""
        self._listener.forget(self)
        super().close()


class Listener(socket.socket):
    """A listening socket with limits. Used by one thread."""

    def __init__(
        self,
        bound: socket.socket,
        *,
        most: int,
        most_of_address: int,
        wait_s: float,
        is_proxy: Callable[[str], bool] = lambda _host: False,
    ) -> None:
        """Takes over the listening socket `bound`. A proxy (`is_proxy`) connects for many clients: only the total limit
        applies to it."""
        super().__init__(bound.family, bound.type, bound.proto, fileno=bound.detach())
        self._most = _affordable(most)
        self._most_of_client = most_of_address
        self._wait_s = wait_s
        self._is_proxy = is_proxy
        self._open: dict[tuple[str, int], Connection] = {}

    def accept(self) -> tuple[Connection, Any]:
        """The next connection within the limits; others are closed at once."""
        while True:
            plain, address = super().accept()
            connection = Connection(plain, self, address)
            if self._make_room(connection):
                self._open[connection.place] = connection
                return connection, address
            connection.close()

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        if self._open.get(connection.place) is connection:
            del self._open[connection.place]

    @contextmanager
    def answering(self, place: tuple[str, int] | None) -> Iterator[None]:
        """While a complete request of the connection from `place` is answered, the connection does not wait."""
        connection = self._open.get(place) if place is not None else None
        if connection is not None:
            connection.is_answered()
        try:
            yield
        finally:
            if connection is not None:
                connection.waits()

    def drop(self, place: tuple[str, int] | None) -> None:
        """End the connection from `place`, in any state."""
        connection = self._open.get(place) if place is not None else None
        if connection is not None:
            connection.drop()

    def drop_overdue(self) -> None:
        """Close the connections that have waited too long. Call it several times a second."""
        since = time.monotonic() - self._wait_s
        for connection in self._waiting():
            if connection.waits_since is not None and connection.waits_since < since:
                connection.drop()

    def close(self) -> None:
        """Stop listening, and close the connections that wait."""
        for connection in self._waiting():
            connection.drop()
        super().close()

    def _waiting(self) -> list[Connection]:
        return [
            connection
            for connection in self._open.values()
            if connection.waits_since is not None and not connection.dropped
        ]

    def _make_room(self, new: Connection) -> bool:
        """Whether the new connection may stay; if necessary, the one that has waited longest is closed for it."""
        if len(self._open) >= self._most + _CLOSING:
            return False
        kept = [connection for connection in self._open.values() if not connection.dropped]
        same = [each for each in kept if each.client == new.client]
        crowd: list[Connection] = []
        if len(same) >= self._most_of_client and not self._is_proxy(new.place[0]):
            crowd = same
        elif len(kept) >= self._most:
            crowd = kept
        if not crowd:
            return True
        waiting = [(connection.waits_since, connection) for connection in crowd if connection.waits_since is not None]
        if not waiting:
            return False
        min(waiting, key=lambda one: one[0])[1].drop()
        return True


def _affordable(most: int) -> int:
    """`most`, or fewer if this process has fewer descriptors left."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return most
    return min(most, max(_FEWEST, limit - _RESERVED_DESCRIPTORS - _CLOSING))


def _client(host: str) -> bytes:
    """The address that identifies one client: an IPv4 address, or a /64 network of IPv6, in which a host can have any
    address."""
    try:
        return socket.inet_pton(socket.AF_INET, host)
    except OSError:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return packed[12:] if packed.startswith(_MAPPED) else packed[:8]
