"""SGAS as measured: each row of the table in the facts on receivers, 1, over real TLS."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Pki
from tests.publisher.simulator.records import Client, message, record

Connect = Callable[..., Client]
LONG = "x" * 1001


def post(client: Client, *records: str) -> tuple[int, str]:
    reply = client("POST", "/sgas/ur", message(*records))
    return reply.status, reply.body.decode()


def test_answers_record_by_record_and_keeps_the_first_version(simulator: Simulator, client: Client) -> None:
    first = client("POST", "/sgas/ur", message(record(1), record(2)))
    assert first.status == 200
    assert first.headers["content-type"] == "text/html"
    again = client("POST", "/sgas/ur", message(record(2, wall="PT1S"), record(3)))
    assert again.json == {"ur-2": first.json["ur-2"], "ur-3": "3"}
    held = simulator.sgas.holdings()
    assert {name: row.received for name, row in held.items()} == {"ur-1": 1, "ur-2": 2, "ur-3": 1}
    assert [row.wall for row in simulator.sgas.records() if row.record_id == "ur-2"] == ["PT3600S"]
    assert simulator.sgas.stats()["posts"] == 2


def test_another_or_no_global_job_id_replaces(simulator: Simulator, client: Client) -> None:
    post(client, record(1, global_id="a"))
    assert client("POST", "/sgas/ur", message(record(1, global_id="b"))).json == {"ur-1": "2"}
    assert client("POST", "/sgas/ur", message(record(1, global_id=None))).json == {"ur-1": "3"}
    assert client("POST", "/sgas/ur", message(record(1, global_id=None))).json == {"ur-1": "4"}
    assert client("POST", "/sgas/ur", message(record(1, global_id="ur-1"))).json == {"ur-1": "4"}, "equal to recordId"
    assert simulator.sgas.holdings()["ur-1"].received == 5


def test_a_row_with_children_cannot_be_replaced(client: Client) -> None:
    more = "<sgas:RuntimeEnvironment>APPS/X</sgas:RuntimeEnvironment>"
    assert post(client, record(1, more=more))[0] == 200
    status, text = post(client, record(1, global_id="other"))
    assert (status, "foreign key" in text) == (500, True)


@pytest.mark.parametrize("local_id", ["/jobs/1", "1" * 121])
def test_local_ids_it_cannot_use_change_the_record_id(client: Client, local_id: str) -> None:
    assert client("POST", "/sgas/ur", message(record(1, local_id=local_id))).json.keys() == {
        "gsiftp://ce1.example.org/jobs/1"
    }
    rewritten = client("POST", "/sgas/ur", message(record(1, local_id=local_id, global_id=None)))
    assert rewritten.json.keys() == {"ce1.example.org:2026 11 01 02:00:00"}


def test_the_released_version_uses_shorter_local_ids(simulator: Simulator, client: Client) -> None:
    simulator.sgas.longest_local_id = 40
    kept, replaced = (client("POST", "/sgas/ur", message(record(1, local_id="1" * size))).json for size in (40, 41))
    assert (kept.keys(), replaced.keys()) == ({"ur-1"}, {"gsiftp://ce1.example.org/jobs/1"})


PROCESSING = "Processing Failed"
VARIED = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(1000))
"""Text that PostgreSQL cannot compress, of three bytes a letter."""
TRANSFER = "<tr:FileTransfers><tr:FileDownload><tr:URL>{}</tr:URL></tr:FileDownload></tr:FileTransfers>"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (record(2, create=None), PROCESSING),
        (record(2, machine=None), PROCESSING),
        (record(2, machine=""), PROCESSING),
        (record(2, cpu=("PT1S", "nonsense")), PROCESSING),
        (record(2, more="<ur:Memory>many</ur:Memory>"), "unsupported operand"),
        (record(2, more='<ur:Memory ur:metric="peak">1</ur:Memory>'), "no attribute 'metric'"),
        (record(2, more="<ur:EndTime/>"), PROCESSING),
        (record(2, more="<sgas:RuntimeEnvironment/>"), "violates not-null constraint"),
        (record(2, more="<sgas:ExitCode>x</sgas:ExitCode>"), PROCESSING),
        (record(2, more="<ur:Charge>x</ur:Charge>"), PROCESSING),
        (record(2, more="<tr:FileTransfers><tr:FileDownload/></tr:FileTransfers>"), "lower bound of FOR loop"),
        ("<ur:UsageRecord/>", PROCESSING),
        ("<ur:JobUsageRecord>", PROCESSING),
        (record(2, record_id=""), "record_id"),
        (record(2, create="yesterday"), "create_time"),
        (record(2, record_id=LONG), "character varying(1000)"),
        (record(2, more=f"<ur:Queue>{'q' * 201}</ur:Queue>"), "character varying(200)"),
        (record(2, local_id="l" * 120, more=f"<ur:JobName>{LONG}</ur:JobName>"), "character varying(1000)"),
        (record(2, more="<ur:NodeCount>32768</ur:NodeCount>"), "smallint out of range"),
        (record(2, more=f'<ur:Memory ur:storageUnit="KB">{2**53}</ur:Memory>'), "out of range for type bigint"),
        (record(2).replace("Jane", VARIED[:895]), "index row size 2712 exceeds btree version 4 maximum 2704"),
        (record(2, more=TRANSFER.format(VARIED[:898])), "jobtransferurl_url_key"),
        (record(2, more=f"<ur:Host>{VARIED[:898]}</ur:Host>"), "host_host_key"),
        (record(2, record_id=VARIED[:898]), "usagedata_record_id_key"),
        (record(2, wall="PT2147483648S"), "function urcreate"),
        (record(2, more="<ur:Processors>2147483648</ur:Processors>"), "function urcreate"),
    ],
)
def test_one_bad_record_stops_the_whole_post(simulator: Simulator, client: Client, bad: str, text: str) -> None:
    status, answer = post(client, record(1), bad, record(3))
    assert status == 500
    assert text in answer
    assert simulator.sgas.holdings() == {}
    assert post(client, record(1), record(3))[0] == 200


def test_what_is_wrong_and_taken_all_the_same(simulator: Simulator, client: Client) -> None:
    more = "<ur:NodeCount>2</ur:NodeCount><ur:Unknown/><ur:Queue/><sgas:ExitCode>-1</sgas:ExitCode>"
    assert post(client, record(1, wall="3600", cpu=("-PT1S", "P1DT1.9S"), more=more))[0] == 200
    assert post(client, record(2, local_id="l" * 120))[0] == 200
    most = f'<ur:Memory ur:storageUnit="KB">{2**53 - 1}</ur:Memory>' + TRANSFER.format("u" * 2500)
    assert post(client, record(4, more=most).replace("Jane", VARIED[:892]))[0] == 200
    assert post(client, record(5).replace("Jane", "\u4f5c" * 980))[0] == 200, "the index holds it compressed"
    assert client("POST", "/sgas/ur?x=y", b"\xef\xbb\xbf" + message(record(3))).status == 200
    assert client("POST", "/sgas/ur", message()).json == {}
    (stored,) = [row for row in simulator.sgas.records() if row.record_id == "ur-1"]
    assert (stored.node_count, stored.processors) == (2, 4)


def test_machines_must_share_the_domain_of_the_certificate(pki: Pki, client: Client, connect: Connect) -> None:
    status, text = post(client, record(1), record(2, machine="b.elsewhere.no"), record(3, machine="a.elsewhere.no"))
    begin, _, named = text.rpartition(" ")
    assert (status, begin) == (406, f"Subject {pki.client.dn} is not allowed to perform insertion for machines:")
    assert sorted(named.split(",")) == ["a.elsewhere.no", "b.elsewhere.no", "ce1.example.org"], "all of the message"
    with Simulator(pki, check_depth=0) as lenient:
        assert post(connect(lenient, pki.client), record(2, machine="b.elsewhere.no"))[0] == 200


def test_rights(pki: Pki, connect: Connect) -> None:
    with Simulator(pki, rights={pki.client.dn: ["insert"]}) as old:
        assert post(connect(old, pki.client), record(1)) == (
            403,
            f"Rejecting job usage insert for {pki.client.dn}. No insert rights.",
        )
    with Simulator(pki, rights={pki.client.dn: ["jobinsert:machine_name=b.elsewhere.no"]}) as named:
        assert post(connect(named, pki.client), record(1, machine="b.elsewhere.no"))[0] == 200
        assert post(connect(named, pki.client), record(2))[0] == 200, "a machine of its own domain"
        assert post(connect(named, pki.client), record(3, machine="c.elsewhere.no"))[0] == 406
        assert connect(named, pki.client)("GET", "/sgas/query?machine_name=b.elsewhere.no").status == 500
        assert connect(named, pki.client)("GET", "/sgas/monitor/b.elsewhere.no").status == 500
        assert connect(named, pki.client)("GET", _custom("b.elsewhere.no")).status == 403
    right = "customquery:querygroup=usage-publisher/ce1.example.org"
    with Simulator(pki, rights={pki.client.dn: ["jobinsert", right]}) as machine:
        assert connect(machine, pki.client)("GET", _custom("ce1.example.org")).json == []
        assert connect(machine, pki.client)("GET", _custom("ce2.example.org")).status == 403
        machine.sgas.custom_query_defined = False
        assert connect(machine, pki.client)("GET", _custom("ce1.example.org")).status == 500


def _custom(machine: str) -> str:
    return f"/sgas/customquery/usage-publisher?machine_name={machine}&start_date=2026-11-01&end_date=2026-12-01"


def test_addresses_and_methods(simulator: Simulator, client: Client) -> None:
    assert b"/sgas/ur</href>" in client("GET", "/sgas").body
    assert client("GET", "/sgas/ur").status == 405
    assert client("PUT", "/sgas/ur", b"").status == 501
    assert client("POST", "/sgas/ur/", message(record(1))).status == 404
    assert client("POST", "/sgas/ur", message(), {"Content-Type": "multipart/form-data; boundary=x"}).status == 400
    assert client("POST", "/sgas/ur", message(), {"Content-Type": "Multipart/Form-Data"}).status == 400
    parts = b"--x\r\n\r\nv\r\n--x--\r\n"
    assert client("POST", "/sgas/ur", parts, {"Content-Type": "multipart/form-data; boundary=x"}).status == 500
    packed = {"Content-Encoding": "gzip"}
    assert client("POST", "/sgas/ur", message(), packed).status == 200, "the header does not count"
    assert client("POST", "/sgas/ur", gzip.compress(message()), packed).status == 500
    simulator.sgas.database_down = True
    down = client("POST", "/sgas/ur", message(record(1)))
    assert (down.status, down.body) == (503, b"Database currently unavailable. Please try again later.")


def test_query_and_monitor(client: Client) -> None:
    unknown = {"registration_epoch": None}
    assert client("GET", "/sgas/monitor/ce1.example.org").json == unknown
    post(client, record(1), record(2, cpu=("PT1800S", "PT1800S")), record(3, machine="ce2.example.org"))
    (line,) = client("GET", "/sgas/query?machine_name=ce1.example.org&start_date=2026-11-01&end_date=2026-11-02").json
    assert line == {
        "machine_name": "ce1.example.org", "user_identity": "/DC=org/CN=Jane", "vo_name": "atlas",
        "start_date": "2026-11-01", "end_date": "2026-11-01", "n_jobs": 2,
        "cpu_time": 1.83, "wall_time": 8.0,
    }  # fmt: skip
    both = client("GET", "/sgas/query?machine_name=ce1.example.org&machine_name=ce2.example.org&end_date=2027-01-01")
    assert [line["n_jobs"] for line in both.json] == [2, 1]
    until = client("GET", "/sgas/query?machine_name=ce1.example.org&end_date=2026-11-01")
    assert until.json == [], "the end is exclusive"
    assert client("GET", "/sgas/query?machine_name=x&vo=atlas").status == 500
    assert client("GET", "/sgas/query?machine_name=x&start_date=2026-13-01").status == 500
    (exact,) = client("GET", _custom("ce1.example.org")).json
    assert (exact["start_date"], exact["n_jobs"], exact["cpu_s"], exact["wall_s"]) == ("2026-11-01", 2, 6600, 28800)
    assert client("GET", f"{_custom('x')}&vo=atlas").status == 500
    assert client("GET", "/sgas/customquery/other").status == 500
    assert client("GET", "/sgas/monitor/ce1.example.org").json["registration_epoch"] >= 0
    assert client("GET", "/sgas/monitor/ce1.example.org/ce1.example.org").status == 200
    assert client("GET", "/sgas/monitor/ce1.example.org/other").json == unknown


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"text",
        message(record(1)).replace(b"2003/09/urf", b"2004/urf"),
        message(record(1)).decode().replace("Jane", "Zoë").encode("latin-1"),
        b'<!DOCTYPE x [<!ENTITY a "b">]>' + message(record(1)).partition(b"\n")[2],
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
        b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>' + message(record(1, local_id="&c;")).partition(b"\n")[2],
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
        + message(record(1, local_id="&a;")).partition(b"\n")[2],
        message("<a>" * 5000),
    ],
    ids=["empty", "text", "namespace", "latin1", "dtd", "bomb", "file", "deep"],
)
def test_hostile_and_broken_messages_are_refused(simulator: Simulator, client: Client, body: bytes) -> None:
    reply = client("POST", "/sgas/ur", body)
    assert (reply.status, b"Processing Failed" in reply.body) == (500, True)
    assert simulator.sgas.holdings() == {}


def test_bodies_are_bounded(pki: Pki, connect: Connect) -> None:
    with Simulator(pki, limit_bytes=1000) as small:
        client = connect(small, pki.client)
        assert client("POST", "/sgas/ur", b"x" * 1001).status == 413
        client.close()
        assert client("POST", "/sgas/ur", iter([b"x" * 600, b"x" * 600])).status == 413, "chunks count as well"
        client.close()
        assert client("POST", "/sgas/ur", iter([message(), b"\n"])).status == 200
        assert client("POST", "/sgas/ur", b"x" * 1001, {"Expect": "100-continue"}).status == 413


def test_poison_refuses_only_the_batches_that_hold_it(simulator: Simulator, client: Client) -> None:
    simulator.faults.replace([Fault("status", texts=('"ur-7"',))])
    assert post(client, record(6), record(7))[0] == 500
    assert post(client, record(6), record(77))[0] == 200
    assert simulator.sgas.holdings().keys() == {"ur-6", "ur-77"}
    assert simulator.sgas.stats()["refused"] == 1
