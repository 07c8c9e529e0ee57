"""The simulator answers as LUTS does, and our own check refuses what LUTS refuses: record by record, as measured."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.check.message import inspect_message
from formats.check.sgas_times import duration_s, instant_s
from publisher.simulator.faults import Faults
from publisher.simulator.server import Peer, Request
from publisher.simulator.sgas import Sgas
from publisher.simulator.sgas_rows import UsageRecord
from tests.publisher.simulator.luts_answers import (
    CHARGES,
    DURATIONS,
    HTML,
    INSTANTS,
    INTEGERS,
    MACHINES,
    OK,
    OTHERS,
    SQL,
    STRICTER,
    TRANSFERS,
    VOS,
)

NAMESPACES = (
    'xmlns:ur="http://schema.ogf.org/urf/2003/09/urf" xmlns:vo="http://www.sgas.se/namespaces/2009/05/ur/vo" '
    'xmlns:sgas="http://www.sgas.se/namespaces/2009/07/ur" xmlns:arc="http://www.nordugrid.org/ws/schemas/ur-arc" '
    'xmlns:tr="http://www.sgas.se/namespaces/2010/10/filetransfer"'
)
CREATED = "2026-11-01T02:00:00Z"


def message(more: str, machine: str = "ce1.example.org", created: str = CREATED) -> bytes:
    """A good record with a few elements more."""
    identity = f'<ur:RecordIdentity ur:recordId="r" ur:createTime="{created}"/>'
    job = "<ur:JobIdentity><ur:GlobalJobId>g</ur:GlobalJobId><ur:LocalJobId>1</ur:LocalJobId></ur:JobIdentity>"
    place = f"<ur:Status>completed</ur:Status><ur:MachineName>{machine}</ur:MachineName>"
    record = f"<ur:JobUsageRecord>{identity}{job}{place}{more}</ur:JobUsageRecord>"
    return f"<ur:UsageRecords {NAMESPACES}>{record}</ur:UsageRecords>".encode()


def answered(body: bytes) -> tuple[str, UsageRecord | None]:
    """The answer, and the record as stored. A second time, when its shape is known, it is the same."""
    answers = []
    for _ in range(2):
        sgas = Sgas(Faults())
        peer = Peer("/DC=org/CN=ce1.example.org", "ce1.example.org", "")
        reply = sgas.handle(Request("POST", "/sgas/ur", "", {}, body, peer))
        stored = next(iter(sgas.records()), None)
        kind = HTML if reply.body.startswith(b"<") else SQL
        answers.append((kind if reply.status == 500 else str(reply.status), stored))
    assert answers[0] == answers[1]
    return answers[0]


def is_taken_by_our_check(body: bytes) -> bool:
    return inspect_message(body).taken


def as_text(at_s: int | None) -> str | None:
    return None if at_s is None else f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"


@pytest.mark.parametrize(("text", "expected"), INSTANTS.items())
def test_instants(text: str, expected: str | None) -> None:
    body = message(f"<ur:StartTime>{text}</ur:StartTime>")
    answer, stored = answered(body)
    refused = expected in {HTML, SQL}
    assert answer == (expected if refused else OK)
    assert refused or (stored is not None and as_text(instant_s(stored.start)) == expected)
    assert is_taken_by_our_check(body) is not refused
    created = answered(message("", created=text))[0]
    if text:
        assert created == (expected if refused else SQL if expected is None else OK)


@pytest.mark.parametrize(("text", "expected"), DURATIONS.items())
def test_durations(text: str, expected: tuple[int | str | None, int | str | None]) -> None:
    alone = message(f"<ur:WallDuration>{text}</ur:WallDuration>")
    second = message(f"<ur:CpuDuration>PT1S</ur:CpuDuration><ur:CpuDuration>{text}</ur:CpuDuration>")
    for body, known in zip((alone, second), expected, strict=True):
        answer, stored = answered(body)
        refused = isinstance(known, str)
        assert answer == (known if refused else OK)
        assert is_taken_by_our_check(body) is not refused
        if stored is not None and body is alone:
            assert duration_s(stored.wall or "") == known
        elif stored is not None:
            assert sum(duration_s(part) or 0 for part in stored.cpu) == known


@pytest.mark.parametrize(("text", "expected"), INTEGERS.items())
def test_integers(text: str, expected: tuple[int | str | None, ...]) -> None:
    elements = (
        f"<ur:NodeCount>{text}</ur:NodeCount>",
        f"<ur:Processors>{text}</ur:Processors>",
        f"<ur:NodeCount>1</ur:NodeCount><ur:Processors>{text}</ur:Processors>",
        f"<ur:NodeCount>{text}</ur:NodeCount><ur:Processors>1</ur:Processors>",
        f"<sgas:ExitCode>{text}</sgas:ExitCode>",
        f"<sgas:MajorPageFaults>{text}</sgas:MajorPageFaults>",
        f"<ur:Memory>{text}</ur:Memory>",
        f"<tr:FileTransfers><tr:FileUpload><tr:URL>u</tr:URL><tr:Size>{text}</tr:Size></tr:FileUpload></tr:FileTransfers>",
    )
    for place, (element, known) in enumerate(zip(elements, expected, strict=True)):
        body = message(element)
        answer, stored = answered(body)
        refused = known in {HTML, SQL}
        assert answer == (known if refused else OK), element
        if refused:
            assert not is_taken_by_our_check(body), element
        elif place < 4:
            assert stored is not None
            assert (stored.node_count if place == 3 else stored.processors) == known


@pytest.mark.parametrize(("text", "expected"), CHARGES.items())
def test_charges(text: str, expected: str) -> None:
    body = message(f"<ur:Charge>{text}</ur:Charge>")
    assert answered(body)[0] == expected
    assert is_taken_by_our_check(body) is (expected == OK)


@pytest.mark.parametrize(("name", "expected"), MACHINES.items())
def test_machines(name: str, expected: str) -> None:
    assert answered(message("", machine=name))[0] == expected


@pytest.mark.parametrize(("inner", "expected"), TRANSFERS.items())
@pytest.mark.parametrize("way", ["FileDownload", "FileUpload"])
def test_transfers(way: str, inner: str, expected: str) -> None:
    body = message(f"<tr:FileTransfers><tr:{way}>{inner}</tr:{way}></tr:FileTransfers>")
    assert answered(body)[0] == expected
    if expected != OK:
        assert not is_taken_by_our_check(body)


@pytest.mark.parametrize(("inner", "expected"), VOS.items())
def test_vos(inner: str, expected: str) -> None:
    body = message(f"<ur:UserIdentity><vo:VO>{inner}</vo:VO></ur:UserIdentity>")
    assert answered(body)[0] == expected
    if expected != OK:
        assert not is_taken_by_our_check(body)


@pytest.mark.parametrize(("more", "expected"), OTHERS.items())
def test_other_elements(more: str, expected: str) -> None:
    body = message(more)
    assert answered(body)[0] == expected
    assert is_taken_by_our_check(body) is (expected == OK and more not in STRICTER)


def test_what_is_wrong_does_not_matter_in_a_record_that_is_there() -> None:
    sgas = Sgas(Faults())
    peer = Peer("/DC=org/CN=ce1.example.org", "ce1.example.org", "")

    def post(more: str) -> int:
        return sgas.handle(Request("POST", "/sgas/ur", "", {}, message(more), peer)).status

    too_long, too_large = f"<ur:Queue>{'q' * 201}</ur:Queue>", "<ur:WallDuration>PT2147483648S</ur:WallDuration>"
    assert (post(too_long), post(""), post(too_long), post(too_large)) == (500, 200, 200, 500)


def test_authorisation_comes_before_what_the_database_refuses_and_after_what_cannot_be_read() -> None:
    elsewhere = "x.elsewhere.no"
    assert answered(message("<ur:Charge>x</ur:Charge>", machine=elsewhere))[0] == "406"
    assert answered(message("<ur:EndTime/>", machine=elsewhere))[0] == HTML
