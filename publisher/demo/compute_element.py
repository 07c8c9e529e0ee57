"""The accounting database of a compute element with two dozen invented jobs, and one job more on request."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.resources import files
from pathlib import Path

_SIDE_TABLES = {
    "AuthTokenAttributes": "AttrKey, AttrValue",
    "JobEvents": "EventKey, EventTime",
    "JobExtraInfo": "InfoKey, InfoValue",
    "RunTimeEnvironments": "RTEName",
}


def make_database(path: Path) -> int:
    """Write the invented jobs as ARC's accounting database; returns how many have finished."""
    text = files("publisher.demo").joinpath("jobs.sql").read_text(encoding="utf-8")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(text)
        database.execute("PRAGMA journal_mode = WAL")
        query = "SELECT count(*) FROM AAR JOIN Status ON Status.ID = StatusID WHERE Name IN ('completed', 'failed')"
        (count,) = database.execute(query).fetchone()
    return int(count)


def add_late_job(path: Path) -> str:
    """Add a job that ended before jobs that were already published, as after a long stage-out; returns its id."""
    job_id = "late0001demo"
    columns = (
        "EndpointID, QueueID, UserID, VOID, StatusID, ExitCode, SubmitTime, EndTime, NodeCount, CPUCount, UsedMemory, "
        "UsedVirtMem, UsedWalltime, UsedCPUUserTime, UsedCPUKernelTime, UsedScratch, StageInVolume, StageOutVolume"
    )
    with closing(sqlite3.connect(path)) as database, database:
        (model,) = database.execute(
            "SELECT min(RecordID) FROM AAR JOIN Status ON Status.ID = StatusID WHERE Name = 'completed'"
        ).fetchone()
        inserted = database.execute(
            f"INSERT INTO AAR (JobID, LocalJobID, {columns}) "  # noqa: S608 - the columns above
            f"SELECT ?, '7777777', {columns} FROM AAR WHERE RecordID = ?",
            (job_id, model),
        )
        for table, rest in _SIDE_TABLES.items():
            database.execute(
                f"INSERT INTO {table} SELECT ?, {rest} FROM {table} WHERE RecordID = ?",  # noqa: S608 - the tables above
                (inserted.lastrowid, model),
            )
    return job_id
