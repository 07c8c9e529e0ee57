"""Usage records and a client for the tests of the simulator; written by hand, not by our formats."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from publisher.simulator import Simulator
from publisher.simulator.pki import Credential

NAMESPACES = (
    'xmlns:ur="http://schema.ogf.org/urf/2003/09/urf" xmlns:vo="http://www.sgas.se/namespaces/2009/05/ur/vo" '
    'xmlns:sgas="http://www.sgas.se/namespaces/2009/07/ur" '
    'xmlns:tr="http://www.sgas.se/namespaces/2010/10/filetransfer"'
)


def record(
    number: int = 1,
    *,
    record_id: str | None = None,
    global_id: str | None = "",
    local_id: str = "",
    create: str | None = "2026-11-01T02:00:00Z",
    machine: str | None = "ce1.example.org",
    wall: str = "PT3600S",
    cpu: Iterable[str] = ("PT3000S",),
    more: str = "",
) -> str:
    """One JobUsageRecord. `global_id`: "" for a valid one, None for none."""
    record_id = f"ur-{number}" if record_id is None else record_id
    global_id = f"gsiftp://ce1.example.org/jobs/{number}" if global_id == "" else global_id
    attributes = f' ur:recordId="{record_id}"' if record_id else ""
    attributes += f' ur:createTime="{create}"' if create is not None else ""
    durations = "".join(f"<ur:CpuDuration>{text}</ur:CpuDuration>" for text in cpu)
    return (
        f"<ur:JobUsageRecord><ur:RecordIdentity{attributes}/><ur:JobIdentity>"
        + (f"<ur:GlobalJobId>{global_id}</ur:GlobalJobId>" if global_id else "")
        + f"<ur:LocalJobId>{local_id or number}</ur:LocalJobId></ur:JobIdentity>"
        "<ur:UserIdentity><ur:LocalUserId>u1</ur:LocalUserId><ur:GlobalUserName>/DC=org/CN=Jane</ur:GlobalUserName>"
        '<vo:VO vo:type="voms"><vo:Name>atlas</vo:Name></vo:VO></ur:UserIdentity>'
        f"<ur:Status>completed</ur:Status><ur:WallDuration>{wall}</ur:WallDuration>{durations}"
        "<ur:Processors>4</ur:Processors><ur:StartTime>2026-11-01T00:00:00Z</ur:StartTime>"
        "<ur:EndTime>2026-11-01T01:00:00Z</ur:EndTime>"
        + (f"<ur:MachineName>{machine}</ur:MachineName>" if machine is not None else "")
        + f"{more}</ur:JobUsageRecord>"
    )


def message(*records: str) -> bytes:
    return f'<?xml version="1.0"?>\n<ur:UsageRecords {NAMESPACES}>{"".join(records)}</ur:UsageRecords>'.encode()


class SimulatorReply:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection, kept; `credential` None: without a certificate."""

    def __init__(self, simulator: Simulator, credential: Credential | None = None, *, port: int | None = None) -> None:
        context = ssl.create_default_context(cafile=str(simulator.pki.ca_file))
        if credential is not None:
            context.load_cert_chain(credential.certificate, credential.key)
        self.connection = http.client.HTTPSConnection("localhost", port or simulator.port, context=context, timeout=20)

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> SimulatorReply:
        self.connection.request(method, path, body, dict(headers or {}))
        answer = self.connection.getresponse()
        return SimulatorReply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def close(self) -> None:
        self.connection.close()
