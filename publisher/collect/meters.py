"""Energy that another program measured: CEEMS' database, and CSV files; by job, cluster, and start.

A value belongs to the run with its job id that started in its second, on the configured cluster. Only values that can
be are taken; the others are counted, and the first is named. Values may come late, and may change: targets that are
sent energy then get the run again, and no others.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection

from publisher.collect.collect import TargetPlan, follow_energy
from publisher.config.energy import EnergyMeter
from publisher.sqlite_file import open_read_only
from publisher.store import energies, paging, runs
from publisher.store.database import Store
from publisher.store.energies import Method
from publisher.store.stored_run import run_or_damage
from publisher.text import problem_text, zoned_instant_s

_J_A_KWH: Final = 3_600_000
_MOST_MJ: Final = 1 << 61
_UNKNOWN_J: Final = {(1 << 32) - 2, (1 << 32) - 1}
"""Slurm's numbers for unknown, which scripts copy."""
_DAY_S: Final = 86_400
_AT_ONCE: Final = 1000
_COLUMNS: Final = ("job", "start", "joules")


_UNREADABLE: Final = (OSError, UnicodeDecodeError, csv.Error, sqlite3.Error)


class MeterResult(msgspec.Struct):
    """What a meter gave: `read` values, of which so many were stored (new or changed), belong to no job, or cannot be.
    `refused`: where and why the first of the last; `error`: why it could not be read to its end."""

    read: int = 0
    stored: int = 0
    without_run: int = 0
    impossible: int = 0
    refused: str = ""
    error: str | None = None


class MeteredJob(msgspec.Struct, frozen=True):
    """A value: the job, the second of its start, and millijoules."""

    job: str
    start: int
    energy_mj: int


def read_meters(
    store: Store, meters: tuple[EnergyMeter, ...], plans: Sequence[TargetPlan], now: int
) -> dict[str, MeterResult]:
    """Store what the meters give, by their paths. The first that gives a value of a run counts. `plans`: the targets
    that are sent energy."""
    seen: set[int] = set()
    results: dict[str, MeterResult] = {}
    for meter in meters:
        result = results[str(meter.path)] = MeterResult()
        method = Method.CEEMS if meter.type == "ceems" else Method.FILE
        try:
            with closing(_values(meter, now, result)) as values:
                for some in paging.chunks(values, _AT_ONCE):
                    with store.write() as connection:
                        changed = _store(connection, meter, method, some, seen, result)
                        follow_energy(connection, changed, plans, now)
        except _UNREADABLE as error:
            result.error = f"{meter.path} cannot be read: {problem_text(error)}"
    return results


def why_unreadable(meter: EnergyMeter, now: int) -> str | None:
    """Why a meter cannot be read, as far as its beginning shows."""
    try:
        with closing(_values(meter, now, MeterResult())) as values:
            next(values, None)
    except _UNREADABLE as error:
        return problem_text(error)
    return None


def _values(meter: EnergyMeter, now: int, result: MeterResult) -> Generator[MeteredJob, None, None]:
    return _of_ceems(meter, now, result) if meter.type == "ceems" else _of_file(meter, result)


def _store(
    connection: Connection, meter: EnergyMeter, method: Method, values: list[MeteredJob], seen: set[int],
    result: MeterResult,
) -> list[int]:  # fmt: skip
    """Store these values; return the runs of which they are new or others."""
    by_job: dict[tuple[str | None, int | None], list[int]] = {}
    named = energies.runs_named(connection, (value.job for value in values))
    for run in runs.by_ids(connection, named, run_or_damage):  # a damaged one belongs to no value
        # Two clusters have the same numbers of jobs: one's energy must not be given to the other's.
        if meter.cluster in {None, run.job.cluster}:
            started = run.job.start if run.job.execution_start is None else run.job.execution_start
            by_job.setdefault((run.job.local_id, started), []).append(run.run_id)
    chosen: dict[int, int] = {}
    for value in values:
        run_ids = by_job.get((value.job, value.start), [])
        result.without_run += not run_ids
        # The first meter counts: two that measure the same nodes would replace each other's values in every run.
        chosen |= {run_id: value.energy_mj for run_id in run_ids if run_id not in seen}
    seen.update(chosen)
    changed = energies.put(connection, chosen, method)
    result.stored += len(changed)
    return changed


def _taken(result: MeterResult, place: str, value: Callable[[], MeteredJob]) -> Generator[MeteredJob, None, None]:
    """The value of a row, if it can be one. Zero is as often not measured, and says nothing."""
    result.read += 1
    try:
        metered_job = value()
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        result.impossible += 1
        result.refused = result.refused or f"{place}: {error}"
        return
    if metered_job.energy_mj:
        yield metered_job


def _value(job: object, start: int, joules: float) -> MeteredJob:
    energy_mj = round(joules * 1000)
    if not 0 <= energy_mj < _MOST_MJ or energy_mj // 1000 in _UNKNOWN_J:
        raise ValueError(f"{joules} J is not an amount of energy")
    name = str(job or "").strip()
    if not name:
        raise ValueError("it names no job")
    return MeteredJob(name, start, energy_mj)


def _of_file(meter: EnergyMeter, result: MeterResult) -> Generator[MeteredJob, None, None]:
    with meter.path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or [])]:
            raise csv.Error(f"it has no column {missing[0]}; its first line must be {','.join(_COLUMNS)}")
        last: tuple[int, dict[str, str | None]] | None = None
        for row in rows:
            if last is not None:
                yield from _taken(result, f"line {last[0]}", partial(_of_row, last[1]))
            last = rows.line_num, row
    if last is not None:
        with meter.path.open("rb") as ended:
            ended.seek(-1, os.SEEK_END)
            is_whole = ended.read(1) in {b"\n", b"\r"}
        yield from _taken(result, f"line {last[0]}", partial(_of_row, last[1], is_whole=is_whole))


def _of_row(row: dict[str, str | None], *, is_whole: bool = True) -> MeteredJob:
    """`is_whole`: not the last line of a file that is still being written, whose number may lack digits."""
    if not is_whole:
        # Cut off, `12345` is `123`: a wrong amount that nothing would show.
        raise ValueError("the last line has no line feed: it may be cut off")
    return _value(row["job"], zoned_instant_s(row["start"] or ""), float(row["joules"] or ""))


def _of_ceems(meter: EnergyMeter, now: int, result: MeterResult) -> Generator[MeteredJob, None, None]:
    query = (
        "SELECT uuid, started_at_ts, total_cpu_energy_usage_kwh, total_gpu_energy_usage_kwh FROM units "
        "WHERE ended_at_ts >= ? AND (? IS NULL OR cluster_id = ?) ORDER BY id"
    )
    since_ms = (now - meter.days * _DAY_S) * 1000
    with closing(open_read_only(meter.path)) as database:
        for row in database.execute(query, (since_ms, meter.ceems_cluster, meter.ceems_cluster)):
            yield from _taken(result, f"unit {row[0]}", partial(_of_unit, float(meter.ceems_pue), *row))


def _of_unit(pue: float, job: object, started_ms: int, *amounts: str | None) -> MeteredJob:
    # CEEMS adds up recording rules that have the PUE in them; that of the site is multiplied once, later.
    return _value(job, started_ms // 1000, sum(map(_kwh, amounts)) * _J_A_KWH / pue)


def _kwh(text: str | None) -> float:
    """The kWh of a map of CEEMS: its total, or its only value."""
    amounts = json.loads(text) if text else {}
    if not isinstance(amounts, dict) or (len(amounts) > 1 and "total" not in amounts):
        raise ValueError(f"{text!r} has no total")
    return float(amounts.get("total", next(iter(amounts.values()), 0)))
