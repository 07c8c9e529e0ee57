"""A site in a folder for measurements: a configuration over an ARC database, and commands run on it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.bench.inputs import arc_database, arc_database_of_two_years, gridengine_colon, torque_days
from tests.bench.measure import COMMAND, Bench

_BENCHMARK = 'benchmark = { type = "HEPscore23", value = 14.2 }'
_COMPLETE = 'complete_since = "2024-11-01"'
_UTC = 'timezone = "UTC"'


def _site(source: str, kind: str, path: str, *settings: str) -> str:
    """A site with a source of this name, kind, and path."""
    head = f'[site]\nname = "EXAMPLE-SITE"\n[store]\nurl = "sqlite:///store.db"\n[sources.{source}]\n'
    return head + "\n".join((f'type = "{kind}"', f'path = "{path}"', _BENCHMARK, *settings)) + "\n"


def _vo_of_group(source: str) -> str:
    """A rule that takes the only group of a source for a VO."""
    return f'[[sources.{source}.map]]\nwhen = {{ local_group = "chem" }}\nvo = "chem"'


HEAD = _site("ce1", "arc", "accounting.db", _COMPLETE)
GRID_ENGINE = _site("ce1", "gridengine", "accounting", 'cluster = "cell"')
TORQUE = _site("batch", "torque", "logs", _COMPLETE, _UTC, _vo_of_group("batch"))
SLURM = _site("slurm", "slurm", "sacct", _COMPLETE, _UTC, _vo_of_group("slurm"))
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
    """Write the configuration and a copy of the database; return the configuration's path."""
    return make_site_of(bench, HEAD + targets, arc_database(bench), "accounting.db")


def make_site_of_two_years(bench: Bench, targets: str) -> Path:
    """The same over jobs of two years."""
    return make_site_of(bench, HEAD + targets, arc_database_of_two_years(bench), "accounting.db")


def make_gridengine_site(bench: Bench, targets: str) -> Path:
    """The same over a classic accounting file of Grid Engine."""
    return make_site_of(bench, GRID_ENGINE + targets, gridengine_colon(bench), "accounting")


def make_torque_site(bench: Bench, targets: str) -> Path:
    """The same over daily files of TORQUE of two years; jobs of its only group belong to the VO of that name."""
    return make_site_of(bench, TORQUE + targets, torque_days(bench), "logs")


def make_site_of(bench: Bench, text: str, source: Path, name: str) -> Path:
    """Write a configuration, and a copy of what its source reads; return the configuration's path."""
    for file in bench.folder.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    if source.is_dir():
        shutil.copytree(source, bench.folder / name)
    else:
        shutil.copy(source, bench.folder / name)
    config = bench.folder / "publisher.toml"
    config.write_text(text, encoding="utf-8")
    return config


def prepare(bench: Bench, *commands: str) -> None:
    """Run commands that are not measured."""
    for command in commands:
        subprocess.run([*COMMAND, "--config", "publisher.toml", "--quiet", command], cwd=bench.folder, check=True)
