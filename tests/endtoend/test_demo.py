"""The demonstration, as a newcomer runs it: every step is done, and described before its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HINT = "Free some disk space, or name another folder with --directory"


def demonstrate(directory: Path, *program: str) -> subprocess.CompletedProcess[str]:
    """The demonstration in this directory; `program` runs it."""
    command = [*program, sys.executable, "-m", "publisher.cli", "demo", "--directory", str(directory)]
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}  # not unbuffered
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # a limit of file sizes would cut the bytecode off
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["file", "file/demo"])
def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    done = demonstrate(tmp_path / name)
    reason = "File exists" if name == "file" else "Not a directory"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"usage-publisher: {tmp_path / name} cannot be written: {reason}. {HINT}\n"


@pytest.mark.parametrize(("blocks", "reason"), [(0, "File too large"), (16, "disk I/O error")])
def test_a_directory_without_space_is_reported(tmp_path: Path, blocks: int, reason: str) -> None:
    demo = tmp_path / "demo"
    done = demonstrate(demo, "sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh")
    assert done.returncode == 2 if blocks else 1
    assert f"{demo if blocks else demo / 'services'} cannot be written: {reason}" in done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


def test_the_demonstration_plays_to_its_end(tmp_path: Path) -> None:
    done = demonstrate(tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    steps = [
        "Starting an SGAS",
        "Each service has 24 jobs, each once.",
        "Run again: there is nothing to send.",
        "Each service has 24 jobs, each once.",
        "A late job appears",
        "Only this job is sent",
        "│ sgas   │        1 │        │        0 │",
        "Each service has 25 jobs, each once.",
        "Show where it was delivered.",
        "late0001demo",
        "Show the state of all sources and targets.",
        "all delivered",
        "Look next",
    ]
    place = 0
    for step in steps:
        found = done.stdout.find(step, place)
        assert found >= 0, (step, done.stdout[place:])
        place = found + len(step)
