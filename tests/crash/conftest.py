"""One nursery and one simulator for all deaths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import make_pki
from tests.crash.child import Nursery
from tests.crash.ground import Ground, Kind
from tests.faults.guarantees import Guarantees
from tests.publisher.conftest import postgresql

__all__ = ["postgresql"]


class Make(Protocol):
    """Makes a ground."""

    def __call__(self, kind: Kind, workers: int = 1) -> Ground:
        """Of this kind, with so many messages on their way at a time."""
        ...


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
    return lambda kind, workers=1: Ground(tmp_path / "first", kind, nursery, simulator, workers)


@pytest.fixture(scope="session")
def guarantees(root: Path, rewrite_golden: bool) -> Guarantees:
    """The table of docs/guarantees.md."""
    return Guarantees(root / "docs" / "guarantees.md", rewrite=rewrite_golden)
