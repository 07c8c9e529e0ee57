"""An `HttpClient` for tests, with and without credentials and authorities."""

from __future__ import annotations

import time

from publisher.security.credentials import ClientCredentials, load_credentials
from publisher.security.exchange import Failure, Timing
from publisher.security.http import HttpClient, Reply
from publisher.security.tls import Trust
from publisher.simulator.pki import Credential, Pki
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, ScriptedServer


def client(
    server: ScriptedServer | str,
    pki: Pki | None = None,
    *,
    trust: Trust | None = None,
    timeout_s: float = 20.0,
    **more: object,
) -> HttpClient:
    url = server if isinstance(server, str) else server.url
    shown = more.get("shown", None if pki is None else pki.client)
    assert shown is None or isinstance(shown, Credential)

    def credentials() -> ClientCredentials | None:
        if shown is None:
            return None
        return load_credentials(shown.certificate, shown.key, now_s=time.time())

    trust = trust or (Trust() if pki is None else Trust(ca_directory=pki.ca_directory))
    proxy = more.get("proxy")
    stopping = more.get("stopping", lambda: False)
    assert callable(stopping)
    timing = more.get("timing", Timing())
    assert isinstance(timing, Timing)
    return HttpClient(
        url,
        trust=trust,
        credentials=credentials,
        timeout_s=timeout_s,
        proxy=None if proxy is None else str(proxy),
        stopping=stopping,
        timing=timing,
    )


def ok(request: ScriptedRequest, connection: ScriptedConnection) -> None:
    connection.answer(200, b"fine " + request.body)


def post(http: HttpClient, server: ScriptedServer, body: bytes = b"records") -> Reply | Failure:
    try:
        return http.request("POST", f"{server.url}/x", content=body)
    finally:
        http.close()
