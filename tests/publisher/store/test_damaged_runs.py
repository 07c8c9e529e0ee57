"""Damaged runs: only they are held; reading their source again replaces them; every run checks a part of the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from publisher.cli import exit_code
from publisher.errors import StoreCorruptError, StoreError
from publisher.sources.base import Window
from publisher.store import groups, registry
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import ListSource, Site, make_job, make_jobs

DAY = 86_400
EVERYTHING = Window(0, 2_000_000_000)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Five jobs that wait for a service of records that keeps the first version, and for one of summaries."""
    found = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas"), SummaryReceiver("sums")])
    found.sources["ce1"].add(*make_jobs(5))
    found.collect()
    return found


def damage(site: Site, column: str, value: str, number: int = 3) -> None:
    """Change a column past the program, as a disk does: no check number follows."""
    site.reopen()
    with closing(sqlite3.connect(site.store_file)) as connection:
        connection.execute(f"UPDATE runs SET {column} = {value} WHERE id = {number}")
        connection.commit()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("job", "CAST(substr(job, 1, 20) || x'00' || substr(job, 22) AS BLOB)"),
        ("job", "x'01ff00'"),
        ("digest", "x'00112233445566778899aabbccddeeff'"),
        ("class_id", "2"),
        ("stored_at", "stored_at + 4096"),
        ("record_id", "'ur-another'"),
        ("record_id", "CAST(x'f5' || substr(CAST(record_id AS BLOB), 2) AS TEXT)"),
        ("record_id", "CAST(record_id AS BLOB)"),
        ("job", "CAST(job AS TEXT)"),
        ("job", "CAST(x'13' || substr(job, 2) AS BLOB)"),
        ("digest", "CAST(digest AS TEXT)"),
    ],
)
def test_only_the_damaged_record_is_held_and_reading_its_source_again_replaces_it(
    site: Site, column: str, value: str
) -> None:
    if column == "class_id":
        site.sources["ce1"].add(make_job(6, vo="cms", status="aborted"))  # not sent: it only makes a class
        site.collect()
    damage(site, column, value)
    done = site.publish("sgas")
    third = make_job(3).record_id
    assert len(site.in_state("sgas", State.HELD)) == 1
    assert len(site.receivers["sgas"].held) == 4
    assert third not in site.receivers["sgas"].held
    assert exit_code.of_run((), done, site.publisher.status(), only=("sgas",)) == exit_code.REJECTED
    (reason,) = {reason for reason in site.reasons("sgas").values() if reason}
    assert "collect ce1 --since" in reason
    site.collect("ce1", window=EVERYTHING)
    site.publish("sgas")
    assert site.receivers["sgas"].held.keys() == {job.record_id for job in make_jobs(5)}
    assert site.receivers["sgas"].posted().count(make_job(1).record_id) == 1
    assert not site.in_state("sgas", State.HELD)
    assert {finding.level for finding in site.publisher.maintenance.check()} == {"green"}


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("column", ["record_key", "local_id", "global_key"])
def test_a_run_with_a_damaged_key_is_not_doubled_by_reading_its_source_again(
    site: Site, column: str, sent: bool
) -> None:
    if sent:
        site.publish()
    damage(site, column, "x'00112233445566778899aabbccddee'" if column != "local_id" else "'another'")
    assert "red" in {finding.level for finding in site.publisher.maintenance.check()}
    collected = site.collect("ce1", window=EVERYTHING)
    assert (collected["ce1"].new, collected["ce1"].unchanged) == (0, 5)
    site.publish()
    assert sorted(site.receivers["sgas"].posted()) == sorted(job.record_id for job in make_jobs(5))
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    assert sums.total() == (5, 500, 250)
    assert {finding.level for finding in site.publisher.maintenance.check()} == {"green"}


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("local_id", ["1003", None])
def test_a_run_with_a_damaged_key_is_replaced_by_any_collect_that_reads_it_again(
    site: Site, sent: bool, local_id: str | None
) -> None:
    """As where a window over a database overlaps the one before: nobody asked to read the source again."""
    site.sources["ce1"].add(make_job(6, local_id=local_id))
    site.collect()
    if sent:
        site.publish()
    damage(site, "record_key", "CAST(x'00' || substr(record_key, 2) AS BLOB)", number=6)
    site.sources["ce1"].add(make_job(6, local_id=local_id))
    collected = site.collect("ce1")
    assert (collected["ce1"].new, collected["ce1"].unchanged) == (0, 1)
    site.publish()
    assert len(site.receivers["sgas"].posted()) == 6
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    assert sums.total()[0] == 6
    assert {finding.level for finding in site.publisher.maintenance.check()} == {"green"}


def test_a_run_with_a_damaged_key_is_found_beside_one_whose_end_is_damaged(site: Site) -> None:
    """The greatest end, up to which damaged keys are looked for, is a text then, which is greater than all numbers."""
    damage(site, "record_key", "CAST(x'00' || substr(record_key, 2) AS BLOB)", number=4)
    damage(site, "end_time", "'x' || end_time", number=5)
    site.sources["ce1"].add(make_job(4), make_job(6))
    collected = site.collect("ce1")
    assert (collected["ce1"].new, collected["ce1"].unchanged) == (1, 1)


@pytest.mark.parametrize("column", ["wall_ms", "cpu_ms", "class_id", "incomplete_usage", "sums_check"])
def test_sums_are_not_made_of_damaged_columns(site: Site, column: str) -> None:
    expected = (5, 500, 250)
    if column == "class_id":
        site.sources["ce1"].add(make_job(6, vo="cms"))
        site.collect()
        expected = (6, 600, 300)
    damage(site, column, "2" if column == "class_id" else f"{column} + 1")
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    # such a run is summed from its record, which is sound; the sync count, which reads no record, is an error
    with pytest.raises(StoreCorruptError) if column == "incomplete_usage" else nullcontext():
        site.publish("sums")
    if column != "incomplete_usage":
        assert sums.total()[0] == expected[0] - 1
        assert len(site.in_state("sums", State.HELD)) == 1
    site.collect("ce1", window=EVERYTHING)
    site.publish("sums")
    assert sums.total() == expected
    assert not site.in_state("sums", State.HELD)


def test_a_month_whose_sent_jobs_are_damaged_is_held_and_does_not_shrink(site: Site) -> None:
    site.publish()
    damage(site, "wall_ms", "wall_ms + 65536")
    site.sources["ce1"].add(make_job(6))
    site.collect()
    site.publish()
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    assert sums.total()[0] == 5
    assert site.in_state("sums", State.HELD) == {make_job(6).record_id}
    site.collect("ce1", window=EVERYTHING)
    site.publish()
    assert sums.total() == (6, 600, 300)
    assert site.counted("sgas") == {State.ACCEPTED: 6}


@pytest.mark.parametrize("damaged", ["wall_ms = wall_ms + 65536", "incomplete_usage = 1, job = x'01ff00'"])
@pytest.mark.parametrize("assumed", [False, True])
def test_a_month_republished_with_damaged_jobs_does_not_shrink(site: Site, damaged: str, assumed: bool) -> None:
    """`assumed`: an earlier publisher sent the damaged job."""
    site.publish()
    damage(site, *damaged.split(" = ", 1))
    if assumed:
        site.reopen()
        with closing(sqlite3.connect(site.store_file)) as connection:
            connection.execute("UPDATE deliveries SET reason = 'assumed', sent_digest = NULL WHERE run_id = 3")
            connection.commit()
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    site.republish("sums", EVERYTHING.from_ or 0, 2_000_000_000)
    assert sums.total() == (5, 500, 250)
    assert len(site.in_state("sums", State.HELD)) == 5
    (reason,) = {reason for reason in site.reasons("sums").values() if reason}
    assert "collect" in reason
    site.sources["ce1"].add(make_job(6))
    site.collect()
    site.publish("sums")
    assert sums.total() == (5, 500, 250)
    site.collect("ce1", window=EVERYTHING)
    site.publish("sums")
    assert sums.total() == (6, 600, 300)
    assert not site.in_state("sums", State.HELD)


def test_a_job_that_vanished_from_its_month_is_noticed(site: Site) -> None:
    site.publish()
    damage(site, "end_time", "end_time + 1073741824")
    site.sources["ce1"].add(make_job(6))
    site.collect()
    with pytest.raises(StoreCorruptError):
        site.publish("sums")
    assert site.receivers["sums"].posts == 2  # the summary and the sync counts of before
    site.collect("ce1", window=EVERYTHING)
    site.publish("sums")
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    assert sums.total() == (6, 600, 300)


def test_what_the_service_has_is_not_superseded_by_reading_it_again(site: Site) -> None:
    site.publish()
    damage(site, "digest", "x'00112233445566778899aabbccddeeff'")
    site.collect("ce1", window=EVERYTHING)
    assert site.counted("sgas") == {State.ACCEPTED: 5}
    site.publish()
    assert site.receivers["sgas"].posts == 1


def test_each_run_checks_a_part_of_the_store_and_all_of_it_in_a_month(site: Site) -> None:
    site.publisher.run()
    damage(site, "job", "x'01ff00'", 4)
    site.now += 27 * DAY
    checked = site.publisher.run().checked
    assert checked is not None
    assert len(checked.new) == 1
    assert make_job(4).record_id in checked.new[0]
    assert site.publisher.status().damaged_jobs == 1
    assert [finding.level for finding in site.publisher.check() if "1 damaged job" in finding.message] == ["red"]
    site.now += 60
    checked = site.publisher.run().checked
    assert checked is not None
    assert (checked.new, checked.damaged_runs) == ([], 1)
    site.collect("ce1", window=EVERYTHING)
    checked = site.publisher.run().checked
    assert checked is not None
    assert (checked.new, checked.damaged_runs) == ([], 0)
    assert site.publisher.status().damaged_jobs == 0


def damage_state(site: Site, number: int, state: int, *, of_index: bool = False) -> None:
    """Change the state of a delivery to the first target in its row alone, or in the index over open ones alone."""
    site.reopen()
    with closing(sqlite3.connect(site.store_file)) as connection:
        where = "type = 'index' AND name LIKE 'deliveries!_%' ESCAPE '!'"
        (before,) = connection.execute(_STATE, (number,)).fetchone()
        if of_index:
            connection.execute(f"UPDATE deliveries SET state = {int(state)} WHERE target_id = 1 AND run_id = {number}")
        connection.commit()
        connection.execute("PRAGMA writable_schema = ON")
        indexes = connection.execute(f"SELECT * FROM sqlite_schema WHERE {where}").fetchall()
        connection.execute(f"DELETE FROM sqlite_schema WHERE {where}")
        connection.commit()
    with closing(sqlite3.connect(site.store_file)) as connection:
        changed = before if of_index else int(state)
        connection.execute(f"UPDATE deliveries SET state = {changed} WHERE target_id = 1 AND run_id = {number}")
        connection.commit()
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", indexes)
        connection.commit()


_STATE = "SELECT state FROM deliveries WHERE target_id = 1 AND run_id = ?"


@pytest.mark.parametrize("service", [RecordReceiver, SummaryReceiver])
@pytest.mark.parametrize("of_index", [False, True])
@pytest.mark.parametrize("state", [State.IN_FLIGHT, State.ACCEPTED, State.HELD, State.SUPERSEDED])
def test_no_delivery_that_waits_is_left_out_without_an_error(
    tmp_path: Path, service: type[RecordReceiver], of_index: bool, state: State
) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [service("service")])
    site.sources["ce1"].add(*make_jobs(5))
    site.collect()
    damage_state(site, 3, state, of_index=of_index)
    with pytest.raises(StoreCorruptError):
        site.publish()
    assert "red" in {finding.level for finding in site.publisher.maintenance.check()}


@pytest.mark.parametrize("state", [State.IN_FLIGHT, State.HELD, State.SUPERSEDED, 11])
def test_no_accepted_job_is_left_out_of_its_month_without_an_error(tmp_path: Path, state: int) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [SummaryReceiver("sums")])
    site.sources["ce1"].add(*make_jobs(5))
    site.collect()
    site.publish()
    before = site.receivers["sums"].posts
    damage_state(site, 3, state)
    site.sources["ce1"].add(make_job(6))
    site.collect()
    with pytest.raises(StoreCorruptError):
        site.publish()
    assert site.receivers["sums"].posts == before


def test_what_a_run_did_is_told_though_the_store_cannot_be_checked(site: Site) -> None:
    damage(site, "id", "id")  # nothing: it closes the store
    with closing(sqlite3.connect(site.store_file)) as connection:
        connection.execute("DROP TABLE check_progress")
        connection.commit()
    done = site.publisher.run()
    assert done.targets["sgas"].sent.accepted == 5
    assert done.checked is not None
    assert isinstance(done.checked.problem, StoreError)


def test_how_far_the_store_was_checked_is_made_anew_if_it_cannot_be_read(site: Site) -> None:
    """And said once: what was found damaged before is found again."""
    damage(site, "job", "x'01ff00'")
    site.publisher.run()
    site.reopen()
    with closing(sqlite3.connect(site.store_file)) as connection:
        assert connection.execute("UPDATE check_progress SET damaged = '[3'").rowcount == 1
        connection.commit()
    red = {finding.subject for finding in site.publisher.maintenance.check() if finding.level == "red"}
    assert red == {"runs", "columns"}
    assert site.publisher.status().damaged_jobs == 0
    done = site.publisher.run()
    assert done.checked is not None
    assert (done.checked.problem, done.checked.damaged_runs) == (None, 1)
    assert "begins anew" in done.checked.new[0]
    assert site.publisher.status().damaged_jobs == 1
    later = site.publisher.run()
    assert later.checked is not None
    assert not [text for text in later.checked.new if "anew" in text]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM classes WHERE id = 1",
        "UPDATE classes SET digest = CAST(digest AS TEXT)",
        "UPDATE classes SET facts = 7",
    ],
)
def test_no_job_is_left_out_of_its_month_because_its_class_is_lost(site: Site, change: str) -> None:
    site.publish()
    sums = site.receivers["sums"]
    posts = sums.posts
    site.sources["ce1"].add(make_job(6, vo="cms"))
    site.collect()
    damage(site, "id", "id")
    with closing(sqlite3.connect(site.store_file)) as connection:
        connection.execute(change)
        connection.commit()
    with pytest.raises(StoreCorruptError):
        site.publish("sums")
    assert sums.posts == posts


def test_a_sync_count_that_cannot_be_made_is_an_error_and_not_left_out_in_silence(site: Site) -> None:
    site.publish()
    damage(site, "cpu_ms", "cpu_ms + 1")
    with site.publisher.store.write() as connection:
        target = registry.get_target(connection, "sums")
        assert target is not None
        groups.mark_due(connection, target.id, groups.DueFor.SYNC, {make_job(3).end or 0})
    with pytest.raises(StoreCorruptError, match="sync counts are not sent"):
        site.publish("sums")
    site.collect("ce1", window=EVERYTHING)
    site.publish("sums")
