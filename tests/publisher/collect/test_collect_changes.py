"""What becomes of deliveries when a run changes, or is selected no more, before it is sent, in flight, and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.reason import sentence
from publisher.store.schema import State
from publisher.targets.base import Refused, Transient, Unknown
from tests.publisher.collect.one_source_site import KINDS, site_of
from tests.publisher.receivers import always
from tests.publisher.site import make_job, make_jobs

pytestmark = pytest.mark.either_store


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_changes_before_it_was_sent_is_sent_in_its_last_version(tmp_path: Path, kind: str) -> None:
    site, service = site_of(tmp_path, make_job(1), kind=kind)
    site.collect()
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    site.publish()
    assert service.held == {make_job(1).record_id: 7}
    assert site.counted("neic") == {State.ACCEPTED: 1}


def test_a_run_that_changes_after_delivery_is_sent_again_where_the_last_version_counts(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, make_job(1), kind="ams")
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    assert site.counted("neic") == {State.WAITING: 1}
    site.publish()
    assert service.held == {make_job(1).record_id: 7}
    assert site.counted("neic") == {State.ACCEPTED: 1}


def test_a_run_that_changes_after_delivery_is_superseded_where_the_first_version_counts(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, make_job(1))
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    assert site.counted("neic") == {State.SUPERSEDED: 1}
    before = service.posts
    site.publish()
    assert service.posts == before
    known = site.publisher.job(make_job(1).record_id)[0]
    assert known.run.job.wall_ms == 7000
    assert "keeps the first version" in sentence(known.whereabouts[0].reason)


def test_a_changed_record_may_replace_a_rejected_one(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, *make_jobs(2))
    service.fault = lambda m: (
        Refused("406", certain=True) if m.record_ids[0] == make_job(1).record_id and b"PT100S" in m.payload else None
    )
    site.collect()
    site.publish()
    assert site.states("neic")[make_job(1).record_id] is State.REJECTED
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 2}


@pytest.mark.parametrize("kind", KINDS)
def test_a_delivery_that_is_no_longer_selected_is_removed_if_it_was_never_sent(tmp_path: Path, kind: str) -> None:
    site, service = site_of(tmp_path, *make_jobs(2), kind=kind)
    site.collect()
    site.sources["ce1"].add(make_job(1, status="aborted"))
    site.collect()
    site.publish()
    assert set(service.held) == {make_job(2).record_id}
    assert site.counted("neic") == {State.ACCEPTED: 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_delivery_that_is_no_longer_selected_is_superseded_if_it_was_sent(tmp_path: Path, kind: str) -> None:
    site, _ = site_of(tmp_path, *make_jobs(2), kind=kind)
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(1, status="aborted"))
    site.collect()
    assert site.in_state("neic", State.SUPERSEDED) == {make_job(1).record_id}
    assert "no longer selects it" in (site.reasons("neic")[make_job(1).record_id] or "")
    site.assert_counters_right()


def test_a_run_that_is_selected_after_a_change_is_enqueued_then(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, make_job(1, status="aborted"))
    site.collect()
    assert site.states("neic") == {}
    site.sources["ce1"].add(make_job(1))
    assert site.collect()["ce1"].changed == 1
    site.publish()
    assert len(service.held) == 1


def test_what_may_have_been_stored_in_an_earlier_version_is_not_called_accepted_in_a_later(tmp_path: Path) -> None:
    """SGAS took the first version, but its answer was lost; then the run changed."""
    site, service = site_of(tmp_path, make_job(1))
    site.collect()
    service.answer = lambda _message, _accepted: Unknown("the connection was cut")
    site.publish()
    service.answer = lambda _message, accepted: accepted
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    site.publish()
    assert service.held == {make_job(1).record_id: 100}
    assert site.counted("neic") == {State.SUPERSEDED: 1}


@pytest.mark.parametrize("last_s", [7, 100], ids=["still the second", "again the first"])
@pytest.mark.parametrize("stored", [1, 2])
def test_what_may_have_been_stored_in_one_of_two_versions_is_called_accepted_in_none(
    tmp_path: Path, stored: int, last_s: int
) -> None:
    """The answers to both versions were lost; SGAS has the first that reached it."""
    site, service = site_of(tmp_path, make_job(1))
    site.collect()
    service.answer = lambda _message, _accepted: Unknown("the connection was cut")
    service.fault = lambda _message: Unknown("the connection was cut") if service.posts < stored else None
    site.publish()
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    site.publish()
    assert service.held == {make_job(1).record_id: 100 if stored == 1 else 7}
    service.answer = lambda _message, accepted: accepted
    site.sources["ce1"].add(make_job(1, wall_s=last_s))
    site.collect()
    site.publish()
    assert site.counted("neic") == {State.SUPERSEDED: 1}


@pytest.mark.parametrize("certain", [True, False])
def test_a_later_version_that_was_surely_not_stored_leaves_the_earlier_one_known(tmp_path: Path, certain: bool) -> None:
    """SGAS took the first version, but its answer was lost; the second did not get there; then the first is back."""
    site, service = site_of(tmp_path, make_job(1))
    site.collect()
    service.answer = lambda _message, _accepted: Unknown("the connection was cut")
    site.publish()
    service.fault = always(Transient("HTTP 503") if certain else Unknown("the connection was cut"))
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    site.publish()
    service.fault, service.answer = (lambda _message: None), (lambda _message, accepted: accepted)
    site.sources["ce1"].add(make_job(1))
    site.collect()
    site.publish()
    assert site.counted("neic") == {(State.ACCEPTED if certain else State.SUPERSEDED): 1}


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_deselected_with_an_unknown_outcome_is_sent_when_it_is_selected_again(
    tmp_path: Path, kind: str, stored: bool
) -> None:
    site, service = site_of(tmp_path, make_job(1), kind=kind)
    site.collect()
    cut = Unknown("the connection was cut")
    service.answer = lambda _message, _accepted: cut
    service.fault = lambda _message: None if stored else cut
    site.publish()
    for job, state in ((make_job(1, status="aborted"), State.SUPERSEDED), (make_job(1), State.WAITING)):
        site.sources["ce1"].add(job)
        site.collect()
        assert site.counted("neic") == {state: 1}
    service.fault, service.answer = (lambda _message: None), (lambda _message, accepted: accepted)
    site.publish()
    assert service.held == {make_job(1).record_id: 100}
    assert site.counted("neic") == {State.ACCEPTED: 1}


def test_what_was_surely_not_stored_is_accepted_in_its_later_version(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, make_job(1))
    site.collect()
    service.fault = always(Transient("HTTP 503"))
    site.publish()
    service.fault = lambda _message: None
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    site.publish()
    assert service.held == {make_job(1).record_id: 7}
    assert site.counted("neic") == {State.ACCEPTED: 1}
