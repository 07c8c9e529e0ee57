"""Several publishers, each a process, over one store on PostgreSQL: one is killed, the others go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
import pytest

from publisher.store.states import State
from tests import oracle
from tests.crash.child import ROOT, Task
from tests.crash.conftest import Make
from tests.crash.ground import Ground
from tests.publisher.store.server import Server

PUBLISHERS = 3
LIVE = """
import sys, msgspec
from tests.crash.child import Task, live
live(msgspec.json.decode(sys.argv[1], type=Task))
"""


class Shared:
    """A ground whose store is a database, with batches of one record, so that what waits is worth sharing."""

    def __init__(self, ground: Ground, server: Server) -> None:
        self.ground = ground
        self._database = server.new_database()
        self._server = server
        text = ground.config.read_text().replace("sqlite:///store.db", server.url(self._database))
        ground.config.write_text(text.replace("batch_records = 10", f"batch_records = 1\npublishers = {PUBLISHERS}"))
        ground.forget()
        assert ground.run("collect").code == 0

    def rows(self, query: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """Of the store, past the program."""
        with psycopg.connect(f"host={self._server.sockets} user=postgres dbname={self._database}") as connection:
            return connection.execute(query.replace("?", "%s"), values).fetchall()

    def processes(self, steps: Sequence[int]) -> list[subprocess.Popen[bytes]]:
        """Publishers that begin at once, each of which kills itself at this event (-1: at none)."""
        return [
            subprocess.Popen(
                [sys.executable, "-c", LIVE, msgspec.json.encode(Task(str(self.ground.config), "publish", step))],
                cwd=ROOT, stdout=subprocess.DEVNULL,
            )
            for step in steps
        ]  # fmt: skip

    def assert_all_there(self, most_twice: int) -> None:
        """Each job is at the service, and the ledger says so."""
        wanted, books, arrived = self.ground.wanted(), oracle.ledger(self.rows, "spool"), self.ground.arrived()
        assert books.counters == {State.ACCEPTED: len(wanted)}
        oracle.assert_conserved(wanted, books, arrived)
        assert sum(came - 1 for came in arrived.values()) <= most_twice
        assert Counter(row[0] for row in self.rows("SELECT state FROM batches"))[2] == len(arrived)
        assert self.rows("SELECT count(*) FROM batches WHERE state = 1") == [(0,)]


@pytest.mark.parametrize("step", [12, pytest.param(3, marks=pytest.mark.long)])
def test_a_publisher_is_killed_beside_others(make: Make, postgresql: Server, step: int) -> None:
    shared = Shared(make("sgas"), postgresql)
    codes = [process.wait(60) for process in shared.processes([step, -1, -1])]
    assert codes == [-signal.SIGKILL, 0, 0]
    books = oracle.ledger(shared.rows, "spool")
    assert books.counters[State.ACCEPTED] >= len(books.states) * (PUBLISHERS - 1) // PUBLISHERS, "parts were left alone"
    oracle.assert_conserved(shared.ground.wanted(), books, shared.ground.arrived())
    last = shared.ground.run("run")
    assert last.code == 0, last.said
    shared.assert_all_there(most_twice=1)
