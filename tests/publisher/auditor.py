"""A double of AUDITOR on loopback, which keeps records in memory; written from the facts on AUDITOR.

It stores an array whole or not at all, keeps the first record of each id, changes only ends, and gives records as a
stream of JSON objects by end.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote

MOST_BYTES: Final = 2 << 20
EXISTS: Final = "RECORD_EXISTS"
Fault = Callable[[str, str], str]
"""Called with method and path of each request; answers what goes wrong: a status, `cut` (nothing is stored), or
`stored` (cut, but stored); empty: nothing."""


class AuditorDouble:
    """See the module. `rows`: its records by id."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.fault: Fault = lambda _method, _path: ""
        self.shortened: Callable[[list[str]], list[str]] = lambda stream: stream
        """What is left of a stream that its database ends early."""
        self.ignores_repeats = False
        """Its option `ignore_record_exists_error`."""
        self.lock = threading.Lock()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[AuditorDouble]:
        """Serve until the end of the `with` statement."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"double": self}))
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

    def add(self, records: list[dict[str, Any]]) -> tuple[int, str]:
        """Add records, all or none."""
        ids = [record["record_id"] for record in records]
        if len(set(ids)) < len(ids) or self.rows.keys() & set(ids):
            warning = json.dumps({"warning": "One or more records already exist, but the error was ignored"})
            return (200, warning) if self.ignores_repeats else (500, EXISTS)
        self.rows |= dict(zip(ids, records, strict=True))
        return 200, ""

    def update(self, record: dict[str, Any]) -> tuple[int, str]:
        """Change the end of a record."""
        if record["record_id"] not in self.rows:
            return 404, "Updating unknown record ID not possible."
        self.rows[record["record_id"]] |= {"stop_time": record["stop_time"]}
        return 200, ""

    def query(self, query: str) -> tuple[int, str]:
        """Those records that meet a query, as a stream."""
        found = list(self.rows.values())
        order = ""
        for part in query.split("&"):
            name, value = part.partition("=")[0], unquote(part.partition("=")[2])
            if name in {"stop_time[gte]", "stop_time[lt]"}:
                is_lower = name.endswith("[gte]")
                found = [each for each in found if each["stop_time"] and (each["stop_time"] >= value) == is_lower]
            elif name == "record_id":
                found = [each for each in found if each["record_id"] == value]
            elif name in {"sort_by[asc]", "sort_by[desc]"} and value == "stop_time":
                order = name
            elif name != "limit":
                return 400, json.dumps({"error": f"unknown field `{name}`"})
        found.sort(key=lambda each: (each["stop_time"] or "~", each["record_id"]), reverse=order == "sort_by[desc]")
        return 200, "".join(self.shortened([json.dumps(self._given(each)) for each in found]))

    @staticmethod
    def _given(record: dict[str, Any]) -> dict[str, Any]:
        """A record as it is given, with the run time."""
        ends = record["stop_time"]
        return {**record, "runtime": None if ends is None else seconds(ends) - seconds(record["start_time"])}


def seconds(time: str) -> int:
    """Epoch seconds of a time."""
    return int(datetime.fromisoformat(time).astimezone(UTC).timestamp())


def _problem(record: dict[str, Any]) -> str:
    """Why a record is not accepted."""
    texts = [record["record_id"], *record["meta"], *(text for texts in record["meta"].values() for text in texts)]
    for component in record["components"]:
        texts += [component["name"], *(score["name"] for score in component["scores"])]
        if not isinstance(component["amount"], int) or not 0 <= component["amount"] < 2**63:
            return "amount"
    if any(not text.strip() or len(text) > 256 or "\0" in text for text in texts):
        return "text"
    times = [record["start_time"], record["stop_time"]]
    if not all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time in times):
        return "time"
    return ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: AuditorDouble

    def log_message(self, *_: object) -> None:
        pass

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        with self.double.lock:
            self.double.requests.append(f"{self.command} {self.path}")
            fault = self.double.fault(self.command, path)
            if fault.isdigit():
                self._answer(int(fault), "UNEXPECTED_ERROR" if fault == "500" else "a fault")
                return
            answer = None if fault == "cut" else self._done(path, query, body)
        if answer is None or fault == "stored":
            self.close_connection = True
            return
        self._answer(*answer)

    do_GET = do_POST = do_PUT = do_any  # noqa: N815 - names of the library

    def _done(self, path: str, query: str, body: bytes) -> tuple[int, str]:
        if len(body) > MOST_BYTES:
            return 413, "larger than allowed"
        if self.command == "GET":
            return self.double.query(query) if path == "/records" else (200, "")
        content = json.loads(body)
        records = content if path == "/records" else [content]
        problem = next(filter(None, map(_problem, records)), "")
        if problem:
            return 400, f"Json deserialize error: {problem}"
        return self.double.update(content) if self.command == "PUT" else self.double.add(records)

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
