"""A site in a folder for measurements: a configuration over an ARC database, and commands run on it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.bench.inputs import arc_database
from tests.bench.measure import COMMAND, Bench

HEAD = """\
[site]
name = "EXAMPLE-SITE"
[store]
url = "sqlite:///store.db"
[sources.ce1]
type = "arc"
path = "accounting.db"
complete_since = "2026-01-01"
benchmark = { type = "HEPscore23", value = 14.2 }
"""
DELIVERED = """
[targets.sgas]
type = "directory"
path = "files"
layout = "files"
records = "ogf-ur"
delivered_until = "2100-01-01"
"""
SUMMARIES = """
[targets.apel]
type = "directory"
path = "summaries"
layout = "files"
records = "apel-summary"
"""


def make_site(bench: Bench, targets: str) -> Path:
    """Write the configuration, lay a copy of the database beside it; the configuration's path."""
    for file in bench.folder.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copy(arc_database(bench), bench.folder / "accounting.db")
    config = bench.folder / "publisher.toml"
    config.write_text(HEAD + targets, encoding="utf-8")
    return config


def prepare(bench: Bench, *commands: str) -> None:
    """Run commands that are not measured."""
    for command in commands:
        subprocess.run([*COMMAND, "--config", "publisher.toml", "--quiet", command], cwd=bench.folder, check=True)
