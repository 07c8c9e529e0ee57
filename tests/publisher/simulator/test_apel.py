"""What the APEL side keeps and rejects: signatures, SSM's rules, the loader's rules, the keys of its tables."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from publisher.simulator.apel import ApelServer, Receiver
from publisher.simulator.pki import Pki, make_pki
from tests.publisher.simulator.apel import SUMMARY, SYNC, car, car_record, signer


@pytest.fixture
def apel(pki: Pki) -> ApelServer:
    return ApelServer([pki.ca.load()])


def send(server: ApelServer, pki: Pki, *payloads: bytes | str) -> list[str]:
    """Sign and send; the reasons of those rejected so far."""
    signing = signer(pki.client)
    for payload in payloads:
        message = signing.sign(payload.encode() if isinstance(payload, str) else payload)
        server.receive(partial(bytes, message))
    return [rejected.reason for rejected in server.holdings().rejected]


def test_a_job_is_kept_by_its_key_last_message_wins(apel: ApelServer, pki: Pki) -> None:
    assert send(apel, pki, car(car_record(1), car_record(2)), car(car_record(1, Group="<urf:Group/>"))) == []
    held = apel.holdings()
    row = held.jobs["example-site", "1", "1793494800"]
    assert row.received == 2
    assert row.publisher == pki.client.dn
    assert (row.fields["WallDuration"], row.fields["CpuDuration"]) == ("3600", "3000")
    assert (row.fields["VO"], row.fields["VOGroup"], row.fields["VORole"]) == ("atlas", "/atlas/no", "Role=production")
    assert (row.fields["ServiceLevelType"], row.fields["ServiceLevel"]) == ("HEPscore23", "14.2")
    assert held.record_ids == {"car-1": 2, "car-2": 1}
    assert len(held.jobs) == 2


def test_local_ids_are_compared_as_the_database_does(apel: ApelServer, pki: Pki) -> None:
    upper = car_record(1, LocalJobId="<urf:LocalJobId>AB </urf:LocalJobId>")
    assert send(apel, pki, car(upper, car_record(1, LocalJobId="<urf:LocalJobId>ab</urf:LocalJobId>"))) == []
    assert len(apel.holdings().jobs) == 1


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        *((car_record(leave=name), f"Mandatory field {name} not specified.")
          for name in ("Site", "LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime")),
        (car_record(WallDuration="<urf:WallDuration>3600</urf:WallDuration>"), "Mandatory field WallDuration"),
        (car_record(WallDuration="<urf:WallDuration>PT1.5H</urf:WallDuration>"), "Mandatory field WallDuration"),
        (car_record(WallDuration="<urf:WallDuration>-PT1S</urf:WallDuration>"), "Mandatory field WallDuration"),
        (car_record(CpuDuration='<urf:CpuDuration urf:usageType="all">PT1S</urf:CpuDuration>' * 2), "CpuDuration"),
        (car_record(EndTime="<urf:EndTime>2026-10-01T00:00:00Z</urf:EndTime>"), "EndTime is before StartTime."),
        (car_record(EndTime="<urf:EndTime>2099-10-01T00:00:00Z</urf:EndTime>"), "is in the future."),
        (car_record(ServiceLevel='<urf:ServiceLevel urf:type="custom">1</urf:ServiceLevel>'), "custom not valid"),
        (car_record(ServiceLevel='<urf:ServiceLevel type="hepspec">1</urf:ServiceLevel>'), "Unit but not value"),
        (car_record(LocalJobId=f"<urf:LocalJobId>{'1' * 256}</urf:LocalJobId>"), "Data too long"),
        (car_record(WallDuration="<urf:WallDuration>PT2147483648S</urf:WallDuration>"), "Out of range"),
    ],
)  # fmt: skip
def test_one_bad_record_rejects_the_message(apel: ApelServer, pki: Pki, record: str, reason: str) -> None:
    (answer,) = send(apel, pki, car(car_record(8), record))
    assert reason in answer
    assert apel.holdings().jobs == {}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"<!-- x -->" + car(car_record()).partition(b"?>")[2], "not recognised"),
        (car(), "does not contain car records"),
        (car(car_record()).replace(b"2012/11", b"2012/10"), "not recognised"),
        (b"<urf:UsageRecords", "not well formed"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]>' + car(car_record()).partition(b"?>")[2], "not recognised"),
        ("APEL-summary-job-message: v0.9\nSite: a\n", "not recognised"),
        (SUMMARY.format(jobs=1) + "Foo: bar\n", "Foo"),
        (SUMMARY.format(jobs=1).replace("NodeCount: 1\n", ""), "NodeCount"),
    ],
)
def test_messages_that_are_rejected(apel: ApelServer, pki: Pki, payload: Any, reason: str) -> None:
    (answer,) = send(apel, pki, payload)
    assert reason in answer


def test_user_and_system_time_without_the_total_count_the_first_only(apel: ApelServer, pki: Pki) -> None:
    parts = "".join(f'<urf:CpuDuration urf:usageType="{kind}">PT{seconds}S</urf:CpuDuration>'
                    for kind, seconds in (("user", 10), ("system", 5)))  # fmt: skip
    assert send(apel, pki, car(car_record(1, CpuDuration=parts))) == []
    (row,) = apel.holdings().jobs.values()
    assert row.fields["CpuDuration"] == "10"


def test_summaries_and_sync_replace_by_their_keys(apel: ApelServer, pki: Pki) -> None:
    other = SUMMARY.format(jobs=4).replace("HEPscore23", "hepspec")
    assert (
        send(apel, pki, SUMMARY.format(jobs=1), SUMMARY.format(jobs=2), other, SYNC, SYNC.replace(": 3", ": 5")) == []
    )
    held = apel.holdings()
    assert sorted(row.fields["NumberOfJobs"] for row in held.summaries.values()) == ["2", "4"]
    assert [row.fields["NumberOfJobs"] for row in held.sync.values()] == ["5"]


def test_normalised_summaries_have_a_table_of_their_own(apel: ApelServer, pki: Pki) -> None:
    text = (
        "APEL-normalised-summary-message: v0.4\nSite: S\nMonth: 10\nYear: 2026\nInfrastructure: grid\nNodeCount: 1\n"
        "Processors: 1\nWallDuration: 10\nCpuDuration: 9\nNumberOfJobs: 1\n"
        "NormalisedWallDuration: {HEPscore23: 100}\nNormalisedCpuDuration: {HEPscore23: 90}\n"
    )
    assert send(apel, pki, text, text) == []
    held = apel.holdings()
    assert [row.received for row in held.normalised.values()] == [2]
    assert held.summaries == {}


def test_signatures(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = make_pki(tmp_path_factory.mktemp("other"), client_key="ec", ca_cn="Another CA")
    good = signer(pki.client).sign(car(car_record(1)))
    apel = ApelServer([pki.ca.load()])
    tampered = good.replace(b"PT3000S", b"PT9000S")
    for message in (b"", b"plain", tampered, signer(other.client).sign(car(car_record(1))), good + "ë".encode()):
        apel.receive(partial(bytes, message))
    held = apel.holdings()
    assert (len(held.rejected), held.jobs) == (5, {})
    assert [rejected.number for rejected in held.rejected] == [0, 1, 2, 3, 4]
    assert "ASCII" in held.rejected[4].reason
    closed = ApelServer([pki.ca.load()], signers=["/CN=other"])
    closed.receive(lambda: good)
    assert closed.holdings().rejected[0].reason == f"Signer not in valid DNs list: {pki.client.dn}"


def test_encrypted_messages(pki: Pki) -> None:
    credential = pki.issue("receiver", "receiver.example.org")
    key = load_pem_private_key(credential.key.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    message = signer(pki.client, recipient=credential.load()).sign(car(car_record(1)))
    reader, blind = ApelServer([pki.ca.load()], receiver=Receiver(credential.load(), key)), ApelServer([pki.ca.load()])
    for server in (reader, blind):
        server.receive(lambda: message)
    assert reader.holdings().record_ids == {"car-1": 1}
    assert "no key" in blind.holdings().rejected[0].reason


def test_opening_waits_until_somebody_asks_unless_eager(apel: ApelServer, pki: Pki) -> None:
    message = signer(pki.client).sign(car(car_record(1)))
    opened: list[int] = []

    def content() -> bytes:
        opened.append(1)
        return message

    apel.receive(content)
    assert not opened
    assert apel.holdings().messages == len(opened) == 1
    apel.receive(content, eager=True)
    assert len(opened) == 2
    apel.reset()
    assert apel.holdings().messages == 0
