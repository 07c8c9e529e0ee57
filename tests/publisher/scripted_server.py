"""A server on a real socket that answers as a test scripts it, optionally with TLS and client certificates."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from publisher.simulator.pki import Credential, Pki


@dataclass
class ScriptedRequest:
    """What came: a connection number (from 1), method, path, headers in lower case, body."""

    connection: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class ScriptedConnection:
    """What a script can do with an open connection."""

    def __init__(self, sock: socket.socket, stopped: threading.Event) -> None:
        self.sock = sock
        self.stopped = stopped

    def answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, *, length: int | None = None
    ) -> None:
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body) if length is None else length}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    def cut(self) -> None:
        """Close with a reset, as a crash does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise ConnectionAbortedError

    def wait(self) -> None:
        """Say nothing until the test is over."""
        self.stopped.wait(60)


Script = Callable[[ScriptedRequest, ScriptedConnection], None]


@dataclass
class ScriptedServer:
    port: int
    scheme: str
    requests: list[ScriptedRequest] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}"


@contextlib.contextmanager
def serve(
    script: Script,
    pki: Pki | None = None,
    *,
    certificate: Credential | None = None,
    ask: ssl.VerifyMode = ssl.CERT_REQUIRED,
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> Iterator[ScriptedServer]:
    """Serve on loopback, each connection in a thread, with TLS where there is a PKI."""
    context: ssl.SSLContext | None = None
    if pki is not None:
        own = certificate or pki.server
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = min(highest, ssl.TLSVersion.TLSv1_2)
        context.maximum_version = highest
        context.load_cert_chain(own.certificate, own.key)
        context.load_verify_locations(pki.ca_file)
        context.verify_mode = ask
    stopped = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    server = ScriptedServer(listener.getsockname()[1], "http" if context is None else "https")
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            server.connections += 1
            thread = threading.Thread(target=handle, args=(sock, server.connections), daemon=True)
            threads.append(thread)
            thread.start()

    def handle(plain: socket.socket, number: int) -> None:
        sock = plain
        with contextlib.suppress(OSError, ValueError), contextlib.ExitStack() as stack:
            stack.callback(plain.close)
            if context is not None:
                sock = stack.enter_context(context.wrap_socket(plain, server_side=True))
            sock.settimeout(30)
            stream = cast("BinaryIO", stack.enter_context(sock.makefile("rb")))
            while (request := read(stream, number)) is not None:
                server.requests.append(request)
                script(request, ScriptedConnection(sock, stopped))

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield server
    finally:
        stopped.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()


def read(stream: BinaryIO, number: int) -> ScriptedRequest | None:
    """One request, or None at the end."""
    line = stream.readline().decode()
    if not line:
        return None
    method, path, _ = line.split()
    headers: dict[str, str] = {}
    while (header := stream.readline().decode().strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", "0")))
    return ScriptedRequest(number, method, path, headers, body)


def unused_port() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
