"""run: once, twice at the same time, and until it is interrupted."""

from __future__ import annotations

import resource
import signal
import socket
import sqlite3
import urllib.request
from contextlib import ExitStack, closing

import pytest

from tests.publisher.cli.program import Program
from tests.publisher.scripted_server import unused_port


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


def test_every_stays_until_interrupted(fresh: Program) -> None:
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
    with closing(sqlite3.connect(fresh.folder / "store.db")) as connection, connection:
        assert connection.execute("SELECT COUNT(*) FROM batches WHERE state = 1").fetchone() == (0,)


@pytest.mark.parametrize("every", ["0", "0s", "0.0h", "1ms", "999ms"])
def test_a_pause_that_is_none_is_refused(fresh: Program, every: str) -> None:
    done = fresh("run", "--every", every)
    assert (done.code, done.out) == (2, "")
    assert "at least 1 second" in done.err
    assert not (fresh.folder / "store.db").exists()


def test_connections_to_the_port_for_metrics_do_not_stop_it(fresh: Program) -> None:
    """More of them than the publisher may have files open."""
    port = unused_port()
    fresh.configure(fresh.config.read_text() + f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
    fresh.change_database(
        "UPDATE AAR SET StatusID = (SELECT ID FROM Status WHERE Name = 'in-progress') WHERE RecordID = 5"
    )
    process = fresh.start("run", "--every", "1s")
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (96, 96))
    try:
        assert process.stdout is not None
        while b"summaries" not in process.stdout.readline():
            assert process.poll() is None
        with ExitStack() as stack:
            for _ in range(120):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            fresh.change_database(
                "UPDATE AAR SET StatusID = (SELECT ID FROM Status WHERE Name = 'completed') WHERE RecordID = 5"
            )
            while "│        1 │" not in process.stdout.readline().decode():  # one more is accepted
                assert process.poll() is None
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert b'target_jobs{state="accepted",target="files"} 37.0' in answer.read()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)  # to the end of its messages, which the listener has open, too
        with socket.socket() as again:
            assert again.connect_ex(("127.0.0.1", port)) != 0
    finally:
        process.kill()
        process.communicate()
