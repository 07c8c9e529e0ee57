"""Targets over HTTP for tests: made from settings, with one message to post and services that answer by script."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from publisher.config import schema
from publisher.simulator.pki import Pki
from publisher.targets import make_target
from publisher.targets.base import Message, Outcome, Target
from publisher.targets.identity import TargetContext
from tests.publisher.scripted_server import Script, ScriptedConnection, ScriptedRequest, serve

SETTINGS: TypeAdapter[schema.Target] = TypeAdapter(schema.Target)
MESSAGE = Message(
    batch_id="run-7/batch 1",
    format="ogf-ur",
    content_type="application/xml",
    payload=b"<UsageRecords/>\n",
    record_ids=("a", "b"),
)
NGINX_400 = (
    b"<html><head><title>400</title></head><body><h1>400 Bad Request</h1>No required SSL certificate was sent</body>"
)


def context(pki: Pki, clock: Callable[[], float] = time.time) -> TargetContext:
    return TargetContext(
        credentials=schema.Credentials(
            certificate=pki.client.certificate, key=pki.client.key, ca_directory=pki.ca_directory
        ),
        clock=clock,
    )


def target(pki: Pki, kind: str, url: str, clock: Callable[[], float] = time.time, **more: Any) -> Target:
    made = SETTINGS.validate_python({"type": kind, "url": url, "timeout": 10, **more})
    return make_target("t", made, context(pki, clock))


def outcome_of(pki: Pki, kind: str, script: Script, message: Message = MESSAGE, **more: Any) -> Outcome:
    with serve(script, pki) as server:
        if kind == "ams":
            more["auth_url"] = server.url
        made = target(pki, kind, server.url, **more)
        try:
            return made.post(message)
        finally:
            made.close()


def always(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Script:
    return lambda _, connection: connection.answer(status, body, headers)


def ams(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Script:
    """A messaging service that gives a token, and this answer to what is published."""

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        if request.path.endswith(":authx509"):
            connection.answer(200, b'{"token": "s3cr3t"}')
        else:
            connection.answer(status, body, headers)

    return script


def levels(made: Target) -> dict[str, str]:
    findings = made.check()
    made.close()
    return {finding.subject.partition(": ")[2]: finding.level for finding in findings}
