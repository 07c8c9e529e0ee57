"""A delivered run that changed so that its target no longer selects it is not sent again, by any command."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.errors import UsageError
from publisher.sources.base import Window
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

DESELECTED = make_job(2, status="aborted")
WINDOW = (NOVEMBER, NOVEMBER + 100_000)


@pytest.fixture(params=["sgas", "ams"])
def service(request: pytest.FixtureRequest) -> RecordReceiver:
    return RecordReceiver("service", request.param)


@pytest.fixture
def site(tmp_path: Path, service: RecordReceiver) -> Site:
    source = ListSource("ce1")
    source.add(*make_jobs(5))
    site = Site(tmp_path, [source], [service])
    site.collect()
    site.publish()
    source.add(DESELECTED)
    site.collect()
    assert site.in_state("service", State.SUPERSEDED) == {DESELECTED.record_id}
    return site


def test_a_retry_is_refused_and_a_waiver_settles_it(site: Site, service: RecordReceiver) -> None:
    with pytest.raises(UsageError, match="no longer selects"):
        site.publisher.retry(State.SUPERSEDED, "service", [DESELECTED.record_id])
    site.publish()
    assert service.posts == 1
    site.publisher.waive(State.SUPERSEDED, "service", [DESELECTED.record_id], "removed there")
    assert site.in_state("service", State.WAIVED) == {DESELECTED.record_id}
    site.assert_counters_right()


def test_sending_a_window_again_leaves_it_out_and_says_so(site: Site, service: RecordReceiver) -> None:
    plan = site.publisher.plan_republish("service", Window(*WINDOW))
    assert (plan.counts.changed, plan.counts.unchanged, plan.counts.kept) == (0, 4, 1)
    assert site.republish("service", *WINDOW).sent.accepted == 4
    assert service.posted().count(DESELECTED.record_id) == 1
    assert site.in_state("service", State.SUPERSEDED) == {DESELECTED.record_id}
    site.assert_counters_right()


def test_selected_again_it_may_be_sent(site: Site, service: RecordReceiver) -> None:
    site.configure("service", statuses=["completed", "aborted"])
    site.publish()
    assert service.posted().count(DESELECTED.record_id) == 1, "not by a change of settings"
    site.publisher.retry(State.SUPERSEDED, "service", [DESELECTED.record_id])
    assert site.publish_to("service").sent.accepted == 1
    assert service.posted().count(DESELECTED.record_id) == 2
