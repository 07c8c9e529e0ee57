"""How every source fills a page: what is counted, what a window leaves out, and texts that are too long."""

from __future__ import annotations

import msgspec

from formats.job import Job
from publisher.sources.base import (
    RAW_BYTES,
    Line,
    PageBuilder,
    Recognised,
    Unreadable,
    UnreadableLine,
    Window,
)
from publisher.sources.limits import IDENTITY_CHARACTERS, SHORTENED, TEXT_CHARACTERS

JOB = Job(record_id="a", system="lsf", status="completed", start=100, end=200)
RUNNING = msgspec.structs.replace(JOB, record_id="r", status="running", end=None)


def in_file(refused: UnreadableLine) -> Unreadable:
    return refused.of_file("acct", 7)


def test_a_page_has_what_was_added_in_its_order_and_counts_it() -> None:
    page = PageBuilder()
    other = msgspec.structs.replace(JOB, record_id="b")
    for outcome in (other, Line.SKIPPED, JOB, Line.IGNORED, Line.MORE, UnreadableLine("is cut off", b"x")):
        page.add(outcome, in_file)
    assert page.read == 4
    made = page.page({"at": 1}, at_end=True)
    assert made.jobs == (other, JOB)
    assert made.unreadable == (Unreadable("acct", None, 7, "is cut off", b"x"),)
    assert (made.read, made.skipped, made.cursor, made.at_end) == (4, 1, {"at": 1}, True)


def test_the_next_page_begins_empty() -> None:
    page = PageBuilder()
    page.add(JOB, in_file)
    page.page({})
    assert page.page({}) == PageBuilder().page({})


def test_a_window_leaves_out_runs_that_did_not_end_in_it_and_counts_them_as_skipped() -> None:
    for keep_running, kept in ((False, (JOB,)), (True, (JOB, RUNNING))):
        page = PageBuilder(Window(150, 201), keep_running=keep_running)
        late = msgspec.structs.replace(JOB, record_id="late", end=201)
        for job, mark in ((JOB, b"1"), (late, b"2"), (RUNNING, b"3")):
            page.add(job, in_file)
            page.marks.append(mark)
        made = page.page({})
        assert made.jobs == kept
        assert made.marks == (b"1", b"3")[: len(kept)]
        assert (made.read, made.skipped) == (3, 3 - len(kept))


def test_what_was_recognised_in_the_window_was_looked_at() -> None:
    page = PageBuilder()
    page.add(JOB, in_file)
    assert page.page({}, recognised=Recognised(count=5, unchanged=3)).read == 4


def test_a_run_with_a_text_that_must_not_be_cut_is_unreadable() -> None:
    page = PageBuilder()
    page.add(msgspec.structs.replace(JOB, local_user="u" * (IDENTITY_CHARACTERS + 1)), in_file)
    made = page.page({})
    assert made.jobs == ()
    assert [(each.file, each.reason.split()[0]) for each in made.unreadable] == [("acct", "local_user")]


def test_another_text_that_is_too_long_is_cut_and_noted() -> None:
    page = PageBuilder()
    page.add(msgspec.structs.replace(JOB, name="n" * (TEXT_CHARACTERS + 1)), in_file)
    job = page.page({}).jobs[0]
    assert job.name == "n" * TEXT_CHARACTERS
    assert SHORTENED in job.extras


def test_one_page_is_added_to_another() -> None:
    page, part = PageBuilder(), PageBuilder()
    page.add(JOB, in_file)
    part.add(RUNNING, in_file)
    part.add(Line.SKIPPED, in_file)
    part.add(UnreadableLine("is cut off"), in_file)
    page.extend(part)
    made = page.page({})
    assert (made.jobs, made.skipped, len(made.unreadable), made.read) == ((JOB, RUNNING), 1, 1, 4)


def test_of_unreadable_input_the_first_bytes_are_kept() -> None:
    assert UnreadableLine("is too long", b"x" * (RAW_BYTES + 1)).of_file("acct").raw == b"x" * RAW_BYTES
