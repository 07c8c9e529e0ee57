"""Certificates for tests of targets."""

from __future__ import annotations

import pytest

from publisher.simulator.pki import Pki, make_pki


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))
