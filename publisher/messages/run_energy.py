"""The energy of single runs: measured or else modelled, in whole millijoules, with the PUE.

`publisher.report.energy` computes the same in SQL, and says why which measured value is used; both have the rules and
limits that are here. What another program measured of a run is looked up when the run is prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from math import isnan
from typing import Final

import msgspec

from formats.job import Host, Job
from publisher.config.energy import MICRO, MILLI, Energy, PowerRule, millionths
from publisher.config.reports import Node
from publisher.config.schema import Config
from publisher.messages.entries import ReportedRun, entries_of
from publisher.sources.dqs import without_slaves
from publisher.store import energies
from publisher.store.database import Store
from publisher.store.stored_run import StoredRun

MOST_MJ: Final = 1 << 61
"""More than 600 GWh, which no run uses."""
SENTINELS_MJ: Final = (((1 << 32) - 2) * MILLI, ((1 << 32) - 1) * MILLI)
"""What Slurm writes where nothing is known, and scripts copy."""
MOST_SLOTS: Final = 1 << 24
MOST_GPUS: Final = 1 << 20
MOST_MEMORY_KIB: Final = 1 << 44
MOST_WALL_MS: Final = 1 << 42
"""What nobody has, such as 10^7 cores or 100 years."""
KIB_A_GIB: Final = 1 << 20
NANO: Final = 1_000_000
"""Microwatts times milliseconds are nanojoules: so many are a millijoule."""
_MOST_J: Final = 4_000_000_000_000_000
"""More than a thousand GWh."""
_BLOCK: Final = 1024
_BLOCKS_KEPT: Final = 256


def millijoules(joules: float | None) -> int | None:
    """Whole millijoules of what a source reports; what no run can use becomes a number that is not used."""
    if joules is None or isnan(joules):
        return None
    return round(max(-_MOST_J, min(_MOST_J, joules)) * 1000)


def rule_of(settings: Energy, source: str, cluster: str, queue: str) -> PowerRule | None:
    """The first rule of power for runs of a source, cluster, and queue; None: none matches."""
    words = {"source": source, "cluster": cluster, "queue": queue}
    for rule in settings.power:
        patterns = [(word, getattr(rule, name)) for name, word in words.items()]
        if all(given is None or any(fnmatchcase(word, one) for one in given) for word, given in patterns):
            return rule
    return None


class HeldNode(msgspec.Struct, frozen=True):
    """A node of a run, None if the configuration does not have it then, and how many cores the run held of it."""

    node: Node | None
    held: int


class NodeTables:
    """The nodes of `[[nodes]]` by cluster and name."""

    def __init__(self, tables: Sequence[Node]) -> None:
        self._by_name: dict[tuple[str | None, str], list[Node]] = {}
        for table in tables:
            for name in table.names:
                tables_of_node = self._by_name.setdefault((table.cluster, name), [])
                if all(other.since != table.since for other in tables_of_node):
                    tables_of_node.append(table)

    def shares(self, hosts: Sequence[Host], cluster: str, slots: int, start: int) -> list[HeldNode]:
        """The nodes of a run that started then. Cores that no source divides are divided evenly."""
        each, rest = divmod(slots, len(hosts)) if hosts else (0, 0)
        held_nodes = []
        for position, host in enumerate(hosts):
            tables = self._by_name.get((cluster, host.name)) or self._by_name.get((None, host.name), [])
            node = next((table for table in tables if _in_service_at(table, start)), None)
            held_nodes.append(HeldNode(node, each + (position < rest) if host.slots is None else host.slots))
        return held_nodes


def _in_service_at(node: Node, instant: int) -> bool:
    return (node.since is None or node.since <= instant) and (node.until is None or instant < node.until)


def are_whole(shares: Sequence[HeldNode]) -> bool:
    """Whether a run had all cores of its nodes."""
    return bool(shares) and all(share.node is not None and share.held >= share.node.cores for share in shares)


def most_uw(shares: Sequence[HeldNode]) -> int | None:
    """The most power of a run: that of its nodes, without the idle power of the cores that others may hold. None: it
    is unknown of a node, or the run names none."""
    if not shares:
        return None
    most = 0
    for share in shares:
        if share.node is None or share.node.watts_max is None:
            return None
        cores, idle_uw = share.node.cores, millionths(share.node.watts_idle) or 0
        most += int(share.node.watts_max * MICRO) - idle_uw * max(0, cores - share.held) // cores
    return most


class RunEnergy:
    """Gives the energy of runs, by the settings of a site and what its store has of meters."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._settings = config.energy
        self._nodes = NodeTables(config.nodes)
        self._of_block = lru_cache(_BLOCKS_KEPT)(self._read_block)

    def __call__(self, run: StoredRun) -> int | None:
        """Millijoules, with the PUE; None: nothing was measured, and no rule matches; or its amounts are impossible."""
        job = without_slaves(run.job)
        entry = next(iter(entries_of(job)), None)
        metered_mj, _method = self._of_block(run.run_id // _BLOCK).get(run.run_id, (0, 0))
        used = None if entry is None else self._used(run.source, job, entry, metered_mj)
        return None if used is None else (used * self._settings.pue_thousandths + MILLI // 2) // MILLI

    def _read_block(self, block: int) -> dict[int, tuple[int, int]]:
        with self._store.read() as connection:
            return energies.in_range(connection, block * _BLOCK, (block + 1) * _BLOCK)

    def _used(self, source: str, job: Job, entry: ReportedRun, metered_mj: int) -> int | None:
        slots, wall_ms, memory_kib = entry.ran.slots, entry.wall_ms, entry.memory_kib
        gpus = max(job.gpus or 0, sum(host.gpus or 0 for host in job.hosts))
        if slots >= MOST_SLOTS or gpus >= MOST_GPUS or memory_kib >= MOST_MEMORY_KIB or not 0 <= wall_ms < MOST_WALL_MS:
            return None
        rule = rule_of(self._settings, source, job.cluster or "", job.queue or "")
        model = None if rule is None else _modelled(rule, slots, gpus, memory_kib, wall_ms)
        if model is not None and model >= MOST_MJ:
            return None
        measured = metered_mj or millijoules(job.energy_j) or 0
        if not 0 < measured < MOST_MJ or measured in SENTINELS_MJ:
            return model
        shares = self._nodes.shares(job.hosts, job.cluster or "", slots, entry.ran.start)
        if not (metered_mj > 0 or (rule is not None and rule.whole_nodes) or are_whole(shares)):
            return model
        most = most_uw(shares)
        return model if most is not None and measured * NANO > most * wall_ms else measured


def _modelled(rule: PowerRule, slots: int, gpus: int, memory_kib: int, wall_ms: int) -> int:
    core_uw, gpu_uw, gib_uw = (int(watts * MICRO) for watts in (rule.watts_core, rule.watts_gpu, rule.watts_gib))
    power = (slots * core_uw + gpus * gpu_uw) * KIB_A_GIB + memory_kib * gib_uw
    return (power * wall_ms + KIB_A_GIB * NANO // 2) // (KIB_A_GIB * NANO)
