"""A whole run against a service that refuses us, answers as another program, or without end: what it says, what it
takes in memory, and that nothing counts as delivered.

`tests/publisher/targets/test_bad_answers.py` has the outcome of one message for each of them.
"""

from __future__ import annotations

import contextlib
import gzip
import ssl
import subprocess
import sys
from typing import Final

import pytest

from publisher.simulator.pki import Pki
from tests.publisher.cli.program import BASE, SOURCE, Program
from tests.publisher.scripted_server import Script, ScriptedConnection, ScriptedRequest, serve
from tests.publisher.targets.scripted_targets import always

CERTIFICATE: Final = 'certificate = "{certificate}"\nkey = "{key}"\n'
TOKEN: Final = 'token_file = "secret"\n'
CLIENT: Final = 'token_url = "{url}/token"\nclient_id = "site"\nclient_secret_file = "secret"\n'
SERVICES: Final = {
    "sgas": ('type = "sgas"', CERTIFICATE),
    "ams": ('type = "ams"\nauth_url = "{url}"\nrecords = "apel-summary"', CERTIFICATE),
    "https": ('type = "https"', TOKEN),
    "client": ('type = "https"', CLIENT),
    "auditor": ('type = "auditor"', CERTIFICATE),
    "waldur": ('type = "waldur"\noffering = "0123456789abcdef0123456789abcdef"\nby = "vo"', TOKEN),
}
"""The keys of a target, and those of its credentials. `client` asks for its token first."""
LARGE: Final = 100_000_000
_PART: Final = b" " * 65_536
_BOMB: Final = gzip.compress(bytes(LARGE), 9)
_MEASURED: Final = """
import sys
from publisher.cli.main import main
try:
    main()
finally:
    print(*(line for line in open("/proc/self/status") if line.startswith("VmHWM:")), file=sys.stderr)
"""
MORE_KIB: Final = 64 << 10
"""Room for an answer of 16 MiB, its copies, and what the interpreter keeps."""


def sized(_request: ScriptedRequest, connection: ScriptedConnection) -> None:
    """100 MB whose length is said."""
    with contextlib.suppress(OSError):
        connection.answer(200, b"{", length=LARGE)
        for _ in range(LARGE // len(_PART)):
            connection.sock.sendall(_PART)
    connection.cut()


def in_chunks(_request: ScriptedRequest, connection: ScriptedConnection) -> None:
    """100 MB in chunks, whose length nothing says."""
    with contextlib.suppress(OSError):
        connection.sock.sendall(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        for _ in range(LARGE // len(_PART)):
            connection.sock.sendall(b"10000\r\n" + _PART + b"\r\n")
    connection.cut()


SCRIPTS: Final[dict[str, Script]] = {
    "expired": always(401, b'{"detail":"Token has expired"}'),
    "page": always(200, b"<title>Log in</title>"),
    "sized": sized,
    "chunks": in_chunks,
    "bomb": always(200, _BOMB, {"Content-Encoding": "gzip", "Content-Type": "application/json"}),
}
WAITING: Final = {"auditor": 20, "waldur": 35}
"""Of the 37 jobs, those that are not held for another reason."""
ACCEPTED: Final = {("https", "page"), ("https", "bomb")}
"""Any 2xx is its acceptance: the answer is the receipt."""
SAID: Final = {
    ("any", "sized"): "the answer has more than 16 MiB. Check what answers at the URL",
    ("any", "chunks"): "the answer has more than 16 MiB. Check what answers at the URL",
    ("any", "bomb"): "the answer is compressed (gzip), which it may not be",
    ("sgas", "expired"): 'HTTP 401: {"detail":"Token has expired"}. The service must know our certificate',
    ("sgas", "page"): "the answer does not name the records that were sent: HTTP 200: Log in",
    ("ams", "expired"): 'no token for our certificate: HTTP 401: {"detail":"Token has expired"}',
    ("ams", "page"): "the answer has no token: HTTP 200: Log in",
    ("https", "expired"): 'HTTP 401: {"detail":"Token has expired"}. The service must accept our token',
    ("client", "expired"): "gives no token: HTTP 401. Check token_url, client_id",
    ("client", "page"): "answered HTTP 200 without a token. Check token_url",
    ("client", "bomb"): "answered HTTP 200 without a token. Check token_url",
    ("auditor", "expired"): 'HTTP 401: {"detail":"Token has expired"}. The service must know our certificate',
    ("auditor", "page"): "not an answer of AUDITOR: HTTP 200: Log in. Check the URL",
    ("waldur", "expired"): 'HTTP 401: {"detail":"Token has expired"}. The service must accept our token',
    ("waldur", "page"): "the answer is not the JSON that Waldur gives",
    ("waldur", "bomb"): "the answer is not the JSON that Waldur gives",
}


def measured(program: Program, *words: str) -> tuple[int, str, int]:
    """A command in a process of its own: its exit code, its messages, and the most memory that it had, in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *words], cwd=program.folder, env=program.environment, check=False,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    said, _, peak_kib = done.stderr.rpartition("VmHWM:")
    return done.returncode, said, int(peak_kib.split()[0])


@pytest.mark.every_case
@pytest.mark.parametrize("service", SERVICES)
def test_a_run_ends_well(collected: Program, pki: Pki, service: str) -> None:
    (collected.folder / "secret").write_text("4cc3ss-t0ken")
    (collected.folder / "secret").chmod(0o600)
    keys, credentials = SERVICES[service]
    table = f'\n[targets.t]\n{keys}\nurl = "{{url}}"\nattempts = 1\n[targets.t.credentials]\nca_file = "{{ca}}"\n'
    usual_kib = 0
    for answer, script in SCRIPTS.items():
        if (service, answer) in ACCEPTED:
            continue
        with serve(script, pki, ask=ssl.CERT_OPTIONAL) as server:
            client = pki.client
            given = {"certificate": client.certificate, "key": client.key, "ca": pki.ca_file, "url": server.url}
            collected.configure(BASE + SOURCE + (table + credentials).format(**given))
            code, said, peak_kib = measured(collected, "publish")
        refused = answer == "expired"
        assert (code, said.startswith("t: stopped: ")) == (4 if refused else 1, True), (answer, said)
        assert SAID.get((service, answer), SAID.get(("any", answer))) in said
        assert "Traceback" not in said
        assert "4cc3ss" not in said
        ledger = collected("status", "--json").object["targets"]["t"]
        assert (ledger["accepted"], ledger["rejected"], ledger["waiting"]) == (0, 0, WAITING.get(service, 37)), answer
        usual_kib = usual_kib or peak_kib
        assert peak_kib < usual_kib + MORE_KIB, answer
