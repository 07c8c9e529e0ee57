"""Endings: each word is one that its source gives, and jobs of every source are found by them."""

from __future__ import annotations

from itertools import chain

import pytest

from formats import ending
from formats.ending import ENDINGS, ending_of, reason_decides
from formats.job import FINISHED_STATUSES, Status
from publisher.sources import lsf
from publisher.sources.gridengine import jobs as gridengine
from publisher.sources.pbs import values as pbs
from publisher.sources.slurm import values as slurm

_GIVEN = {
    "slurm": set(slurm._STATUS),
    "auditor": set(slurm._STATUS),
    "torque": {*pbs.TORQUE_CODES.values(), *pbs.PBS_CODES.values(), "rerun", "rerun,"},
    "pbs": {*pbs.TORQUE_CODES.values(), *pbs.PBS_CODES.values(), "rerun", "rerun,"},
    "lsf": set(lsf._EXITS),
    "gridengine": {str(code) for code in gridengine._FAILED},
}


def test_every_word_is_one_that_the_source_gives() -> None:
    assert not [word for system, words in ending._WORDS.items() for word in words if word not in _GIVEN[system]]
    assert set(chain.from_iterable(words.values() for words in ending._WORDS.values())) | {
        "completed", "cancelled",
    } == set(ENDINGS)  # fmt: skip


@pytest.mark.parametrize(
    ("system", "status", "reason", "expected"),
    [
        ("slurm", "failed", "TIMEOUT", "time-limit"),
        ("slurm", "failed", "OUT_OF_MEMORY+", "memory-limit"),
        ("slurm", "failed", "FAILED", None),
        ("slurm", "cancelled", "CANCELLED by 1000", "cancelled"),
        ("slurm", "completed", None, "completed"),
        ("pbs", "failed", "-29 JOB_EXEC_KILL_WALLTIME", "time-limit"),
        ("torque", "failed", "-11 JOB_EXEC_OVERLIMIT_WT", "time-limit"),
        ("pbs", "aborted", "-11 JOB_EXEC_RERUN", "requeued"),
        ("torque", "aborted", "rerun, 271", "requeued"),
        ("torque", "lost", "rerun without accounting", "requeued"),
        ("torque", "failed", "271", None),
        ("lsf", "failed", "TERM_RUNLIMIT", "time-limit"),
        ("lsf", "failed", "exitInfo 99", None),
        ("gridengine", "failed", "37 enforced h_rt", "time-limit"),
        ("gridengine", "failed", "100 after job", None),
        ("gridengine", "lost", "deleted by force, without usage", None),
        ("htcondor", "aborted", "TIMEOUT TERM_RUNLIMIT 37", None),
        ("arc", "failed", None, None),
        ("an add-on", "failed", "TIMEOUT", None),
        ("slurm", "running", None, None),
    ],
)
def test_how_a_run_ended(system: str, status: Status, reason: str | None, expected: str | None) -> None:
    assert ending_of(system, status, reason) == expected


@pytest.mark.parametrize("system", [*ending._WORDS, "arc"])
@pytest.mark.parametrize("status", sorted(FINISHED_STATUSES))
def test_where_the_reason_decides_nothing_all_end_alike(system: str, status: Status) -> None:
    endings = {ending_of(system, status, word) for word in (None, *ending._WORDS.get(system, ()))}
    assert (len(endings) > 1) == reason_decides(system, status)
