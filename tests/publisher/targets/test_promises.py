"""Our own kinds of target keep the promises of `publisher.testing`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from publisher.testing import TargetSuite
from tests.extent import RUN_LONG, short_or_whole
from tests.publisher.auditor import AuditorDouble
from tests.publisher.store.server import PostgresqlServer
from tests.publisher.targets.doubles import (
    ApelDouble,
    DailyDouble,
    FolderDouble,
    HttpsDouble,
    SgasDouble,
    sgas_row,
    summary,
    undated,
)


class OwnSuite(TargetSuite):
    """The extent of our tests."""

    schedules = short_or_whole(10, 200)
    host_schedules = short_or_whole(1, 20)
    steps = short_or_whole(6, 14)
    many = 100_000 if RUN_LONG else 300
    several_hosts = True

    @pytest.fixture
    def database_server(self, postgresql: PostgresqlServer) -> PostgresqlServer:
        """The server of our tests."""
        return postgresql


class TestAuditor(OwnSuite):
    @pytest.fixture
    def service(self) -> Iterator[AuditorDouble]:
        with AuditorDouble().running() as double:
            yield double

    def value(self, body: bytes) -> Any:
        return json.loads(body)


class TestSgas(OwnSuite):
    @pytest.fixture
    def service(self, module_simulator: Simulator) -> SgasDouble:
        return SgasDouble(module_simulator)

    def value(self, body: bytes) -> Any:
        return sgas_row(body)


class TestApel(OwnSuite):
    @pytest.fixture
    def service(self, module_simulator: Simulator) -> ApelDouble:
        return ApelDouble(module_simulator)

    def value(self, body: bytes) -> Any:
        return summary(body)


class TestHttps(OwnSuite):
    @pytest.fixture
    def service(self) -> Iterator[HttpsDouble]:
        with HttpsDouble().running() as double:
            yield double

    def value(self, body: bytes) -> Any:
        return undated(body)


class TestDirectory(OwnSuite):
    @pytest.fixture
    def service(self, tmp_path: Path) -> FolderDouble:
        return FolderDouble(tmp_path / "spool", layout="files", records="ogf-ur")

    def value(self, body: bytes) -> Any:
        return undated(body)


class TestXdmod(OwnSuite):
    @pytest.fixture
    def service(self, tmp_path: Path) -> DailyDouble:
        return DailyDouble(tmp_path / "xdmod", records="xdmod-slurm")


@pytest.fixture(scope="module")
def module_simulator(pki: Pki) -> Iterator[Simulator]:
    """Emptied for each test."""
    with Simulator(pki, check_depth=0) as running:
        yield running
