"""Ids in all their spellings, and which entry is of which run."""

from __future__ import annotations

import pytest
from hypothesis import given

from formats.job import Job
from publisher.grid_identity import AFTER_S, BEFORE_S, GridLogEntry, entry_for, needs_entry
from publisher.job_ids import local_id
from tests.strategies import hostile_text

END = 1_795_200_000


def job_of(name: str = "4711", **facts: object) -> Job:
    return Job(**({"record_id": "r", "system": "pbs", "status": "completed", "end": END, "local_id": name} | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "lrms"),
    [
        ("9575064", "9575064.lrms1"),
        ("9575064.lrms1.example.org", "9575064.lrms1"),
        ("9575064.LRMS1", "9575064.lrms1"),
        ("1.0", "1_hepgrid6.ph.liv.ac.uk"),
        ("1.0", "ce.example.org#1.0#1556754961"),
        ("1.0", "slot@ce.example.org#1.0#1556754961"),
        ("1", "1.0_ce.example.org"),
        ("12[3]", "12[3].server"),
        ("12_3", "12.3"),
        ("12.3", "12"),
        ("3639", "lsf/20060308/3639.grid012.ct.infn.it"),
        ("0042", "42"),
        ("job one", "job one"),
    ],
)
def test_spellings_of_one_job(run: str, lrms: str) -> None:
    assert local_id(run).may_be(local_id(lrms))
    assert local_id(lrms).may_be(local_id(run))


@pytest.mark.parametrize(
    ("run", "lrms"),
    [
        ("1", "12"),
        ("1.0", "1.1_ce"),
        ("12[3]", "12[4].server"),
        ("1.server1", "1.server2"),
        ("a.example.org#1.0#1556754961", "b.example.org#1.0#1556754961"),
        ("a@ce.example.org#1.0#1556754961", "b@ce.example.org#1.0#1556754961"),
        ("ce.example.org#1.0#1556754961", "ce.example.org#1.0#1556754962"),
        ("job one", "job two"),
        ("1", "x1"),
    ],
)
def test_ids_of_two_jobs(run: str, lrms: str) -> None:
    assert not local_id(run).may_be(local_id(lrms))


@given(hostile_text)
def test_any_text_is_an_id(text: str) -> None:
    assert local_id(text).may_be(local_id(text))


@pytest.mark.parametrize(
    ("at", "fits"),
    [
        (END + BEFORE_S, True),
        (END + BEFORE_S + 1, False),
        (END - AFTER_S, True),
        (END - AFTER_S - 1, False),
    ],
)
def test_the_window_of_an_entry(at: int, *, fits: bool) -> None:
    entry = GridLogEntry(at, "4711", "/CN=Ada")
    assert entry_for(job_of(), [entry]) == (entry if fits else None)


def test_the_latest_entry_counts() -> None:
    early, late = GridLogEntry(END - 100, "4711", "/CN=Eve"), GridLogEntry(END - 50, "4711", "/CN=Ada")
    assert entry_for(job_of(), [late, early]) == late


def test_an_entry_of_another_schedd_is_not_taken() -> None:
    """Two schedds use the same job numbers; the name of the schedd is only in GlobalJobId."""
    job = job_of(local_id="1.0", global_id="a.example.org#1.0#1790816340")
    own = GridLogEntry(END - 100, "a.example.org#1.0#1790816340", "/CN=Ada")
    other = GridLogEntry(END - 50, "b.example.org#1.0#1790816340", "/CN=Eve")
    assert entry_for(job, [own, other]) == own
    assert entry_for(job, [other]) is None
    assert entry_for(job_of(local_id="1.0"), [other]) == other, "nothing says which schedd"


@pytest.mark.parametrize("lrms", ["1.0", "1.0_ce.example.org", "1_ce.example.org", "1.0@ce.example.org"])
def test_an_entry_that_names_the_computing_element_is_taken_whatever_the_schedd(lrms: str) -> None:
    """HTCondor-CE writes its own host after the number, and the schedd can be on another one."""
    job = job_of(local_id="1.0", global_id="schedd.example.org#1.0#1790816340")
    entry = GridLogEntry(END - 100, lrms, "/CN=Ada")
    assert entry_for(job, [entry]) == entry


@pytest.mark.parametrize(
    ("facts", "needed"),
    [
        ({}, True),
        ({"user_dn": "/CN=Ada"}, False),
        ({"token_subject": "ada"}, False),
        ({"status": "running"}, False),
        ({"end": None}, False),
        ({"local_id": None}, False),
        ({"vo": "atlas"}, True),
    ],
)
def test_which_runs_need_an_entry(facts: dict[str, object], *, needed: bool) -> None:
    assert needs_entry(job_of(**facts)) is needed


def test_an_entry_overrides_nothing() -> None:
    entry = GridLogEntry(END, "4711", "/CN=Ada", ("/atlas/Role=production", "/atlas"), "ce1:8443/main")
    given_all = entry.given_to(job_of())
    assert (given_all.user_dn, given_all.vo, given_all.endpoint_url) == ("/CN=Ada", "atlas", "ce1:8443/main")
    assert given_all.fqans == ("/atlas/Role=production", "/atlas")
    reported = job_of(user_dn="/CN=Eve", vo="cms", endpoint_url="https://ce2")
    assert entry.given_to(reported) == reported
