"""The outbox follows the filters: filled once for a new target, planned anew where nothing was delivered yet."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.job import Job
from publisher.reason import sentence
from publisher.store.schema import State
from publisher.text import iso
from tests.extent import short_or_whole
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store


def site_of(folder: Path, *jobs: Job, kind: str = "sgas") -> tuple[Site, RecordReceiver]:
    source = ListSource("ce1")
    source.add(*jobs)
    service = RecordReceiver("neic", kind)
    return Site(folder, [source], [service]), service


def ids(*numbers: int) -> set[str]:
    return {make_job(number).record_id for number in numbers}


def test_a_new_target_is_filled_once_from_its_since(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, make_job(1, end=OCTOBER), make_job(2, end=NOVEMBER), make_job(3, end=NOVEMBER - 1))
    site.collect()
    later = RecordReceiver("later")
    site.receivers["later"] = later
    site.table["targets"]["later"] = dict(site.table["targets"]["neic"], since=iso(NOVEMBER))
    site.reopen()
    site.publish("later")
    assert set(later.held) == ids(2)
    site.publish("later")
    assert later.posts == 1
    assert site.counted("neic") == {State.WAITING: 3}


def test_a_new_target_with_delivered_until_counts_the_past_as_delivered(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, make_job(1, end=NOVEMBER), make_job(2, end=NOVEMBER + 1))
    site.collect()
    later = RecordReceiver("later")
    site.receivers["later"] = later
    site.table["targets"]["later"] = dict(site.table["targets"]["neic"], delivered_until=iso(NOVEMBER))
    site.reopen()
    site.publish("later")
    assert set(later.held) == ids(2)
    assert site.counted("later") == {State.ACCEPTED: 2}


def test_changed_filters_plan_anew_only_what_was_not_delivered(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, make_job(1, vo="cms"), make_job(2, vo="atlas"))
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(3, vo="cms"), make_job(4, vo="atlas"))
    site.collect()
    site.configure("neic", vo=["atlas"])
    site.publish()
    assert set(service.held) == ids(1, 2, 4)
    assert site.counted("neic") == {State.ACCEPTED: 3}
    before = service.posts
    site.configure("neic", vo=[])
    site.publish()
    assert set(service.held) == ids(1, 2, 3, 4)
    assert service.posts == before + 1


@pytest.mark.parametrize(
    ("filters", "selected"),
    [
        ({}, (1, 2, 4, 5)),
        ({"vo": ["cms"]}, (2,)),
        ({"statuses": ["aborted"]}, (3,)),
        ({"local_jobs": "skip"}, (1, 2, 5)),
        ({"sources": ["ce2"]}, (5,)),
        ({"since": "2026-11-02"}, (5,)),
    ],
)
def test_a_target_gets_what_its_settings_select(
    tmp_path: Path, filters: dict[str, object], selected: tuple[int, ...]
) -> None:
    one, other = ListSource("ce1"), ListSource("ce2")
    one.add(make_job(1), make_job(2, vo="cms"), make_job(3, status="aborted"), make_job(4, vo=None, user_dn=None))
    other.add(make_job(5, end=NOVEMBER + 86400))
    service = RecordReceiver("neic")
    site = Site(tmp_path, [one, other], [service])
    site.configure("neic", **filters)
    site.collect()
    site.publish()
    assert set(service.held) == ids(*selected)


def test_of_batch_systems_every_run_that_ran_is_selected(tmp_path: Path) -> None:
    jobs = [
        make_job(n, system="slurm", status=s) for n, s in enumerate(("completed", "failed", "aborted", "cancelled"))
    ]
    site, service = site_of(tmp_path, *jobs, make_job(9, system="slurm", status="lost"))
    site.collect()
    site.publish()
    assert set(service.held) == ids(0, 1, 2, 3)


def test_ams_skips_local_jobs_unless_configured_otherwise(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, make_job(1, vo=None, user_dn=None), kind="ams")
    site.collect()
    site.publish()
    assert service.held == {}
    site.configure("neic", local_jobs="send")
    site.publish()
    assert set(service.held) == ids(1)


def test_what_is_held_for_want_of_a_benchmark_is_released_when_one_is_configured(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, make_job(1, benchmarks=()), make_job(2), kind="ams")
    site.collect()
    delivery = site.publish_to("neic")
    assert (delivery.sent.accepted, delivery.sent.held) == (1, 1)
    held = site.publisher.listed(State.HELD)
    assert [(item.target, item.record_id) for item in held] == [("neic", make_job(1).record_id)]
    assert "benchmark" in sentence(held[0].reason)
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 1, State.HELD: 1}
    site.table["sources"]["ce1"]["benchmark"] = {"type": "HEPscore23", "value": 9.0}
    site.reopen()
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 2}
    assert set(service.held) == ids(1, 2)


def test_what_an_earlier_version_held_for_its_rules_is_released_by_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"endpoint_url": "https://ce_2.t.example.org:443/arex"}
    site, service = site_of(tmp_path, make_job(1), make_job(2, **facts))
    with monkeypatch.context() as earlier:
        earlier.setattr("publisher.collect.settings_text.RULES_VERSION", 1)
        earlier.setattr("formats.fit.is_host_name", re.compile(r"[a-z0-9]{2,}(\.[a-z0-9]{2,})*").fullmatch)
        site.collect()
        site.publish()
    assert set(service.held) == ids(1)
    assert site.counted("neic") == {State.ACCEPTED: 1, State.HELD: 1}
    site.reopen()
    site.publish()
    assert set(service.held) == ids(1, 2)
    assert site.counted("neic") == {State.ACCEPTED: 2}


def test_settings_that_say_only_where_and_how_plan_nothing_anew(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *make_jobs(2))
    site.collect()
    before = site.rows("SELECT filter_settings FROM targets")
    site.configure("neic", batch_records=7, timeout="9s", url="https://other.example.org", attempts=2)
    site.publish()
    assert site.rows("SELECT filter_settings FROM targets") == before


selections = st.fixed_dictionaries(
    {},
    optional={
        "vo": st.sampled_from((["atlas"], ["cms"], [])),
        "since": st.sampled_from(("2026-10-15", "2026-11-01")),
        "local_jobs": st.sampled_from(("send", "skip")),
        "statuses": st.sampled_from((["completed"], ["aborted", "failed"])),
    },
)
some_jobs = st.lists(
    st.builds(
        make_job,
        st.integers(1, 9),
        vo=st.sampled_from(("atlas", "cms", None)),
        user_dn=st.sampled_from((None, "/CN=Ada")),
        status=st.sampled_from(("completed", "failed", "aborted")),
        end=st.sampled_from((OCTOBER + 5, NOVEMBER + 5)),
    ),
    max_size=6,
)


@settings(max_examples=short_or_whole(6, 15))
@given(steps=st.lists(st.tuples(selections, some_jobs, st.booleans()), min_size=1, max_size=4))
def test_counters_equal_counts_with_any_filter(steps: list[tuple[dict[str, object], list[Job], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        site, service = site_of(Path(folder))
        usual = dict(site.table["targets"]["neic"])
        for filters, jobs, publish in steps:
            site.table["targets"]["neic"] = usual | filters
            site.reopen()
            site.sources["ce1"].add(*jobs)
            site.collect()
            site.assert_counters_right()
            if publish:
                site.publish()
                site.assert_counters_right()
                states = site.states("neic")
                settled = {State.ACCEPTED, State.SUPERSEDED} | (
                    {State.HELD} if "vo" in filters else set()
                )  # of no known VO
                assert settled.issuperset(states.values())
                assert {r for r, state in states.items() if state is State.ACCEPTED} <= set(service.held)
        site.reopen()
