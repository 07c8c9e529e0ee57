"""One fork server and one simulator for all killed processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import make_pki
from tests.crash.child import ForkServer
from tests.crash.crash_site import CrashSite, Kind
from tests.faults.guarantees import Guarantees
from tests.publisher.conftest import postgresql

__all__ = ["postgresql"]


class Make(Protocol):
    """Makes a site."""

    def __call__(self, kind: Kind, workers: int = 1) -> CrashSite:
        """A site of this kind, with this number of messages in flight at a time."""
        ...


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """The server that forks processes."""
    with ForkServer() as running:
        yield running


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """Emptied for each death."""
    pki = make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")
    with Simulator(pki, check_depth=0) as running:
        yield running


@pytest.fixture
def make(tmp_path: Path, fork_server: ForkServer, simulator: Simulator) -> Make:
    """Makes a site in the folder `first`."""
    return lambda kind, workers=1: CrashSite(tmp_path / "first", kind, fork_server, simulator, workers)


@pytest.fixture(scope="session")
def guarantees(root: Path, rewrite_golden: bool) -> Guarantees:
    """The table of docs/internals/faults.csv."""
    return Guarantees(root / "docs" / "internals" / "faults.csv", rewrite=rewrite_golden)
