"""SGAS and what all targets over HTTP have in common, against real servers: each answer and fault becomes the outcome
that it should.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from publisher.config import schema
from publisher.errors import ConfigError, CredentialError
from publisher.security.http import Reply
from publisher.simulator.pki import Pki, make_pki
from publisher.targets import answers, make_target
from publisher.targets.base import (
    Accepted,
    Message,
    Outcome,
    Oversized,
    Refused,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)
from publisher.targets.identity import TargetContext
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, serve, unused_port
from tests.publisher.targets.scripted_targets import MESSAGE, NGINX_400, SETTINGS, always, context, outcome_of, target

REGISTER = "The service must know our certificate: `usage-publisher check` shows its name"


@pytest.mark.parametrize("suffix", ["/sgas", "/sgas/", "/sgas/ur", "/sgas/ur/"])
def test_sgas_posts_to_ur(pki: Pki, suffix: str) -> None:
    with serve(always(200, b'{"b": "2", "a": "1"}'), pki) as server:
        made = target(pki, "sgas", server.url + suffix)
        assert made.post(MESSAGE) == Accepted(receipt={"a": "1", "b": "2"})
        made.close()
    request = server.requests[0]
    assert (request.method, request.path, request.body) == ("POST", "/sgas/ur", MESSAGE.payload)
    assert request.headers["content-type"] == "application/xml"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": "1"}', Accepted(receipt={"a": "1"}, missing=("b",))),
        (b'{"b": 2, "a": 1}', Accepted(receipt={"a": "1", "b": "2"})),
        (b'{"a": 1, "x": 2}', Accepted(receipt={"a": "1"}, missing=("b",))),
        (b'{"a": "1", "x": "2", "y": "3"}', Accepted(receipt={"a": "1"}, missing=("b",))),
        (b'{"x": "1", "y": "2"}', None),
        (b'{"0": 0, "1": 1}', None),
        (b'{"a": 0, "b": 1}', None),
        (b'{"a": "7", "b": "7"}', None),  # one row cannot be two records
        (b'{"a": "7", "b": 7}', None),
        (b'{"a": "7", "x": "7"}', None),
        (b'{"a": "1", "b": "stored"}', None),
        (b'{"a": "1", "b": -1}', None),
        (b'{"a": "1", "b": ""}', None),
        (b'{"a": "1", "b": "1e3"}', None),
        (b'{"a": "1", "b": true}', None),
        (b'{"a": "1", "b": null}', None),
        (b'{"error": "maintenance", "code": 200}', None),
        (b"null", None),
        (b"{}", None),
        (b"", None),
        (b"[]", None),
        (b"<html>Welcome</html>", None),
        (b'{"a": {"b": 1}}', None),
        (b"\xff\xfe", None),
    ],
)
def test_the_receipt_of_sgas_is_checked_record_by_record(pki: Pki, body: bytes, expected: Accepted | None) -> None:
    outcome = outcome_of(pki, "sgas", always(200, body))
    assert isinstance(outcome, Unknown) if expected is None else outcome == expected


def _record(record_id: str, global_id: str, local_id: str) -> str:
    return (
        f'<JobUsageRecord><RecordIdentity urf:recordId="{record_id}"/><JobIdentity>'
        f"<GlobalJobId>{global_id}</GlobalJobId><LocalJobId>{local_id}</LocalJobId></JobIdentity></JobUsageRecord>"
    )


_LONG = "7" * 121


@pytest.mark.parametrize(
    ("records", "rows", "expected"),
    [
        (
            [("a", "g1", "1"), ("b", "g2", "/2")],
            {"a": "1", "g2": "2"},
            Accepted(receipt={"a": "1", "b": "2"}, rewritten={"b": "g2"}),
        ),
        (
            [("a", "g1", _LONG), ("b", "g2", _LONG)],
            {"g2": "2", "g1": "1"},
            Accepted(receipt={"a": "1", "b": "2"}, rewritten={"a": "g1", "b": "g2"}),
        ),
        ([("a", "g1", "/1"), ("b", "g2", "/2")], {"g8": "1", "g9": "2"}, None),  # of another message
        (  # LUTS as released: above 40 characters
            [("a", "g1", "1.pbs01.cluster.physics.university.example.org"), ("b", "g2", "2")],
            {"g1": "1", "b": "2"},
            Accepted(receipt={"a": "1", "b": "2"}, rewritten={"a": "g1"}),
        ),
        (  # the shortest that a version may have
            [("a", "g1", "1"), ("b", "g2", "2")],
            {"g1": "1", "g2": "2"},
            Accepted(receipt={"a": "1", "b": "2"}, rewritten={"a": "g1", "b": "g2"}),
        ),
        ([("a", "g1", ""), ("b", "g2", "")], {"g1": "1", "g2": "2"}, None),  # without a LocalJobId nothing is rewritten
        ([("a", "g1", "1"), ("b", "g1", "/2")], {"a": "1", "g1": "2"}, Accepted(receipt={"a": "1"}, missing=("b",))),
        ([("a", "g", "/1"), ("b", "g", "/2")], {"g": "1"}, Accepted({}, missing=("a", "b"))),  # one row cannot be both
    ],
)
def test_a_record_that_sgas_keeps_under_its_global_id_is_known_by_its_own(
    pki: Pki, records: list[tuple[str, str, str]], rows: dict[str, str], expected: Accepted | None
) -> None:
    body = "".join(_record(*each) for each in records)
    namespace = "http://schema.ogf.org/urf/2003/09/urf"
    payload = f'<UsageRecords xmlns="{namespace}" xmlns:urf="{namespace}">{body}</UsageRecords>'
    message = msgspec.structs.replace(MESSAGE, payload=payload.encode())
    outcome = outcome_of(pki, "sgas", always(200, msgspec.json.encode(rows)), message)
    assert isinstance(outcome, Unknown) if expected is None else outcome == expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, NGINX_400, Unauthorised(f"HTTP 400: Bad Request No required SSL certificate was sent. {REGISTER}")),
        (400, b"bad", Refused("HTTP 400: bad", certain=False)),
        (401, b"", Unauthorised(f"HTTP 401. {REGISTER}")),
        (403, b"No insert rights.", Unauthorised(f"HTTP 403: No insert rights. {REGISTER}")),
        (404, b"", Unauthorised("HTTP 404. Check the URL of this target", misdirected=True)),
        (406, b"not allowed", Refused("HTTP 406: not allowed", certain=True)),
        (408, b"", Transient("HTTP 408")),
        (413, b"<h1>too\nlarge</h1>", Oversized("HTTP 413: too large")),
        (502, b"", Unknown("HTTP 502")),
        (504, b"", Unknown("HTTP 504", timed_out=True)),
        (429, b"", Throttled("HTTP 429", None)),
        (500, b"Processing Failed", Refused("HTTP 500: Processing Failed", certain=False)),
        (503, b"Database", Transient("HTTP 503: Database")),
        (204, b"", Unknown("HTTP 204")),
        (500, b"\x1b[31mred\x00", Refused("HTTP 500: [31mred", certain=False)),
    ],
)
def test_what_sgas_means_by_a_status(pki: Pki, status: int, body: bytes, expected: Outcome) -> None:
    assert outcome_of(pki, "sgas", always(status, body)) == expected


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("Subject CN=a is not allowed to perform insertion for machines: m2,m1", (("r1", "r3"), ("r2",))),
        ("Subject CN=a is not allowed to perform insertion for machines: m2", (("r2",), ("r1", "r3"))),
        ("Subject /CN=\n is not allowed to perform insertion for machines: m1", (("r1", "r3"), ("r2",))),
        ("Subject CN=a is not allowed to perform insertion for machines: m1,m2,m3", ()),
        ("Subject CN=a is not allowed to perform insertion for machines: m1,", ()),
        ("Subject CN=a is not allowed to perform insertion for machines: ", ()),
        ("Subject CN=a is not allowed to perform insertion for machines: m1\n", ()),
        ("Subject  is not allowed to perform insertion for m1", ()),
        (f"Subject {'a' * 5000} is not allowed to perform insertion for machines: m1", ()),
        ("Subject is not allowed to perform insertion for machines: " * 1000, ()),
        ("Subject CN=a is not allowed to perform insertion for machines: " + "m1," * 100_000 + "m1", ()),
        ("\xff", ()),
    ],
)
def test_a_406_of_sgas_parts_the_records_by_their_machines(
    pki: Pki, body: str, parts: tuple[tuple[str, ...], ...]
) -> None:
    records = "".join(
        _record(identity, identity, "1").replace(
            "</JobUsageRecord>", f"<MachineName>{name}</MachineName></JobUsageRecord>"
        )
        for identity, name in (("r1", "m1"), ("r2", "m2"), ("r3", "m1"))
    )
    namespace = "http://schema.ogf.org/urf/2003/09/urf"
    payload = f'<UsageRecords xmlns="{namespace}" xmlns:urf="{namespace}">{records}</UsageRecords>'.encode()
    message = msgspec.structs.replace(MESSAGE, payload=payload, record_ids=("r1", "r2", "r3"))
    outcome = outcome_of(pki, "sgas", always(406, body.encode("latin-1")), message)
    assert isinstance(outcome, Refused)
    assert (outcome.certain, outcome.parts) == (True, parts)


def _of_machines(**machines: str) -> Message:
    records = "".join(
        _record(identity, identity, "1").replace(
            "</JobUsageRecord>", f"<MachineName>{name}</MachineName></JobUsageRecord>"
        )
        for identity, name in machines.items()
    )
    namespace = "http://schema.ogf.org/urf/2003/09/urf"
    payload = f'<UsageRecords xmlns="{namespace}" xmlns:urf="{namespace}">{records}</UsageRecords>'.encode()
    return msgspec.structs.replace(MESSAGE, payload=payload, record_ids=tuple(machines))


def test_machines_that_sgas_refuses_alone_are_known_in_the_rest_of_the_run(pki: Pki) -> None:
    """Each message with one of them would be refused whole once more."""

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        named = re.findall("<MachineName>([^<]*)<", request.body.decode())
        if "m2" in named:
            refusal = f"Subject CN=a is not allowed to perform insertion for machines: {','.join(sorted(set(named)))}"
            connection.answer(406, refusal.encode())
        else:
            connection.answer(200, b'{"r1": "1"}')

    with serve(script, pki) as server:
        settings = SETTINGS.validate_python({"type": "sgas", "url": server.url})
        of_run = context(pki)
        one, other = (make_target("t", settings, of_run) for _ in range(2))
        mixed = _of_machines(r1="m1", r2="m2", r3="m1")
        first = one.post(mixed)
        assert isinstance(first, Refused)
        assert (first.parts, first.known_before) == ((("r1", "r3"), ("r2",)), False)
        again = one.post(mixed)
        assert isinstance(again, Refused)
        assert not again.known_before, "which of the two is refused is not known yet"
        alone = other.post(_of_machines(r2="m2"))
        assert isinstance(alone, Refused)
        assert (alone.parts, alone.known_before) == ((("r2",),), False)
        assert len(server.requests) == 3
        for target_of_run in (one, other):
            known = target_of_run.post(mixed)
            assert known == Refused(alone.answer, certain=True, parts=(("r2",), ("r1", "r3")), known_before=True)
            assert target_of_run.post(_of_machines(r2="m2")) == Refused(
                alone.answer, certain=True, parts=(("r2",),), known_before=True
            )
        assert len(server.requests) == 3
        assert isinstance(one.post(_of_machines(r1="m1")), Accepted)
        next_run = make_target("t", settings, context(pki))
        assert next_run.post(_of_machines(r2="m2")) == alone, "another run asks again"
        for made in (one, other, next_run):
            made.close()


@pytest.mark.parametrize(
    ("subject", "machine", "is_spelling"),
    [
        ("CN=ce1.example.org,O=Test,DC=example,DC=org", "ce2.example.org", True),
        ("O=Test,CN=host/ce1.example.org", "ce2.example.org", True),
        ("CN=ce1.example.org,O=Test", "ce2.other.test", False),
        ("/O=Test/CN=ce1.example.org", "ce2.example.org", False),
        ("CN=localhost", "localhost", False),
        ("O=Test", "ce2.example.org", False),
    ],
)
def test_a_406_of_sgas_because_of_the_spelling_of_our_name_says_so(
    pki: Pki, subject: str, machine: str, is_spelling: bool
) -> None:
    body = f"Subject {subject} is not allowed to perform insertion for machines: {machine}"
    outcome = outcome_of(pki, "sgas", always(406, body.encode()))
    assert isinstance(outcome, Refused)
    assert ("$ssl_client_s_dn_legacy" in outcome.answer) is is_spelling


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("value", "expected_s"),
    [("120", 120.0), ("99999999999", 86400.0), ("Thu, 01 Jan 1970 00:00:30 GMT", 30.0)],
)
def test_a_service_may_ask_to_wait(pki: Pki, status: int, value: str, expected_s: float) -> None:
    from publisher.security.http import Reply
    from publisher.targets.sgas import outcome_of_reply

    outcome = outcome_of_reply(Reply(status, {"retry-after": value}, b""), MESSAGE, now_s=0.0)
    assert outcome == Throttled(f"HTTP {status}", expected_s)
    through_the_socket = outcome_of(pki, "sgas", always(status, b"", {"Retry-After": "7"}))
    assert through_the_socket == Throttled(f"HTTP {status}", 7.0)


def test_a_redirect_is_not_followed(pki: Pki) -> None:
    outcome = outcome_of(pki, "sgas", always(302, b"", {"Location": "https://other.example.org/"}))
    assert isinstance(outcome, Unauthorised)
    assert "other.example.org" in outcome.answer


@pytest.mark.parametrize("kind", ["sgas", "https"])
def test_faults_before_the_request_wait_and_after_it_are_unknown(pki: Pki, kind: str, tmp_path: Path) -> None:
    assert isinstance(target(pki, kind, f"https://localhost:{unused_port()}").post(MESSAGE), Transient)
    assert isinstance(target(pki, kind, "https://host.invalid").post(MESSAGE), Transient)
    stranger = make_pki(tmp_path / "stranger", ca_cn="A Stranger")
    with serve(always(200), stranger) as server:
        assert isinstance(target(pki, kind, server.url).post(MESSAGE), Transient)
    with serve(always(200), pki, certificate=pki.server) as server:
        made = make_target(
            "t",
            SETTINGS.validate_python({"type": kind, "url": server.url}),
            TargetContext(
                credentials=schema.Credentials(
                    certificate=stranger.client.certificate, key=stranger.client.key, ca_file=pki.ca_file
                )
            ),
        )
        assert isinstance(made.post(MESSAGE), Unauthorised)
        made.close()
    assert isinstance(outcome_of(pki, kind, lambda _, connection: connection.cut()), Unknown)
    assert isinstance(outcome_of(pki, kind, lambda _, connection: connection.wait(), timeout=0.5), Unknown)


@pytest.mark.parametrize("kind", ["sgas", "ams", "https"])
def test_credentials_in_plain_text_are_a_configuration_error(pki: Pki, kind: str) -> None:
    with pytest.raises(ValidationError, match=r"write https://service\.example\.org"):
        target(pki, kind, "http://service.example.org")


@pytest.mark.parametrize("kind", ["sgas", "ams", "https"])
def test_a_bad_key_stops_the_message(pki: Pki, kind: str) -> None:
    with serve(always(200), pki) as server:
        own = {"certificate": str(pki.client.certificate), "key": str(pki.other_key("other"))}
        with pytest.raises(CredentialError, match="does not belong to the certificate"):
            target(pki, kind, server.url, credentials=own).post(MESSAGE)
    assert server.connections == 0


@pytest.mark.parametrize("kind", ["sgas", "ams", "https"])
def test_a_certificate_renewed_on_disk_is_taken_when_the_old_one_expires(pki: Pki, kind: str, tmp_path: Path) -> None:
    files = {"certificate": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}

    def install(name: str) -> None:
        issued = pki.issue(name, "ce1.example.org")
        for what, path in files.items():
            path.write_bytes(getattr(issued, what).read_bytes())
            path.chmod(0o600)

    install("old")
    offset_s = [0.0]
    body = b'{"token": "x", "messageIds": ["1"]}' if kind == "ams" else b'{"a": "1", "b": "2"}'
    with serve(always(200, body), pki) as server:
        more: dict[str, Any] = {"auth_url": server.url} if kind == "ams" else {}
        own = {what: str(path) for what, path in files.items()}
        made = target(pki, kind, server.url, lambda: time.time() + offset_s[0], credentials=own, **more)
        assert isinstance(made.post(MESSAGE), Accepted)
        offset_s[0] = 70 * 86400.0
        with pytest.raises(CredentialError, match="expired"):
            made.post(MESSAGE)
        install("renewed")
        offset_s[0] = 1.0
        assert isinstance(made.post(MESSAGE), Accepted)
        made.close()


def test_an_unknown_kind_names_the_known_ones(pki: Pki) -> None:
    with pytest.raises(ConfigError, match="sgas, ams, https, directory"):
        make_target("t", SimpleNamespace(type="carrier-pigeon"), context(pki))


def test_other_kinds_come_by_entry_point(pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pigeon_add_on.py").write_text(
        "class Pigeon:\n"
        "    kind = 'pigeon'\n"
        "    def __init__(self, name, settings, context):\n        self.limit = len(name + settings.type)\n"
        "    def payload_limit_bytes(self):\n        return self.limit\n"
    )
    information = tmp_path / "pigeon_add_on-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-add-on\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[usage_publisher.targets]\npigeon = pigeon_add_on:Pigeon\n")
    monkeypatch.syspath_prepend(tmp_path)

    made = make_target("t", schema.AddOnSettings(type="pigeon"), context(pki))
    assert (made.name, made.kind, made.payload_limit_bytes()) == ("t", "pigeon", 7)


@pytest.mark.parametrize(
    ("status", "body", "reported"),
    [
        (503, b"503", "HTTP 503"),
        (
            503,
            b"<html><head><title>503 X</title></head><h1>503 Service Unavailable</h1>",
            "HTTP 503: Service Unavailable",
        ),
        (500, b"5000 rows are locked", "HTTP 500: 5000 rows are locked"),
        (404, b"404 page not found", "HTTP 404: page not found"),
    ],
)
def test_a_status_is_reported_once(status: int, body: bytes, reported: str) -> None:
    assert answers.describe(Reply(status, {}, body)) == reported
