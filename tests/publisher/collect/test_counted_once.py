"""A job that two sources give counts once at each target, in whatever order they give it and whatever happens."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from formats.job import Job
from publisher.sources.base import Unreadable, Window
from publisher.store import same_jobs
from publisher.store.schema import State
from publisher.targets.base import Accepted, Transient, Unknown
from tests.extent import short_or_whole
from tests.properties.dry_run import assert_publishes_what_is_shown
from tests.publisher.receivers import RecordReceiver, SummaryReceiver, once
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

RECORDS: Final = ("sgas", "car")
JOBS: Final = 6


def element(number: int, **facts: Any) -> Job:
    """The job at the computing element, which knows the user and stages out."""
    return make_job(number, **{"lrms": "slurm", "cluster": None, "local_user": "pool1"} | facts)


def batch(number: int, **facts: Any) -> Job:
    """The same job in the batch system: it began later and ended earlier, and the user is unknown."""
    job = make_job(number)
    assert job.end is not None
    mine = {
        "record_id": f"ur-slurm/c/{number}", "system": "slurm", "endpoint_url": None, "endpoint_type": None,
        "cluster": "c", "user_dn": None, "vo": None, "local_user": "pool1", "end": job.end - 20, "global_id": None,
    }  # fmt: skip
    return make_job(number, wall_s=50, **mine | facts)


def pairs(number: int) -> tuple[str, str]:
    return element(number).record_id, batch(number).record_id


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_in(tmp_path)


def site_in(folder: Path) -> Site:
    receivers = [RecordReceiver("sgas"), RecordReceiver("car", "ams"), SummaryReceiver("sums")]
    made = Site(folder, [ListSource("ce", page=3), ListSource("pool", page=3)], receivers)
    made.table["sources"]["pool"]["type"] = "slurm"
    for name in ("sgas", "car", "sums"):
        made.configure(name, batch_records=3, local_jobs="send")
    made.configure("sums", records="apel-summary")
    return made


def given(site: Site, source: str, *jobs: Job) -> None:
    site.sources[source].add(*jobs)
    site.collect(source)


def assert_counted_once(site: Site, numbers: set[int]) -> None:
    """Every job is at every service, once; the ledger says so."""
    for name in RECORDS:
        there = site.receivers[name].held
        for number in numbers:
            assert len(there.keys() & set(pairs(number))) == 1, (name, number, site.states(name))
        accepted = site.in_state(name, State.ACCEPTED) | site.in_state(name, State.SUPERSEDED)
        assert accepted == there.keys()
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    assert sums.total()[0] == len(numbers)
    assert len(site.in_state("sums", State.ACCEPTED)) == len(numbers)
    for name in site.receivers:
        assert set(site.states(name).values()) <= {State.ACCEPTED, State.SUPERSEDED, State.WAIVED}
    site.assert_counters_right()


@pytest.mark.either_store
@pytest.mark.parametrize("first", ["ce", "pool"])
def test_the_run_of_the_computing_element_counts(site: Site, first: str) -> None:
    order = [("ce", element(1)), ("pool", batch(1))]
    for source, job in order if first == "ce" else order[::-1]:
        given(site, source, job)
    site.publish()
    for name in RECORDS:
        assert set(site.receivers[name].held) == {element(1).record_id}
        assert site.states(name) == {element(1).record_id: State.ACCEPTED, batch(1).record_id: State.WAIVED}
        assert site.reasons(name)[batch(1).record_id] == (
            "counted elsewhere: it is the same job as ur-ce1.example.org-0001 of source ce, which counts at this target"
        )
    assert_counted_once(site, {1})


def test_a_run_that_was_sent_stays_but_a_sum_gets_the_better_one(site: Site) -> None:
    given(site, "pool", batch(1))
    site.publish()
    given(site, "ce", element(1))
    site.publish()
    for name in RECORDS:
        assert set(site.receivers[name].held) == {batch(1).record_id}
        assert site.states(name)[element(1).record_id] is State.WAIVED
    assert site.states("sums") == {element(1).record_id: State.ACCEPTED, batch(1).record_id: State.WAIVED}
    assert_counted_once(site, {1})


def test_a_run_whose_answer_was_lost_stays(site: Site) -> None:
    given(site, "pool", batch(1))
    for name in RECORDS:
        site.receivers[name].answer = lambda _message, _accepted: Unknown("cut")
    site.publish()
    given(site, "ce", element(1))
    for name in RECORDS:
        assert site.states(name)[element(1).record_id] is State.WAIVED
        site.receivers[name].answer = lambda _message, accepted: accepted
    site.publish()
    assert_counted_once(site, {1})


@pytest.mark.either_store
def test_a_run_that_turns_out_to_be_another_job_counts_again(site: Site) -> None:
    given(site, "pool", batch(1))
    given(site, "ce", element(1))
    given(site, "ce", element(1, local_id="2"))
    site.publish()
    for name in RECORDS:
        assert set(site.states(name).values()) == {State.ACCEPTED}
    assert site.receivers["sums"].total()[0] == 2  # type: ignore[attr-defined]
    given(site, "pool", batch(1, local_id="2"))
    assert site.states("sums")[batch(1).record_id] is State.WAIVED


def test_what_a_target_does_not_select_counts_nowhere(site: Site) -> None:
    given(site, "pool", batch(1))
    given(site, "ce", element(1))
    for name in site.receivers:
        site.configure(name, sources=["pool"])
    site.publish()
    for name in RECORDS:
        assert set(site.receivers[name].held) == {batch(1).record_id}
    assert site.states("sums") == {batch(1).record_id: State.ACCEPTED}
    site.configure("sums", sources=[])
    site.publish()
    assert site.states("sums") == {element(1).record_id: State.ACCEPTED, batch(1).record_id: State.WAIVED}
    assert site.receivers["sums"].total()[0] == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("new", [RecordReceiver("new"), SummaryReceiver("new")])
def test_a_new_target_is_sent_what_is_shown_each_job_once(site: Site, new: RecordReceiver) -> None:
    given(site, "pool", batch(1), batch(2))
    given(site, "ce", element(1))
    site.receivers["new"] = new
    site.table["targets"]["new"] = {**site.table["targets"]["sums" if isinstance(new, SummaryReceiver) else "sgas"]}
    site.reopen()
    assert_publishes_what_is_shown(site, new)
    assert site.in_state("new", State.ACCEPTED) == {element(1).record_id, batch(2).record_id}
    assert site.in_state("new", State.WAIVED) == {batch(1).record_id}


def test_what_is_shown_of_a_window_has_each_job_once(site: Site) -> None:
    given(site, "pool", batch(1), batch(2))
    given(site, "ce", element(1))
    assert_publishes_what_is_shown(site, site.receivers["sgas"])
    shown = site.publisher.rendering("ogf-ur", "sgas", Window(0, 2**33))
    assert sum(message.records for message in shown.messages()) == 2


def test_if_the_one_that_counts_is_waived_the_other_is_sent(site: Site) -> None:
    given(site, "pool", batch(1))
    given(site, "ce", element(1, benchmarks=()))
    site.receivers["sgas"].poison = {element(1).record_id}
    given(site, "ce", element(2), element(3))
    site.publish("sgas")
    assert site.states("sgas")[element(1).record_id] is State.REJECTED
    site.publisher.waive(State.REJECTED, "sgas", [element(1).record_id], "refused for ever")
    site.publish("sgas")
    assert batch(1).record_id in site.receivers["sgas"].held


LIKE: Final[dict[str, tuple[Job, bool]]] = {
    "another user": (batch(1, local_user="pool2"), False),
    "another batch system": (batch(1, system="lsf"), False),
    "after the element": (batch(1, end=make_job(1).end + 400), False),  # type: ignore[operator]
    "before the element": (batch(1, start=make_job(1).start - 1000), False),  # type: ignore[operator]
    "a task of an array": (batch(1, local_id="1_3"), False),
    "a slave": (batch(1, slave=True), False),
    "another number": (batch(1, local_id="11"), False),
}


@pytest.mark.parametrize("name", LIKE)
@pytest.mark.parametrize("first", ["ce", "pool"])
def test_which_runs_are_one_job(site: Site, name: str, first: str) -> None:
    job, is_same = LIKE[name]
    order = [("ce", element(1)), ("pool", job)]
    for source, each in order if first == "ce" else order[::-1]:
        given(site, source, each)
    assert (State.WAIVED in site.states("sgas").values()) == is_same


_ENDED: Final = make_job(1).end or 0
_BATCH_ENDED: Final = _ENDED - 20
TWICE: Final[dict[str, tuple[dict[str, Any], bool]]] = {
    "the same": ({}, True),
    "an unknown cluster": ({"cluster": None}, True),
    "an unknown start": ({"start": None}, True),
    "another cluster": ({"cluster": "d"}, False),
    "another start": ({"start": _BATCH_ENDED - 49}, False),
    "another user": ({"local_user": "pool2"}, False),
    "another number": ({"local_id": "11"}, False),
}


@pytest.mark.parametrize("name", [*TWICE, "another end"])
@pytest.mark.parametrize("of_grid", [True, False])
def test_two_sources_of_one_kind_that_have_one_job(site: Site, name: str, of_grid: bool) -> None:
    """Two computing elements, or two batch systems: what they say of it is compared to the second."""
    facts, is_same = TWICE.get(name, ({}, False))
    job = (element if of_grid else batch)(1, cluster="c", end=_BATCH_ENDED, start=_BATCH_ENDED - 50)
    url = {"endpoint_url": "https://ce2.example.org/arex"} if of_grid else {}
    changed = {"end": _BATCH_ENDED + 1} if name == "another end" else facts
    other = msgspec.structs.replace(job, record_id="ur-other/1", global_id=None, **url | changed)
    given(site, "ce", job)
    given(site, "pool", other)
    site.publish()
    waived = site.in_state("sgas", State.WAIVED)
    assert len(waived) == is_same
    assert site.receivers["sums"].total()[0] == 2 - is_same  # type: ignore[attr-defined]
    assert len(site.receivers["sgas"].held) == 2 - is_same


@pytest.mark.either_store
@pytest.mark.parametrize("first", ["ce", "pool"])
def test_ids_with_a_server(site: Site, first: str) -> None:
    order = [("ce", element(1, lrms="pbs")), ("pool", batch(1, local_id="1.server", system="torque"))]
    for source, each in order if first == "ce" else order[::-1]:
        given(site, source, each)
    assert site.in_state("sgas", State.WAIVED) == {batch(1).record_id}


@pytest.mark.parametrize("first", ["ce", "pool"])
def test_a_routed_job_and_its_copy_name_each_other(site: Site, first: str) -> None:
    routed = {"system": "htcondor", "global_id": None, "local_user": None}
    order = [
        ("ce", element(1, local_id="12.0", extras={"RoutedToJobId": "77.0"}, **routed)),
        ("pool", batch(1, local_id="77.0", extras={"RoutedFromJobId": "12.0"}, **routed)),
        ("pool", batch(2, local_id="78.0", extras={"RoutedFromJobId": "12.0"}, **routed)),
    ]
    for source, each in order if first == "ce" else order[::-1]:
        given(site, source, each)
    assert site.in_state("sgas", State.WAIVED) == {batch(1).record_id}


# --- what a user may write: it makes no job disappear


def ads(**facts: Any) -> tuple[Job, Job]:
    """Ads of HTCondor-CE and of a schedd that name each other; `facts`: of the second."""
    common = {"system": "htcondor", "global_id": None, "lrms": None}
    ce = element(1, local_id="12.0", wall_ms=1_000_000, submit=NOVEMBER, extras={"RoutedToJobId": "77.0"}, **common)
    return ce, batch(
        1, **common | {"local_id": "77.0", "extras": {"RoutedFromJobId": "12.0"}, "wall_ms": 1_010_000} | facts
    )


FORGED: Final[dict[str, tuple[Job, Job]]] = {
    "a long run behind a short one": ads(wall_ms=2_000_000),
    "a short run before a long one": ads(wall_ms=1),
    "a run of several cores behind that of a single one": ads(cores=8),
    "a run of another user": ads(local_user="victim"),
    "an ad that names the job of another": ads(extras={}),
    "an id that is none": ads(local_id="77.0\x01", extras={"RoutedFromJobId": "12.0", "RoutedToJobId": "12.0\0"}),
    "a number of another cluster": (element(1, wall_ms=10_000), batch(1, wall_ms=7_200_000)),
}


@pytest.mark.either_store
@pytest.mark.parametrize("name", FORGED)
def test_no_run_is_hidden_behind_another(site: Site, name: str) -> None:
    sources = ("ce", "pool") if len(name) % 2 else ("pool", "ce")
    jobs = dict(zip(("ce", "pool"), FORGED[name], strict=True))
    for source in sources:
        given(site, source, jobs[source])
    site.publish()
    assert State.WAIVED not in site.states("sgas").values()
    assert site.receivers["sums"].total()[0] == 2  # type: ignore[attr-defined]


def test_ads_that_name_each_other_are_one_job(site: Site) -> None:
    ce, pool = ads()
    given(site, "ce", ce)
    given(site, "pool", pool)
    assert site.in_state("sgas", State.WAIVED) == {pool.record_id}


@pytest.mark.parametrize("seed", range(short_or_whole(4, 60)))
def test_as_many_runs_count_as_a_source_has(tmp_path: Path, seed: int) -> None:
    """A requeued job, also copied by a collector that no rule compares with the computing element, in any order."""
    chance = random.Random(seed)
    site = site_in(tmp_path)
    site.sources["copies"] = ListSource("copies")
    site.table["sources"]["copies"] = {**site.table["sources"]["pool"]}
    site.reopen()
    end = make_job(1).end or 0
    first, second, last = (batch(1, record_id=f"ur/{ago}", end=end - ago, submit=None) for ago in (60, 40, 20))
    copy = batch(1, system="auditor", record_id="copy", end=last.end, start=last.start, local_user=None)
    read = [("ce", element(1)), ("copies", copy), *(("pool", run) for run in (first, second, last))]
    chance.shuffle(read)
    for source, job in read:
        given(site, source, job)
        if not chance.randrange(3):
            site.publish("sgas")
    site.publish()
    for name in ("car", "sums"):
        expected = {element(1).record_id, first.record_id, second.record_id}
        assert site.in_state(name, State.ACCEPTED) == expected, name
    assert site.receivers["sums"].total()[0] == 3  # type: ignore[attr-defined]
    assert len(site.receivers["sgas"].held) >= 3
    site.assert_counters_right()


def test_what_may_be_forged_takes_the_place_of_no_run(site: Site) -> None:
    forged = element(1)
    given(site, "ce", forged)
    given(site, "pool", batch(1))
    assert site.in_state("sgas", State.WAIVED) == {batch(1).record_id}
    site.sources["ce"].add(Unreadable("log", 1, 0, "a user may have written it", b"", given=forged))
    site.collect("ce")
    assert site.states("sgas") == {forged.record_id: State.HELD, batch(1).record_id: State.WAITING}
    site.publisher.retry(State.HELD, "sgas", [forged.record_id])
    assert site.states("sgas") == {forged.record_id: State.WAITING, batch(1).record_id: State.WAIVED}


def test_a_damaged_run_stops_no_other(site: Site) -> None:
    given(site, "ce", element(1))
    with closing(sqlite3.connect(site.store_file)) as connection, connection:
        connection.execute("UPDATE runs SET digest = x'00'")
    given(site, "pool", batch(1))
    site.publish("sgas")
    assert set(site.receivers["sgas"].held) == {batch(1).record_id}


def test_processes_of_a_cluster_are_not_compared(site: Site) -> None:
    """A cluster may have a hundred thousand: to compare all with all would stop the collection."""
    common = {"system": "htcondor", "global_id": None}
    given(site, "ce", *(element(number, local_id=f"7.{number}", **common) for number in range(1, 10)))
    with site.publisher.store.read() as connection:
        matches = same_jobs.of_other_sources(connection, 0, ["7.0", "7.3"])
    assert [match.local_id for match in matches] == ["7.3"]


@pytest.mark.parametrize("schedule", range(short_or_whole(10, 200)))
def test_schedules(tmp_path: Path, schedule: int) -> None:
    """Both sources deliver in any order, runs change, services fail, the power fails at any event."""
    chance = random.Random(schedule)
    site = site_in(tmp_path)
    numbers: set[int] = set()

    def delivers(source: str, make: Callable[..., Job]) -> None:
        number = chance.randint(1, JOBS)
        numbers.add(number)
        site.sources[source].add(make(number, cores=chance.choice((1, 1, 8))))

    def fails() -> None:
        receiver = site.receivers[chance.choice((*RECORDS, "sums"))]
        if chance.random() < 0.5:
            receiver.fault = once(chance.choice((Transient("HTTP 503"), Unknown("cut"))))
        else:
            answers = [Unknown("cut")]

            def cut(_message: Any, accepted: Accepted) -> Any:
                return answers.pop() if answers else accepted

            receiver.answer = cut

    def dies(action: Callable[[], object]) -> None:
        site.killed_at(chance.randint(0, 8), action)

    steps: tuple[Callable[[], object], ...] = (
        lambda: delivers("ce", element), lambda: delivers("pool", batch), fails,
        lambda: site.collect(chance.choice(("ce", "pool"))), site.publish,
        lambda: dies(site.collect), lambda: dies(lambda: site.publish(chance.choice((*RECORDS, "sums")))),
    )  # fmt: skip
    for _ in range(30):
        chance.choice(steps)()
    for name in site.receivers:
        site.receivers[name].fault = lambda _message: None
        site.receivers[name].answer = lambda _message, accepted: accepted
    site.collect()
    site.now += 90_000
    site.publish()
    site.now += 90_000
    site.publish()
    assert_counted_once(site, numbers)
