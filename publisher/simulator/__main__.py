"""The simulator as a program: `usage-publisher-simulator --directory DIR [--port N] [--token-port N] ...`.

Prints one line of JSON when it is ready (URLs and files of the certificates), and serves until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

import msgspec

from publisher.simulator.faults import Fault
from publisher.simulator.pki import make_pki
from publisher.simulator.sgas import SHIPPED_LIMIT_BYTES
from publisher.simulator.simulator import Simulator


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal arrives. Returns 0 then.

    Exits with 2 for a wrong argument, a port in use, or a folder that cannot be written.
    """
    parser = argparse.ArgumentParser(
        prog="usage-publisher-simulator",
        description="Simulate SGAS and AMS with APEL on the loopback interface, with TLS and temporary certificates.",
    )
    parser.add_argument("--directory", type=Path, required=True, help="folder for the temporary certificates")
    parser.add_argument("--port", type=int, default=0, help="port of SGAS and AMS; 0: any free port")
    parser.add_argument("--token-port", type=int, default=0, help="port of the token service (8443 at ARGO)")
    parser.add_argument("--client-cn", default="ce1.example.org", help="common name in the client certificate")
    parser.add_argument("--client-key", choices=("rsa", "ec"), default="rsa", help="type of the client key")
    parser.add_argument(
        "--check-depth", type=int, default=2, help="labels of the domain that SGAS compares; 0: accept every host"
    )
    parser.add_argument(
        "--limit-bytes", type=int, default=SHIPPED_LIMIT_BYTES, help="largest request body that SGAS accepts"
    )
    parser.add_argument("--topic", action="append", help="AMS topic, repeatable; default: gLite-APEL")
    parser.add_argument("--eager", action="store_true", help="process every message when it arrives")
    parser.add_argument("--faults", default="[]", help="faults to simulate from the start, as JSON")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices")
    options = parser.parse_args(arguments)
    try:
        faults = msgspec.json.decode(options.faults, type=list[Fault])
    except msgspec.MsgspecError as error:
        parser.error(f"--faults: {error}")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        pki = make_pki(options.directory, client_cn=options.client_cn, client_key=options.client_key)
    except OSError as error:
        parser.error(f"--directory: {options.directory} cannot be written: {error.strerror}")
    simulator = Simulator(
        pki, faults=faults, seed=options.seed, port=options.port, token_port=options.token_port,
        check_depth=options.check_depth, limit_bytes=options.limit_bytes, eager=options.eager,
        topics={topic: (f"{topic}-reader",) for topic in options.topic} if options.topic else {"gLite-APEL": ("apel",)},
    )  # fmt: skip
    try:
        simulator.start()
    except OSError as error:
        parser.error(f"cannot listen on 127.0.0.1: {error.strerror or error}")
    ready = {
        "sgas_url": simulator.sgas_url,
        "ams_url": simulator.ams_url,
        "token_url": simulator.token_url,
        "admin_url": simulator.admin_url,
        "ca_file": str(pki.ca_file),
        "ca_directory": str(pki.ca_directory),
        "certificate": str(pki.client.certificate),
        "key": str(pki.client.key),
        "dn": pki.client.dn,
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    stop.wait()
    simulator.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
