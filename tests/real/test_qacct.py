"""What Grid Engine's own `qacct` makes of a log, and what our totals of it are. No qmaster has to run for that."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.publisher.report.views.test_qacct import SINCE, assert_agreement, collected, said_by_qacct, totals
from tests.real.programs import compared

LINES: Final = 2000
VIEWS: Final = {
    "-o": "user", "-g": "group", "-P": "project", "-D": "department", "-h": "host", "-q": "queue", "-A": "account",
    "-pe": "pe", "-slots": "slots",
}  # fmt: skip
BOOTSTRAP: Final = "".join(
    f"{name} {value}\n"
    for name, value in {
        "admin_user": "none", "default_domain": "none", "ignore_fqdn": "false", "spooling_method": "classic",
        "spooling_lib": "libspoolc", "spooling_params": "/", "binary_path": "/usr/sbin", "qmaster_spool_dir": "/",
        "security_mode": "none", "listener_threads": 2, "worker_threads": 2, "scheduler_threads": 1,
    }.items()
)  # fmt: skip
"""What it reads first, and does not use for a log."""


def log(chance: random.Random) -> str:
    """A log of runs that ran, with values drawn independently."""
    lines = []
    for number in range(1, LINES + 1):
        start = SINCE + chance.randrange(20 * 86_400)
        wall_s = chance.randrange(1, 200_000)
        user_s, system_s = chance.randrange(10**9) / 1000, chance.randrange(10**6) / 1000
        pe = chance.choice(["NONE", "smp", "mpi"])
        fields = (
            chance.choice(["main.q", "long.q", "a-b.q"]), f"node{chance.randrange(9)}.example.org",
            chance.choice(["chem", "phys"]), f"user{chance.randrange(12)}", chance.choice(["sim", "a b", "x#1", "#x"]),
            number, chance.choice(["sge", "acc=1", "%n"]), 0, start - 60, start, start + wall_s,
            chance.choice([0, 0, 0, 100]), chance.choice([0, 1, 137]), wall_s, user_s, system_s, *[0] * 12,
            *[0] * 3, chance.choice(["NONE", "projA"]), chance.choice(["defaultdepartment", "physics"]), pe,
            1 if pe == "NONE" else chance.randrange(1, 65), chance.choice([0, 0, number % 7 + 1]),
            round(user_s + system_s, 6), chance.randrange(10**6) / 1000, chance.randrange(10**6) / 1000, "NONE",
            chance.randrange(10**5) / 1000, "NONE", chance.randrange(10**9), 0, 0,
        )  # fmt: skip
        lines.append(":".join(map(str, fields)))
    return "\n".join(lines) + "\n"


def test_totals_are_those_of_qacct(tmp_path: Path) -> None:
    if shutil.which("qacct") is None:
        pytest.skip("Grid Engine's qacct is not at hand: see tests/real/__init__.py")
    accounting = tmp_path / "accounting"
    accounting.write_text(log(random.Random(1)))
    settings = tmp_path / "root" / "default" / "common"
    settings.mkdir(parents=True)
    (settings / "act_qmaster").write_text("localhost\n")
    (settings / "bootstrap").write_text(BOOTSTRAP)
    (tmp_path / "ours").mkdir()
    rows = 0
    with collected(tmp_path / "ours", accounting) as publisher:
        for option, key in VIEWS.items():
            said = tmp_path / f"qacct{option}.txt"
            said.write_text(qacct(tmp_path / "root", "-f", str(accounting), option))
            ((_, table),) = said_by_qacct(said)
            assert_agreement(totals(publisher, (key,)), table)
            rows += len(table)
    version = qacct(tmp_path / "root", "-help").splitlines()[0]
    compared("qacct", version, f"rows of totals of {LINES:,} runs", rows)


def qacct(root: Path, *options: str) -> str:
    """What it prints."""
    environment = {"PATH": "/usr/bin:/bin", "SGE_ROOT": str(root), "SGE_CELL": "default", "TZ": "UTC"}
    done = subprocess.run(["qacct", *options], env=environment, check=False, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.stdout
