"""The simulator as a separate process, as a site starts it for a rehearsal."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.publisher.simulator.records import message, record

COMMAND = [sys.executable, "-m", "publisher.simulator"]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    fault = json.dumps([{"kind": "status", "code": 503, "count": 1}])
    command = [*COMMAND, "--directory", str(tmp_path / "pki"), "--client-key", "ec", "--faults", fault]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running, json.loads(running.stdout.readline())
        finally:
            running.kill()


def test_it_says_where_it_is_serves_and_ends_on_sigterm(process: tuple[subprocess.Popen[str], dict[str, Any]]) -> None:
    running, ready = process
    context = ssl.create_default_context(capath=ready["ca_directory"])
    context.load_cert_chain(ready["certificate"], ready["key"])
    host = ready["sgas_url"].split("/")[2]
    connection = http.client.HTTPSConnection(host, context=context, timeout=30)
    statuses = []
    for _ in range(2):
        connection.request("POST", "/sgas/ur", message(record(1)))
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    assert statuses == [503, 200]
    connection.request("GET", "/_simulator/holdings")
    assert json.loads(connection.getresponse().read())["sgas"]["ur-1"]["received"] == 1
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (0, "", "")
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--faults", "[{}]"], "kind"), (["--faults", "x"], "--faults"), (["--port", "nowhere"], "--port")],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = subprocess.run(
        [*COMMAND, "--directory", str(tmp_path), *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, complaint in done.stderr) == (2, True)


def test_a_port_that_is_taken(tmp_path: Path, process: tuple[subprocess.Popen[str], dict[str, Any]]) -> None:
    port = process[1]["sgas_url"].split("/")[2].split(":")[1]
    done = subprocess.run(
        [*COMMAND, "--directory", str(tmp_path), "--port", port], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "cannot listen" in done.stderr
