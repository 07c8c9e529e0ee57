"""The Python example on the page about the simulator runs unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "how-to" / "rehearsal.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_is_written(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert example.count("/tmp/rehearsal") == 1
    code = example.replace("/tmp/rehearsal", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    urls, holdings = done.stdout.splitlines()
    assert urls.count("https://localhost:") == 3
    assert holdings.startswith("{} ApelHoldings(")
    assert (tmp_path / "ca.pem").exists()
