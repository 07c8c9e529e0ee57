"""The exit codes, one test for each row of the table, and which wins where several apply."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from publisher.simulator.faults import Fault
from publisher.simulator.pki import Pki
from publisher.simulator.simulator import Simulator
from tests.publisher.cli.program import BASE, FILES, SOURCE, WHOLE, Program


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


def sgas(simulator: Simulator, **changes: str) -> str:
    """A target at the simulator, which tries once."""
    settings = {
        "type": "sgas",
        "url": simulator.sgas_url,
        "credentials.certificate": str(simulator.pki.client.certificate),
        "credentials.key": str(simulator.pki.client.key),
        "credentials.ca_file": str(simulator.pki.ca_file),
    } | changes
    lines = [f'{name} = "{value}"' for name, value in settings.items()]
    return "\n[targets.sgas]\n" + "\n".join([*lines, "attempts = 1", "batch_records = 10"]) + "\n"


def test_0_all_done(fresh: Program) -> None:
    assert fresh("run").code == 0
    assert fresh("run").code == 0


def test_1_while_a_service_lacks_what_was_sent(fresh: Program) -> None:
    """Every run reports it, and so does monitoring, until a reconciliation finds it settled."""
    fresh.configure(BASE + SOURCE + FILES)
    fresh("run").ok()
    assert fresh("check", "--nagios").code == 0
    kept = {file: file.read_bytes() for file in (fresh.folder / "files").iterdir()}
    file = next(iter(kept))
    file.unlink()
    assert fresh("reconcile", "files", "--since", "2026-09", "--until", "2026-12").code == 1
    missing = fresh("status", "--json").object["targets"]["files"]["missing"]
    assert missing > 0
    for _ in range(2):
        done = fresh("run")
        assert done.code == 1
        assert f"{missing} missing, 0 with other values: usage-publisher reconcile files" in done.err
    assert fresh("publish").code == 0, "of what was published"
    nagios = fresh("check", "--nagios")
    assert nagios.code == 1
    assert f"target files: at the service: {missing} missing" in nagios.out
    file.write_bytes(kept[file].replace(b"<Processors>1<", b"<Processors>3<"))
    fresh("reconcile", "files", "--since", "2026-09", "--until", "2026-12")
    file.write_bytes(kept[file])
    fresh("reconcile", "files", "--since", "2026-09", "--until", "2026-12").ok()
    fresh("run").ok()
    assert fresh("check", "--nagios").code == 0


def test_1_a_spooling_context_cannot_be_written(fresh: Program) -> None:
    """Everything else is done, and is not done again."""
    fresh.configure(fresh.config.read_text() + '\n[spool.texts]\nformat = "delimited"\npath = "texts"\n')
    (fresh.folder / "texts").write_text("a file where the folder should be")
    for words in (("collect", "--json"), ("publish", "--quiet"), ("run",)):
        done = fresh(*words)
        assert done.code == 1, words
        assert "spool texts" in done.err
    assert fresh("status", "--json").object["complete"] is True
    (fresh.folder / "texts").unlink()
    assert fresh("collect").code == 0
    assert (fresh.folder / "texts" / "jobs.txt").exists()


@pytest.mark.parametrize("content", [b"\0" * 512, b"\0" * (2 << 20), b"\0\n" * 512])
def test_1_a_log_of_only_nuls(fresh: Program, content: bytes) -> None:
    (fresh.folder / "accounting").write_bytes(content)
    fresh.configure(f'{BASE}[sources.ge]\ntype = "gridengine"\npath = "accounting"\n{FILES}')
    for _ in range(2):
        assert fresh("collect").code == 1


def test_1_a_database_of_only_nuls(fresh: Program) -> None:
    (fresh.folder / "accounting.db").write_bytes(b"\0" * 8_192)
    assert fresh("collect").code == 1


def test_0_where_another_run_is_at_work(collected: Program, simulator: Simulator) -> None:
    """One run hangs in the middle of its work; another one says so, does the rest, and is content."""
    simulator.faults.replace([Fault("hang")])
    collected.configure(BASE + SOURCE + sgas(simulator) + FILES)
    busy = collected.start("publish", "sgas")
    try:
        while not simulator.faults.applied()[0][1]:
            assert busy.poll() is None, busy.communicate()
            os.sched_yield()
        done = collected("run")
        assert done.code == 0
        assert "another run is sending" in done.err + done.out
        assert collected("status", "--json").object["targets"]["files"]["waiting"] == 0
        again = collected("republish", "sgas", "--since", "2026-10-01", "--until", "2026-12-01", "--yes")
        assert again.code == 1
        assert "another run is sending to target sgas" in again.err
    finally:
        busy.kill()
        busy.communicate()
    simulator.faults.replace([])
    assert collected("run").code == 0
    assert len(simulator.sgas.holdings()) == 37


def test_1_a_source_could_not_be_read(fresh: Program) -> None:
    (fresh.folder / "accounting.db").rename(fresh.folder / "away.db")
    done = fresh("run", "--json")
    assert done.code == 1
    assert "accounting.db" in done.object["sources"]["ce1"]["error"]
    (fresh.folder / "away.db").rename(fresh.folder / "accounting.db")
    assert fresh("run").code == 0


def test_0_where_only_a_target_that_was_not_asked_for_waits(collected: Program, simulator: Simulator) -> None:
    simulator.faults.replace([Fault("status", code=503)])
    collected.configure(BASE + SOURCE + sgas(simulator) + FILES)
    assert collected("publish", "files").code == 0
    assert collected("publish", "sgas").code == 1
    assert collected("publish").code == 1


def test_1_something_waits_for_a_service(collected: Program, simulator: Simulator) -> None:
    simulator.faults.replace([Fault("status", code=503)])
    collected.configure(BASE + SOURCE + sgas(simulator) + FILES)
    done = collected("publish", "--json")
    assert done.code == 1
    assert done.object["targets"]["sgas"]["waiting"] == 37
    assert done.object["targets"]["files"]["waiting"] == 0, "the other target is served"
    simulator.faults.replace([])
    assert collected("publish").code == 0
    assert {held.received for held in simulator.sgas.holdings().values()} == {1}


def test_2_usage(collected: Program) -> None:
    assert collected("publish", "nosuch").code == 2


def test_2_configuration(collected: Program) -> None:
    collected.configure(WHOLE.replace("[site]", "[sight]"))
    assert collected("run").code == 2


def test_3_records_newly_rejected(collected: Program, simulator: Simulator) -> None:
    simulator.faults.replace([Fault("status", match="rLvfjWSagc1E00000039")])
    collected.configure(BASE + SOURCE + sgas(simulator))
    done = collected("publish", "--json")
    assert done.code == 3
    assert (done.object["targets"]["sgas"]["accepted"], done.object["targets"]["sgas"]["rejected"]) == (36, 1)
    assert collected("publish").code == 0, "it is not newly rejected any more"


def test_3_records_newly_held(collected: Program) -> None:
    collected.configure(WHOLE.replace('complete_since = "2026-09-01"', 'complete_since = "2026-10-01"'))
    done = collected("publish", "--json")
    assert done.code == 3
    assert done.object["targets"]["summaries"]["held"] > 0
    assert collected("publish").code == 0, "they are not newly held any more"
    watched = collected("check", "--nagios")
    assert watched.code == 1, "but they are held, and monitoring warns as long as they are"
    assert "target summaries: held: " in watched.out


def test_0_where_republish_holds_again_what_was_held(collected: Program) -> None:
    """It tries it again, and sends the others; what is held anew is another matter."""
    window = ("republish", "files", "--since", "2026-09", "--until", "2026-12", "--yes", "--json")
    collected.configure(BASE + SOURCE + FILES)
    assert collected("publish").code == 0
    collected.configure(BASE + SOURCE + FILES + 'unknown_vo = "hold"\n')
    for code in (3, 0):
        done = collected(*window)
        plan = done.object["plan"]
        assert plan["held_again"] == plan["held"]
        assert sum(plan["to_hold"].values()) > 0
        assert (done.code, done.object["targets"]["files"]["accepted"]) == (code, plan["to_send"])


def test_4_credentials_refused_here(collected: Program, simulator: Simulator) -> None:
    simulator.pki.client.key.chmod(0o644)
    try:
        collected.configure(BASE + SOURCE + sgas(simulator) + FILES)
        done = collected("publish", "--json")
    finally:
        simulator.pki.client.key.chmod(0o600)
    assert done.code == 4
    assert str(simulator.pki.client.key) in done.object["targets"]["sgas"]["error"]
    assert done.object["targets"]["files"]["waiting"] == 0, "the other target is served"


def test_4_credentials_refused_there(collected: Program, pki: Pki) -> None:
    with Simulator(pki, rights={}) as simulator:
        collected.configure(BASE + SOURCE + sgas(simulator) + FILES)
        done = collected("publish", "--json")
    assert done.code == 4
    assert done.object["targets"]["sgas"]["waiting"] == 37
    assert done.object["targets"]["files"]["waiting"] == 0


def test_5_the_store(collected: Program) -> None:
    (collected.folder / "store.db").write_bytes(b"this is no database, however long one looks at it " * 40)
    done = collected("run", "--json")
    assert (done.code, done.object["exit_code"]) == (5, 5)
    assert "store.db" in done.err
    assert not (collected.folder / "files").exists(), "nothing was sent"


def test_5_a_store_of_a_later_version(collected: Program) -> None:
    with closing(sqlite3.connect(collected.folder / "store.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    done = collected("publish")
    assert done.code == 5
    assert "later version" in done.err


def test_credentials_are_reported_before_a_service_that_is_away(collected: Program, simulator: Simulator) -> None:
    simulator.faults.replace([Fault("status", code=503)])
    other = sgas(simulator, **{"credentials.key": str(simulator.pki.server.key)}).replace(
        "targets.sgas", "targets.other"
    )
    collected.configure(BASE + SOURCE + sgas(simulator) + other)
    done = collected("publish", "--json")
    assert done.code == 4
    assert done.object["targets"]["sgas"]["waiting"] == done.object["targets"]["other"]["waiting"] == 37
