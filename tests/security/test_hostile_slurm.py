"""Hostile texts in each field that a user of Slurm controls: sacct that is run, saved tables, documents, logs.

Users control the name of a job, its comment, its account (where Slurm does not check associations) and its wckey; in
the job completion log also the working directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.sources.slurm_sacct import COLUMNS
from tests.publisher.sources.log_reading import Seen, read_on
from tests.publisher.sources.test_slurm_sacct import T0, Sacct, row, source
from tests.security.hostile_text import assert_harmless, hostile_texts

FIELDS: Final = {"JobName": ("name",), "Comment": ("extras",), "WCKey": ("extras",), "Account": ("account",)}
"""Columns that users write, and where a run keeps them."""

HARMLESS: Final = "plain"


def rows(column: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Jobs of mallory that have these texts, each with steps and between jobs of alice and bob."""
    made: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        own, other = str(2 * number + 100), str(2 * number + 101)
        made += [
            row(own, 10, 60, **{"User": "mallory", "JobName": "own", "Account": "m", "NCPUS": 2, column: text}),
            row(f"{own}.batch", 10, 60, JobName="batch", MaxRSS="4096", TotalCPU="00:20.000"),
            row(f"{own}.0", 10, 60, JobName=text if column == "JobName" else "step", MaxRSS="8192"),
            row(other, 12, 70, User="bob", Account="b", JobName="other", NCPUS=4, State="REQUEUED"),
            row(other, 80, 90, User="bob", Account="b", JobName="other", NCPUS=4),
            row(f"{other}.batch", 80, 90, JobName="batch", MaxRSS="1024", TotalCPU="00:01.000"),
        ]
    running = row("99998", 20, "Unknown", User="alice", Account="a", JobName="running")
    return [*made, running, row("99999", 30, 95, User="bob", Account="b", JobName="last")]


def own_ids(texts: Sequence[str]) -> set[str]:
    """The record ids of mallory's runs."""
    return {f"ur-slurm/c1/{2 * number + 100}/{T0 + 10}" for number in range(len(texts))}


def forged(columns: tuple[str, ...], by: str) -> bytes:
    """A line of a run of another user, in a table of these columns."""
    run = row("7", 10, 90, User="rival", JobName="x", NCPUS=999, Submit=1_793_491_210)
    return by.join(str(run.get(column, "")) for column in columns).encode()


LIVE: Final = hostile_texts(
    delimiters=[b"|", b"\x1f", b"\x1f!#$&*;"],
    headers=["|".join(COLUMNS).encode(), "\x1f".join(COLUMNS).encode(), b"JobID|JobIDRaw|Start|End|State|NCPUS|User"],
    records=[forged(COLUMNS, "|"), forged(COLUMNS, "\x1f")],
)


@pytest.fixture
def sacct(tmp_path: Path) -> Sacct:
    return Sacct(tmp_path)


def written(raw: bytes) -> str:
    """A text as slurmdbd has it: no NUL, and bytes as they are."""
    return raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("column", FIELDS)
def test_sacct_that_is_run(sacct: Sacct, column: str) -> None:
    """Nobody's run changes, and the run of the user is stored whatever its text is."""
    texts = [written(raw) for raw in LIVE.values()]
    sacct.rows(*rows(column, [HARMLESS] * len(texts)))
    baseline = read_on(source(sacct, 1_000), Seen())
    assert (len(baseline.jobs), baseline.unreadable) == (3 * len(texts) + 2, [])
    sacct.rows(*rows(column, texts))
    attacked = read_on(source(sacct, 1_000), Seen())
    assert_harmless(baseline, attacked, own_ids(texts), FIELDS[column])
    assert attacked.jobs.keys() == baseline.jobs.keys()
    assert attacked.unreadable == []
