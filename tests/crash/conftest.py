"""One nursery and one simulator for all deaths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import make_pki
from tests.crash.child import Nursery
from tests.crash.ground import Ground, Kind
from tests.faults.guarantees import Guarantees

Make = Callable[[Kind], Ground]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where processes come from."""
    with Nursery() as running:
        yield running


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """Emptied for each death."""
    pki = make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")
    with Simulator(pki, check_depth=0) as running:
        yield running


@pytest.fixture
def make(tmp_path: Path, nursery: Nursery, simulator: Simulator) -> Make:
    """Makes a ground in the folder `first`."""
    return lambda kind: Ground(tmp_path / "first", kind, nursery, simulator)


@pytest.fixture(scope="session")
def guarantees(root: Path, rewrite_golden: bool) -> Guarantees:
    """The table of docs/guarantees.md."""
    return Guarantees(root / "docs" / "guarantees.md", rewrite=rewrite_golden)
