"""Several publishers on one target, over a store on PostgreSQL: a large backlog is shared, a small one is not."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

import pytest

from publisher.cli import exit_code
from publisher.errors import StoreRestoredError
from publisher.events import BatchInFlight, Event
from publisher.publish.publish import Delivery
from publisher.store.schema import State
from publisher.targets.base import Message, Outcome
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_jobs, stores_on
from tests.publisher.store.server import PostgresqlServer

JOBS, BATCH, PUBLISHERS = 400, 5, 4


class Crowded(RecordReceiver):
    """A service that answers the first messages only when this number of senders has come, and records who sent
    what."""

    def __init__(self, together: int) -> None:
        super().__init__("neic", "ams")
        self.senders: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._gate = threading.Barrier(together)

    def post(self, message: Message) -> Outcome:
        """Meet the others once, then store."""
        sender = threading.get_ident()
        with self._lock:
            self.senders[sender] += 1
            first = self.senders[sender] == 1
        if first:
            self._gate.wait(60)
        with self._lock:
            return super().post(message)


@pytest.fixture(autouse=True)
def _on_postgresql(postgresql: PostgresqlServer) -> Iterator[None]:
    with stores_on(postgresql):
        yield


def site_of(folder: Path, service: RecordReceiver, jobs: int = JOBS) -> Site:
    source = ListSource("ce1")
    source.add(*make_jobs(jobs))
    site = Site(folder, [source], [service])
    site.configure("neic", publishers=PUBLISHERS, batch_records=BATCH)
    site.collect()
    return site


def publish_beside(site: Site, count: int) -> list[Delivery]:
    """Several publishers, each with its own connection, at the same time."""

    def publish(_number: int) -> Delivery:
        with site.another_publisher() as publisher:
            return publisher.publish()["neic"]

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(publish, range(count)))


@pytest.mark.parametrize("count", [2, PUBLISHERS])
def test_publishers_share_a_large_backlog_and_none_sends_what_another_sent(tmp_path: Path, count: int) -> None:
    service = Crowded(count)
    site = site_of(tmp_path, service)
    done = publish_beside(site, count)
    assert [each.error for each in done] == [None] * count
    assert sorted(service.posted()) == sorted(job.record_id for job in make_jobs(JOBS))
    assert len(service.senders) == count
    assert sum(each.sent.accepted for each in done) == JOBS
    assert min(each.sent.accepted for each in done) >= JOBS // PUBLISHERS
    assert site.counted("neic") == {State.ACCEPTED: JOBS}
    site.assert_counters_right()
    assert site.rows("SELECT count(*) FROM batches WHERE state = 1") == [(0,)]


def test_a_small_backlog_is_one_publishers_and_is_not_cut_up(tmp_path: Path) -> None:
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service, jobs=PUBLISHERS * BATCH)
    assert site.publish_to("neic").sent.batches == PUBLISHERS
    assert service.posted() == [job.record_id for job in make_jobs(PUBLISHERS * BATCH)]


def test_alone_a_publisher_sends_every_part(tmp_path: Path) -> None:
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service)
    assert site.publish_to("neic").sent.accepted == JOBS
    assert site.counted("neic") == {State.ACCEPTED: JOBS}
    assert len(service.posted()) == JOBS


def test_a_target_that_is_locked_whole_is_not_shared(tmp_path: Path) -> None:
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service)
    with site.publisher.store.lock("target-neic") as held:
        assert held
        with site.another_publisher() as other:
            assert other.publish()["neic"].busy
    assert not service.posted()


def test_a_part_whose_publisher_died_is_taken_over_at_once(tmp_path: Path) -> None:
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service)
    seen = 0

    def count(event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, BatchInFlight)

    site.watch = count
    assert site.killed_at(20, site.publish)
    site.watch = lambda _event: None
    assert len(site.in_state("neic", State.IN_FLIGHT)) <= BATCH
    (done,) = publish_beside(site, 1)
    assert done.error is None
    assert len(service.posted()) - JOBS <= BATCH
    assert len(service.held) == JOBS
    assert site.counted("neic") == {State.ACCEPTED: JOBS}


def test_batches_that_never_left_are_closed(tmp_path: Path) -> None:
    """They are recorded as in flight, and then the mark of what was sent cannot be written."""
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service)
    file = tmp_path / "store.db.sent"

    def take_over(_message: Message) -> None:
        file.write_bytes(file.read_bytes().replace(site.rows("SELECT store FROM sent_mark")[0][0].encode(), b"0" * 16))

    service.fault = take_over
    with pytest.raises(StoreRestoredError):
        site.publish()
    assert service.posts == 1
    assert site.counted("neic") == {State.ACCEPTED: BATCH, State.WAITING: JOBS - BATCH}
    assert site.rows("SELECT count(*) FROM batches WHERE state = 1") == [(0,)]


def test_parts_of_a_batch_that_are_sent_again_separately_have_other_ids(tmp_path: Path) -> None:
    """Under one id the second would replace the first in a directory, or be taken for the first (Idempotency-Key)."""
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service, jobs=PUBLISHERS * BATCH)

    assert site.killed_at(2, site.publish)
    assert len(site.in_state("neic", State.IN_FLIGHT)) == BATCH
    site.sources["ce1"].add(*make_jobs(JOBS))
    site.collect()
    assert site.publish_to("neic").error is None
    assert site.counted("neic") == {State.ACCEPTED: JOBS}
    contents: dict[str, set[tuple[str, ...]]] = {}
    for message in service.messages:
        contents.setdefault(message.batch_id, set()).add(message.record_ids)
    assert max(map(len, contents.values())) == 1


def test_what_one_has_in_flight_is_not_touched_by_another(tmp_path: Path) -> None:
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service)
    looked: list[set[str]] = []
    beside: list[Delivery] = []

    def let_another_run(_message: Message) -> Outcome | None:
        if not looked:
            looked.append(site.in_state("neic", State.IN_FLIGHT))
            service.fault = lambda _again: None
            with site.another_publisher() as other:
                beside.append(other.publish()["neic"])
        return None

    service.fault = let_another_run
    assert site.publish_to("neic").error is None
    assert beside[0].sent.accepted > 0
    assert len(service.posted()) == JOBS
    assert site.counted("neic") == {State.ACCEPTED: JOBS}
    site.assert_counters_right()


def run_beside(site: Site, service: RecordReceiver, left: int) -> tuple[Delivery, int]:
    """Run another publisher when this number of jobs is left to send; return the exit code of its command."""
    beside: list[tuple[Delivery, int]] = []

    def let_another_run(_message: Message) -> Outcome | None:
        if not beside and len(service.held) >= JOBS - left:
            service.fault = lambda _again: None
            with site.another_publisher() as other:
                delivered = other.publish()
                beside.append((delivered["neic"], exit_code.of_run((), delivered, other.status())))
        return None

    service.fault = let_another_run
    assert site.publish_to("neic").error is None
    return beside[0]


def test_a_publisher_that_is_done_while_others_still_send_has_not_failed(tmp_path: Path) -> None:
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service)
    delivery, code = run_beside(site, service, left=JOBS - BATCH)
    assert delivery.shared
    assert delivery.sent.accepted > 0
    assert code == exit_code.DONE
    assert site.counted("neic") == {State.ACCEPTED: JOBS}


@pytest.mark.parametrize("left", [150, 30])
def test_a_late_publisher_sends_the_parts_that_no_other_sends(tmp_path: Path, left: int) -> None:
    """What is left would not be cut up any more."""
    assert left < PUBLISHERS * BATCH * 10
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service)
    delivery, code = run_beside(site, service, left)
    assert not delivery.busy
    assert delivery.shared
    assert code == exit_code.DONE
    assert (delivery.sent.accepted > 0) == (left > JOBS // PUBLISHERS), "the last part has its publisher"
    assert len(service.posted()) == JOBS
    assert site.counted("neic") == {State.ACCEPTED: JOBS}
    site.assert_counters_right()


def test_hosts_that_cut_the_backlog_differently_do_not_share_it(tmp_path: Path) -> None:
    """Their parts would overlap: what one has in flight would be sent by the other as well."""
    service = RecordReceiver("neic", "ams")
    site = site_of(tmp_path, service)
    other = Site.beside(site)
    other.table = deepcopy(site.table)
    other.configure("neic", publishers=PUBLISHERS // 2, batch_records=BATCH)
    beside: list[Delivery] = []

    def let_the_other_run(_message: Message) -> Outcome | None:
        if not beside:
            service.fault = lambda _again: None
            with other.another_publisher() as publisher:
                beside.append(publisher.publish()["neic"])
        return None

    service.fault = let_the_other_run
    assert site.publish_to("neic").error is None
    assert beside[0].busy
    assert sorted(service.posted()) == sorted(job.record_id for job in make_jobs(JOBS))
    assert site.counted("neic") == {State.ACCEPTED: JOBS}
    site.assert_counters_right()
