"""The README's configuration and commands work unchanged, with simulated SGAS and APEL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from publisher.store.schema import State
from tests.docs.test_moving import Walk, with_credentials
from tests.docs.test_pages import FENCE
from tests.generators.arc_database import load


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("readme"))


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


def test_its_site_delivers_everything(fixtures: Path, tmp_path: Path, simulator: Simulator, pki: Pki) -> None:
    walk = Walk("../README.md", tmp_path, simulator, pki)
    (configuration,) = [text for language, text in FENCE.findall(walk.text) if language == "toml"]
    store = '[store]\nurl = "sqlite:////var/lib/usage-publisher/store.db"\n'  # the default, elsewhere
    walk.put("/etc/usage-publisher/publisher.toml", with_credentials(configuration, pki) + store)
    accounting = tmp_path / "var" / "spool" / "arc" / "jobstatus" / "accounting"
    accounting.mkdir(parents=True)
    load(fixtures / "arc" / "accounting.sql", accounting / "accounting.db")
    walk.adapt()
    walk.walk()
    assert len(walk.ran) == 3
    states = walk.rows("SELECT DISTINCT name, state FROM deliveries JOIN targets ON targets.id = target_id")
    assert sorted(states) == [("apel", State.ACCEPTED), ("sgas", State.ACCEPTED)], "nothing is held or waits"
    assert simulator.sgas.holdings()
    assert simulator.apel.holdings().summaries
    assert not simulator.apel.holdings().rejected
