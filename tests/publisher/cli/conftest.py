"""Sites in three conditions; each test gets a copy.

Commands run in processes of their own, or in that of the tests if a module says `pytestmark = pytest.mark.inside`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.simulator.pki import Pki, make_pki
from tests.generators.arc_database import load
from tests.publisher.cli.program import Inside, Program


@pytest.fixture(scope="session")
def fresh_site(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Program:
    """A new site, on which nothing was done."""
    folder = tmp_path_factory.mktemp("fresh")
    load(fixtures / "arc" / "accounting.sql", folder / "accounting.db")
    return Program(folder)


@pytest.fixture(scope="session")
def collected_site(fresh_site: Program, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Collected; everything waits."""
    site = fresh_site.copy(tmp_path_factory.mktemp("collected"))
    site("collect").ok()
    return site


@pytest.fixture(scope="session")
def published_site(collected_site: Program, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Collected and published."""
    site = collected_site.copy(tmp_path_factory.mktemp("published"))
    site("publish").ok()
    return site


def _kind(request: pytest.FixtureRequest) -> type[Program]:
    return Inside if request.node.get_closest_marker("inside") is not None else Program


@pytest.fixture
def fresh(fresh_site: Program, tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    return fresh_site.copy(tmp_path / "site", _kind(request))


@pytest.fixture
def collected(collected_site: Program, tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    return collected_site.copy(tmp_path / "site", _kind(request))


@pytest.fixture
def published(published_site: Program, tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    return published_site.copy(tmp_path / "site", _kind(request))


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))
