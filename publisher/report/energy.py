"""The energy of runs as the relation `energy`: measured or else modelled, in whole millijoules.

A run's measured value is used if it is possible. What a source reports is that of whole nodes: it counts if the run had
all their cores, or by the configuration has its nodes alone. Slurm writes the largest numbers of 32 and 64 bits but one
where nothing is known, and others after a restart of its daemons: no value above what the nodes can draw is used. Zero
is as often "not measured".

Modelled is power times wall time: (cores x W + GPUs x W + peak GiB x W) x wall, rounded once a run, half up. Emissions
are those of the hours between start and end, of energy that is used evenly, in whole micrograms a run. The PUE is no
part of either: it multiplies sums, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from publisher.config.energy import MICRO, Energy, millionths
from publisher.config.reports import Node
from publisher.messages.run_energy import (
    KIB_A_GIB,
    MOST_GPUS,
    MOST_MEMORY_KIB,
    MOST_MJ,
    MOST_SLOTS,
    MOST_WALL_MS,
    NANO,
    SENTINELS_MJ,
    NodeTables,
    are_whole,
    most_uw,
    rule_of,
)
from publisher.report.archive import hosts_of
from publisher.report.carbon import HOUR_S, carbon_hours
from publisher.report.energy_use import MJ_A_KWH
from publisher.report.matching import Matching
from publisher.text import counted

COLUMNS: Final = (
    "energy_mj", "metered_mj", "metered_by",
    "wall_ms", "slots", "gpus", "memory_kib", "incomplete", "source", "cluster", "queue", "placed",
)  # fmt: skip
"""The columns of `entries` that the relation needs."""
_IMPOSSIBLE: Final = (
    f"slots >= {MOST_SLOTS} OR gpus >= {MOST_GPUS} OR memory_kib >= {MOST_MEMORY_KIB} "
    f"OR wall_ms >= {MOST_WALL_MS} OR wall_ms < 0"
)
"""What nobody has: products with it may have more than 127 bits."""
_VALUE: Final = "coalesce(nullif(metered_mj, 0), energy_mj)"
"""What was measured of the run alone, else of its nodes."""
_NOT_MEASURED: Final = f"coalesce({_VALUE}, 0) = 0"
_SENTINEL: Final = f"{_VALUE} < 0 OR {_VALUE} IN {SENTINELS_MJ} OR {_VALUE} >= {MOST_MJ}"
_MODEL: Final = (
    f"(((CAST(slots AS HUGEINT) * core_uw + CAST(gpus AS HUGEINT) * gpu_uw) * {KIB_A_GIB} + "
    f"CAST(memory_kib AS HUGEINT) * gib_uw) * wall_ms + {KIB_A_GIB * NANO // 2}) // {KIB_A_GIB * NANO}"
)
_RULED: Final[Sequence[str]] = ("source", "cluster", "queue")
_POWER: Final = pa.schema(
    [
        *((name, pa.string()) for name in _RULED),
        *((name, pa.int64()) for name in ("core_uw", "gpu_uw", "gib_uw")),
        ("whole_nodes", pa.bool_()),
    ]
)
_PLACEMENTS: Final = pa.schema(
    [
        ("placed", pa.string()), ("cluster", pa.string()), ("slots", pa.int64()), ("epoch", pa.int64()),
        ("whole", pa.bool_()), ("most_uw", pa.int64()),
    ]
)  # fmt: skip
SENTINEL, SHARED, ABOVE, IMPOSSIBLE = "sentinel", "shared", "above", "impossible"
"""Why a measured value, or a run, is not used."""


def define_energy(matching: Matching, settings: Energy, nodes: Sequence[Node]) -> None:
    """Make the relation `energy`: the matching runs with `measured_mj`, `modelled_mj` (NULL: not so, or unknown),
    `carbon_ug` and `carbon_mj` (the emissions without PUE, and the energy that has them), `refused`, and `unchecked`
    (measured, on nodes whose most power is unknown). Raises `ConfigError`."""
    _tabulate_power(matching, settings)
    _tabulate_placements(matching, nodes)
    joined = " AND ".join(f'matching."{name}" IS NOT DISTINCT FROM power."{name}"' for name in _RULED)
    at = _epoch(nodes)
    placed = " AND ".join(
        f"matching.{name} IS NOT DISTINCT FROM placements.{name}" for name in ("placed", "cluster", "slots")
    )
    matching.define(
        "energy_rated",
        "SELECT matching.*, core_uw, gpu_uw, gib_uw, coalesce(metered_mj > 0 OR whole_nodes OR whole, false) AS alone, "  # noqa: S608 - names of ours
        f"most_uw FROM matching LEFT JOIN power ON {joined} "
        f"LEFT JOIN placements ON {placed} AND placements.epoch = {at}",
    )
    above = f"CAST({_VALUE} AS HUGEINT) * {NANO} > CAST(most_uw AS HUGEINT) * wall_ms"
    matching.define(
        "energy_judged",
        f"SELECT *, CASE WHEN {_IMPOSSIBLE} OR model_mj >= {MOST_MJ} THEN '{IMPOSSIBLE}' "  # noqa: S608 - as above
        f"WHEN {_NOT_MEASURED} THEN NULL WHEN {_SENTINEL} THEN '{SENTINEL}' WHEN NOT alone THEN '{SHARED}' "
        f"WHEN {above} THEN '{ABOVE}' END AS refused "
        f"FROM (SELECT *, CASE WHEN NOT ({_IMPOSSIBLE}) THEN {_MODEL} END AS model_mj FROM energy_rated)",
    )
    measured = f"CASE WHEN refused IS NULL AND NOT ({_NOT_MEASURED}) THEN {_VALUE} END"
    matching.define(
        "energy_chosen",
        f"SELECT *, {measured} AS measured_mj, "  # noqa: S608 - as above
        f"CASE WHEN refused = '{IMPOSSIBLE}' OR ({measured}) IS NOT NULL THEN NULL ELSE model_mj END AS modelled_mj, "
        f"({measured}) IS NOT NULL AND most_uw IS NULL AS unchecked FROM energy_judged",
    )
    _define_carbon(matching, settings)


def highest_above(matching: Matching) -> str:
    """The measured power that is most above what nodes can draw, as the end of a sentence, such as `; the highest is
    470 W on n1, where 450 W are possible`, so that an administrator sees by how much `watts_max` is wrong. Empty: there
    is none, or its nodes have no names."""
    rows = matching.rows(
        f"SELECT placed, {_VALUE} / wall_ms, most_uw / {MICRO} FROM energy "  # noqa: S608 - names of ours
        f"WHERE refused = '{ABOVE}' AND wall_ms > 0 AND most_uw > 0 "
        f"ORDER BY {_VALUE} / wall_ms / most_uw DESC, placed LIMIT 1"
    )
    ((placed, watts, most_watts),) = rows or [("", 0, 0)]
    names = [host.name for host in hosts_of(placed) if host.name]
    if not names:
        return ""
    where = names[0] if len(names) == 1 else f"{names[0]} and {counted(len(names) - 1, 'other node')}"
    return f"; the highest is {watts:,.0f} W on {where}, where {most_watts:,.0f} W are possible"


def _tabulate_power(matching: Matching, settings: Energy) -> None:
    """The table `power`: the rule of each source, cluster, and queue, if they have one."""
    rows: list[dict[str, Any]] = []
    for words in matching.rows(f"SELECT DISTINCT {', '.join(_RULED)} FROM matching ORDER BY ALL"):  # noqa: S608 - names of ours
        rule = rule_of(settings, *(word or "" for word in words))
        if rule is not None:
            watts = (rule.watts_core, rule.watts_gpu, rule.watts_gib)
            cells = (*words, *map(millionths, watts), rule.whole_nodes)
            rows.append(dict(zip(_POWER.names, cells, strict=True)))
    matching.tabulate("power", pa.Table.from_pylist(rows, _POWER), "[[energy.power]] of each kind of run")


def _tabulate_placements(matching: Matching, nodes: Sequence[Node]) -> None:
    """The table `placements`: where runs with a measured value ran, whether they had all cores there, and the most
    power that may be theirs."""
    tables = NodeTables(nodes)
    query = (
        f'SELECT placed, cluster, slots, {_epoch(nodes)} AS epoch, min("start") FROM matching '  # noqa: S608 - as above
        f"WHERE NOT ({_NOT_MEASURED}) GROUP BY ALL ORDER BY ALL"
    )
    rows = []
    for placed, cluster, slots, epoch, start in matching.rows(query):
        shares = tables.shares(hosts_of(placed), cluster or "", slots, start)
        cells = (placed, cluster, slots, epoch, are_whole(shares), most_uw(shares))
        rows.append(dict(zip(_PLACEMENTS.names, cells, strict=True)))
    table = pa.Table.from_pylist(rows, _PLACEMENTS)
    matching.tabulate("placements", table, "[[nodes]] of the runs with a measured value")


def _epoch(nodes: Sequence[Node]) -> str:
    """The SQL of a number that changes when nodes come into service or leave it."""
    edges = sorted({at for node in nodes for at in (node.since, node.until) if at is not None})
    return " + ".join(["0", *(f'CAST("start" >= {at} AS BIGINT)' for at in edges)])


def _define_carbon(matching: Matching, settings: Energy) -> None:
    used = "CAST(coalesce(measured_mj, modelled_mj) AS HUGEINT)"
    constant, hours = settings.carbon_mg_per_kwh, carbon_hours(settings)
    if settings.carbon_file is None:
        carbon = "NULL" if constant is None else f"({used} * {constant} * 1000 + {MJ_A_KWH // 2}) // {MJ_A_KWH}"
        source = "energy_chosen"
    else:
        columns = {
            "at": [hour.start for hour in hours],
            "mg": [hour.mg_per_kwh for hour in hours],
            "before": [hour.before for hour in hours],
            "island": [hour.island for hour in hours],
        }
        table = pa.table(columns, schema=pa.schema([(name, pa.int64()) for name in columns]))
        matching.tabulate("carbon", table, "the hours of the carbon file")
        until = 'greatest("stop", "start" + 1)'
        since_first = 'CAST(first_hour.mg AS HUGEINT) * ("start" - first_hour."at") + first_hour.before'
        up_to_last = f'CAST(last_hour.mg AS HUGEINT) * ({until} - last_hour."at") + last_hour.before'
        known = (
            f'first_hour.island = last_hour.island AND "start" < first_hour."at" + {HOUR_S} '
            f'AND {until} <= last_hour."at" + {HOUR_S}'
        )
        matching.define(
            "energy_hours",
            f'SELECT energy_chosen.*, {until} - "start" AS lasted_s, CASE WHEN {known} '  # noqa: S608 - as above
            f"THEN {up_to_last} - ({since_first}) END AS mg_s "
            'FROM energy_chosen ASOF LEFT JOIN carbon AS first_hour ON "start" >= first_hour."at" '
            f'ASOF LEFT JOIN carbon AS last_hour ON {until} - 1 >= last_hour."at"',
        )
        lasted = f"CAST(lasted_s AS HUGEINT) * {MJ_A_KWH}"
        carbon = f"({used} * mg_s * 1000 + {lasted} // 2) // ({lasted})"
        source = "energy_hours"
    matching.define(
        "energy",
        f"SELECT *, CASE WHEN carbon_ug IS NOT NULL THEN coalesce(measured_mj, modelled_mj) END AS carbon_mj "  # noqa: S608 - as above
        f"FROM (SELECT *, {carbon} AS carbon_ug FROM {source})",
    )
