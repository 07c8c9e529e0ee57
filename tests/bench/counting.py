"""An SGAS that checks nothing, as a process: `python -m tests.bench.counting DIRECTORY`.

The simulated service parses and checks every record, which costs a third as much as making and sending it, on the same
cores. The SGAS of a site runs on another machine. This one reads messages, finds and keeps the records' ids, and
answers as SGAS does.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from publisher.simulator.pki import make_pki
from publisher.simulator.server import Request, Response, SimulatorServer

_BASE: Final = "/sgas"
_ADMIN: Final = "/_simulator"
_LIMIT_BYTES: Final = 2**30
_RECORD_ID: Final = re.compile(rb'recordId="([^"]*)"')


class Counting:
    """What is served; see `publisher.simulator.server.SimulatedSite`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, str] = {}
        self._received = self._posts = 0

    def limit_bytes(self, _path: str) -> int:
        """See `publisher.simulator.server.SimulatedSite`."""
        return _LIMIT_BYTES

    def too_large(self, _path: str) -> Response:
        """See `publisher.simulator.server.SimulatedSite`."""
        return Response(413, b"")

    def handle(self, request: Request) -> Response:
        """Accept records, or return how many were accepted, as the simulator does."""
        if request.path == f"{_ADMIN}/stats":
            with self._lock:
                counted = {"records": len(self._rows), "received": self._received, "posts": self._posts}
            return Response(200, msgspec.json.encode({"sgas": counted, "ams": {}}))
        if request.peer is None or request.path != f"{_BASE}/ur" or request.method != "POST":
            return Response(404, b"")
        found = [identity.decode() for identity in _RECORD_ID.findall(request.body)]
        with self._lock:
            self._posts += 1
            self._received += len(found)
            answer = {identity: self._rows.setdefault(identity, str(len(self._rows) + 1)) for identity in found}
        return Response(200, msgspec.json.encode(answer))


def main(directory: str) -> None:
    """Serve until SIGTERM; says where in a line of JSON, as the simulator."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    pki = make_pki(Path(directory))
    server = SimulatorServer(Counting(), pki)
    url = f"https://localhost:{server.port}"
    ready = {
        "sgas_url": url + _BASE,
        "admin_url": url + _ADMIN,
        "ca_file": str(pki.ca_file),
        "certificate": str(pki.client.certificate),
        "key": str(pki.client.key),
    }
    print(json.dumps(ready), flush=True)
    stop.wait()
    server.close()


if __name__ == "__main__":
    main(sys.argv[1])
