"""Random histories of a service whose disk fills and is freed, with bad records among the good: no good record is
rejected.

SGAS answers 500 to bad data and when its disk is full; records that it has it ignores, with a good answer. If the disk
fills twice within one run, both times exactly when the same record is tried alone, this cannot be distinguished from a
bad record; in all other cases it can, and every history here is such a case: the disk fills at most once in a run, at
any moment, for any time, also into the next run.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from publisher.store.schema import State
from publisher.targets.base import Message, Outcome, Refused
from tests.extent import short_or_whole
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

FULL = Refused("HTTP 500: Processing Failed (disk)", certain=False)
RUNS = 4
WINDOW = (NOVEMBER, NOVEMBER + 30 * 86_400)


class Disk(RecordReceiver):
    """SGAS with a disk that is full during some of its posts: what is new is refused then."""

    def __init__(self) -> None:
        super().__init__("neic")
        self.full: range = range(0)
        """Full during these posts, counted from 1 in each run."""
        self._posts_of_run = 0
        self._lock = threading.Lock()

    def begin_run(self, full: range) -> None:
        self.full, self._posts_of_run = full, 0

    @property
    def is_full(self) -> bool:
        return self._posts_of_run in self.full

    def post(self, message: Message) -> Outcome:
        """Messages are handled one after the other."""
        with self._lock:
            self._posts_of_run += 1
            if self.is_full and set(message.record_ids) - self.held.keys():
                self.messages.append(message)
                return FULL
            return super().post(message)


class Life:
    """A site and its service for a few runs; all of it a function of the seed, but for the order of two workers."""

    def __init__(self, folder: Path, seed: int, workers: int) -> None:
        self.chance = random.Random(seed)
        random.seed(seed)
        self.service = Disk()
        self.source = ListSource("ce1")
        self.site = Site(folder, [self.source], [self.service])
        self.site.configure("neic", workers=workers, batch_records=self.chance.choice((3, 10, 25)))
        self.jobs = 0
        self.lost: set[str] = set()
        self.poison_share = self.chance.choice((0.0, 0.02, 0.1, 0.3, 0.9))

    def jobs_turn_up(self, count: int, poison_share: float) -> None:
        for _ in range(count):
            self.jobs += 1
            job = make_job(self.jobs)
            self.source.add(job)
            if self.chance.random() < poison_share:
                self.service.poison.add(job.record_id)
        self.site.collect()

    def disk(self) -> range:
        """When it is full in the next run, which it may be from the last on."""
        if self.service.is_full:
            return range(self.chance.choice((1, 4, 15, 60, 100_000)))
        begins = self.chance.randrange(1, self.chance.choice((5, 20, 80)))
        return range(begins, begins + self.chance.choice((0, 1, 2, 4, 8, 15, 30, 60, 100_000)))

    def assert_right(self) -> None:
        rejected = self.site.in_state("neic", State.REJECTED)
        assert rejected <= self.service.poison, "good records are rejected"
        assert self.site.in_state("neic", State.ACCEPTED) <= self.service.held.keys() | self.lost
        assert not self.service.poison & self.service.held.keys()

    def run(self, *, republish: bool = False) -> None:
        self.service.begin_run(self.disk())
        if republish:
            self.site.republish("neic", *WINDOW)
        else:
            self.site.publish()
        self.assert_right()

    def lose_some(self) -> None:
        """The service is restored from a backup that did not have all."""
        for record_id in self.chance.sample(sorted(self.service.held), len(self.service.held) // 3):
            del self.service.held[record_id]
            self.lost.add(record_id)

    def get_well(self) -> None:
        """The disk stays free, and new jobs turn up: then everything gets into its right state."""
        self.service.begin_run(range(0))
        self._runs_of_a_well_service()
        if self.lost:
            self.site.republish("neic", *WINDOW)
            self._runs_of_a_well_service()
        assert self.service.held.keys() == {make_job(n + 1).record_id for n in range(self.jobs)} - self.service.poison
        assert set(self.site.counted("neic")) <= {State.ACCEPTED, State.REJECTED}
        self.site.assert_counters_right()
        self.site.reopen()

    def _runs_of_a_well_service(self) -> None:
        """Few, but where nearly all is bad: each run tells of as much as it has good records to tell by."""
        for _ in range(3 if self.poison_share < 0.5 else 8):
            self.jobs_turn_up(2, 0.0)
            self.site.publish()
            self.assert_right()
        assert self.site.in_state("neic", State.REJECTED) == self.service.poison


def live(folder: Path, seed: int) -> None:
    """A few runs, the disk filling and freeing as it likes; then it is well."""
    life = Life(folder, seed, workers=1 + seed % 2)
    for _ in range(RUNS):
        life.jobs_turn_up(life.chance.choice((0, 1, 2, 5, 12, 40, 120)), life.poison_share)
        life.run()
    life.get_well()


def live_and_send_again(folder: Path, seed: int) -> None:
    """The same with windows sent again in between, of which the service may have lost some."""
    life = Life(folder, seed, workers=1 + seed % 2)
    life.jobs_turn_up(life.chance.choice((5, 12, 40, 120)), life.poison_share)
    loss = life.chance.randrange(2 * RUNS)
    for number in range(RUNS):
        if number == loss:
            life.lose_some()
        life.run(republish=life.chance.random() < 0.6)
        life.jobs_turn_up(life.chance.choice((0, 0, 1, 5, 12)), life.poison_share)
    life.get_well()


@pytest.mark.parametrize("seed", range(short_or_whole(4, 12)))
def test_a_disk_that_fills_and_frees_gets_no_good_record_rejected(tmp_path: Path, seed: int) -> None:
    live(tmp_path, seed)


@pytest.mark.parametrize("seed", range(short_or_whole(4, 12)))
def test_nor_while_a_window_is_sent_again(tmp_path: Path, seed: int) -> None:
    live_and_send_again(tmp_path, seed)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("lives", [live, live_and_send_again])
def test_many_lives_with_a_disk_that_fills_and_frees(tmp_path: Path, lives: object) -> None:
    assert callable(lives)
    for seed in range(1000, 3500):
        folder = tmp_path / str(seed)
        folder.mkdir()
        lives(folder, seed)
