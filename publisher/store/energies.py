"""The energy of runs that another program than their batch system measured: no part of the run or its digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from sqlalchemy import Connection, select

from formats.identity import index_key
from publisher.store import changes, dialect, paging
from publisher.store.schema import energies, runs


class Method(IntEnum):
    """Who measured. Stored as its number, which never changes its meaning."""

    CEEMS = 1
    FILE = 2


def put(connection: Connection, found: Mapping[int, int], method: Method) -> list[int]:
    """Store the millijoules of runs by their ids; return the runs of which they are new or others. Reports learn of
    these."""
    known = of_runs(connection, found)
    rows = [
        {"run_id": run_id, "energy_mj": energy_mj, "method": int(method)}
        for run_id, energy_mj in found.items()
        if known.get(run_id) != (energy_mj, int(method))
    ]
    dialect.upsert(connection, energies, rows, keys=("run_id",))
    changed = [row["run_id"] for row in rows]
    changes.note_runs(connection, changed)
    return changed


def are_used(connection: Connection) -> bool:
    """Whether there are any."""
    return connection.execute(select(energies.c.run_id).limit(1)).first() is not None


def of_runs(connection: Connection, run_ids: Iterable[int]) -> dict[int, tuple[int, int]]:
    """The millijoules and the method of those of these runs that have them."""
    query = select(energies.c.run_id, energies.c.energy_mj, energies.c.method)
    return {row[0]: (row[1], row[2]) for row in paging.rows_in(connection, query, energies.c.run_id, run_ids)}


def runs_named(connection: Connection, local_ids: Iterable[str]) -> list[int]:
    """The ids of the runs of these jobs."""
    keys = sorted(set(map(index_key, local_ids)))
    return sorted(row[0] for row in paging.rows_in(connection, select(runs.c.id), runs.c.local_id, keys))


def in_range(connection: Connection, first: int, stop: int) -> dict[int, tuple[int, int]]:
    """The same of the runs with these ids; `stop` is not included."""
    query = select(energies.c.run_id, energies.c.energy_mj, energies.c.method)
    rows = connection.execute(query.where(energies.c.run_id >= first, energies.c.run_id < stop))
    return {row[0]: (row[1], row[2]) for row in rows}
