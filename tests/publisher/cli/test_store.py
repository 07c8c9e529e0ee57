"""store: the commands as they are typed, what they print, and their exit codes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.publisher.cli.program import Program

pytestmark = pytest.mark.inside


@pytest.fixture
def published(collected: Program) -> Program:
    """A site whose targets have what there is."""
    collected("publish")
    return collected


def test_check_says_that_all_is_well_or_what_is_not(published: Program) -> None:
    assert "digests, columns and classes are those of the stored jobs" in published("store", "check").ok().out
    connection = sqlite3.connect(published.folder / "store.db")
    connection.execute("UPDATE counters SET jobs = jobs + 1")
    connection.commit()
    connection.close()
    done = published("store", "check", "--json")
    assert done.code == 5
    (wrong,) = [item for item in done.object["findings"] if item["level"] == "red"]
    assert wrong["subject"] == "counters"
    assert "--repair" in wrong["hint"]
    done = published("store", "check", "--repair").ok()
    assert "corrected: files, accepted" in done.err
    published("store", "check").ok()


def test_backup_and_copy(published: Program) -> None:
    done = published("store", "backup", "backup.db", "--json").ok()
    assert (
        done.object["runs"]
        == published("store", "copy", "sqlite:///backup.db", "sqlite:///copy.db", "--json")
        .ok()
        .object["tables"]["runs"]["rows"]
    )
    assert (published.folder / "backup.db").stat().st_mode & 0o777 == 0o600
    assert "Everything was copied" in published("store", "copy", "sqlite:///backup.db", "sqlite:///other.db").ok().err
    again = published("store", "copy", "sqlite:///backup.db", "sqlite:///other.db")
    assert again.code == 2
    assert "is not empty" in again.err
    assert published("store", "copy", "mysql://x", "sqlite:///other.db").code == 2
    assert published("store", "backup", "backup.db").code == 2


def test_a_copy_of_a_store_that_may_not_know_all_that_was_sent_says_so(published: Program) -> None:
    published("store", "backup", "backup.db").ok()
    done = published("store", "copy", "sqlite:///backup.db", "sqlite:///copy.db").ok()
    assert "backup.db.sent that goes with it is missing" in done.err
    assert "`usage-publisher store accept-restored`" in done.err
    (published.folder / "store.db.sent").rename(published.folder / "mark")
    published.configure(published.config.read_text().replace("[store]\n", '[store]\nsent_mark = "mark"\n'))
    done = published("store", "copy", "sqlite:///store.db", "sqlite:///other.db").ok()
    assert "accept-restored" not in done.err
    assert (published.folder / "other.db.sent").exists()


def test_purge_says_first_what_is_removed(published: Program) -> None:
    ((rows,),) = published.rows("SELECT count(*) FROM runs")
    plan = published("store", "purge", "--before", "2026-11", "--dry-run", "--json").ok().object["plan"]
    assert {month["month"] for month in plan["months"]} == {"2026-10"} or plan["months"]
    asked = published("store", "purge", "--before", "2026-11")
    if plan["runs"]:
        assert asked.code == 2
        assert "--yes" in asked.err
    done = published("store", "purge", "--before", "2026-11", "--yes", "--vacuum", "--json").ok()
    assert done.object["purged"]["runs"] == plan["runs"]
    assert published.rows("SELECT count(*) FROM runs") == [(rows - plan["runs"],)]
    assert published("store", "purge").code == 2
    for word in ("2026", "2026-13", "26-01", "2026-11-01", "novembe"):
        assert published("store", "purge", "--before", word).code == 2


def test_what_a_killed_purge_left_is_removed_by_the_next_also_where_nothing_else_is(published: Program) -> None:
    with closing(sqlite3.connect(published.folder / "store.db")) as connection:
        connection.execute("CREATE INDEX deliveries_by_run ON deliveries (run_id)")
        named = "SELECT count(*) FROM sqlite_master WHERE name = 'deliveries_by_run'"
        published("store", "purge", "--before", "2020-01", "--dry-run").ok()
        assert connection.execute(named).fetchone() == (1,)
        assert "nothing to purge" in published("store", "purge", "--before", "2020-01").ok().err
        assert connection.execute(named).fetchone() == (0,)


def test_export_import_and_forget(published: Program) -> None:
    objects = published("store", "export", "out", "--format", "classic", "--json").ok().object["objects"]
    (published.folder / "store.db").rename(published.folder / "old.db")
    for each in published.folder.glob("store.db-*"):
        each.unlink()
    assert "everything was imported" in published("store", "import", "out").ok().err
    assert published("store", "export", "again", "--json").ok().object["objects"] == objects
    ((person,),) = published.rows("SELECT record_id FROM runs ORDER BY id LIMIT 1")
    (known,) = published("jobs", person, "--json").ok().object["records"]
    dn = known["facts"]["user_dn"]
    assert published("store", "forget", dn).code == 2
    done = published("store", "forget", dn, "--yes", "--json").ok().object
    assert done["runs"] > 0
    assert dn not in published("jobs", person, "--json").ok().out
    assert dn not in published("store", "audit").ok().out
    assert published("store", "forget", dn, "--yes").code == 2


def test_contexts_follow_every_command(published: Program) -> None:
    assert "no spooling context" in published("store", "spool").ok().err
    published.configure(published.config.read_text() + '\n[spool.texts]\nformat = "delimited"\npath = "texts"\n')
    assert "up to date" in published("store", "spool").ok().out
    lines = (published.folder / "texts" / "deliveries.txt").read_text().splitlines()
    assert lines[0].startswith("serial:state:key:target:record_id")
    (published.folder / "texts" / "jobs.txt").unlink()
    (published.folder / "texts" / "jobs.txt").mkdir()
    done = published("store", "spool", "--json")
    assert done.code == 1
    assert "cannot be used" in done.object["contexts"][0]["problem"]


def test_without_a_store_there_is_nothing_to_look_after(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for words in (("check",), ("backup", "x"), ("purge", "--before", "2026-01"), ("export", "x"), ("forget", "/CN=x")):
        done = program("store", *words, "--json")
        assert done.code == 2
        assert "collect" in done.object["error"]
    assert not (tmp_path / "store.db").exists()
