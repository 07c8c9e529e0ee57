"""View `scarce`: the occupation of classes of resources, and how long jobs waited for them.

A class is a resource of the nodes of one type in one cluster. It is scarce if its occupation was at least 80 % and one
job in ten waited for an hour or longer. Classes are in the order of the product of both, largest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from publisher.report.calendar import unit_for
from publisher.report.inventory import Inventory
from publisher.report.matching import OF_JOB, Matching, computed
from publisher.report.placing import REQUIRED, HeldOnNodes
from publisher.report.report import Cell, Plot, Report, Series, in_percent
from publisher.report.request import ReportRequest
from publisher.report.row_jobs import JOB_NUMBER
from publisher.report.runs import ReportContext
from publisher.report.view_kind import SCARCE
from publisher.report.view_option import Resource
from publisher.report.views.nodes import NodeAllocations, read_together
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
    allocations = [NodeAllocations(context, whole, resource) for resource in _RESOURCES]
    uses = [held.use for held in allocations]

    def read(matching: Matching) -> dict[Resource, dict[tuple[str, ...], GroupWaits]]:
        started = _Started(matching, request)
        for of_batch in read_together(uses, matching, {*_COLUMNS, "job"}, _RUNS):
            started.add(of_batch)
        return dict(started.waited(uses[0].inventory))

    columns = _COLUMNS.union(OF_JOB, *(REQUIRED[resource] for resource in _RESOURCES))
    waited_by, met = computed(context, whole, allocations[0].reading(columns), "overlapping", read)
    rows: list[tuple[Cell, ...]] = []
    notes: dict[str, None] = {}
    for held in allocations:
        held.met = met
        held.know_clusters()
        for label, each in shares(held, _BY).items():
            nodes = max((share.nodes for share in each), default=0)
            available = sum(share.available for share in each)
            if not nodes or not available:
                continue
            occupation = sum((share.mean or 0.0) * share.available for share in each) / available
            some = waited_by[held.resource].get(label)
            waited = (some.jobs, some.median_s, some.p90_s) if some is not None else (0, None, None)
            scarce = occupation >= HIGH and (waited[2] or 0) >= LONG_S
            rows.append((*label, held.resource, nodes, occupation, *waited, "scarce" if scarce else ""))
        notes.update(dict.fromkeys(held.notes(by_cluster=True)))
    nothing = allocations[0].nothing(rows=bool(rows))
    if nothing:
        rows.clear()
    rows.sort(key=lambda row: (-_pressure(row), str(row[0]), str(row[1])))
    long = duration_text(LONG_S)
    return context.report(
        SCARCE,
        request,
        rows=tuple(rows),
        sorted_by="occupation",
        plots=_plots(rows) if rows else (),
        notes=(
            f"Scarce: occupation of {100 * HIGH:.0f} % or more, and one job in ten waited {long} or longer.",
            *notes,
        ),
        nothing=nothing,
        sql=allocations[0].sql,
    )


class _Started:
    """The waiting times of jobs that started in the interval and held a resource, by its class.

    A job on several hosts counts under its first host.
    """

    def __init__(self, matching: Matching, request: ReportRequest) -> None:
        self._matching = matching
        self._start, self._stop = request.start, request.stop
        columns = {"node": "UINTEGER", **dict.fromkeys((*_RESOURCES, *_WAITED), "BIGINT")}
        self._started = matching.collected("started", columns)
        self._classes = matching.collected("classes_of_nodes", {"node": "UINTEGER", "class": "UINTEGER"})

    def add(self, of_batch: Sequence[HeldOnNodes]) -> None:
        """Add the runs of a batch by what they held of each resource: they held all on the same nodes."""
        batch, placed, *_ = of_batch[0]
        rows, places = np.unique(placed.row, return_index=True)
        start = batch.numbers("start")[rows]
        inside = (start >= self._start) & (start < self._stop)
        rows, places = rows[inside], places[inside]
        amounts = (held.placed.amount[places] for held in of_batch)
        self._started.add(placed.node[places], *amounts, *(batch.numbers(name)[rows] for name in _WAITED))

    def waited(self, inventory: Inventory) -> Iterator[tuple[Resource, dict[tuple[str, ...], GroupWaits]]]:
        """The waiting times of each resource by cluster and type: those of all nodes, whose cluster is known when all
        runs were read."""
        numbers: dict[tuple[str, ...], int] = {}
        classes = [
            numbers.setdefault((inventory.cluster_of(number) or "", node.type), len(numbers))
            for number, node in enumerate(inventory.nodes)
        ]
        self._classes.add(np.arange(len(classes)), np.array(classes, np.int64))
        labels = list(numbers)
        runs = f"SELECT * FROM {self._started.name} JOIN {self._classes.name} USING (node) WHERE submit <= start"  # noqa: S608 - names of ours
        self._matching.note("-- started: the runs that began in the interval, by their first host")
        for resource in _RESOURCES:
            waits = waits_of(self._query, f"({runs} AND {resource} > 0)", ["class"], of_all=False)
            yield resource, {labels[int(number)]: some for (number,), some in waits.by_group.items()}

    def _query(self, statement: str) -> list[Any]:
        self._matching.note(statement)
        return self._started.query(statement)


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
        held.plot("bar", Series("occupation", occupation), x=names, ordered=True, top=100.0),
        waited.plot("bar", Series("p90", in_units), units={"unit": unit.name}, x=names, ordered=True),
    )
