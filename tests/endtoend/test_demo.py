"""The demonstration, as a newcomer runs it: every step done, and told before what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_demonstration_plays_to_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "publisher.cli", "demo", "--directory", str(tmp_path / "demo")]
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}  # not unbuffered
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    steps = [
        "Starting an SGAS",
        "Each service has 24 jobs, each once.",
        "Run again: there is nothing to send.",
        "Each service has 24 jobs, each once.",
        "A late job appears",
        "Only this job is sent",
        "│ sgas   │        1 │        0 │",
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
