"""Local users of runs whose class does not have them: `jobs --user` finds what a look at every run finds, and hardly
looks at any; damaged ones are noticed; none stays of a run that went."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from formats.calendar import Month
from formats.job import Job
from publisher.encoded_run import encode_run
from publisher.sources.base import Window
from publisher.status.jobs import JobFilter, newest
from publisher.store import class_users, registry
from publisher.store.admin import integrity
from publisher.store.classes import Interner
from publisher.store.database import Store, open_store
from publisher.store.runs import upsert
from publisher.store.stored_run import stored_run
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

EVERYTHING = Window(0, 2_000_000_000)
_names = st.sampled_from((None, "", "ada", "adam", "bob", "/DC=org/CN=Ada"))
_jobs = st.lists(
    st.builds(
        make_job,
        st.integers(1, 12),
        end=st.integers(NOVEMBER, NOVEMBER + 3) | st.none(),
        user_dn=st.sampled_from((None, "/DC=org/CN=Ada", "/DC=org/CN=Bob")),
        vo=st.sampled_from((None, "atlas")),
        local_user=_names,
        local_group=_names,
    ),
    max_size=12,
)


def _store(folder: Path, collects: Sequence[Sequence[Job]]) -> Store:
    """A store in which these jobs were stored by one collect after the other."""
    store = open_store(f"sqlite:///{folder}/store.db")
    for jobs in collects:
        with store.write() as connection:
            interner = Interner(registry.source(connection, "ce1", "arc").id, "ce1")
            upsert(connection, interner, [encode_run(job) for job in jobs], 0)
    return store


@given(collects=st.lists(_jobs, max_size=3), user=st.sampled_from(("a*", "ada", "*", "", "?ob", "/DC=*", "nobody")),
       group=st.sampled_from((None, "a*", "")), limit=st.sampled_from((None, 1, 3)))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_pattern_selects_the_runs_that_it_matches(
    collects: list[list[Job]], user: str, group: str | None, limit: int | None
) -> None:
    """Runs change their user, class, and end from one collect to the next."""
    patterns = {"user": user} | ({} if group is None else {"group": group})
    with TemporaryDirectory() as folder:
        store = _store(Path(folder), collects)
        stored = {run.run.record_id: run.run.job for run in newest(store, Window(), JobFilter(), None).jobs}
        expected = [
            name
            for name, job in stored.items()
            if any(value is not None and fnmatchcase(value, user) for value in (job.local_user, job.user_dn))
            and (group is None or (job.local_group is not None and fnmatchcase(job.local_group, group)))
        ]
        found = newest(store, Window(), JobFilter(patterns), limit)
        assert found.total == len(expected)
        assert [run.run.record_id for run in found.jobs] == expected[:limit]
        with store.read() as connection:
            assert list(integrity.wrong_runs(connection)) == []
        store.close()


@pytest.mark.parametrize(
    ("user", "read"), [("nobody", 0), ("/DC=org/CN=Ada", 2), ("bob*", 2), ("ada2", 2), ("ada*", 2)]
)
def test_only_runs_of_which_their_class_decides_nothing_are_read(tmp_path: Path, user: str, read: int) -> None:
    """Two are shown. Ada has two local users in one class: both of its runs are read for one of them."""
    jobs = [make_job(number, local_user=f"ada{number}", vo="atlas" if number < 3 else "cms") for number in (1, 2, 3)]
    jobs += [make_job(number, user_dn="/DC=org/CN=Bob", local_user="bob") for number in (4, 5, 6)]
    store = _store(tmp_path, [jobs])
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(event) if frame.f_code is stored_run.__code__ else None)
    try:
        newest(store, Window(), JobFilter({"user": user}), 2)
    finally:
        sys.setprofile(None)
    assert calls.count("call") == read
    store.close()


def test_the_id_of_a_class_in_a_damaged_store_takes_no_room(tmp_path: Path) -> None:
    """Ids that ascend from 1 are looked up by their place in a text of that length."""
    store = _store(tmp_path, [[make_job(1), make_job(2)]])
    with closing(sqlite3.connect(tmp_path / "store.db")) as damaged, damaged:
        damaged.execute("UPDATE classes SET id = id + (1 << 40)")
    assert newest(store, Window(), JobFilter({"vo": "*"}), None).total == 0
    store.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Two local users of one grid identity, one of them only in October."""
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas"), SummaryReceiver("sums")])
    site.sources["ce1"].add(
        make_job(1, local_user="ada", end=OCTOBER + 99),
        make_job(2, local_user="lovelace"),
        make_job(3, local_user="ada2"),
    )
    site.collect()
    site.publish()
    return site


def _users(site: Site) -> set[str | None]:
    with site.publisher.store.read() as connection:
        return {user.local_user for users in class_users.by_class(connection).values() for user in users}


def _red(site: Site) -> set[str]:
    return {found.subject for found in site.publisher.maintenance.check() if found.level == "red"}


@pytest.mark.either_store
def test_a_purge_leaves_no_user_whose_jobs_are_gone(site: Site) -> None:
    assert _users(site) == {"ada", "lovelace", "ada2"}
    site.publisher.maintenance.purge(Month(2026, 11))
    assert _users(site) == {"lovelace", "ada2"}
    assert not _red(site)


@pytest.mark.either_store
def test_a_user_that_is_missing_is_found_and_repaired_by_reading_the_source_again(site: Site) -> None:
    with site.publisher.store.write() as connection:
        connection.execute(text("DELETE FROM class_users"))
    assert _red(site) == {"runs"}
    site.collect(window=EVERYTHING)
    assert not _red(site)
    assert _users(site) == {"ada", "lovelace", "ada2"}


@pytest.mark.parametrize(
    "change", ["class_id = class_id + 1", "digest = x'00'", "local_user = x'92a3626f62c0'", "local_user = 'x'"]
)
def test_a_damaged_user_is_found_and_repaired_and_hides_no_job(site: Site, change: str) -> None:
    site.reopen()
    with closing(sqlite3.connect(site.store_file)) as connection:
        connection.execute(f"UPDATE class_users SET {change} WHERE digest = (SELECT min(digest) FROM class_users)")
        connection.commit()
    assert "local users" in _red(site)
    for user in ("ada", "lovelace", "ada2"):
        assert site.publisher.jobs_found(Window(), JobFilter({"user": user}), None).total == 1
    site.publisher.maintenance.repair()
    assert not _red(site)
    assert _users(site) == {"ada", "lovelace", "ada2"}
    assert site.publisher.audit()[0].action == "repair"
    site.publisher.maintenance.repair()
    assert [entry.action for entry in site.publisher.audit()].count("repair") == 1
