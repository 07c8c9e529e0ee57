"""Formats of contexts: what is written is read back the same, whatever it holds; only what changed is written."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.identity import encode
from formats.job import Benchmark, Events, Host, Job, Transfer
from publisher.config.schema import SpoolContext
from publisher.spool import codec
from publisher.spool.base import Object, SpoolError, key_of
from publisher.spool.context import SpoolingContext, make_context
from publisher.spool.kinds import EXPORTED, JOBS, TABLES, job_of_values, values_of_job
from publisher.store.schema import metadata
from tests.publisher.site import make_job

FORMATS = ["classic", "delimited", "json-lines", "xml", "database"]
ODD = "a:b,c=d \\ \n\t\r\0 \x85\u2028\ufffe\U0001f600 <&>\"' \\x41 \\N NONE"


def full_job(number: int = 1) -> Job:
    """A job with something odd in every kind of attribute."""
    return make_job(
        number,
        name=ODD,
        queue="",
        fqans=("/atlas/Role=production", ODD, ""),
        process_ids=(1, 2, 99),
        extras={
            "ru_utime": 0.25,
            "count": 7,
            "text": ODD,
            "number": "7",
            "big": 2**64 - 1,
            "odd " + ODD: "",
            "minus": "-1e5",
            "none": "\\N",
        },
        benchmarks=(Benchmark("HEPscore23", 14.2), Benchmark("Si2k", 2000.0)),
        hosts=(Host("wn1", slots=2), Host(ODD, cores=0, gpus=1)),
        transfers=(
            Transfer("download", "https://x/" + ODD, size_bytes=1, from_cache=True),
            Transfer("upload", "y", size_bytes=2**64 - 1),
        ),
        events=Events.of([(5, "Q"), (-5, ODD)]),
        energy_j=1e300,
        memory_rss_kib=2**64 - 1,
        swap_kib=-(2**63),
        exit_code=-9,
    )


def as_object(job: Job) -> Object:
    """As contexts write it."""
    return Object("jobs", key_of(job.record_id), values_of_job(job) | {"digest": b"\x00\xff"})


@pytest.fixture(params=FORMATS)
def context(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SpoolingContext]:
    """A context in each format, ready."""
    made = make(request.param, tmp_path)
    made.startup()
    yield made
    made.shutdown()


def make(form: str, folder: Path) -> SpoolingContext:
    """A context over a folder; another one over the same folder is a new process."""
    place: dict[str, Any] = (
        {"url": f"sqlite:///{folder}/spool.db"} if form == "database" else {"path": folder / "spool"}
    )
    return make_context(SpoolContext(format=form, **place))  # type: ignore[arg-type]


def test_every_value_comes_back(context: SpoolingContext) -> None:
    items = [as_object(full_job(number)) for number in (1, 2)] + [
        as_object(Job(record_id="/..", system="", status="lost"))
    ]
    for item in items:
        context.write_object(JOBS, item)
    context.commit()
    found = sorted(context.read_list(JOBS), key=lambda item: item.key)
    assert found == sorted(items, key=lambda item: item.key)
    assert encode(job_of_values(found[-1].values)) in {encode(full_job(1)), encode(full_job(2))}


def test_the_last_version_counts_and_what_is_gone_is_gone(context: SpoolingContext) -> None:
    first, second, third = (as_object(full_job(number)) for number in (1, 2, 3))
    for item in (first, second, third):
        context.write_object(JOBS, item)
    context.commit()
    plain = as_object(make_job(1, wall_s=7))
    context.write_object(JOBS, plain)
    context.delete_object(JOBS, second.key)
    context.delete_object(JOBS, "never there")
    context.commit()
    for _ in range(2):
        assert sorted(context.read_list(JOBS), key=lambda item: item.key) == [plain, third]
        context.maintain([JOBS])
    context.clear(JOBS)
    context.commit()
    assert list(context.read_list(JOBS)) == []


@pytest.mark.parametrize("form", ["classic", "xml", "database"])
def test_an_object_that_did_not_change_is_not_written(form: str, tmp_path: Path) -> None:
    context = make(form, tmp_path)
    context.startup()
    assert context.write_object(JOBS, as_object(full_job()))
    context.commit()
    assert not context.write_object(JOBS, as_object(full_job()))
    assert context.write_object(JOBS, as_object(msgspec.structs.replace(full_job(), hosts=())))
    assert context.write_object(JOBS, as_object(full_job()))
    context.shutdown()


def test_a_context_remembers_one_note(context: SpoolingContext) -> None:
    assert context.noted() is None
    context.note("generation 1")
    context.note("generation 2")
    assert context.noted() == "generation 2"
    context.note(None)
    assert context.noted() is None


def test_what_is_written_is_private(context: SpoolingContext, tmp_path: Path) -> None:
    context.write_object(JOBS, as_object(full_job()))
    context.note("x")
    context.commit()
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {0o600}


@pytest.mark.parametrize("form", ["delimited", "json-lines"])
def test_a_line_that_a_kill_cut_off_is_not_read_and_is_written_over(form: str, tmp_path: Path) -> None:
    context = make(form, tmp_path)
    context.startup()
    context.write_object(JOBS, as_object(full_job(1)))
    context.commit()
    for file in (tmp_path / "spool").iterdir():
        with file.open("a") as opened:
            opened.write("half a li")
    again = make(form, tmp_path)
    assert list(again.read_list(JOBS)) == [as_object(full_job(1))]
    again.write_object(JOBS, as_object(full_job(2)))
    again.commit()
    assert list(make(form, tmp_path).read_list(JOBS)) == [as_object(full_job(1)), as_object(full_job(2))]


def test_subordinate_objects_without_their_object_are_passed_over(tmp_path: Path) -> None:
    context = make("delimited", tmp_path)
    context.startup()
    context.write_object(JOBS, as_object(full_job(1)))
    context.commit()
    hosts = tmp_path / "spool" / "jobs.hosts.txt"
    hosts.write_text(hosts.read_text() + "99999999999999999999:orphan:1:1:1\n")
    again = make("delimited", tmp_path)
    again.write_object(JOBS, as_object(full_job(2)))
    again.commit()
    assert list(make("delimited", tmp_path).read_list(JOBS)) == [as_object(full_job(1)), as_object(full_job(2))]


@pytest.mark.parametrize("form", ["classic", "delimited", "json-lines", "xml"])
def test_a_file_that_is_something_else_is_reported(form: str, tmp_path: Path) -> None:
    context = make(form, tmp_path)
    context.startup()
    context.write_object(JOBS, as_object(full_job(1)))
    context.commit()
    for file in (tmp_path / "spool").rglob("*"):
        if file.is_file():
            file.write_text("something\nelse\n")
    with pytest.raises(SpoolError):
        list(make(form, tmp_path).read_list(JOBS))


def test_a_place_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    (tmp_path / "spool").touch()
    for form in FORMATS[:-1]:
        with pytest.raises(SpoolError):
            make(form, tmp_path).startup()


@pytest.mark.parametrize("marks", ["", ":", ",=", "\t"])
@given(value=st.text())
def test_text_is_one_word_and_comes_back(marks: str, value: str) -> None:
    shown = codec.escaped(value, marks)
    assert codec.unescaped(shown) == value
    assert shown != codec.ABSENT
    assert shown.isprintable()
    assert not any(mark in shown for mark in marks)


@given(words=st.lists(st.text(alphabet=string.printable + "é,%"), min_size=1, max_size=3))
def test_keys_of_different_words_differ(words: list[str]) -> None:
    assert len(words) == key_of(*words).count(",") + 1
    assert key_of(*words) != key_of(*words, "")


def test_every_table_is_exported() -> None:
    special = {"runs", "classes", "class_users", "versions", "spool_changes", "changes"}
    assert {each.table.name for each in TABLES.values()} == {table.name for table in metadata.sorted_tables} - special
    assert len(EXPORTED) == len(set(EXPORTED)) == len(TABLES) + 2
