"""What a site's secrets are not in: whatever a command prints, logs, stores, or shows to other users of the host."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from publisher.simulator.pki import Pki
from tests.publisher.cli.program import BASE, SOURCE, Program
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, serve
from tests.publisher.targets.scripted_targets import always

TOKEN = "4cc3ss-t0ken"
SECRET = "cl13nt-s3cret"
SETTINGS = """
[log]
file = "log"
level = "debug"
[targets.file]
type = "https"
url = "{url}/file"
attempts = 1
[targets.file.credentials]
token_file = "token"
token_header = "X-API-Key"
[targets.client]
type = "https"
url = "{url}/client"
attempts = 1
[targets.client.credentials]
token_url = "{url}/token"
client_id = "site"
client_secret_file = "secret"
[targets.refused]
type = "https"
url = "{url}/refused"
attempts = 1
[targets.refused.credentials]
token_url = "{url}/invalid"
client_id = "site"
client_secret_file = "secret"
[targets.waldur]
type = "waldur"
url = "{url}/waldur"
attempts = 1
offering = "0123456789abcdef0123456789abcdef"
[targets.waldur.credentials]
token_file = "token"
[targets.ams]
type = "ams"
url = "{url}/ams"
auth_url = "{url}"
attempts = 1
records = "apel-summary"
[targets.ams.credentials]
certificate = "{certificate}"
key = "{key}"
[credentials]
ca_file = "{ca}"
"""
AMS_TOKEN = "4ms-t0ken"
OF_SECRETS = ("x-api-key", "authorization")


@pytest.mark.parametrize("status", [200, 302, 403, 422, 500])
def test_no_secret_is_printed_logged_stored_or_in_the_process_list(collected: Program, pki: Pki, status: int) -> None:
    shown: list[str] = []

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    shown.append((process / name).read_text(encoding="latin-1"))
                except OSError:
                    continue  # it has ended, or belongs to another user
        if request.path == "/token":
            connection.answer(200, f'{{"access_token": "{TOKEN}", "expires_in": 3600}}'.encode())
        elif request.path.endswith(":authx509"):
            connection.answer(200, f'{{"token": "{AMS_TOKEN}"}}'.encode())
        elif request.path == "/invalid":
            said = f'{{"error": "invalid_client", "error_description": "{request.headers} {SECRET}"}}'.encode()
            connection.answer(401, said.replace(b"'", b""))
        else:
            where = {"Location": f"{other.url}/?{request.headers}"}
            connection.answer(status, str(request.headers).encode(), where if status == 302 else None)

    for name, content in (("token", TOKEN), ("secret", SECRET)):
        (collected.folder / name).write_text(content)
        (collected.folder / name).chmod(0o600)
    with serve(always(200), pki, ask=ssl.CERT_NONE) as other, serve(script, pki, ask=ssl.CERT_NONE) as server:
        client = pki.client
        given = {"certificate": client.certificate, "key": client.key, "ca": pki.ca_file}
        collected.configure(BASE + SOURCE + SETTINGS.format(url=server.url, **given))
        for words in (["check"], ["--verbose", "publish"], ["publish", "--json"], ["check", "--json"], ["status"]):
            done = collected(*words)
            shown += [done.out, done.err]
        for words in (["records", "list"], ["history"], ["store", "export", "exported"]):
            done = collected(*words, "--json")
            shown += [done.out, done.err]
        headers = [request.headers for request in server.requests]
        sent = {value for each in headers for name in OF_SECRETS if (value := each.get(name))}
        assert other.connections == 0, "a redirect is not followed"
    assert {TOKEN, f"Bearer {TOKEN}", f"Token {TOKEN}", AMS_TOKEN} < sent, "the services got them"
    kept = [file for file in collected.folder.rglob("*") if file.is_file() and file.name not in {"token", "secret"}]
    shown += [file.read_text(encoding="latin-1") for file in kept]
    assert "invalid_client" in "".join(shown)
    for secret in (TOKEN, SECRET, AMS_TOKEN):
        assert not [text for text in shown if secret in text]
