"""A kit for authors of add-ons: the promises that a descriptor allows, as suites for pytest.

    class TestMine(TargetSuite):
        @pytest.fixture
        def service(self):
            with MyDouble().running() as double:
                yield double

It needs the extra `testing`. After SQLAlchemy's suite for dialects made elsewhere.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(f"publisher.testing.{name}" for name in ("delivery", "formats", "site", "sources", "targets"))
)

from publisher.testing.formats import FormatSuite  # noqa: E402
from publisher.testing.services import Alters, Exports, Fails, HttpDouble, HttpRequest, KeepsTime, Refuses, Service  # noqa: E402
from publisher.testing.sources import Facts, SourceSuite  # noqa: E402
from publisher.testing.targets import NOT_APPLICABLE, TargetSuite  # noqa: E402

__all__ = [
    "NOT_APPLICABLE",
    "Alters",
    "Exports",
    "Facts",
    "Fails",
    "FormatSuite",
    "HttpDouble",
    "HttpRequest",
    "KeepsTime",
    "Refuses",
    "Service",
    "SourceSuite",
    "TargetSuite",
]
