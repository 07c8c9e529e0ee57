"""Real processes publishing to the SGAS simulator over TLS, killed at their events: all there, each counted once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import make_pki
from publisher.store.states import State
from tests.crash.test_kill_matrix import BATCH, Ground


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """One for all: it is emptied for each test."""
    pki = make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")
    with Simulator(pki, check_depth=0) as running:
        yield running


def ground_of(folder: Path, simulator: Simulator) -> Ground:
    """A ground whose target is the simulator."""
    simulator.sgas.reset()
    ground = Ground(folder)
    text = ground.config.read_text()
    head, _, _ = text.partition("[targets.spool]")
    pki = simulator.pki
    ground.config.write_text(
        f"""{head}
[targets.spool]
type = "sgas"
url = "{simulator.sgas_url}"
batch_records = {BATCH}
[credentials]
certificate = "{pki.client.certificate}"
key = "{pki.client.key}"
ca_file = "{pki.ca_file}"
"""
    )
    return ground


def _kill_at(folder: Path, simulator: Simulator, step: int) -> None:
    folder.mkdir()
    ground = ground_of(folder, simulator)
    assert ground.run("collect").returncode == 0
    assert ground.run("publish", step).returncode == -signal.SIGKILL
    again = ground.run("publish")
    assert again.returncode == 0, again.stderr
    held = simulator.sgas.holdings()
    assert len(held) == ground.wanted(), "lost"
    assert ground.states() == {State.ACCEPTED: ground.wanted()}
    twice = [record_id for record_id, record in held.items() if record.received > 1]
    assert len(twice) in {0, BATCH}, "sent twice what was not in flight"
    assert max(record.received for record in held.values()) <= 2


@pytest.mark.parametrize("step", [0, 1, 4])
def test_killed_while_publishing_to_sgas_everything_is_there_once(
    tmp_path: Path, simulator: Simulator, step: int
) -> None:
    _kill_at(tmp_path / "x", simulator, step)


@pytest.mark.long
def test_killed_at_every_event_of_publishing_to_sgas_everything_is_there_once(
    tmp_path: Path, simulator: Simulator
) -> None:
    (tmp_path / "undisturbed").mkdir()
    ground = ground_of(tmp_path / "undisturbed", simulator)
    ground.run("collect")
    events = len(ground.run("publish").stdout.split())
    for step in range(events):
        _kill_at(tmp_path / str(step), simulator, step)
