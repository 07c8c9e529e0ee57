"""Real processes, killed at every event, and the next run: lost 0, sent twice at most the one batch in flight."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from publisher.store.states import State
from tests.generators.arc_database import create

JOBS = 60
BATCH = 10
ROOT = Path(__file__).parents[2]
_RECORD_ID = re.compile(r'recordId="([^"]+)"')


class Ground:
    """An ARC database, a store, and a directory that takes usage records as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool = folder / "spool"
        self.config = folder / "publisher.toml"
        create(folder / "accounting.db", JOBS, seed=3)
        self.config.write_text(
            f"""
[site]
name = "EXAMPLE-SITE"
[store]
url = "sqlite:///store.db"
[sources.ce1]
type = "arc"
path = "accounting.db"
[targets.spool]
type = "directory"
path = "spool"
layout = "files"
records = "ogf-ur"
batch_records = {BATCH}
"""
        )

    def run(self, command: str, step: int = -1, signal_name: str = "KILL") -> subprocess.CompletedProcess[str]:
        """A process; it may die."""
        arguments = [sys.executable, "-m", "tests.crash.child", str(self.config), command, str(step), signal_name]
        return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    def wanted(self) -> int:
        """How many runs of the database are to be published."""
        connection = sqlite3.connect(self.folder / "accounting.db")
        query = (
            "SELECT count(*) FROM AAR JOIN Status ON Status.ID = StatusID WHERE Status.Name IN ('completed', 'failed')"
        )
        (count,) = connection.execute(query).fetchone()
        connection.close()
        return int(count)

    def delivered(self) -> Counter[str]:
        """How often each record stands in the spool."""
        found: Counter[str] = Counter()
        for file in self.spool.glob("*.xml"):
            found.update(_RECORD_ID.findall(file.read_text()))
        return found

    def states(self) -> Counter[State]:
        """Deliveries by state, counted; the counters must say the same."""
        connection = sqlite3.connect(self.folder / "store.db")
        counted = Counter(
            {State(s): n for s, n in connection.execute("SELECT state, count(*) FROM deliveries GROUP BY 1")}
        )
        kept = {State(s): n for s, n in connection.execute("SELECT state, jobs FROM counters WHERE jobs <> 0")}
        connection.close()
        assert counted == kept
        return counted


def events_of(folder: Path, command: str) -> int:
    """How many events an undisturbed process has."""
    folder.mkdir()
    ground = Ground(folder)
    if command in {"publish", "republish"}:
        ground.run("collect")
    if command == "republish":
        ground.run("publish")
    done = ground.run(command)
    assert done.returncode == 0, done.stderr
    return len(done.stdout.split())


def _kill_at(tmp_path: Path, command: str, steps: range | list[int]) -> None:
    for step in steps:
        folder = tmp_path / f"step{step}"
        folder.mkdir()
        ground = Ground(folder)
        if command == "republish":
            assert ground.run("run").returncode == 0
        elif command == "publish":
            assert ground.run("collect").returncode == 0
        assert ground.run(command, step).returncode == -signal.SIGKILL
        ground.states()
        again = ground.run("run")
        assert again.returncode == 0, again.stderr
        delivered = ground.delivered()
        assert len(delivered) == ground.wanted(), "lost"
        assert ground.states() == {State.ACCEPTED: ground.wanted()}
        if command != "republish":
            assert sum(delivered.values()) == ground.wanted(), "in the spool twice"


@pytest.mark.parametrize("command", ["run", "republish"])
def test_killed_at_some_events_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path, command: str) -> None:
    count = events_of(tmp_path / "undisturbed", command)
    _kill_at(tmp_path, command, [0, 1, 2, count - 2])


@pytest.mark.long
@pytest.mark.parametrize("command", ["collect", "publish", "run", "republish"])
def test_killed_at_every_event_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path, command: str) -> None:
    _kill_at(tmp_path, command, range(events_of(tmp_path / "undisturbed", command)))


def test_told_to_stop_it_finishes_the_batch_and_leaves(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.run("collect")
    done = ground.run("publish", 1, "TERM")  # while the first batch is with the service
    assert done.returncode == 0, done.stderr
    states = ground.states()
    assert states[State.ACCEPTED] == BATCH
    assert states[State.WAITING] == ground.wanted() - BATCH
    assert State.IN_FLIGHT not in states
    ground.run("publish")
    assert ground.states() == {State.ACCEPTED: ground.wanted()}


HOLDER = """
import sys
from pathlib import Path
from publisher.api import Publisher
with Publisher.from_file(Path(sys.argv[1])) as publisher, publisher.store.lock(sys.argv[2]) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def _command(ground: Ground, *words: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", "from publisher.cli.main import main; main()", "--config", str(ground.config)]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [*arguments, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def test_a_second_run_says_that_another_is_at_work_and_leaves_with_0(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.run("collect")
    for lock in ("collect", "target-spool"):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(ground.config), lock],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "True\n"
            word = "collect" if lock == "collect" else "publish"
            second = _command(ground, word)
            assert second.returncode == 0, second.stderr
            assert "another run" in second.stderr + second.stdout
            if lock == "target-spool":
                assert ground.delivered() == {}
                denied = _command(ground, "republish", "spool", "--from", "2026-09", "--until", "2026-12", "--yes")
                assert denied.returncode == 2
                assert "another run" in denied.stderr
            holder.communicate("")
    assert _command(ground, "publish").returncode == 0
    assert len(ground.delivered()) == ground.wanted()


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.run("collect")
    assert ground.run("publish", 1).returncode == -signal.SIGKILL
    assert ground.run("publish").returncode == 0
    assert ground.states() == {State.ACCEPTED: ground.wanted()}


def test_a_target_at_work_does_not_block_the_others(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    with ground.config.open("a") as file:
        file.write('[targets.other]\ntype = "directory"\npath = "other"\nlayout = "files"\nrecords = "ogf-ur"\n')
    ground.run("collect")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(ground.config), "target-spool"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert ground.run("publish").returncode == 0
        holder.communicate("")
    assert ground.delivered() == {}
    assert sum(len(_RECORD_ID.findall(file.read_text())) for file in (tmp_path / "other").iterdir()) == ground.wanted()
