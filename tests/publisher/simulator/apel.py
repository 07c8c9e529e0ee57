"""Messages for the APEL side of the simulator, written by hand; signing is the publisher's own."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

from publisher.security.credentials import load_credentials
from publisher.security.sign import Signer
from publisher.simulator.pki import Credential
from tests.publisher.simulator.records import Client, SimulatorReply

CAR = "http://eu-emi.eu/namespaces/2012/11/computerecord"
TOKEN_PATH = "/v1/service-types/ams/hosts/localhost:authx509"
TOPIC = "/v1/projects/accounting/topics/gLite-APEL"
SUBSCRIPTION = "/v1/projects/accounting/subscriptions/apel"


def signer(credential: Credential, **options: Any) -> Signer:
    return Signer(load_credentials(credential.certificate, credential.key, now_s=time.time()), **options)


def car_record(number: int = 1, *, leave: str = "", more: str = "", **replaced: str) -> str:
    """One record of a CAR; an element named by `leave` is left out, one named in `replaced` has that text or XML."""
    elements = {
        "RecordIdentity": f'<urf:RecordIdentity urf:createTime="2026-11-01T02:00:00Z" urf:recordId="car-{number}"/>',
        "LocalJobId": f"<urf:LocalJobId>{number}</urf:LocalJobId>",
        "GlobalUserName": '<urf:GlobalUserName urf:type="opensslCompat">/DC=org/CN=Jane</urf:GlobalUserName>',
        "Group": "<urf:Group>atlas</urf:Group>",
        "GroupAttribute": '<urf:GroupAttribute urf:type="FQAN">/atlas/no/Role=production</urf:GroupAttribute>',
        "WallDuration": "<urf:WallDuration>PT1H0.5S</urf:WallDuration>",
        "CpuDuration": '<urf:CpuDuration urf:usageType="user">PT1S</urf:CpuDuration>'
        '<urf:CpuDuration urf:usageType="all">PT3000S</urf:CpuDuration>',
        "ServiceLevel": '<urf:ServiceLevel urf:type="HEPscore23">14.2</urf:ServiceLevel>',
        "EndTime": "<urf:EndTime>2026-11-01T01:00:00Z</urf:EndTime>",
        "StartTime": "<urf:StartTime>2026-11-01T00:00:00Z</urf:StartTime>",
        "Site": "<urf:Site>EXAMPLE-SITE</urf:Site>",
    }
    elements |= replaced
    elements.pop(leave, None)
    return f"<urf:UsageRecord>{''.join(elements.values())}{more}</urf:UsageRecord>"


def car(*records: str) -> bytes:
    return f'<?xml version="1.0"?><urf:UsageRecords xmlns:urf="{CAR}">{"".join(records)}</urf:UsageRecords>'.encode()


SUMMARY = """APEL-summary-job-message: v0.2
Site: EXAMPLE-SITE
Month: 10
Year: 2026
GlobalUserName: /DC=org/CN=Jane
VO: atlas
SubmitHost: ce1
ServiceLevelType: HEPscore23
ServiceLevel: 14.2
NodeCount: 1
Processors: 4
WallDuration: 100
CpuDuration: 90
NumberOfJobs: {jobs}
"""
SYNC = "APEL-sync-message: v0.1\nSite: EXAMPLE-SITE\nSubmitHost: ce1\nNumberOfJobs: 3\nMonth: 10\nYear: 2026\n"


def publish_body(*messages: bytes, attributes: dict[str, Any] | None = None) -> str:
    kept = {"empaid": "x"} if attributes is None else attributes
    return json.dumps(
        {"messages": [{"attributes": kept, "data": base64.b64encode(message).decode()} for message in messages]}
    )


def authenticated(client: Client) -> Callable[..., SimulatorReply]:
    """Requests of `client` with a token for its certificate."""
    token = client("GET", TOKEN_PATH).json["token"]

    def ask(method: str, path: str, body: Any = None) -> SimulatorReply:
        return client(method, path, body, {"x-api-key": token})

    return ask
