"""A daemon tries a service that keeps failing less often, and never gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.publish.circuit import Circuit, Circuits
from publisher.store.schema import State
from publisher.targets.base import Outcome, Transient, Unauthorised
from tests.publisher.receivers import RecordReceiver, always
from tests.publisher.site import ListSource, Site, make_jobs


def test_it_opens_at_the_third_failure_and_leaves_out_more_rounds_with_each() -> None:
    circuit = Circuit()
    asked = []
    for number in range(40):
        if circuit.admits():
            asked.append(number)
            circuit.record(succeeded=False)
    assert asked == [0, 1, 2, 4, 8, 16, 24, 32]


def test_a_round_without_failure_closes_it() -> None:
    circuit = Circuit()
    for _ in range(4):
        circuit.admits()
        circuit.record(succeeded=False)
    assert circuit.half_open
    circuit.record(succeeded=True)
    assert circuit.admits()
    assert not circuit.half_open


@pytest.mark.parametrize("outcome", [Transient("HTTP 503"), Unauthorised("HTTP 403")])
def test_a_failing_target_rests_and_the_other_one_does_not(tmp_path: Path, outcome: Outcome) -> None:
    source = ListSource("ce1")
    down, well = RecordReceiver("down"), RecordReceiver("well")
    site = Site(tmp_path, [source], [down, well])
    site.configure("down", attempts=3)
    down.fault = always(outcome)
    circuits = Circuits()
    tries = []
    for number in range(12):
        source.add(*make_jobs(1, first=number))
        site.collect()
        before = down.posts
        done = site.publish(circuits=circuits)
        tries.append(down.posts - before)
        assert done["well"].sent.accepted == 1
        assert (done["down"].resting is None) == (tries[-1] > 0)
    each = 3 if isinstance(outcome, Transient) else 1
    assert tries == [each, each, each, 0, 1, 0, 0, 0, 1, 0, 0, 0], "half open, one message is tried once"

    down.fault = lambda _message: None
    while not site.publish(circuits=circuits)["down"].sent.accepted:
        pass
    assert site.counted("down") == {State.ACCEPTED: 12}
    assert not circuits.of("down").half_open


def test_a_service_that_took_something_has_not_failed(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(60))
    service = RecordReceiver("neic")
    site = Site(tmp_path, [source], [service])
    site.configure("neic", batch_records=5)
    service.fault = lambda _message: Transient("HTTP 503") if service.posts % 2 == 0 else None
    site.collect()
    circuits = Circuits()
    for _ in range(12):
        assert site.publish(circuits=circuits)["neic"].resting is None
    assert site.counted("neic") == {State.ACCEPTED: 60}


def test_a_command_that_runs_once_tries_every_target(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(1))
    service = RecordReceiver("neic")
    service.fault = always(Transient("HTTP 503"))
    site = Site(tmp_path, [source], [service])
    site.collect()
    for number in range(1, 8):
        site.publish()
        assert service.posts == number
