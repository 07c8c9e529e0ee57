"""View `scarce`: the occupation of classes of resources, and how long jobs waited for them.

A class is a resource of the nodes of one type in one cluster. It is scarce if its occupation was at least 80 % and one
job in ten waited for an hour or longer. Classes are in the order of the product of both, largest first.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from publisher.report.calendar import unit_for
from publisher.report.inventory import Inventory
from publisher.report.matching import OF_JOB, Matching, RunBatch
from publisher.report.placing import Placed
from publisher.report.report import Cell, Plot, Report, Series, in_percent
from publisher.report.request import ReportRequest
from publisher.report.row_jobs import JOB_NUMBER
from publisher.report.runs import ReportContext
from publisher.report.view_kind import SCARCE
from publisher.report.view_option import Resource
from publisher.report.views.nodes import NodeAllocations, NodeUse
from publisher.report.views.occupation import shares
from publisher.report.views.waiting import GroupWaits, waits_of
from publisher.text import duration_text

_COLUMNS: Final = frozenset({"submit", "eligible", "end", "run"})
_RUNS: Final = f"(SELECT *, {JOB_NUMBER} AS job FROM matching)"  # noqa: S608 - names of ours
_WAITED: Final = ("job", "submit", "start", "end", "run", "eligible")
HIGH: Final = 0.8
LONG_S: Final = 3600
_BY: Final = ("cluster", "type")
_RESOURCES: Final[tuple[Resource, ...]] = ("cores", "memory", "gpus")


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: a row for each class, the scarcest first."""
    whole = msgspec.structs.replace(request, period="year", timezone="UTC")
    rows: list[tuple[Cell, ...]] = []
    notes: dict[str, None] = {}
    nothing = None
    statements: dict[str, None] = {}
    for resource in _RESOURCES:
        waited_by: dict[tuple[str, ...], GroupWaits] = {}

        def read(matching: Matching, use: NodeUse, waited_by: dict[tuple[str, ...], GroupWaits] = waited_by) -> NodeUse:
            classes = _Classes(matching, request, use.inventory)
            use.read(matching, classes.watch, more={*_COLUMNS, "job"}, runs=_RUNS)
            waited_by.update(classes.waited())
            return use

        held = NodeAllocations(context, whole, resource).watch(read, {*_COLUMNS, *OF_JOB})
        for label, each in shares(held, _BY).items():
            nodes = max((share.nodes for share in each), default=0)
            available = sum(share.available for share in each)
            if not nodes or not available:
                continue
            occupation = sum((share.mean or 0.0) * share.available for share in each) / available
            some = waited_by.get(label)
            waited = (some.jobs, some.median_s, some.p90_s) if some is not None else (0, None, None)
            scarce = occupation >= HIGH and (waited[2] or 0) >= LONG_S
            rows.append((*label, resource, nodes, occupation, *waited, "scarce" if scarce else ""))
        notes.update(dict.fromkeys(held.notes(by_cluster=True)))
        statements[held.sql] = None
        nothing = held.nothing(rows=bool(rows))
    if nothing:
        rows.clear()
    rows.sort(key=lambda row: (-_pressure(row), str(row[0]), str(row[1])))
    long = duration_text(LONG_S)
    return Report(
        view=SCARCE.name,
        title="Scarce resources",
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=SCARCE.columns,
        rows=tuple(rows),
        sorted_by="occupation",
        plots=_plots(rows) if rows else (),
        notes=(
            f"Scarce: occupation of {100 * HIGH:.0f} % or more, and one job in ten waited {long} or longer.",
            *notes,
        ),
        nothing=nothing,
        sql="".join(statements),
    )


class _Classes:
    """The waiting times of jobs that started in the interval and held a resource, by its class.

    A job on several hosts counts under its first host.
    """

    def __init__(self, matching: Matching, request: ReportRequest, inventory: Inventory) -> None:
        self._matching = matching
        self._inventory = inventory
        self._start, self._stop = request.start, request.stop
        self._started = matching.collected("started", {"node": "UINTEGER", **dict.fromkeys(_WAITED, "BIGINT")})
        self._classes = matching.collected("classes_of_nodes", {"node": "UINTEGER", "class": "UINTEGER"})

    def watch(self, batch: RunBatch, placed: Placed) -> None:
        """Add the runs of a batch."""
        rows, places = np.unique(placed.row, return_index=True)
        start = batch.numbers("start")[rows]
        counts = (placed.amount[places] > 0) & (start >= self._start) & (start < self._stop)
        rows, places = rows[counts], places[counts]
        self._started.add(placed.node[places], *(batch.numbers(name)[rows] for name in _WAITED))

    def waited(self) -> dict[tuple[str, ...], GroupWaits]:
        """The waiting times by cluster and type: those of all nodes, whose cluster is known when all runs were read."""
        numbers: dict[tuple[str, ...], int] = {}
        classes = [
            numbers.setdefault((self._inventory.cluster_of(number) or "", node.type), len(numbers))
            for number, node in enumerate(self._inventory.nodes)
        ]
        self._classes.add(np.arange(len(classes)), np.array(classes, np.int64))
        runs = f"(SELECT * FROM {self._started.name} JOIN {self._classes.name} USING (node) WHERE submit <= start)"  # noqa: S608 - names of ours
        labels = list(numbers)
        waits = waits_of(self._started.query, runs, ["class"], of_all=False)
        self._matching.note("-- started: the runs that began in the interval, by their first host", waits.sql)
        return {labels[int(number)]: some for (number,), some in waits.by_group.items()}


def _pressure(row: tuple[Cell, ...]) -> float:
    occupation, wait = row[4], row[7]
    return (occupation if isinstance(occupation, float) else 0.0) * (wait if isinstance(wait, int) else 0)


def _plots(rows: list[tuple[Cell, ...]]) -> tuple[Plot, ...]:
    names = tuple(" ".join(str(word) for word in row[:3] if word) for row in rows)
    occupation = tuple(in_percent(row[4]) if isinstance(row[4], float) else None for row in rows)
    waits = [row[7] if isinstance(row[7], int) else None for row in rows]
    unit = unit_for(max((wait for wait in waits if wait is not None), default=0))
    held, waited = SCARCE.pictures["occupation"], SCARCE.pictures["waits"]
    in_units = tuple(None if wait is None else wait / unit.seconds for wait in waits)
    return (
        Plot(
            title=held.title, style="bar", x=names, unit=held.axis, ordered=True, top=100.0,
            series=(Series("occupation", occupation),),
        ),
        Plot(
            title=waited.title, style="bar", x=names, unit=waited.axis.format(unit=unit.name),
            ordered=True, series=(Series("p90", in_units),),
        ),
    )  # fmt: skip
