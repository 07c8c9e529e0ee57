"""The kill matrix: real processes killed at every step, and the next run: lost 0, sent twice only the batch in flight.

A step is an event of the program, or, finer, a statement to its store. The quick form kills at some events of every
command and kind of target, the long one at all of them, and at every fourth statement.
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from publisher.simulator import Fault
from publisher.store.database import SCHEMA
from publisher.store.schema import State
from tests.crash.child import Command, Unit
from tests.crash.conftest import Make
from tests.crash.crash_site import BATCH, KINDS, CrashSite, Kind, Toll
from tests.faults.guarantees import Guarantees

COMMANDS: tuple[Command, ...] = ("collect", "publish", "republish")


def prepared(site: CrashSite, command: Command) -> CrashSite:
    """Let what comes before a command be done."""
    before: dict[Command, Command] = {"publish": "collect", "republish": "run"}
    if command in before:
        done = site.run(before[command])
        assert done.code == 0, done.said
    return site


def steps_of(site: CrashSite, command: Command, unit: Unit) -> int:
    """How many steps an undisturbed process has."""
    site.forget()
    undisturbed = prepared(CrashSite(site.folder.parent / f"undisturbed-{unit}", site.kind, *site.helpers), command)
    done = undisturbed.run(command, unit=unit)
    assert done.code == 0, done.said
    if command != "collect":
        assert undisturbed.assert_delivered(times=2) == 0
    return len(done.steps)


def killed_at(site: CrashSite, command: Command, unit: Unit, steps: Iterable[int]) -> Toll:
    """Kill at these steps, each time on new site; the next run mends it. Gives the worst that came of it."""
    worst = Toll()
    times = 2 if command == "republish" else 1
    first = None if command == "republish" and site.kind != "files" else prepared(site, command)
    for step in steps:
        site.forget()
        folder = site.folder.parent / f"{unit}-{step}"
        copy = first.copy(folder) if first else prepared(CrashSite(folder, site.kind, *site.helpers), command)
        ending = copy.run(command, step, unit)
        assert ending.code == -signal.SIGKILL, ending.said
        flying = 0
        if (folder / "store.db").stat().st_size:
            copy.assert_sound()
            flying = copy.flying()
            assert flying <= site.workers, f"step {step}: more messages on their way than may be"
        again = copy.run("run")
        assert again.code == 0, again.said
        toll = copy.toll(times)
        worst = worst.or_worse(toll).or_worse(Toll(flying=flying))
        if toll.lost:
            continue  # reported by the caller
        assert copy.assert_delivered(times) <= BATCH * site.workers, f"step {step}: sent twice what was not in flight"
        if copy.kind == "files":
            assert sum(copy.arrived().values()) == len(copy.selected()) or command == "republish"
        if unit == "event":
            idle = copy.run("run")
            assert "BatchInFlight" not in idle.steps, "something is sent though all is there"
        shutil.rmtree(folder)
    return worst


OF_NO_SUITE: tuple[tuple[Command, Kind], ...] = (
    ("publish", "cars"),
    ("publish", "queue"),
    *(("republish", kind) for kind in KINDS),
)
"""What `tests/publisher/targets/test_promises.py` does not kill at every event."""


@pytest.mark.parametrize(("command", "kind"), OF_NO_SUITE)
def test_killed_at_some_steps(make: Make, command: Command, kind: Kind) -> None:
    site = make(kind)
    count = steps_of(site, command, "event")
    assert killed_at(site, command, "event", sorted({0, count // 2, max(0, count - 2)})).lost == 0


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("unit", ["event", "statement"])
def test_killed_at_every_step(make: Make, command: Command, kind: Kind, unit: Unit) -> None:
    site = make(kind)
    steps = range(0, steps_of(site, command, unit), 1 if unit == "event" else 4)
    assert killed_at(site, command, unit, steps).lost == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_every_step_towards_sgas(make: Make, guarantees: Guarantees, command: Command) -> None:
    site = make("sgas")
    unit: Unit = "statement" if command == "collect" else "event"
    stride = 5 if command == "collect" else 1
    toll = killed_at(site, command, unit, range(0, steps_of(site, command, unit), stride))
    words = f"{len(site.selected())} jobs: the next run completes"
    guarantees.row(f"kill {command}", words, toll.lost, toll.twice)
    assert toll == (Toll() if command == "collect" else Toll(0, BATCH, 1))


@pytest.mark.parametrize(("command", "workers"), [("publish", 2), ("publish", 3), ("republish", 2)])
def test_killed_with_several_messages_on_their_way(make: Make, command: Command, workers: int) -> None:
    site = make("sgas", workers)
    toll = killed_at(site, command, "event", range(1, steps_of(site, command, "event"), 4))
    assert toll.lost == 0
    assert toll.flying == workers, "or the kills came when nothing was on its way"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sgas", "cars", "files"])
@pytest.mark.parametrize("command", ["publish", "republish"])
@pytest.mark.parametrize("unit", ["event", "statement"])
def test_killed_at_every_step_with_several_messages_on_their_way(
    make: Make, command: Command, kind: Kind, unit: Unit
) -> None:
    site = make(kind, 2)
    steps = range(0, steps_of(site, command, unit), 1 if unit == "event" else 4)
    assert killed_at(site, command, unit, steps).lost == 0


# --- a new store


def version_of(folder: Path) -> str | None:
    """The version of a store; None where nothing was created."""
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("SELECT name FROM sqlite_master").fetchall():
            return None
        (version,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(version)


def test_killed_while_a_store_is_created(make: Make, guarantees: Guarantees) -> None:
    site = make("files")
    undisturbed = site.copy(site.folder.parent / "undisturbed")
    done = undisturbed.run("open", unit="statement")
    assert done.code == 0, done.said
    for step in range(0, len(done.steps), 2):
        folder = site.folder.parent / f"step{step}"
        copy = site.copy(folder)
        ending = copy.run("open", step, "statement")
        assert ending.code == -signal.SIGKILL, ending.said
        assert version_of(folder) in {None, SCHEMA.head}, "half a store"
        assert copy.run("open").code == 0
        assert version_of(folder) == SCHEMA.head
        shutil.rmtree(folder)
    guarantees.row("kill creation", "no store or a complete one", 0, 0)


# --- interrupted


def test_interrupted_it_finishes_the_batch_and_ends(make: Make, guarantees: Guarantees) -> None:
    site = make("sgas")
    site.forget()
    site.run("collect")
    done = site.run("publish", 1, signal_name="TERM")  # while the first batch is with the service
    assert done.code == 0, done.said
    states = site.ledger().counters
    jobs = len(site.selected())
    assert states == {State.ACCEPTED: BATCH, State.WAITING: jobs - BATCH}
    site.run("publish")
    twice = site.assert_delivered()
    words = f"the batch is finished: {BATCH} of {jobs} accepted; the next run sends the others"
    guarantees.row("terminate", words, site.toll().lost, twice)
    assert twice == 0


def test_interrupted_it_does_not_wait_long_for_a_service_that_hangs(make: Make) -> None:
    """The time-out is an hour. What the service did not answer is sent again, with the same ids."""
    site = make("sgas")
    site.forget()
    site.run("collect")
    site.simulator.faults.replace([Fault("hang", stored=True, count=1)])
    done = site.run("publish", 1, signal_name="TERM")
    site.simulator.faults.replace([])
    assert done.code == 0, done.said
    assert site.ledger().counters == {State.WAITING: len(site.selected())}
    site.run("publish")
    assert site.assert_delivered() == BATCH


def test_interrupted_it_waits_for_none_of_several_messages(make: Make) -> None:
    """Two are with a service that hangs, and it has taken both."""
    site = make("sgas", 2)
    site.forget()
    site.run("collect")
    site.simulator.faults.replace([Fault("hang", stored=True, count=2)])
    done = site.run("publish", 2, signal_name="TERM")
    site.simulator.faults.replace([])
    assert done.code == 0, done.said
    assert done.steps.count("BatchInFlight") == 2
    assert site.ledger().counters == {State.WAITING: len(site.selected())}
    site.run("publish")
    assert site.assert_delivered() == 2 * BATCH
