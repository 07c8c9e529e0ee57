"""One simulator and one page for all faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.faults.full_disk import SmallDisk
from tests.faults.guarantees import Guarantees


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Throw-away certificates."""
    return make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")


@pytest.fixture(scope="session")
def simulator(pki: Pki) -> Iterator[Simulator]:
    """Emptied for each site."""
    with Simulator(pki) as running:
        yield running


@pytest.fixture(scope="session")
def guarantees(root: Path, rewrite_golden: bool) -> Guarantees:
    """The table of docs/internals/faults.csv."""
    return Guarantees(root / "docs" / "internals" / "faults.csv", rewrite=rewrite_golden)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A separate file system in the folder `disk`."""
    disk = SmallDisk(tmp_path / "disk")
    try:
        yield disk
    finally:
        disk.unmount()
