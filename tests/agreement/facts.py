"""The values of each job in ARC's accounting database, read with plain SQL only: what added values must be."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

import msgspec


class Facts(msgspec.Struct, frozen=True):
    """A row of AAR with its side tables. `fqans`: the main one first; `events`: epoch seconds by state."""

    interface: str
    url: str
    submit: int
    exit_code: int
    user_s: int
    kernel_s: int
    fqans: tuple[str, ...]
    events: dict[str, int]
    info: dict[str, str]


_ROWS = """
    SELECT a.RecordID, a.JobID, e.Interface, e.URL, a.SubmitTime, a.ExitCode, a.UsedCPUUserTime, a.UsedCPUKernelTime
    FROM AAR a JOIN Endpoints e ON e.ID = a.EndpointID JOIN Status s ON s.ID = a.StatusID
    WHERE s.Name IN ('completed', 'failed')
"""


def facts_of(path: Path) -> dict[str, Facts]:
    """The facts of every job that ARC publishes, by its id."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        found = {}
        for row, job_id, interface, url, submit, exit_code, user_s, kernel_s in database.execute(_ROWS).fetchall():
            pairs = database.execute(
                "SELECT AttrValue FROM AuthTokenAttributes WHERE RecordID = ? ORDER BY AttrKey = 'vomsfqan', rowid",
                (row,),
            )
            fqans = tuple(dict.fromkeys(value for (value,) in pairs))
            events = dict(database.execute("SELECT EventKey, EventTime FROM JobEvents WHERE RecordID = ?", (row,)))
            info = dict(database.execute("SELECT InfoKey, InfoValue FROM JobExtraInfo WHERE RecordID = ?", (row,)))
            at = {key: int(datetime.fromisoformat(text).timestamp()) for key, text in events.items()}
            found[job_id] = Facts(interface, url, submit, exit_code, user_s, kernel_s, fqans, at, info)
    return found
