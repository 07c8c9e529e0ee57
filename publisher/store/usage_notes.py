"""Runs with a note about their usage (`publisher.encoded_run.UsageNote`), to count them without decoding any run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, select

from publisher.encoded_run import EncodedRun, UsageNote
from publisher.store import dialect, paging, prepared
from publisher.store.runs import UpsertedRun
from publisher.store.schema import runs, usage_notes
from publisher.store.stored_json import read_with

_ids_by_key: Final = prepared.Lookup((runs.c.record_key, runs.c.id), runs.c.record_key)


def record(
    connection: Connection, source_id: int, found: Sequence[EncodedRun], put: Sequence[UpsertedRun]
) -> Counter[UsageNote]:
    """Record the notes of the runs of a source that were put into the store, instead of earlier notes of these runs.

    Returns how many of the finished ones have each note.
    """
    changed = [item.run_id for item in put if item.before is not None]
    if changed:
        paging.execute_in(connection, delete(usage_notes), usage_notes.c.run_id, changed)
    noted = {run.key: run.note for run in found if run.note is not None and run.finished}
    if not noted:
        return Counter()
    run_ids = {run_id: noted[bytes(key)] for key, run_id in _ids_by_key.rows(connection, list(noted))}
    notes = {item.run_id: run_ids[item.run_id] for item in put if item.finished and item.run_id in run_ids}
    rows = [{"run_id": run_id, "source_id": source_id, "note": int(note)} for run_id, note in notes.items()]
    dialect.insert_missing(connection, usage_notes, rows)
    return Counter(notes.values())


def count(connection: Connection, source_id: int) -> Counter[UsageNote]:
    """How many runs of a source have each note. Raises `StoreCorruptError`."""
    query = (
        select(usage_notes.c.note, func.count())
        .where(usage_notes.c.source_id == source_id)
        .group_by(usage_notes.c.note)
    )
    return Counter({read_with(UsageNote, note, "a note"): number for note, number in connection.execute(query)})
