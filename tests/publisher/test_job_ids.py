"""Jobs are found by the ids that people know from their batch systems, and others are not."""

from __future__ import annotations

import pytest

from publisher.job_ids import JobIds, JobPattern, spellings

GRID_ENGINE = JobIds("23.1", "fit", array_id="23", array_task=1, cluster="default")
WITH_PREFIX = GRID_ENGINE._replace(local_id="ge-23.1")
TORQUE = JobIds("1012", "fit", cluster="head.example.org")
TORQUE_TASK = JobIds("1012[3]", "fit", array_id="1012", array_task=3, cluster="head.example.org")
OLD_TORQUE_TASK = JobIds("1012-3", "fit", array_id="1012", array_task=3, cluster="head")
SLURM = JobIds("105", "fit", array_id="100", array_task=5, cluster="c1")
CONDOR = JobIds("2376.0", None, "sched.example.org#2376.0#1793491200", cluster="pool")
DQS = JobIds("7", "fit", cluster="dqs", dqs_job_name="DQS.7")
ARC = JobIds("1042.lrms.example.org", "fit", "https://ce1.example.org:8443/rest/1.0/jobs/abc")
ALL = (GRID_ENGINE, WITH_PREFIX, TORQUE, TORQUE_TASK, OLD_TORQUE_TASK, SLURM, CONDOR, DQS, ARC)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("23", [GRID_ENGINE, WITH_PREFIX]),
        ("23.1", [GRID_ENGINE, WITH_PREFIX]),
        ("23.2", []),
        ("2", []),
        ("3", []),
        ("ge-23", [WITH_PREFIX]),
        ("ge-23.1", [WITH_PREFIX]),
        ("ge-2", []),
        ("xx-23", []),
        ("1012", [TORQUE, TORQUE_TASK, OLD_TORQUE_TASK]),
        ("1012.head", [TORQUE, TORQUE_TASK, OLD_TORQUE_TASK]),
        ("1012.head.example.org", [TORQUE, TORQUE_TASK, OLD_TORQUE_TASK]),
        ("1012.other", []),
        ("1012[3].head", [TORQUE_TASK, OLD_TORQUE_TASK]),
        ("1012[3]", [TORQUE_TASK, OLD_TORQUE_TASK]),
        ("1012-3", [OLD_TORQUE_TASK]),
        ("1012[4].head", []),
        ("1012[].head", [TORQUE, TORQUE_TASK, OLD_TORQUE_TASK]),
        ("105", [SLURM]),
        ("100", [SLURM]),
        ("100_5", [SLURM]),
        ("100_6", []),
        ("105_5", []),
        ("2376", [CONDOR]),
        ("2376.0", [CONDOR]),
        ("sched.example.org#2376.0#1793491200", [CONDOR]),
        ("DQS.7", [DQS]),
        ("7", [DQS]),
        ("DQS.*", [DQS]),
        ("1042", [ARC]),
        ("1042.lrms", [ARC]),
        ("*/jobs/abc", [ARC]),
        ("23.*", [GRID_ENGINE, WITH_PREFIX]),
        ("ge-*", [WITH_PREFIX]),
        ("nothing", []),
    ],
)
def test_what_is_asked_for(text: str, found: list[JobIds]) -> None:
    assert [ids for ids in ALL if JobPattern(text)(ids)] == found


def test_a_task_is_no_pattern() -> None:
    """`1012[3]` would be 10123 as a pattern of file names."""
    assert not JobPattern("1012[3]")(JobIds("10123"))
    assert JobPattern("fit[12]")(JobIds("9", "fit2"))


@pytest.mark.parametrize("ids", ALL)
def test_what_is_asked_for_is_looked_up(ids: JobIds) -> None:
    """Whatever asks for a job is spelt so that an index of the store finds it."""
    own, others = (ids.local_id or "").removeprefix("ge-"), {ids.array_id, ids.dqs_job_name, ids.global_id}
    for text in ("23", "23.1", "1012", "1012.head", "1012[3].head", "1012[]", "100", "100_5", "2376", "DQS.7", "1042"):
        if not JobPattern(text)(ids):
            continue
        spelt = spellings(text)
        assert own in spelt.whole or own.startswith(tuple(spelt.beginnings)) or others & spelt.others, text
