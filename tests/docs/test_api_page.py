"""The page about the library: its example runs, and it names what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import publisher
from tests.conftest import ROOT
from tests.publisher.cli.conftest import fresh, fresh_site
from tests.publisher.cli.program import Program

__all__ = ["fresh", "fresh_site"]

PAGE = (ROOT / "docs" / "internals" / "api.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]


def test_the_example_runs_as_it_is_written(fresh: Program) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLE], cwd=fresh.folder, env=fresh.environment, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Collected(" in done.stdout
    assert "<JobUsageRecord" in done.stdout or "UsageRecords" in done.stdout
    assert (fresh.folder / "october.svg").read_bytes().startswith(b"<?xml")
    assert len([line for line in EXAMPLE.splitlines() if line.strip()]) <= 12


def test_it_names_what_there_is() -> None:
    table = {
        name
        for row in re.findall(r"^((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert table == set(publisher.__all__)
    for name in publisher.__all__:
        assert getattr(publisher, name).__doc__ or name in {"Event", "Observer"}, name


def test_importing_it_loads_nothing_else(tmp_path: Path) -> None:
    heavy = "('publisher.', 'sqlalchemy', 'pydantic')"
    code = f"import sys, publisher; print(sorted(name for name in sys.modules if name.startswith({heavy})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
