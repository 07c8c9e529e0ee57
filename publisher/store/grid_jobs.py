"""Entries of grid logs, stored by source and local job id, and the runs whose identity they give or may give later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, select, update

from formats.identity import index_key
from publisher.grid_identity import GridLogEntry
from publisher.job_ids import local_id
from publisher.sources.base import Cursor, cursor_of, text_of
from publisher.store import dialect, paging
from publisher.store.admin import erase
from publisher.store.schema import classes, grid_jobs, grid_logs, grid_waits, runs, sources
from publisher.store.stored_json import decoded
from publisher.store.stored_run import RUN_COLUMNS, StoredRun, stored_run


def cursor(connection: Connection, source_id: int) -> Cursor | None:
    """Return where reading a source's grid log stopped; None if it was never read."""
    text = connection.execute(select(grid_logs.c.cursor).where(grid_logs.c.source_id == source_id)).scalar()
    return cursor_of(text) if text is not None else None


def set_cursor(connection: Connection, source_id: int, value: Cursor) -> None:
    """Store where reading a source's grid log stopped."""
    row = {"source_id": source_id, "cursor": text_of(value)}
    dialect.upsert(connection, grid_logs, [row], keys=("source_id",))


def keep(connection: Connection, source_id: int, entries: Sequence[GridLogEntry]) -> None:
    """Store entries; existing ones do not change. Persons who were erased stay erased."""
    pseudonyms = erase.pseudonyms(connection)
    rows = [
        {
            "source_id": source_id,
            "key": local_id(entry.lrms_id).key,
            "at": entry.at,
            "lrms_id": index_key(entry.lrms_id),
            "user_dn": entry.user_dn,
            "fqans": msgspec.json.encode(entry.fqans).decode(),
            "submit_host": entry.submit_host,
            "token_subject": entry.token_subject,
            "token_issuer": entry.token_issuer,
            "token_groups": None if entry.token_groups is None else msgspec.json.encode(entry.token_groups).decode(),
        }
        for entry in map(pseudonyms.entry, entries)
    ]
    dialect.insert_missing(connection, grid_jobs, rows)


def entries_by_key(connection: Connection, source_id: int, keys: Iterable[str]) -> dict[str, list[GridLogEntry]]:
    """Return the entries stored under these keys."""
    by_key: dict[str, list[GridLogEntry]] = {}
    query = select(grid_jobs).where(grid_jobs.c.source_id == source_id)
    for row in paging.rows_in(connection, query, grid_jobs.c.key, sorted(set(keys))):
        fqans = decoded(row.fqans, tuple[str, ...], "an entry of a grid log")
        groups = row.token_groups and decoded(row.token_groups, tuple[str, ...], "an entry of a grid log")
        identity = (row.user_dn, fqans, row.submit_host, row.token_subject, row.token_issuer, groups)
        by_key.setdefault(row.key, []).append(GridLogEntry(row.at, row.lrms_id, *identity))
    return by_key


def wait(connection: Connection, source_id: int, found: Iterable[tuple[int, str, int, bool]]) -> None:
    """Record runs without an entry: (run id, local id, end, whether the run is held for one)."""
    rows = [
        {
            "run_id": run_id,
            "source_id": source_id,
            "key": local_id(name).key,
            "end_time": end,
            "held": int(held),
        }
        for run_id, name, end, held in found
    ]
    forget(connection, [row["run_id"] for row in rows])
    dialect.insert_missing(connection, grid_waits, rows)


def forget(connection: Connection, run_ids: Sequence[Any]) -> None:
    """Record that these runs have their entry, or need none."""
    paging.execute_in(connection, delete(grid_waits), grid_waits.c.run_id, run_ids)


def release(connection: Connection, run_ids: Sequence[int]) -> None:
    """Record that these runs are no longer held; an entry that turns up later is still theirs."""
    paging.execute_in(connection, update(grid_waits).values(held=0), grid_waits.c.run_id, run_ids)


def waiting_for(connection: Connection, source_id: int, keys: Iterable[str]) -> list[StoredRun]:
    """The runs without an entry that have one of these keys."""
    query = _stored().where(grid_waits.c.source_id == source_id)
    return [stored_run(row) for row in paging.rows_in(connection, query, grid_waits.c.key, sorted(set(keys)))]


def held(connection: Connection, source_id: int, end: int, limit: int) -> list[StoredRun]:
    """Runs that are held for an entry and ended at `end` or before, oldest first."""
    query = (
        _stored()
        .where(grid_waits.c.source_id == source_id, grid_waits.c.held == 1, grid_waits.c.end_time <= end)
        .order_by(grid_waits.c.end_time, grid_waits.c.run_id)
        .limit(limit)
    )
    return [stored_run(row) for row in connection.execute(query)]


def runs_of(connection: Connection, source_id: int, after: int, limit: int) -> list[StoredRun]:
    """The finished runs of a source in the order of their ids, after `after`."""
    query = (
        _joined(runs)
        .where(sources.c.id == source_id, runs.c.finished == 1, runs.c.id > after)
        .order_by(runs.c.id)
        .limit(limit)
    )
    return [stored_run(row) for row in connection.execute(query)]


def class_ids(connection: Connection, run_ids: Sequence[int]) -> dict[int, int]:
    """The classes of runs."""
    return _column(connection, runs.c.class_id, run_ids)


def local_ids(connection: Connection, run_ids: Sequence[int]) -> dict[int, str | None]:
    """The batch system's ids of runs."""
    return _column(connection, runs.c.local_id, run_ids)


def _column(connection: Connection, column: ColumnElement[Any], run_ids: Sequence[int]) -> dict[int, Any]:
    return dict(map(tuple, paging.rows_in(connection, select(runs.c.id, column), runs.c.id, run_ids)))


def _stored() -> Any:
    return _joined(grid_waits.join(runs, grid_waits.c.run_id == runs.c.id))


def _joined(table: Any) -> Any:
    joined = table.join(classes, runs.c.class_id == classes.c.id).join(sources, classes.c.source_id == sources.c.id)
    return select(*RUN_COLUMNS).select_from(joined)
