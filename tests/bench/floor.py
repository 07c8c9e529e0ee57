"""Rows: what nobody can be quicker than: the bytes of the records over loopback TLS, and nothing else."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from pathlib import Path

from publisher.simulator.pki import make_pki
from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row

RECORD_BYTES = 2_400
_BLOCK = 2**16


@row("floor: bytes of records over TLS", Sizes(10_000, 100_000, 1_000_000))
def tls_bytes(bench: Bench) -> None:
    """As many bytes as so many usage records have (2.4 kB each), over one connection to another process."""
    pki = make_pki(bench.folder / "pki")
    command = [sys.executable, "-m", "tests.bench.floor", str(bench.folder / "pki")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        port = int(sink.stdout.readline())
        context = ssl.create_default_context(cafile=pki.ca_file)
        block = bytes(_BLOCK)
        with bench.timed(bench.size):
            raw = socket.create_connection(("127.0.0.1", port))
            with context.wrap_socket(raw, server_hostname="localhost") as tls:
                for _ in range(bench.size * RECORD_BYTES // _BLOCK):
                    tls.sendall(block)
                tls.shutdown(socket.SHUT_WR)
                tls.recv(1)
        sink.wait()


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
