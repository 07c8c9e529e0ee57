"""Doubles of services: what a suite asks of them, and a service on loopback to build one on.

A double is its author's: it does with messages what the documents of the real service say, and its content is the judge
of every promise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, Protocol, Self, runtime_checkable

import msgspec


@runtime_checkable
class Service(Protocol):
    """The double of a service. It is empty when a test gets it."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table `[targets.NAME]` with which it is reached, with `type`."""
        ...

    def content(self) -> Iterable[tuple[str, Any]]:
        """What counts at the service now: for each record its record id, for each total the text of its key; and its
        value as `publisher.testing.TargetSuite.value` gives it. Without totals that have no runs any more."""
        ...


@runtime_checkable
class Fails(Protocol):
    """A double that can fail at single requests."""

    def fail(self, faults: Sequence[str]) -> None:
        """What happens to the next requests, one after the other, instead of what was said before: a status such as
        `"503"`; `"cut"`: no answer; `"stored"`: no answer, but it did its work; empty: nothing."""
        ...


@runtime_checkable
class Refuses(Protocol):
    """A double that can refuse certain records, as the service refuses those that it cannot store."""

    def refuse(self, texts: Collection[str]) -> None:
        """Refuse messages that contain one of these texts, and no others."""
        ...


@runtime_checkable
class Alters(Protocol):
    """A double whose content can be changed, to be found by a reconciliation."""

    def alter(self, key: str) -> None:
        """Change an amount of that record or total."""
        ...

    def remove(self, key: str) -> None:
        """Remove that record or total."""
        ...


@runtime_checkable
class Exports(Protocol):
    """A double whose evidence is a file, which `evidence` in its settings names."""

    def export(self) -> None:
        """Write what the service has now into the file."""
        ...


@runtime_checkable
class KeepsTime(Protocol):
    """A double that compares the times of messages with its clock. The suite gives it, and the target, the clock of the
    site."""

    now: Callable[[], float]
    """Epoch seconds."""


class HttpRequest(msgspec.Struct, frozen=True):
    """A request; names of `headers` in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


Fault = Callable[[str, str], str]
"""Called with method and path of each request; answers as an item of `Fails.fail`."""
_NO_ANSWER: Final = frozenset({"cut", "stored"})


def in_turn(faults: Sequence[str]) -> Fault:
    """These faults, one after the other; then none."""
    left = list(faults)
    return lambda _method, _path: left.pop(0) if left else ""


class HttpDouble:
    """A service that answers HTTP on loopback: a subclass gives `answer`, which is called for one request at a time.

    Use it in a `with` statement. `url`: its address. `requests`: as they came. `fault`: asked at each request.
    """

    refusal: ClassVar[tuple[int, str]] = (400, "refused")
    """Status and text with which it refuses records."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[HttpRequest] = []
        self.lock = threading.Lock()
        self.fault: Fault = in_turn(())
        self._refused: tuple[bytes, ...] = ()

    def answer(self, request: HttpRequest) -> tuple[int, str]:
        """Do what the service does, and return its status and text."""
        raise NotImplementedError

    def fail(self, faults: Sequence[str]) -> None:
        """See `Fails`."""
        with self.lock:
            self.fault = in_turn(faults)

    def refuse(self, texts: Collection[str]) -> None:
        """See `Refuses`."""
        with self.lock:
            self._refused = tuple(text.encode() for text in texts)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Serve until the end of the `with` statement."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_DoubleHandler,), {"double": self}))
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def handle(self, request: HttpRequest) -> tuple[int, str] | None:
        """The answer to a request, with faults; None: the connection is cut."""
        with self.lock:
            self.requests.append(request)
            fault = self.fault(request.method, request.path)
            if fault and fault not in _NO_ANSWER:
                return int(fault), "a fault"
            is_refused = any(text in request.body for text in self._refused)
            answer = None if fault == "cut" else self.refusal if is_refused else self.answer(request)
        return None if fault else answer


class _DoubleHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: HttpDouble

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_any(self) -> None:
        """Answer a request of any method."""
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length") or 0))
        answer = self.double.handle(HttpRequest(self.command, path, query, headers, body))
        if answer is None:
            self.close_connection = True
            return
        status, text = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_any  # noqa: N815 - names of the library
