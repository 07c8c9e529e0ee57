"""Columns that no digest of a run covers: groups as sent, JSON, numbers, texts, and instants of all tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Integer, LargeBinary, SmallInteger, Table, Text, select

from publisher.errors import StoreError
from publisher.plugins import totals_by_kind
from publisher.store import groups as stored_groups
from publisher.store import history, named_rows
from publisher.store.admin import engine
from publisher.store.batches import STATE_COLUMNS, batch_state, wrongly_recorded
from publisher.store.groups import GroupRow
from publisher.store.schema import (
    batches,
    check_progress,
    classes,
    closed_lines,
    closed_statements,
    closings,
    deliveries,
    earlier_settings,
    file_marks,
    grid_jobs,
    grid_logs,
    groups,
    metadata,
    program_runs,
    purged_sync_counts,
    report_reaches,
    runs,
    sources,
    targets,
    versions,
)
from publisher.store.stored_json import read_with, stored_reason
from publisher.store.stored_values import bytes_of, checked_state_of

_JSON: Final[Mapping[Table, tuple[str, ...]]] = {
    sources: ("cursor",),
    file_marks: ("mark",),
    targets: ("filter_settings", "assumes"),
    earlier_settings: ("settings",),
    batches: ("receipt",),
    grid_logs: ("cursor",),
    grid_jobs: ("fqans", "token_groups"),
    report_reaches: ("reach",),
    check_progress: ("damaged",),
    closings: ("settings",),
    closed_statements: ("body",),
    closed_lines: ("body",),
}
_WITH_DIGESTS: Final = frozenset({runs, versions, classes})
"""Their columns are checked with their digests."""
_TYPES: Final[tuple[tuple[type, tuple[type, ...]], ...]] = (
    (BigInteger, (int,)), (Integer, (int,)), (SmallInteger, (int,)), (Text, (str,)), (LargeBinary, (bytes, memoryview)),
)  # fmt: skip
_FIRST, _LAST = -(2**53), 2**53


def wrong_groups(connection: Connection) -> Iterator[str]:
    """Groups and kept sync counts that are not what was stored."""
    kinds = totals_by_kind()
    names = ("target_id", "kind", "month", "key", "state", "state_check", "digest", "jobs", "body")
    query = select(*(groups.c[name] for name in names))
    for target_id, kind, month, key, number, check, digest, jobs, body in engine.rows(connection, query):
        try:
            mark = bytes_of(digest, f"the digest of group {key}")
            state = checked_state_of(number, check, target_id, kind, month)
            group = GroupRow(month, key, state, mark, jobs, bytes_of(body, f"group {key}"))
            if kind in kinds:
                group.total(kinds[kind])
            elif kind != stored_groups.UTILIZATION:
                yield f"group {key} is of the unknown kind {kind}"
        except StoreError as error:
            yield str(error)
    kept = purged_sync_counts
    for row in engine.rows(connection, select(kept.c.month, kept.c.key, kept.c.digest, kept.c.body)):
        try:
            stored_groups.kept_count(kinds[stored_groups.SYNC], *row)
        except (StoreError, TypeError) as error:
            yield str(error)


def wrong_rows(connection: Connection) -> Iterator[str]:
    """Sources and targets that are not what was stored."""
    for table in named_rows.NAMED:
        for row in connection.execute(select(table)).mappings():
            if named_rows.is_damaged(table, row):
                yield f"{named_rows.said(table, row)} is not what was stored"


def wrong_batches(connection: Connection) -> Iterator[str]:
    """Batches whose state contradicts their other columns, or that are not what was recorded before they left."""
    for row in engine.rows(connection, select(*STATE_COLUMNS)):
        try:
            batch_state(*row)
        except StoreError as error:
            yield error.message
    yield from wrongly_recorded(connection)


def wrong_columns(connection: Connection) -> Iterator[str]:
    """Columns with a value of another type, with JSON that cannot be read, or with an instant that is none."""
    for table in metadata.sorted_tables:
        if table not in _WITH_DIGESTS:
            yield from _wrong_in(connection, table)


def _wrong_in(connection: Connection, table: Table) -> Iterator[str]:
    columns = list(table.c)
    with_json = _JSON.get(table, ())
    for row in engine.rows(connection, select(*columns)):
        if table is program_runs:
            if damage := history.run_of(dict(zip(table.c.keys(), row, strict=True))).damage:
                yield damage
            continue
        for column, value in zip(columns, row, strict=True):
            if value is not None and not _is_of_type(column, value):
                yield f"{table.name}.{column.name} has a value of another type: {str(value)[:40]}"
            elif value is not None and column.name in with_json:
                try:
                    # Not by msgspec: names of files that are not UTF-8 are in cursors and marks as lone surrogates.
                    read_with(json.loads, value, f"{table.name}.{column.name}")
                except StoreError as error:
                    yield error.message
        if table is deliveries:
            try:
                stored_reason(*row[-2:])
            except StoreError as error:
                yield error.message


def _is_of_type(column: Column[Any], value: object) -> bool:
    kinds = next((kinds for stored, kinds in _TYPES if isinstance(column.type, stored)), (object,))
    return isinstance(value, kinds) and not (isinstance(value, int) and not _FIRST < value < _LAST)
