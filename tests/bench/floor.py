"""Rows: the lower limit of the time: only the bytes of the records over loopback TLS."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from publisher.simulator.pki import make_pki
from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row

RECORD_BYTES = 2_400
_BLOCK = 2**16
_BYTES = "floor: bytes of records over TLS"
_READ, _SIGN = "collect arc, all new", "sign messages of 700 kB"
_SIGNED_RECORDS = {"ARC database to AMS, CAR": 500}
"""Records a message, of the rows of delivery whose messages are signed."""


def distances(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How many times the sum of the floors the rows of delivery take: ARC's rows read with bare sqlite3, a signature a
    message, the bytes over TLS, one after the other. Nothing where one of the floors was not measured."""
    measured = {result["row"]: result for result in results if "error" not in result}
    if not {_BYTES, _READ, _SIGN} <= measured.keys():
        return
    bytes_s, read_s = 1 / measured[_BYTES]["per_s"], 1 / measured[_READ]["baseline"]["per_s"]
    sign_s = 1 / measured[_SIGN]["baseline"]["per_s"]
    for name, found in measured.items():
        if name.startswith("ARC database to") and "summaries" not in name:
            floor_s = found["records"] * (read_s + bytes_s)
            if name in _SIGNED_RECORDS:
                floor_s += found["records"] / _SIGNED_RECORDS[name] * sign_s
            yield f"{name}: {found['wall_s'] / floor_s:.1f} times the {floor_s:.2f} s that the floors take in sum"


@row(_BYTES, Sizes(10_000, 100_000, 1_000_000))
def tls_bytes(bench: Bench) -> None:
    """As many bytes as the usage records have (2.4 kB each), over one connection to another process."""
    block = bytes(_BLOCK)
    with sink(bench.folder / "pki") as tls, bench.timed(bench.size):
        for _ in range(bench.size * RECORD_BYTES // _BLOCK):
            tls.sendall(block)
        tls.shutdown(socket.SHUT_WR)
        tls.recv(1)


@contextmanager
def sink(folder: Path) -> Iterator[ssl.SSLSocket]:
    """A TLS connection to a process that reads everything and does nothing with it. `folder`: of its certificates."""
    pki = make_pki(folder)
    command = [sys.executable, "-m", "tests.bench.floor", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        context = ssl.create_default_context(cafile=pki.ca_file)
        raw = socket.create_connection(("127.0.0.1", port))
        with context.wrap_socket(raw, server_hostname="localhost") as tls:
            yield tls


def main(folder: str) -> None:
    """Take one connection and read it to its end."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    raw, _ = listener.accept()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(folder) / "server.pem", Path(folder) / "server.key")
    buffer = bytearray(_BLOCK)
    with context.wrap_socket(raw, server_side=True) as tls:
        while tls.recv_into(buffer):
            pass


if __name__ == "__main__":
    main(sys.argv[1])
