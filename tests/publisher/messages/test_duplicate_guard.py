"""Two sources give a run with the same local id and end: APEL keeps one record of them, so the second is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from formats.job import Job
from publisher.preview.render import Rendering
from publisher.reason import sentence
from publisher.sources.base import Window
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import ListSource, Site, make_job

pytestmark = pytest.mark.either_store

FIRST, SECOND = "ur-ce1-7", "ur-ce2-7"
OTHER_KEYS: list[dict[str, Any]] = [{"local_id": "5"}, {"end": 1_795_000_000}]


def run_of(record_id: str, number: int = 7, **facts: Any) -> Job:
    """Those of two elements are of two users: two jobs, not one that both give."""
    return make_job(number, record_id=record_id, global_id=record_id, local_user=record_id, **facts)


def site_of(folder: Path, *jobs: Job, service: RecordReceiver | None = None) -> Site:
    """Two computing elements; the jobs of the second are the rest."""
    first, second = ListSource("ce1"), ListSource("ce2")
    first.add(jobs[0])
    second.add(*jobs[1:])
    return Site(folder, [first, second], [service or RecordReceiver("apel", "ams")])


def rendered(site: Site, window: Window | None = None) -> tuple[int, dict[str, str]]:
    """Records that the dry run shows, and what it holds."""
    rendering = Rendering(site.publisher.store, site.config, "emi-car", "apel", window or Window(), site.now)
    list(rendering.messages())
    return rendering.records, {held.record_id: sentence(held.reason) for held in rendering.held}


def test_the_second_is_held_with_both_named_and_the_dry_run_says_the_same(tmp_path: Path) -> None:
    site = site_of(tmp_path, run_of(FIRST), run_of(SECOND), make_job(8))
    site.collect()
    dry = rendered(site)
    done = site.publish_to("apel")
    assert (done.sent.accepted, done.sent.held) == (2, 1)
    assert site.in_state("apel", State.HELD) == {SECOND}
    reason = site.reasons("apel")[SECOND] or ""
    assert dry == (2, {SECOND: reason})
    assert all(word in reason for word in (FIRST, "ce1", "ce2", "local id 7", "waive", "local_id_prefix"))
    site.assert_counters_right()


@pytest.mark.parametrize("window", [None, Window()], ids=["waiting", "whole"])
def test_the_dry_run_of_a_target_that_was_never_planned_for_says_the_same(
    tmp_path: Path, window: Window | None
) -> None:
    site = site_of(tmp_path, run_of(FIRST), run_of(SECOND))
    site.table["targets"] = {}
    site.collect()
    site.table["targets"] = {"apel": {"type": "directory", "path": "out", "records": "emi-car", "layout": "files"}}
    site.reopen()
    records, held = rendered(site, window)
    assert (records, set(held)) == (1, {SECOND})


@pytest.mark.parametrize("records", ["emi-car", "apel-job"])
@pytest.mark.parametrize(
    ("first", "second", "is_held"),
    [
        ({"local_id": "17.batch"}, {"local_id": "17.Batch"}, True),  # case does not count there
        ({"local_id": "17.batch"}, {"local_id": "17.BATCH"}, True),
        ({"endpoint_url": "https://ce2.example.org:443/arex"}, {}, True),  # nor does the computing element
        ({"wall_s": 5}, {}, True),
        ({}, {"end": 1_795_000_000}, False),
        ({}, {"local_id": "8"}, False),
        ({"local_id": None}, {"local_id": None}, False),  # their global ids are used instead
    ],
)
def test_what_the_key_is(
    tmp_path: Path, records: str, first: dict[str, Any], second: dict[str, Any], is_held: bool
) -> None:
    site = site_of(tmp_path, run_of(FIRST, **first), run_of(SECOND, **second))
    site.configure("apel", records=records)
    site.receivers["apel"].store = _took  # type: ignore[method-assign]
    site.collect()
    site.publish()
    assert site.in_state("apel", State.HELD) == ({SECOND} if is_held else set())


def _took(_message: object) -> Any:
    from publisher.targets.base import Accepted

    return Accepted({"messageIds": "1"})


def test_prefixes_and_sites_of_sources_are_in_the_key(tmp_path: Path) -> None:
    site = site_of(tmp_path, run_of(FIRST), run_of(SECOND), run_of("ur-ce2-x7", 9, local_id="x7", end=make_job(7).end))
    site.collect()
    site.publish()
    assert site.in_state("apel", State.HELD) == {SECOND}
    for name in ("prefix", "site"):
        (tmp_path / name).mkdir()
    other = site_of(tmp_path / "prefix", run_of(FIRST, local_id="x7"), run_of(SECOND))
    other.table["sources"]["ce2"]["local_id_prefix"] = "x"
    other.collect()
    other.publish()
    assert other.in_state("apel", State.HELD) == {SECOND}, "x7 and x + 7"
    third = site_of(tmp_path / "site", run_of(FIRST), run_of(SECOND))
    third.table["sources"]["ce2"]["site"] = "OTHER-SITE"
    third.collect()
    third.publish()
    assert third.counted("apel") == {State.ACCEPTED: 2}


def test_with_a_prefix_both_are_sent(tmp_path: Path) -> None:
    site = site_of(tmp_path, run_of(FIRST), run_of(SECOND))
    site.table["sources"]["ce2"]["local_id_prefix"] = "ce2-"
    site.collect()
    assert site.publish_to("apel").sent.accepted == 2


def test_one_that_turns_up_later_is_held_and_stays_so_until_somebody_decides(tmp_path: Path) -> None:
    site = site_of(tmp_path, run_of(FIRST))
    site.collect()
    site.publish()
    site.sources["ce2"].add(run_of(SECOND))
    site.collect()
    site.publish()
    assert site.in_state("apel", State.HELD) == {SECOND}
    site.publisher.retry(State.HELD, "apel")
    assert site.publish_to("apel").sent.held == 1
    site.publisher.waive(State.HELD, "apel", [SECOND], "the same job")
    assert set(site.states("apel").values()) == {State.ACCEPTED, State.WAIVED}


def test_the_one_that_the_service_has_is_the_first_whenever_it_was_stored(tmp_path: Path) -> None:
    site = site_of(tmp_path, run_of(FIRST, benchmarks=()), run_of(SECOND))
    site.collect()
    site.publish()
    assert site.in_state("apel", State.HELD) == {FIRST}, "the first has no benchmark"
    assert site.in_state("apel", State.ACCEPTED) == {SECOND}, "a held one does not stand in the way"
    site.sources["ce1"].add(run_of(FIRST))
    site.collect()
    site.publisher.retry(State.HELD, "apel")
    site.publish()
    assert site.in_state("apel", State.HELD) == {FIRST}
    assert site.in_state("apel", State.ACCEPTED) == {SECOND}
    assert SECOND in (site.reasons("apel")[FIRST] or "")


@pytest.mark.parametrize("change", OTHER_KEYS, ids=["local id", "end time"])
@pytest.mark.parametrize("is_waived", [False, True], ids=["held", "waived"])
def test_a_run_counts_with_the_key_that_it_was_sent_with(
    tmp_path: Path, change: dict[str, Any], is_waived: bool
) -> None:
    site = site_of(tmp_path, run_of(FIRST, wall_s=111))
    site.collect()
    site.publish()
    site.sources["ce1"].add(run_of(FIRST, wall_s=111, **change))
    site.collect()
    site.publish()
    if is_waived:
        site.publisher.waive(State.HELD, "apel", [FIRST], "the service has it")
    site.sources["ce2"].add(run_of(SECOND, wall_s=222))
    site.collect()
    site.publish()
    assert set(site.receivers["apel"].held) == {FIRST}
    assert site.states("apel") == {FIRST: State.WAIVED if is_waived else State.HELD, SECOND: State.HELD}
    assert FIRST in (site.reasons("apel")[SECOND] or "")


@pytest.mark.parametrize("before", OTHER_KEYS, ids=["local id", "end time"])
def test_a_run_that_was_sent_with_another_key_leaves_its_new_one_free(tmp_path: Path, before: dict[str, Any]) -> None:
    site = site_of(tmp_path, run_of(FIRST, **before))
    site.collect()
    site.publish()
    site.sources["ce1"].add(run_of(FIRST))
    site.sources["ce2"].add(run_of(SECOND))
    site.collect()
    site.publish()
    assert site.states("apel") == {FIRST: State.HELD, SECOND: State.ACCEPTED}
    site.publisher.retry(State.HELD, "apel", [FIRST])  # the service's administrator removed its first record
    site.publish()
    assert site.states("apel") == {FIRST: State.HELD, SECOND: State.ACCEPTED}
    assert SECOND in (site.reasons("apel")[FIRST] or "")


def test_when_the_first_was_rejected_the_reason_says_how_to_send_the_second(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = site_of(tmp_path, run_of(FIRST), run_of(SECOND), make_job(8), service=service)
    service.poison = {FIRST}
    site.collect()
    site.publish()
    assert (site.in_state("apel", State.REJECTED), site.in_state("apel", State.HELD)) == ({FIRST}, {SECOND})
    assert "`usage-publisher records retry`" in (site.reasons("apel")[SECOND] or "")
    site.publisher.retry(State.HELD, "apel", [SECOND])
    site.publish()
    assert SECOND in site.in_state("apel", State.ACCEPTED)


@pytest.mark.parametrize(
    "service", [RecordReceiver("neic", "sgas"), SummaryReceiver("sums")], ids=["sgas", "summaries"]
)
def test_services_with_another_key_get_both(tmp_path: Path, service: RecordReceiver) -> None:
    site = site_of(tmp_path, run_of(FIRST), run_of(SECOND), service=service)
    site.collect()
    assert site.publish_to(service.name).sent.accepted == 2


def test_runs_of_one_source_are_not_looked_at(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(run_of(FIRST), run_of(SECOND))
    site = Site(tmp_path, [source], [RecordReceiver("apel", "ams")])
    site.collect()
    assert site.publish_to("apel").sent.accepted == 2
