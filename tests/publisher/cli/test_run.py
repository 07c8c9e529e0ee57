"""run: once, twice at once, and until it is told to stop."""

from __future__ import annotations

import signal
import sqlite3

from tests.publisher.cli.program import Program


def test_twice_at_once_sends_everything_once(fresh: Program) -> None:
    both = [fresh.start("run", "--json"), fresh.start("run", "--json")]
    for process in both:
        _, messages = process.communicate(timeout=120)
        assert process.returncode in {0, 1}, messages
    fresh("run").ok()
    text = b"".join(path.read_bytes() for path in (fresh.folder / "files").iterdir())
    assert text.count(b"<JobUsageRecord>") == 37
    assert len(set(text.split(b'recordId="')[1:])) == 37


def test_a_late_job_is_sent_alone(fresh: Program) -> None:
    fresh.change_database(
        "UPDATE AAR SET StatusID = (SELECT ID FROM Status WHERE Name = 'in-progress') WHERE RecordID = 5"
    )
    assert fresh("run", "--json").ok().object["targets"]["files"]["accepted"] == 36
    fresh.change_database(
        "UPDATE AAR SET StatusID = (SELECT ID FROM Status WHERE Name = 'completed') WHERE RecordID = 5"
    )
    again = fresh("run", "--json").ok().object
    assert again["sources"]["ce1"]["new"] == 1
    assert again["targets"]["files"]["accepted"] == 1


def test_every_stays_until_told_to_stop(fresh: Program) -> None:
    process = fresh.start("run", "--every", "1h")
    try:
        assert process.stdout is not None
        shown = b""
        while b"summaries" not in shown:
            line = process.stdout.readline()
            assert line, process.communicate()
            shown += line
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    with sqlite3.connect(fresh.folder / "store.db") as connection:
        assert connection.execute("SELECT COUNT(*) FROM batches WHERE state = 1").fetchone() == (0,)
