"""Runs ARC's own publisher once, its modules on PYTHONPATH: `arc_runner.py CONFIGURATION TOKEN_PORT SHARED SINCE`.

Of the target named `bench` all jobs that ended after SINCE are published, as by its command for a time window: a run by
the clock would begin today. The port of the token service, which it has fixed, is set; with SHARED = 1 there is one TLS
context for all connections, where it makes one for each. Exit code 1 where it did not publish.
"""

from __future__ import annotations

import functools
import http.client
import importlib
import logging
import ssl
import sys
from typing import Any


def main(configuration: str, token_port: str, shared: str, since: str) -> int:
    """Publish to the targets of a configuration."""
    peer: Any = importlib.import_module("arc.control.AccountingPublishing")
    config: Any = importlib.import_module("arc.utils.config")

    logging.getLogger("ARC").addHandler(logging.NullHandler())
    logging.getLogger("ARC").setLevel(logging.CRITICAL)
    config.load_run_config(configuration)
    _set_token_port(peer.APELAMSDirectSender, int(token_port))
    if shared == "1":
        peer.HTTPSClientAuthConnection = _SharedTlsConnection
    publisher = peer.RecordsPublisher(config)
    settings, kind = publisher.find_configured_target("bench")
    return int(not publisher.republish(kind, settings, int(since)))


def _set_token_port(sender: Any, port: int) -> None:
    made = sender.__init__

    @functools.wraps(made)
    def making(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self.ams_authport = port

    sender.__init__ = making


@functools.lru_cache
def _context(authorities: str, certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(capath=authorities)
    context.load_cert_chain(certificate, key)
    return context


class _SharedTlsConnection(http.client.HTTPSConnection):
    """Replaces its own class, which loads all authorities of the system each time, and then the configured ones."""

    def __init__(self, *, host: str, port: int, key_file: str, cert_file: str, cacerts_path: str) -> None:
        super().__init__(host, port, context=_context(cacerts_path, cert_file, key_file))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
