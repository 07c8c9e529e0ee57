"""The runs that a row of a report counts: which of the matching runs its view counts, and of these those of the row.

An address can have the keys of a row as filters where a filter means the same. A key whose value is not one word of a
run (the first of several hosts, all resources together, a path), and a rule on which of the runs of a job counts, is a
`RowSelection`: the rule is applied to the runs of the whole report, as in the view, and the words of the row after it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from itertools import groupby
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from formats.utilization.measure import KEYS
from publisher.errors import UsageError
from publisher.report.allocation_files import all_allocations
from publisher.report.column_files import RUN_ID
from publisher.report.grouping import Grouping
from publisher.report.integers import Ints
from publisher.report.inventory import FOREVER, Inventory
from publisher.report.matching import OF_JOB, SHOWN_ID, Matching
from publisher.report.placing import REQUIRED, HeldOnNodes, Placed, Placing
from publisher.report.report import UNKNOWN_NAME
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import SIZE
from publisher.report.view_option import PERIODS, Resource
from publisher.report.view_parts import RunRule

POSSIBLE: Final = f"slots < {1 << 40} AND gpus < {1 << 40} AND abs(CAST(wall_ms AS HUGEINT)) < {1 << 52}"
"""Runs of which sums have fewer than 127 bits: what nobody has, 10^12 cores or 100,000 years, is left out."""
JOB_NUMBER: Final = "CAST(hash({}) >> 1 AS BIGINT)".format(", ".join(f'"{name}"' for name in OF_JOB))
"""The SQL of a number for the ids of a job: two of a site are very unlikely to have the same."""
JOB_LABEL: Final = f"coalesce({SHOWN_ID}, '')"
"""The id by which a job is shown."""
EVENT_KINDS: Final = "json_extract_string(events, '$[0]')"
_SIZES: Final = (1, 2, 5, 17, 65, 257)
"""The first number of slots of each class of sizes."""
_AT_LEAST: Final = " ".join(f"WHEN slots >= {first} THEN {place}" for place, first in reversed([*enumerate(_SIZES)]))
SIZE_NUMBER: Final = f"CASE {_AT_LEAST} ELSE 0 END"
"""The SQL of the number of the class of sizes of a run."""
ELIGIBLE_WAITED: Final = 'CASE WHEN eligible <= "start" THEN CAST("start" AS HUGEINT) - eligible END'
"""The SQL of the waiting time from eligibility on, in seconds."""


class _RuleOnRuns(NamedTuple):
    """Which runs count: in SQL, for people (empty: all), and the columns that it needs."""

    condition: str
    text: str = ""
    columns: tuple[str, ...] = ()


_RULES: Final[Mapping[RunRule, _RuleOnRuns]] = {
    "all": _RuleOnRuns("true"),
    "ended": _RuleOnRuns('"end" IS NOT NULL', "those that have ended"),
    "lasting": _RuleOnRuns('"stop" > "start" AND "end" IS NOT NULL', "those that have ended and took time"),
    "possible": _RuleOnRuns(POSSIBLE, "those with possible amounts", ("slots", "gpus", "wall_ms")),
    "first": _RuleOnRuns(
        'submit <= "start"', "the first run of each, if its submission is known",
        ("submit", "eligible", "run", *OF_JOB),
    ),
    "last": _RuleOnRuns("events IS NOT NULL", "the last run of each", ("events", "run", *OF_JOB)),
}  # fmt: skip
_PATH: Final = "path"
_JOB: Final = "job"
_CORE, _NODE = "core", "node"
_OF_NODES: Final = frozenset({_NODE, "type", "node_cluster", _CORE})
_RESOURCE: Final = "resource"
_HELD_ON: Final = "held_on"
_FIRST: Final = "first"
_CORE_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_OF_ALLOCATION: Final = frozenset({"allocation", "holder"})
_BY_NODE: Final = _OF_NODES | {_RESOURCE, _HELD_ON}
_NAMES: Final = frozenset({*KEYS, *PERIODS, SIZE, _PATH}) | _BY_NODE | _OF_ALLOCATION


class RowSelection(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The runs of a row, besides filters and interval.

    `words`: by key or period the label that the runs have; `size`: their class of slots; `path`: that of their events;
    `node`, `type`, `node_cluster`, `core`: where they held some of `resource`, by default cores (`held_on`: `first` of
    their hosts); `allocation` and `holder`: in which they count. Raises `UsageError` for other names.
    """

    runs: RunRule = "all"
    words: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Raises `UsageError`."""
        if unknown := sorted(self.words.keys() - _NAMES):
            raise UsageError(f"row: {unknown[0][:50]!r} is not a word of a row")
        if self.words.get(_RESOURCE, "cores") not in REQUIRED:
            raise UsageError("row: the resource is unknown")
        if self.words.get(_HELD_ON, _FIRST) != _FIRST:
            raise UsageError(f"row: {_HELD_ON} is not {_FIRST!r}")
        core = self.words.get(_CORE, UNKNOWN_NAME)
        if _NODE in self.words and core != UNKNOWN_NAME and not _CORE_NUMBER.fullmatch(core):
            raise UsageError("row: the core is not a number")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys and periods among its words, in their order."""
        return tuple(name for name in self.words if name in {*KEYS, *PERIODS, SIZE})

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it needs besides those of its keys."""
        by_node = REQUIRED[self.resource] if self.by_node else frozenset()
        size = {"slots"} if SIZE in self.words else set()
        job = set(OF_JOB) if _JOB in self.words else set()
        path = {"events"} if _PATH in self.words else set()
        held = (
            {"slots", "gpus", "project", "account", "user", "cluster"} if _OF_ALLOCATION & self.words.keys() else set()
        )
        return frozenset({*_RULES[self.runs].columns, *by_node, *size, *job, *path, *held})

    @property
    def by_node(self) -> bool:
        """Whether nodes matter."""
        return not _BY_NODE.isdisjoint(self.words)

    @property
    def node_and_core(self) -> tuple[str | None, int | None]:
        """The name of the node, which may begin with that of the cluster, and the number of the core; None: any.

        Without `node`, the core has the name of its node before its number, or nothing else if cores are unknown.
        """
        node, core = self.words.get(_NODE), self.words.get(_CORE)
        if core is None:
            return node, None
        if node is None:
            node, _, number = core.rpartition("/")
            return (node, int(number)) if node and _CORE_NUMBER.fullmatch(number) else (core, None)
        return node, None if core == UNKNOWN_NAME else int(core)

    @property
    def resource(self) -> Resource:
        """What jobs must have held."""
        return self.words.get(_RESOURCE, "cores")  # type: ignore[return-value]

    @property
    def rule(self) -> str:
        """Which runs count, for people; empty: all."""
        return _RULES[self.runs].text

    def says(self) -> str:
        """The words for people."""
        return ", ".join(
            f"{name.replace('_', ' ')} {word or UNKNOWN_NAME}" for name, word in self.words.items() if name != _HELD_ON
        )


def row_selection(text: str) -> RowSelection:
    """A selection of an address. Raises `UsageError`."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"), type=RowSelection)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UsageError(f"row: {error}") from None


def size_text(number: int) -> str:
    """The name of a class of sizes."""
    first = _SIZES[number]
    if number + 1 == len(_SIZES):
        return f"{first} or more slots"
    last = _SIZES[number + 1] - 1
    return f"{first} slot" if first == last else f"{first} to {last} slots"


def path_of(kinds: str) -> str:
    """The path of a job with events of these kinds: `Q S+ E`."""
    return " ".join(kind + ("+" if len(list(some)) > 1 else "") for kind, some in groupby(kinds.split(" ")))


def first_runs(runs: str, labels: str) -> str:
    """The SQL that selects the first run of each job and submission, of a relation with the number of the job.

    `labels`: names of columns with a comma after each, which decide between equal runs.
    """
    order = f'"start", "end", run, {labels}{ELIGIBLE_WAITED}'
    return f"FROM {runs} QUALIFY row_number() OVER (PARTITION BY job, submit ORDER BY {order}) = 1"


def last_runs(runs: str, columns: str) -> str:
    """The SQL of the last run of each job with events: `of_cluster`, `job` (its id), and these columns."""
    job = "coalesce(nullif(local_id, ''), nullif(global_id, ''), nullif(name, ''), '')"
    return (
        f"SELECT coalesce(cluster, '') AS of_cluster, {job} AS job, {columns} FROM {runs} WHERE events IS NOT NULL "  # noqa: S608 - names of ours
        "QUALIFY row_number() OVER (PARTITION BY of_cluster, job "
        'ORDER BY "stop" DESC, json_array_length(events, \'$[1]\') DESC, "end" DESC, run DESC, events DESC) = 1'
    )


def select_row(matching: Matching, context: ReportContext, request: ReportRequest, selection: RowSelection) -> str:
    """The relation with the matching runs that a row counts: `RUN_ID` and `end`. Raises `UsageError`."""
    keys = selection.keys
    sizes = [size_text(number) for number in range(len(_SIZES))]
    own = {SIZE: f"{sizes}[{SIZE_NUMBER} + 1]", _JOB: JOB_LABEL}
    grouping = Grouping.of(request, tuple(keys), own)
    number = [f"{JOB_NUMBER} AS job"] if selection.runs == "first" else []
    matching.define("counting", f"FROM {grouping.runs('matching', *number, where=_RULES[selection.runs].condition)}")
    runs = "counting"
    conditions = []
    if selection.by_node:
        runs = _HeldOn(matching, context, request, selection).relation(runs)
        conditions.append("fits")
    if selection.runs == "first":
        runs = f"(SELECT * {first_runs(runs, ''.join(f'{name}, ' for name in grouping.names))})"
    elif selection.runs == "last":
        runs = f"({last_runs(runs, '*')})"
    if keys:
        words = {name: [selection.words[key]] for name, key in zip(grouping.names, keys, strict=True)}
        matching.tabulate("asked_row", pa.table(words), "the values of the keys of the row")
        conditions += [f"{name} = (SELECT asked_row.{name} FROM asked_row)" for name in grouping.names]  # noqa: S608 - as above
    if _PATH in selection.words:
        conditions.append(_has_path(matching, selection.words[_PATH]))
    if _OF_ALLOCATION & selection.words.keys():
        conditions.append(_is_of_allocation(matching, context, selection.words))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f'(SELECT {RUN_ID}, "end" FROM {runs} AS runs{where})'  # noqa: S608 - as above


def _has_path(matching: Matching, path: str) -> str:
    """The SQL of whether the events of a run are a path."""
    table = matching.collected("asked_path", {"kinds": "VARCHAR"})
    kinds = [row[0] for row in matching.rows(f"SELECT DISTINCT {EVENT_KINDS} FROM counting")]  # noqa: S608 - names of ours
    table.insert(pa.table({"kinds": pa.array([kind for kind in kinds if path_of(kind) == path], pa.string())}))
    return f"{EVENT_KINDS} IN (SELECT kinds FROM asked_path)"  # noqa: S608 - as above


def _is_of_allocation(matching: Matching, context: ReportContext, words: Mapping[str, str]) -> str:
    """The SQL of whether a run counts in an allocation, its time aside."""
    name, holder = words.get("allocation", ""), words.get("holder", "")
    same = [
        allocation
        for allocation in all_allocations(context.config)[0]
        if (allocation.name, allocation.holder) == (name, holder)
    ]
    if not same:
        raise UsageError("row: there is no such allocation")
    keys, resource = same[0].keys, "gpus" if same[0].resource == "gpus" else "slots"
    rows = [labels for one in same for labels in one.words]
    columns = {f"of_{key}": pa.array([row[place] for row in rows], pa.string()) for place, key in enumerate(keys)}
    matching.tabulate("asked_holder", pa.table(columns), "the words of the holder of the allocation")
    equal = " AND ".join(f'asked_holder.of_{key} = runs."{key}"' for key in keys)
    return f"{resource} > 0 AND EXISTS (SELECT 1 FROM asked_holder WHERE {equal})"  # noqa: S608 - as above


class _HeldOn:
    """Which runs held a resource of nodes, and whether these are nodes of the row."""

    def __init__(
        self, matching: Matching, context: ReportContext, request: ReportRequest, selection: RowSelection
    ) -> None:
        self._matching = matching
        self._request = request
        self._resource = selection.resource
        self._words = selection.words
        self._first = selection.words.get(_HELD_ON) == _FIRST
        self._looks_at = re.compile(translate(request.filters.get("host", "*"))).match
        self._inventory = Inventory(context.config.nodes)
        self._node, self._core = selection.node_and_core

    def relation(self, runs: str) -> str:
        """The runs of a relation that held some of the resource, and whether they `fits`."""
        table = self._matching.collected("held_of_nodes", {RUN_ID: "BIGINT", "node": "UINTEGER"})
        placing = Placing(self._inventory, self._resource)
        placing.meet(self._matching)
        for batch in self._matching.batches({*REQUIRED[self._resource], RUN_ID}, runs):
            held = placing.held(batch)
            placed = held.placed
            chosen = self._of_first_host(placed) if self._first else self._in_time(held)
            if self._core is not None:
                chosen = chosen[self._on_core(held)[chosen]]
            table.add(batch.numbers(RUN_ID)[placed.row[chosen]], placed.node[chosen])
        nodes = self._matching.collected("nodes_of_row", {"node": "UINTEGER", "fits": "BOOLEAN"})
        fits = [self._fits(number) for number in range(len(self._inventory.nodes))]
        nodes.insert(pa.table({"node": range(len(fits)), "fits": fits}))
        of_runs = f"SELECT {RUN_ID}, bool_or(fits) AS fits FROM {table.name} JOIN nodes_of_row USING (node) GROUP BY 1"  # noqa: S608 - names of ours
        return f"(SELECT * FROM {runs} JOIN ({of_runs}) USING ({RUN_ID}))"  # noqa: S608 - as above

    @staticmethod
    def _of_first_host(placed: Placed) -> Ints:
        places = np.unique(placed.row, return_index=True)[1]
        first: Ints = places[placed.amount[places] > 0]
        return first

    def _in_time(self, held: HeldOnNodes) -> Ints:
        """The entries of runs that held the resource in the interval while the node was in service."""
        overlaps = np.minimum(held.stop, self._request.stop) > np.maximum(held.start, self._request.start)
        return np.flatnonzero((held.placed.amount > 0) & overlaps)

    def _on_core(self, held: HeldOnNodes) -> npt.NDArray[np.bool_]:
        """Whether each entry held the core: runs that name no cores count for each core that the node has."""
        assert self._core is not None
        capacity = [node.amounts.get("cores") or FOREVER for node in self._inventory.nodes]
        on_core: npt.NDArray[np.bool_] = held.named == 0
        on_core &= self._core < np.array(capacity, np.int64)[held.placed.node]
        of_named = np.flatnonzero(held.named)
        entry, core = held.numbers.entries(held.named[of_named])
        on_core[of_named[entry[core == self._core]]] = True
        return on_core

    def _fits(self, number: int) -> bool:
        # The cluster of a node without one in its table is that of its runs in the interval of the row: where jobs of
        # several clusters ran on it, the whole report may show another of them.
        node = self._inventory.nodes[number]
        cluster = self._inventory.cluster_of(number) or ""
        return (
            (self._first or self._looks_at(node.name) is not None)
            and self._node in {None, node.name, f"{cluster}/{node.name}"}
            and self._words.get("type", node.type) == node.type
            and self._words.get("node_cluster", cluster) == cluster
        )
