"""The simulated services as a separate process, for measurements from end to end."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.bench import plain


@dataclass(frozen=True)
class BenchServices:
    """The addresses of the services, and the files for connecting to them."""

    ready: dict[str, str]

    def target(self, kind: str, **settings: Any) -> str:
        """A table of the configuration: SGAS, or AMS with some kind of records."""
        urls = {"url": self.ready["sgas_url"]}
        if kind == "ams":
            urls = {"url": self.ready["ams_url"], "auth_url": self.ready["token_url"]}
        table = {"type": kind, **urls, **settings}
        trust = {name: self.ready[name] for name in ("certificate", "key", "ca_file")}
        lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
        lines += ["", "[credentials]", *(f"{name} = {json.dumps(value)}" for name, value in trust.items())]
        return f"\n[targets.{kind}]\n" + "\n".join(lines) + "\n"

    def connection(self, url: str) -> plain.PlainConnection:
        """A connection of the plain publisher."""
        return plain.PlainConnection(
            self.ready[url], self.ready["ca_file"], self.ready["certificate"], self.ready["key"]
        )

    def token(self) -> str:
        """A token of the AMS."""
        host = urlsplit(self.ready["ams_url"]).hostname
        path = f"/v1/service-types/ams/hosts/{host}:authx509"
        return str(json.loads(self.connection("token_url").request("GET", path))["token"])

    def stats(self) -> Any:
        """What the services counted."""
        return self._asked("stats")

    def apel(self) -> Any:
        """What APEL's server made of the messages to AMS."""
        return self._asked("holdings")["apel"]

    def _asked(self, what: str) -> Any:
        address = urlsplit(self.ready["admin_url"])
        context = ssl.create_default_context(cafile=self.ready["ca_file"])
        connection = http.client.HTTPSConnection(str(address.hostname), address.port, context=context)
        connection.request("GET", f"{address.path}/{what}")
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found


def services(folder: Path) -> contextlib.AbstractContextManager[BenchServices]:
    """Running while inside."""
    return _running("publisher.simulator", "--directory", str(folder), "--limit-bytes", str(2**30))


def counting(folder: Path) -> contextlib.AbstractContextManager[BenchServices]:
    """Context manager: an SGAS that checks nothing."""
    return _running("tests.bench.counting", str(folder))


@contextlib.contextmanager
def _running(*module: str) -> Iterator[BenchServices]:
    command = [sys.executable, "-m", *module]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield BenchServices(json.loads(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
