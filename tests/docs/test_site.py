"""The documents are built into a site, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_site_is_built_without_a_warning(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=root, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()
    assert (tmp_path / "site" / "how-to" / "troubleshooting" / "index.html").exists()
