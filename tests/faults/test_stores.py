"""What can happen to the store, the clock and two runs at once: a run that cannot write its state sends nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from publisher.errors import StoreBusyError, StoreCorruptError, StoreError, StoreFullError
from publisher.simulator import Fault, Simulator
from publisher.store.dialect import require_room
from publisher.store.schema import State
from tests.faults.full_disk import SmallDisk, every_connection, full_when, may_mount, pages_of
from tests.faults.guarantees import Guarantees
from tests.faults.simulated_site import BATCH, JOBS, FaultySite
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import ListSource, Site, make_jobs

MIDWAY = 4


def test_the_disk_is_full_while_collecting(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator)
    site.reopen()
    with every_connection(f"PRAGMA max_page_count = {pages_of(site.store_file) + 4}"):
        with pytest.raises(StoreFullError):
            site.collect()
        site.reopen()
        first = site.run()
    assert simulator.sgas.stats()["posts"] == 0, "a run that cannot write its state sends nothing"
    known = site.rows("SELECT count(*) FROM runs")[0][0]
    assert 0 < known < JOBS, "whole pages are there, or not at all"
    site.reopen()
    again = site.run()
    found = site.balance()
    words = f"nothing is sent, exit {first.code}; then {again.words}"
    guarantees.row("disk full at collect", words, len(found.lost), len(found.twice))
    assert (again.code, site.everything_arrived(), found.twice) == (0, True, frozenset())


def test_the_disk_is_full_midway(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    """The limit of SQLite holds for pages; batches and receipts take them up one by one."""
    site = FaultySite(tmp_path, simulator)
    site.collect()
    site.reopen()
    with every_connection(f"PRAGMA max_page_count = {pages_of(site.store_file) + 1}"):
        first = site.run()
        site.reopen()
    taken = len(simulator.sgas.holdings())
    assert first.code == 5
    assert 0 < taken < JOBS
    again = site.run()
    found = site.balance()
    words = f"what was sent is recorded, nothing more is sent, exit {first.code}; then the rest"
    guarantees.row("disk full", words, len(found.lost), len(found.twice))
    assert (again.code, site.everything_arrived()) == (0, True)
    assert len(found.twice) <= BATCH


@pytest.mark.parametrize("workers", [1, 3])
def test_the_disk_fills_while_a_message_is_on_its_way(
    tmp_path: Path, simulator: Simulator, guarantees: Guarantees, workers: int
) -> None:
    """The service takes the message, and that cannot be recorded: it comes again, with the same ids."""
    site = FaultySite(tmp_path, simulator, workers=workers)
    site.collect()
    with full_when(site, MIDWAY + 1):
        with pytest.raises(StoreFullError):
            site.publish()
        site.reopen()
    on_their_way = len(simulator.sgas.holdings()) - MIDWAY * BATCH
    # Of the messages in flight, those of the other workers may still be in their connections when the disk is full.
    assert (1 - workers) * BATCH <= on_their_way <= workers * BATCH
    again = site.run()
    found = site.balance()
    assert (again.code, site.everything_arrived(), found.lost) == (0, True, frozenset())
    assert len(found.twice) <= workers * BATCH, "no more than was on its way"
    if workers == 1:
        words = f"exit 5; then {again.words}"
        guarantees.row("disk full on the way", words, len(found.lost), len(found.twice))
        assert len(found.twice) == on_their_way == BATCH


def test_a_file_system_that_does_not_know_its_size_is_taken_to_have_room() -> None:
    assert os.statvfs("/proc").f_blocks == 0
    require_room(create_engine("sqlite:////proc/store.db"), 1 << 60)


def test_the_store_cannot_be_written(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator)
    site.collect()
    site.reopen()
    with every_connection("PRAGMA query_only = ON"):
        with pytest.raises(StoreError) as refused:
            site.publish()
        assert "cannot be written" in str(refused.value)
        site.reopen()
        first = site.run()
    assert simulator.sgas.stats()["posts"] == 0
    again = site.run()
    found = site.balance()
    words = f"{first.words}: nothing is sent; then {again.words}"
    guarantees.row("read-only", words, len(found.lost), len(found.twice))
    assert (first.code, again.code, site.everything_arrived(), found.twice) == (5, 0, True, frozenset())


def test_the_store_is_locked(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator)
    site.table["store"]["busy_timeout"] = 0.2
    site.collect()
    with closing(sqlite3.connect(site.store_file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError):
            site.publish()
        first = site.run()
    assert simulator.sgas.stats()["posts"] == 0
    again = site.run()
    found = site.balance()
    words = f"{first.words}: nothing is sent; then {again.words}"
    guarantees.row("locked", words, len(found.lost), len(found.twice))
    assert (first.code, again.code, site.everything_arrived(), found.twice) == (5, 0, True, frozenset())


def test_the_store_is_damaged_and_an_older_copy_put_in_its_place(
    tmp_path: Path, simulator: Simulator, guarantees: Guarantees
) -> None:
    site = FaultySite(tmp_path, simulator)
    site.collect()
    site.befall(Fault("status", code=503, skip=2))
    site.run()
    site.reopen()
    shutil.copy(site.store_file, tmp_path / "backup.db")
    site.befall(Fault("status", code=503, skip=1))
    site.run()
    site.reopen()
    size = site.store_file.stat().st_size
    with site.store_file.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * (size - 100))
    site.befall()
    posts = simulator.sgas.stats()["posts"]
    with pytest.raises(StoreCorruptError):
        site.publish()
    assert simulator.sgas.stats()["posts"] == posts
    site.reopen()
    for file in tmp_path.glob("store.db-*"):
        file.unlink()
    shutil.copy(tmp_path / "backup.db", site.store_file)
    posts = simulator.sgas.stats()["posts"]
    refused = site.run()
    assert simulator.sgas.stats()["posts"] == posts
    assert "was restored from an earlier state" in refused.said
    assert site.publisher.maintenance.accept_restored() is not None
    again = site.run()
    found = site.balance()
    words = (
        f"exit 5, nothing is sent. With a copy that lacks the last batch: exit {refused.code}, nothing is sent; "
        f"after `store accept-restored` {again.words}"
    )
    guarantees.row("corrupt", words, len(found.lost), len(found.twice))
    assert (again.code, site.everything_arrived()) == (0, True)
    assert len(found.twice) == BATCH


def test_the_clock_jumps_back_a_day(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator)

    def jump() -> None:
        site.now -= 86_400

    with site.at_batch(MIDWAY, jump):
        first = site.run()
    again = site.run()
    found = site.balance()
    words = f"{first.words}; then {again.words}"
    guarantees.row("clock", words, len(found.lost), len(found.twice))
    assert (first.code, again.accepted, site.everything_arrived(), found.twice) == (0, 0, True, frozenset())


def test_two_runs_at_the_same_time(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator)
    site.collect()
    other = FaultySite.beside(site)
    codes: list[int] = []

    def run_beside() -> None:
        codes.append(other.run().code)

    def begin() -> None:
        thread = threading.Thread(target=run_beside)
        thread.start()
        thread.join()

    with site.at_batch(1, begin):
        first = site.run()
    found = site.balance()
    words = f"one: {first.words}; the other reports a run at work, exit {codes[0]}"
    guarantees.row("overlap", words, len(found.lost), len(found.twice))
    assert (first.code, codes, site.everything_arrived(), found.twice) == (0, [0], True, frozenset())


# --- where the machine lets us mount a file system: the same with a real one that is full, or read-only


if may_mount():

    @pytest.mark.parametrize(
        "service", [RecordReceiver("neic"), RecordReceiver("apel", "ams"), SummaryReceiver("sums")]
    )
    def test_nothing_leaves_without_room_to_record_what_becomes_of_it(
        small_disk: SmallDisk, service: RecordReceiver
    ) -> None:
        source = ListSource("ce1")
        source.add(*make_jobs(5))
        site = Site(small_disk.path, [source], [service])
        site.collect()
        small_disk.fill(20 * 4096)
        with pytest.raises(StoreFullError, match=r"has \d\d,\d{3} bytes of free disk space; \d{3},\d{3} are needed"):
            site.publish()
        assert service.posts == 0
        small_disk.make_room()
        assert site.publish_to(service.name).sent.accepted == 5
        site.reopen()

    @pytest.mark.parametrize("workers", [1, 3])
    @pytest.mark.parametrize("room_kib", [0, 56, 96, 136, 200, 256, 304, 400, 600])
    def test_a_small_disk_is_full(simulator: Simulator, small_disk: SmallDisk, workers: int, room_kib: int) -> None:
        """Wherever the room ends: no message leaves without room for what becomes of it, so that none comes twice."""
        site = FaultySite(small_disk.path, simulator, workers=workers)
        site.collect()
        site.reopen()
        small_disk.fill(room_kib * 1024)
        with pytest.raises(StoreError):
            site.publish()
        assert len(simulator.sgas.holdings()) < JOBS
        site.reopen()
        small_disk.make_room()
        assert site.run().code == 0
        assert site.everything_arrived()
        found = site.balance()
        assert (found.lost, found.twice) == (frozenset(), frozenset())
        site.reopen()

    def test_a_disk_is_read_only(simulator: Simulator, small_disk: SmallDisk) -> None:
        site = FaultySite(small_disk.path, simulator)
        site.collect()
        site.reopen()
        small_disk.remount("ro")
        with pytest.raises(StoreError):
            site.publish()
        assert simulator.sgas.stats()["posts"] == 0
        site.reopen()
        small_disk.remount("rw")
        assert site.run().code == 0
        assert site.everything_arrived()
        assert not site.in_state("neic", State.WAITING)
        site.reopen()
