"""Memory does not grow with the work: what a run takes at its peak, over few jobs and over many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extent import short_or_whole
from tests.generators import arc_database
from tests.publisher.cli.program import BASE, FILES, SOURCE, SUMMARIES, Program

MORE_MIB = 25
"""Caches of the store and of the temporary database of the evidence (8 MiB each) are not full with few jobs."""
MEASURED = """
import json, resource, sys
from publisher.cli.main import main
sys.argv = ["usage-publisher", "--quiet", "--json", "run"]
try:
    main()
except SystemExit as end:
    code = end.code
with open("/proc/self/status", encoding="ascii") as status:  # getrusage still knows the size of whoever started it
    own = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
readers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({"code": code, "mib": own / 1024, "reader_mib": readers / 1024}), file=sys.stderr)
"""


def _peaks(folder: Path, jobs: int, target: str) -> dict[str, float]:
    folder.mkdir()
    arc_database.create(folder / "accounting.db", jobs, 1)
    site = Program(folder, BASE + SOURCE + target + "batch_records = 500\n")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], cwd=folder, env=site.environment, check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stderr.splitlines()[-1])
    assert found["code"] in {0, 3}, done.stderr
    return found


def _assert_flat(folder: Path, few: int, many: int, target: str = FILES, more_mib: int = MORE_MIB) -> None:
    small, large = _peaks(folder / "few", few, target), _peaks(folder / "many", many, target)
    assert large["mib"] - small["mib"] < more_mib
    assert large["reader_mib"] < small["mib"] + more_mib


def test_memory_does_not_grow_with_the_jobs(tmp_path: Path) -> None:
    _assert_flat(tmp_path, 4_000, short_or_whole(10_000, 16_000))  # of fewer, not even the pages in hand are full


@pytest.mark.long
def test_memory_does_not_grow_with_very_many_jobs(tmp_path: Path) -> None:
    _assert_flat(tmp_path, 1_000, 100_000, more_mib=35)


@pytest.mark.long
def test_first_summaries_of_very_many_jobs_take_little_more(tmp_path: Path) -> None:
    """Ten bytes a job that waits, and the groups."""
    _assert_flat(tmp_path, 4_000, 200_000, SUMMARIES, more_mib=20)
