"""Suspect jobs: in no target, summary, or report until somebody accepts them; gone once they are settled."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from formats.job import Job
from publisher.errors import UsageError
from publisher.report.request import ReportRequest
from publisher.sources.base import Recovered, Unreadable
from publisher.store import unreadable_input
from publisher.store.schema import State
from publisher.store.suspects import ALL_PIECES, PieceFilter
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs


def suspect(job: Job, line: int) -> Unreadable:
    return Unreadable("accounting", line, line * 100, "may be text of a user", b"a line", suspect=job)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    source = ListSource("ce1")
    source.add(*make_jobs(3), suspect(make_job(7), 4), suspect(make_job(8), 5))
    return Site(tmp_path, [source], [RecordReceiver("sgas")])


def piece_of(site: Site, number: int) -> int:
    rows = site.publisher.unreadable()
    jobs = site.publisher.maintenance.suspects([row.id for row in rows])
    return next(piece for piece, job in jobs.items() if job.local_id == str(number))


def test_a_suspect_job_is_shown_and_counted_nowhere(site: Site) -> None:
    done = site.collect()["ce1"]
    assert (done.new, done.unreadable, done.suspect) == (3, 2, 2)
    site.publish()
    assert site.counted("sgas")[State.ACCEPTED] == 3
    status = site.publisher.status()
    assert (status.sources["ce1"].suspect, status.complete, status.delivered) == (2, True, False)
    assert [(row.line, row.is_suspect) for row in site.publisher.unreadable()] == [(5, True), (4, True)]
    report = site.publisher.view("totals", ReportRequest(start=NOVEMBER, stop=NOVEMBER + 86_400))
    assert any("2 suspect jobs" in note for note in report.notes)


def test_one_command_accepts_many_and_they_are_sent(site: Site) -> None:
    site.collect()
    site.publish()
    (done,) = site.publisher.maintenance.accept_suspects((), ALL_PIECES, "their users confirmed them").values()
    assert (done.stored, done.left) == (2, 0)
    assert site.counted("sgas")[State.WAITING] == 2
    site.publish()
    assert site.counted("sgas")[State.ACCEPTED] == 5
    assert site.publisher.unreadable() == []
    assert site.publisher.count_unreadable() == 0
    site.assert_counters_right()
    assert site.rows("SELECT action, detail FROM audit ORDER BY id DESC LIMIT 1") == [
        ("accept suspects", "2 suspect jobs: their users confirmed them")
    ]


def test_suspects_take_no_place_of_input_whose_text_is_needed(site: Site) -> None:
    items = [suspect(make_job(100 + line), line) for line in range(10, 10 + unreadable_input.KEPT_OF_FILE)]
    items += [Unreadable("accounting", line, line * 100, "is damaged", b"its text") for line in range(5_000, 5_003)]
    site.collect()
    with site.publisher.store.write() as connection:
        for part in (items[:-2], items[-2:]):
            assert unreadable_input.keep_unreadable(connection, 1, part, NOVEMBER) == len(part)
    assert [row.raw for row in site.publisher.unreadable(3)] == [b"its text"] * 3


@pytest.mark.parametrize("names", [(), ("ce1",)])
def test_a_piece_that_is_not_listed_is_named_and_nothing_is_decided(site: Site, names: tuple[str, ...]) -> None:
    site.collect()
    known = piece_of(site, 8)
    with pytest.raises(UsageError, match="piece 999 "):
        site.publisher.maintenance.accept_suspects(names, PieceFilter((known, 999)), "confirmed")
    with pytest.raises(UsageError, match="piece 999 "):
        site.publisher.settle_unreadable("done", names, PieceFilter((known, 999)))
    assert len(site.publisher.unreadable()) == 2


def test_forged_jobs_are_settled_and_the_others_accepted(site: Site) -> None:
    site.collect()
    site.publisher.settle_unreadable("made by a user", chosen=PieceFilter([piece_of(site, 8)]))
    site.publisher.maintenance.accept_suspects(["ce1"], ALL_PIECES, "the neighbours")
    assert set(site.states("sgas")) == {make_job(number).record_id for number in (1, 2, 3, 7)}


def test_without_a_choice_no_suspect_job_is_settled(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(suspect(make_job(1), 10), Unreadable("accounting", 11, 110, "is damaged", b"its text"))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.collect()
    assert [row.line for row in site.publisher.settle_unreadable("mended")] == [11]
    assert (site.publisher.settle_unreadable("again"), site.publisher.maintenance.count_suspects()) == ([], 1)
    assert [row.line for row in site.publisher.settle_unreadable("forged", (), PieceFilter(lines=(1, 99)))] == [10]
    (detail,) = site.rows("SELECT detail FROM audit ORDER BY id DESC LIMIT 1")[0]
    assert "1 suspect job discarded: forged" in detail


def test_only_the_named_piece_is_accepted(site: Site) -> None:
    site.collect()
    site.publisher.maintenance.accept_suspects((), PieceFilter([piece_of(site, 7)]), "seen in the queue")
    assert site.publisher.status().sources["ce1"].suspect == 1


def test_all_but_the_forged_one_are_accepted_by_a_filter(tmp_path: Path) -> None:
    source = ListSource("ce1")
    jobs = [msgspec.structs.replace(make_job(number), local_user="ada" if number % 2 else "bob") for number in range(9)]
    source.add(*(suspect(job, line) for line, job in enumerate(jobs, 10)))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.collect()
    accept = site.publisher.maintenance.accept_suspects
    (done,) = accept((), PieceFilter(user="bob", lines=(10, 13)), "right").values()
    assert (done.stored, set(site.states("sgas"))) == (2, {jobs[0].record_id, jobs[2].record_id})
    assert accept((), PieceFilter(user="nobody"), "right") == {}
    assert [row.line for row in site.publisher.settle_unreadable("forged", (), PieceFilter(lines=(18, 18)))] == [18]
    assert {row.line for row in site.publisher.settle_unreadable("forged", (), PieceFilter(user="bob"))} == {14, 16}
    (done,) = accept((), ALL_PIECES, "right").values()
    assert (done.stored, site.publisher.unreadable()) == (4, [])


def test_more_than_a_page_of_suspects_is_accepted(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(*(suspect(job, line) for line, job in enumerate(make_jobs(1_200), 1)))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.collect()
    (done,) = site.publisher.maintenance.accept_suspects((), ALL_PIECES, "right").values()
    assert (done.stored, done.left, site.publisher.count_unreadable()) == (1_200, 0, 0)
    site.assert_counters_right()


def test_of_two_suspect_versions_of_a_job_neither_is_accepted_with_all(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(suspect(make_job(7), 4), suspect(make_job(7, wall_s=99_000), 5), suspect(make_job(8), 6))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.collect()
    (done,) = site.publisher.maintenance.accept_suspects((), ALL_PIECES, "right").values()
    assert (done.stored, done.left) == (1, 2)
    (done,) = site.publisher.maintenance.accept_suspects((), PieceFilter(lines=(4, 4)), "right").values()
    assert (done.stored, done.left) == (1, 0)
    (known,) = site.publisher.job(make_job(7).record_id)
    assert known.run.job == make_job(7)


def test_a_reason_is_needed(site: Site) -> None:
    site.collect()
    with pytest.raises(UsageError, match="needs a reason"):
        site.publisher.maintenance.accept_suspects((), ALL_PIECES, " ")


def test_an_accepted_job_that_is_read_again_is_not_suspect_again(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(suspect(make_job(7), 4))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.collect()
    site.publisher.maintenance.accept_suspects((), ALL_PIECES, "right")
    source.add(suspect(make_job(7), 9))
    assert site.collect()["ce1"].suspect == 0
    assert site.publisher.unreadable() == []


def test_a_forged_version_of_a_stored_job_replaces_nothing(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(make_job(7), suspect(make_job(7, wall_s=99_000), 4))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.collect()
    (done,) = site.publisher.maintenance.accept_suspects((), ALL_PIECES, "all").values()
    assert (done.stored, done.left) == (0, 1)
    (known,) = site.publisher.job(make_job(7).record_id)
    assert known.run.job == make_job(7)


def test_what_an_earlier_publisher_delivered_is_not_sent_again(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(make_job(1), suspect(make_job(7), 4))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.configure("sgas", delivered_until="2026-11-02")
    site.collect()
    source.add(suspect(make_job(8), 5))
    site.collect()
    site.publisher.maintenance.accept_suspects((), ALL_PIECES, "right")
    states = site.states("sgas")
    assert states[make_job(7).record_id] is State.ACCEPTED, "met in the first reading, as its neighbours"
    assert states[make_job(8).record_id] is State.WAITING


def test_a_piece_that_is_complete_now_is_no_longer_listed(site: Site) -> None:
    site.collect()
    with site.publisher.store.write() as connection:
        unreadable_input.drop_recovered(connection, 1, [Recovered("accounting", -1, b"a line")])
    assert len(site.publisher.unreadable()) == 2, "a suspect job stays until somebody decides"
    site.sources["ce1"].add(Unreadable("accounting", 9, None, "incomplete", b"half"))
    site.collect()
    with site.publisher.store.write() as connection:
        unreadable_input.drop_recovered(connection, 1, [Recovered("accounting", -1, b"half")])
    assert [row.line for row in site.publisher.unreadable()] == [5, 4]
    assert site.publisher.status().sources["ce1"].unreadable == 2


@pytest.mark.parametrize("value", ["x'01ff00'", "'text'", "substr(run, 1, 60) || x'00' || substr(run, 62)"])
def test_a_damaged_suspect_job_is_not_accepted_until_it_is_read_again(site: Site, value: str) -> None:
    site.collect()
    piece = piece_of(site, 7)
    site.reopen()
    with closing(sqlite3.connect(site.store_file)) as connection:
        value = value if value.startswith("'") else f"CAST({value} AS BLOB)"
        connection.execute(f"UPDATE unreadable SET run = {value} WHERE id = {piece}")
        connection.commit()
    red = [each for each in site.publisher.maintenance.check() if each.subject == "suspect jobs"]
    assert [f"piece {piece}" in each.message for each in red] == [True]
    (done,) = site.publisher.maintenance.accept_suspects((), ALL_PIECES, "their users confirmed them").values()
    assert (done.stored, done.left, done.damaged) == (1, 0, 1)
    site.publisher.settle_unreadable("damaged", (), PieceFilter((piece,)))
    site.sources["ce1"].add(suspect(make_job(7), 4))
    site.collect()
    (done,) = site.publisher.maintenance.accept_suspects((), ALL_PIECES, "their users confirmed them").values()
    assert (done.stored, done.left, done.damaged) == (1, 0, 0)
    site.publish()
    assert site.counted("sgas") == {State.ACCEPTED: 5}
    assert {each.level for each in site.publisher.maintenance.check()} == {"green"}
