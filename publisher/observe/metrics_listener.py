"""The listener for metrics: a process that answers Prometheus with the metrics of its parent.

All connections are in this process, so that no number of them stops publishing. For each request it asks its parent for
the metrics on a channel. It ends when that channel is closed, also because the parent was killed. It imports few
modules, since it runs as long as the publisher.
"""

from __future__ import annotations

import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from publisher.security.connections import LOOPBACK_NAMES, Connection, Listener, is_address, requested_host

_MOST_CONNECTIONS: Final = 64
_MOST_OF_ADDRESS: Final = 16
_WAIT_S: Final = 10.0
_MOST_HEADER_BYTES: Final = 8192
_CHECK_EVERY_S: Final = 0.5
_ASK: Final = b"?"
_LENGTH: Final = struct.Struct(">I")
_TEXT: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""


def send_text(channel: socket.socket, text: bytes) -> None:
    """The parent's side of the channel: send the metrics that the listener asked for. Raises OSError."""
    channel.sendall(_LENGTH.pack(len(text)) + text)


class _Channel:
    """The listener's side: one question at a time, and the text that answers it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._received = bytearray()
        self._asked = False

    def ask(self) -> None:
        if not self._asked:
            self._channel.sendall(_ASK)
            self._asked = True

    def read(self) -> bytes | None:
        """The complete text, when all of it has arrived. Raises EOFError if the parent has ended."""
        received = self._channel.recv(1 << 16)
        if not received:
            raise EOFError
        self._received += received
        end = _LENGTH.size + (_LENGTH.unpack_from(self._received)[0] if len(self._received) >= _LENGTH.size else 0)
        if len(self._received) <= _LENGTH.size or len(self._received) < end:
            return None
        text = bytes(self._received[_LENGTH.size : end])
        self._received.clear()
        self._asked = False
        return text


class _ScrapeConnection:
    """A connection, the request that it has sent so far, and the rest of the answer."""

    def __init__(self, connection: Connection) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.request = b""
        self.answer = b""
        self.complete = False
        """Whether the whole request has arrived."""

    def read(self) -> bool:
        """Read what has arrived; False if the other side has closed."""
        try:
            received = self.connection.recv(_MOST_HEADER_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not self.complete:
            self.request += received
            self.complete = b"\r\n\r\n" in self.request or len(self.request) > _MOST_HEADER_BYTES
        return bool(received)

    def send(self) -> bool:
        """Send what can be sent; True if there is more."""
        try:
            self.answer = self.answer[self.connection.send(self.answer) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(self.answer)


class _MetricsServer:
    def __init__(self, listener: Listener, channel: socket.socket, names: Iterable[str]) -> None:
        self._names = LOOPBACK_NAMES | {name.lower().strip("[]") for name in names}
        self._listener = listener
        self._channel = _Channel(channel)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(channel, selectors.EVENT_READ, self._take_text)
        self._asking: list[_ScrapeConnection] = []

    def run(self) -> None:
        """Serve. Raises EOFError and OSError when the parent has ended."""
        while True:
            for key, _ in self._selector.select(_CHECK_EVERY_S):
                if isinstance(key.data, _ScrapeConnection):
                    self._go_on(key.data)
                else:
                    key.data()
            self._listener.drop_overdue()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # the whole host is out of descriptors or memory
            time.sleep(_CHECK_EVERY_S)
            return
        self._selector.register(connection, selectors.EVENT_READ, _ScrapeConnection(connection))

    def _go_on(self, exchange: _ScrapeConnection) -> None:
        if exchange.answer:
            if not exchange.send():
                self._end(exchange)
            return
        known = exchange.complete
        if not exchange.read():
            self._end(exchange)
        elif exchange.complete and not known:
            self._decide(exchange)

    def _decide(self, exchange: _ScrapeConnection) -> None:
        first, *headers = exchange.request.partition(b"\r\n\r\n")[0].split(b"\r\n")
        method, _, rest = first.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if len(exchange.request) > _MOST_HEADER_BYTES:
            self._answer(exchange, "431 Request Header Fields Too Large", _TEXT, b"The header is too large.\n")
        elif method not in {b"GET", b"HEAD"}:
            self._answer(exchange, "405 Method Not Allowed", _TEXT, b"Only GET and HEAD are allowed.\n")
        elif not self._is_ours(headers):
            text = b"This server does not answer to this name. Add it to `names` in [metrics].\n"
            self._answer(exchange, "421 Misdirected Request", _TEXT, text)
        elif path != b"/metrics":
            self._answer(exchange, "404 Not Found", _TEXT, b"The metrics are at /metrics.\n")
        else:
            exchange.connection.is_answered()
            self._asking.append(exchange)
            self._channel.ask()

    def _is_ours(self, headers: list[bytes]) -> bool:
        """Whether the request is to a name of this server, or to an address."""
        pairs = [header.decode("latin-1").partition(":") for header in headers]
        hosts = [value.strip(" \t") for name, _, value in pairs if name.lower() == "host"]
        host = requested_host(hosts[0]) if len(hosts) == 1 else None
        return host is not None and (host in self._names or is_address(host))

    def _take_text(self) -> None:
        text = self._channel.read()
        if text is not None:
            asking, self._asking = self._asking, []
            for exchange in asking:
                body = b"" if exchange.request.startswith(b"HEAD ") else text
                self._answer(exchange, "200 OK", _METRICS, body, len(text))

    def _answer(
        self, exchange: _ScrapeConnection, status: str, kind: str, body: bytes, length: int | None = None
    ) -> None:
        length = len(body) if length is None else length
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        exchange.answer = head.encode() + body
        exchange.connection.waits()
        if exchange.send():
            self._selector.modify(exchange.connection, selectors.EVENT_WRITE, exchange)
        else:
            self._end(exchange)

    def _end(self, exchange: _ScrapeConnection) -> None:
        if exchange in self._asking:
            self._asking.remove(exchange)
        self._selector.unregister(exchange.connection)
        exchange.connection.drop()
        exchange.connection.close()


def main() -> None:
    """`python -m publisher.observe.metrics_listener LISTENING CHANNEL NAME...`: two inherited descriptors by their
    numbers, and the names to which it answers."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the parent decides when it ends
        signal.signal(number, signal.SIG_IGN)
    listening, channel = (socket.socket(fileno=int(word)) for word in sys.argv[1:3])
    listener = Listener(listening, most=_MOST_CONNECTIONS, most_of_address=_MOST_OF_ADDRESS, wait_s=_WAIT_S)
    listener.setblocking(False)
    with suppress(EOFError, OSError):
        _MetricsServer(listener, channel, sys.argv[3:]).run()


if __name__ == "__main__":
    main()
