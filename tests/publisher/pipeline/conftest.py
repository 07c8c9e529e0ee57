"""Simulators with TLS, for tests over real sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running
