"""A small AUDITOR on a real socket: it keeps records in memory, and answers as AUDITOR 0.11 does, as far as this
program asks it.

It differs from AUDITOR on purpose where a test says so: `short` answers end early, and look complete.
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote_plus

from publisher.simulator.pki import Pki

OPERATORS = {"gt": "__gt__", "gte": "__ge__", "lt": "__lt__", "lte": "__le__"}


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


class AuditorServer:
    """The records, the requests so far, and what goes wrong."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.short: list[int] = []
        """How many records each of the next answers has at most."""
        self.body: bytes | None = None
        """What is answered instead of records."""
        self.status = 200
        self.before_answer: list[dict[str, Any]] = []
        """Records of which one arrives after each answer."""
        self.url = ""

    def add(self, *records: dict[str, Any]) -> None:
        """Store records. Raises `ValueError` if an id is there already: then none is stored."""
        ids = [record["record_id"] for record in records]
        if len({*ids}) < len(ids) or self.records.keys() & ids:
            raise ValueError("RECORD_EXISTS")
        for record in records:
            self.records[record["record_id"]] = {**record, "runtime": _runtime(record)}

    def end(self, record_id: str, stop_time: str) -> None:
        """Change the end of a record, as `PUT /record`."""
        record = {**self.records[record_id], "stop_time": stop_time}
        self.records[record_id] = {**record, "runtime": _runtime(record)}

    def query(self, query: str) -> list[dict[str, Any]]:
        """The records that a query selects. Raises `ValueError` for one that AUDITOR does not understand."""
        selected, limit, (order, key) = list(self.records.values()), None, ("asc", "stop_time")
        for part in filter(None, query.split("&")):
            name, _, value = part.partition("=")
            value = unquote_plus(value)
            if found := re.fullmatch(r"(start_time|stop_time)\[(\w+)\]", name):
                limit_of, compare = instant(value), OPERATORS[found[2]]
                there = [record for record in selected if record.get(found[1])]
                selected = [each for each in there if getattr(instant(each[found[1]]), compare)(limit_of)]
            elif found := re.fullmatch(r"meta\[([^\]]+)\]\[c\]\[0\]", name):
                selected = [each for each in selected if value in (each["meta"] or {}).get(unquote_plus(found[1]), ())]
            elif found := re.fullmatch(r"sort_by\[(asc|desc)\]", name):
                order, key = found[1], value
            elif name == "limit":
                limit = int(value)
            else:
                raise ValueError(f"unknown field `{name}`")
        ended = [each for each in selected if each.get(key)]
        ended.sort(key=lambda each: instant(each[key]), reverse=order == "desc")
        return [*ended, *(each for each in selected if not each.get(key))][:limit]


def _runtime(record: dict[str, Any]) -> int | None:
    if not record.get("stop_time"):
        return None
    span = instant(record["stop_time"]) - instant(record["start_time"])
    return abs(span) // timedelta(seconds=1) * (1 if span >= timedelta(0) else -1)


class _CollectedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for each answer
    auditor: AuditorServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        pass

    def do_GET(self) -> None:
        place, _, query = self.path.partition("?")
        self.auditor.requests.append(self.path)
        if self.auditor.body is not None or self.auditor.status != 200:
            self._answer(self.auditor.status, self.auditor.body or b"UNEXPECTED_ERROR")
        elif place == "/health_check":
            self._answer(200, b"")
        elif place != "/records":
            self._answer(404, b"")
        else:
            self._records(query)

    def _records(self, query: str) -> None:
        try:
            found = self.auditor.query(query)
        except ValueError as error:
            self._answer(400, json.dumps({"error": str(error)}).encode())
            return
        if self.auditor.short:
            found = found[: self.auditor.short.pop(0)]
        body = b"".join(json.dumps(each, separators=(",", ":")).encode() for each in found)
        if self.auditor.before_answer:
            self.auditor.add(self.auditor.before_answer.pop())
        self._answer(200, body)

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self.auditor.add(*(given if isinstance(given, list) else [given]))
        except ValueError as error:
            self._answer(500, str(error).encode())
        else:
            self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)


@contextlib.contextmanager
def auditor_server(pki: Pki | None = None) -> Iterator[AuditorServer]:
    """Serve on loopback; with a PKI over TLS, to clients with a certificate."""
    auditor = AuditorServer()
    handler = type("Handler", (_CollectedHandler,), {"auditor": auditor})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    scheme = "http"
    if pki is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki.server.certificate, pki.server.key)
        context.load_verify_locations(pki.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https"
    auditor.url = f"{scheme}://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield auditor
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
