"""One PKI for all tests of the simulator; a new simulator for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.publisher.simulator.records import Client


@pytest.fixture(scope="package")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """One of their own: they revoke certificates."""
    return make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Makes clients, and closes them at the end."""
    made: list[Client] = []

    def connected(*arguments: Any, **options: Any) -> Client:
        made.append(Client(*arguments, **options))
        return made[-1]

    yield connected
    for client in made:
        client.close()


@pytest.fixture
def client(simulator: Simulator, connect: Callable[..., Client]) -> Client:
    return connect(simulator, simulator.pki.client)
