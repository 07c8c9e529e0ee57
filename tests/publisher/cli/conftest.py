"""Sites in three conditions; each test gets a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.simulator.pki import Pki, make_pki
from tests.generators.arc_database import load
from tests.publisher.cli.program import Program


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


@pytest.fixture
def fresh(fresh_site: Program, tmp_path: Path) -> Program:
    return fresh_site.copy(tmp_path / "site")


@pytest.fixture
def collected(collected_site: Program, tmp_path: Path) -> Program:
    return collected_site.copy(tmp_path / "site")


@pytest.fixture
def published(published_site: Program, tmp_path: Path) -> Program:
    return published_site.copy(tmp_path / "site")


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))
