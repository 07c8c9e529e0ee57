"""The publisher's own targets and the simulator understand each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter

from publisher.config import schema
from publisher.simulator import Fault, Simulator
from publisher.targets import make_target
from publisher.targets.base import Accepted, Message, Outcome, Refused, Target, Throttled, Unknown
from publisher.targets.identity import TargetContext
from tests.publisher.simulator.apel import car, car_record
from tests.publisher.simulator.records import message, record

SETTINGS: TypeAdapter[schema.Target] = TypeAdapter(schema.Target)
UR = Message("b1", "ogf-ur", "application/xml", message(record(1), record(2, local_id="/x")), ("ur-1", "ur-2"))
CAR = Message("b2", "emi-car", "application/xml", car(car_record(1)), ("car-1",))


def target(simulator: Simulator, **settings: Any) -> Target:
    pki = simulator.pki
    credentials = schema.Credentials(
        certificate=pki.client.certificate, key=pki.client.key, ca_directory=pki.ca_directory
    )
    made = SETTINGS.validate_python(settings | {"timeout": 20})
    return make_target("t", made, TargetContext(credentials=credentials))


@pytest.fixture
def sgas(simulator: Simulator) -> Iterator[Target]:
    made = target(simulator, type="sgas", url=simulator.sgas_url)
    yield made
    made.close()


@pytest.fixture
def ams(simulator: Simulator) -> Iterator[Target]:
    made = target(
        simulator, type="ams", url=simulator.ams_url, auth_url=simulator.token_url, project="accounting",
        topic="gLite-APEL", records="emi-car",
    )  # fmt: skip
    yield made
    made.close()


def test_sgas_receipts(simulator: Simulator, sgas: Target) -> None:
    rewritten = "gsiftp://ce1.example.org/jobs/2"
    outcome = sgas.post(UR)
    assert isinstance(outcome, Accepted)
    assert outcome.rewritten == {"ur-2": rewritten}
    assert simulator.sgas.holdings().keys() == {"ur-1", rewritten}


def test_a_406_parts_the_records_by_their_machines(simulator: Simulator, sgas: Target) -> None:
    records = (record(1), record(2, machine="ce1.elsewhere.no"), record(3))
    refused = sgas.post(Message("b3", "ogf-ur", "application/xml", message(*records), ("ur-1", "ur-2", "ur-3")))
    assert isinstance(refused, Refused)
    assert set(refused.parts) == {("ur-1", "ur-3"), ("ur-2",)}
    alone = sgas.post(Message("b4", "ogf-ur", "application/xml", message(records[1]), ("ur-2",)))
    assert isinstance(alone, Refused)
    assert (alone.certain, alone.parts) == (True, (("ur-2",),))
    assert simulator.sgas.holdings() == {}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("close", stored=True), Unknown),
        (Fault("html", code=200, stored=True), Unknown),
        (Fault("status"), Refused),
        (Fault("status", code=429, retry_after="7"), Throttled),
    ],
)
def test_faults_are_the_outcomes_they_are_named_for(
    simulator: Simulator, sgas: Target, fault: Fault, kind: type[Outcome]
) -> None:
    simulator.faults.replace([fault])
    assert isinstance(sgas.post(UR), kind)
    simulator.faults.replace([])
    assert isinstance(sgas.post(UR), Accepted)


def test_ams_loads_what_was_signed(simulator: Simulator, ams: Target) -> None:
    assert ams.post(CAR) == Accepted(receipt={"messageIds": "0"})
    simulator.ams.expire_tokens()
    assert ams.post(CAR) == Accepted(receipt={"messageIds": "1"}), "a new token is fetched"
    held = simulator.apel.holdings()
    assert (held.record_ids, held.rejected) == ({"car-1": 2}, ())


def test_check_finds_nothing_wrong(sgas: Target, ams: Target) -> None:
    for made in (sgas, ams):
        assert [finding for finding in made.check() if finding.level == "red"] == []
