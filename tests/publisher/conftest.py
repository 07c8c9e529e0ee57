"""The store of a test's sites: a file, or a database on a server that runs as long as the tests; and simulators. A
module whose tests should pass on both has `pytestmark = pytest.mark.either_store`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.publisher.site import close_sites, stores_on
from tests.publisher.store.server import PostgresqlServer, serving


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of such a module on both. Those with many examples stay with the quicker one."""
    marked = metafunc.definition.get_closest_marker("either_store") is not None
    if marked and not hasattr(metafunc.function, "hypothesis"):
        on_server = pytest.param("postgresql", marks=pytest.mark.extra("postgresql"))
        metafunc.parametrize("_store_of_sites", ["sqlite", on_server], indirect=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A real PostgreSQL, started with the first test that asks for it."""
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _store_of_sites(request: pytest.FixtureRequest) -> Iterator[None]:
    if getattr(request, "param", "sqlite") == "sqlite":
        yield
        close_sites()
        return
    with stores_on(request.getfixturevalue("postgresql")):
        yield


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    """SGAS and AMS on the loopback interface, with TLS."""
    with Simulator(pki) as running:
        yield running
