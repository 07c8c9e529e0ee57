"""The energy of single runs, as targets get it, is that of `report energy`, run by run."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from formats.job import Host, Job
from publisher.messages.run_energy import RunEnergy
from publisher.report.energy import COLUMNS, define_energy
from publisher.report.matching import Matching, columns_of
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading
from publisher.store import energies
from publisher.store.energies import Method
from publisher.store.runs import by_ids
from publisher.store.stored_run import run_or_damage
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

CHANCE = Random(27)
NODES = [
    {"name": "n[1-4]", "cores": 16, "until": "2026-11-05", "watts_idle": 33.3, "watts_max": 400},
    {"name": "n[1-4]", "cores": 24, "since": "2026-11-05", "watts_idle": 41, "watts_max": 700},
    {"name": "n[1-2]", "cores": 8, "cluster": "beta", "watts_max": 90.5},
    {"name": "m1", "cores": 4},
]
POWER: list[dict[str, Any]] = [
    {"watts_core": 7.123456, "watts_gib": 0.3725, "queue": "fat*", "whole_nodes": True},
    {"watts_core": 4.5, "watts_gpu": 250, "cluster": "alpha"},
]


def chosen_job(number: int) -> Job:
    one = CHANCE.choice
    start = NOVEMBER + CHANCE.randrange(10 * 86_400)
    wall_s = one([0, 1, 60, 3600, CHANCE.randrange(100_000), 1 << 33])
    names = CHANCE.sample(["n1", "n2", "n3", "m1", "x9"], one([0, 1, 1, 2]))
    return make_job(
        number,
        start=start,
        end=start + min(wall_s, 1_000_000),
        wall_s=wall_s,
        slots=one([1, 4, 8, 16, 24, 32, None, 1 << 25]),
        cores=one([None, 2, 16]),
        gpus=one([None, 0, 3, 1 << 21]),
        memory_rss_kib=one([None, 1 << 20, 12_345_678, 1 << 45]),
        cluster=one([None, "alpha", "beta"]),
        queue=one([None, "main", "fatter"]),
        hosts=tuple(Host(name, slots=one([None, None, 8])) for name in names),
        energy_j=one([None, 0.0, 0.0004, 12.5, 3.6e6, 1e9, -4.0, 4294967294.0, 1.8e19, float("nan")]),
    )


def test_it_is_that_of_the_report(tmp_path: Path) -> None:
    source = ListSource("slurm")
    source.add(*(chosen_job(number) for number in range(1500)))
    site = Site(tmp_path, [source], [])
    site.table["energy"] = {"pue": 1.37, "power": POWER}
    site.table["nodes"] = NODES
    site.collect()
    store = site.publisher.store
    ids = [row[0] for row in site.rows("SELECT id FROM runs ORDER BY id")]
    metered = {run_id: CHANCE.choice([5, 7_200_000, 1 << 60]) for run_id in ids if CHANCE.random() < 0.3}
    with store.write() as connection:
        energies.put(connection, metered, Method.FILE)
    with store.read() as connection:
        runs = list(by_ids(connection, ids, run_or_damage))
    energy = RunEnergy(store, site.config)
    found = {run.run_id: energy(run) for run in runs}
    request = ReportRequest(start=0, stop=NOVEMBER * 2)
    context = ReportContext(store, site.config, site.now)
    columns = columns_of(request, *COLUMNS, "run_id")
    with context.tables(request, EntryReading(columns)) as connection:
        matching = Matching(connection, request, "ended")
        define_energy(matching, site.config.energy, site.config.nodes)
        rows = matching.rows("SELECT run_id, coalesce(measured_mj, modelled_mj) FROM energy")
    expected = {run_id: None if used is None else (used * 1370 + 500) // 1000 for run_id, used in rows}
    assert found == expected
    assert len({*expected.values()}) > 100
