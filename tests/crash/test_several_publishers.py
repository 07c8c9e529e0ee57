"""Several publishers, each a process, over one store on PostgreSQL: one hangs and is killed, the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
import pytest

from publisher.store.schema import State
from tests import oracle
from tests.crash.child import ROOT, ChildTask
from tests.crash.conftest import Make
from tests.crash.crash_site import CrashSite
from tests.publisher.store.server import PostgresqlServer

PUBLISHERS = 2
LIVE = """
import sys, msgspec
from tests.crash.child import ChildTask, live
live(msgspec.json.decode(sys.argv[1], type=ChildTask))
"""


class Shared:
    """A site whose store is a database, with batches of one record, so that what waits is worth sharing."""

    def __init__(self, site: CrashSite, server: PostgresqlServer) -> None:
        self.site = site
        self._database = server.new_database()
        self._server = server
        store = f'url = "{server.url(self._database)}"\nsent_mark = "mark"'
        text = site.config.read_text().replace('url = "sqlite:///store.db"', store)
        site.config.write_text(text.replace("batch_records = 10", f"batch_records = 1\npublishers = {PUBLISHERS}"))
        site.forget()
        assert site.run("collect").code == 0

    def rows(self, query: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """Rows of the store, read without the program."""
        with psycopg.connect(f"host={self._server.sockets} user=postgres dbname={self._database}") as connection:
            return connection.execute(query.replace("?", "%s"), values).fetchall()

    def process(self, step: int = -1) -> subprocess.Popen[bytes]:
        """A publisher that stops without ending at this event (-1: at none)."""
        task = ChildTask(str(self.site.config), "publish", step, signal_name="STOP")
        return subprocess.Popen(
            [sys.executable, "-c", LIVE, msgspec.json.encode(task)], cwd=ROOT, stdout=subprocess.DEVNULL
        )

    def books(self) -> oracle.LedgerRows:
        """What the store says."""
        return oracle.ledger(self.rows, "spool")

    def assert_all_there(self, most_twice: int) -> None:
        """Each job is at the service, and the ledger says so."""
        selected, books, arrived = self.site.selected(), self.books(), self.site.arrived()
        assert books.counters == {State.ACCEPTED: len(selected)}
        oracle.assert_conserved(selected, books, arrived)
        assert sum(came - 1 for came in arrived.values()) <= most_twice
        assert Counter(row[0] for row in self.rows("SELECT state FROM batches"))[2] == len(arrived)
        assert self.rows("SELECT count(*) FROM batches WHERE state = 1") == [(0,)]


@pytest.mark.parametrize("step", [12, pytest.param(3, marks=pytest.mark.long)])
def test_one_hangs_and_is_killed_beside_others(make: Make, postgresql: PostgresqlServer, step: int) -> None:
    """While it lives, no other publisher sends what it has in flight, or the rest of its part."""
    shared = Shared(make("sgas"), postgresql)
    hanging = shared.process(step)
    assert os.WIFSTOPPED(os.waitpid(hanging.pid, os.WUNTRACED)[1])
    before = shared.books()
    others = [shared.process(), shared.process()]
    assert [process.wait(60) for process in others] == [0, 0]
    books = shared.books()
    assert before.of(State.IN_FLIGHT) == books.of(State.IN_FLIGHT) != set()
    assert len(books.of(State.ACCEPTED)) >= len(books.states) * (PUBLISHERS - 1) // PUBLISHERS
    assert books.of(State.WAITING)
    oracle.assert_conserved(shared.site.selected(), books, shared.site.arrived())
    hanging.kill()
    assert hanging.wait() == -signal.SIGKILL
    last = shared.site.run("run")
    assert last.code == 0, last.said
    shared.assert_all_there(most_twice=1)
