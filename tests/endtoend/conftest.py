"""A site with simulated services for every test here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.endtoend.rehearsal import Rehearsal


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Throw-away certificates."""
    return make_pki(tmp_path_factory.mktemp("pki") / "pki")


@pytest.fixture
def site(tmp_path: Path, pki: Pki) -> Iterator[Rehearsal]:
    """A site without jobs and without a configuration yet."""
    with Simulator(pki) as simulator:
        yield Rehearsal(tmp_path, simulator, pki)
