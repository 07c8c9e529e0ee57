"""The table at the end of `make test-real`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.programs import COMPARED

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are `real`."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("real")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was compared, with which version of which program."""
    if COMPARED:
        terminalreporter.section("compared with real programs, without a difference")
        for line in COMPARED:
            terminalreporter.write_line(f"{line.program} {line.version}: {line.number:,} {line.what}")
