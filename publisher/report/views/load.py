"""View `load`: samples of DQS' stat_file over time, beside the queue utilization that the runs give.

A sample is written for each kind of queue at an interval of some minutes. All lines of one instant are one look at the
site: its queues and active queues are their sums, its load the mean over its hosts. A bin has the mean over the looks
in it, and nothing where there was none. (DQS accounting manual, "Statistics".)
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Final

import msgspec

from formats.utilization.measure import Bins
from publisher.errors import UsageError
from publisher.report.report import Cell, Column, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.selection import MOST_SHOWN, some
from publisher.report.views.utilization import utilization
from publisher.sources.base import Unreadable
from publisher.sources.dqs_stat import QueueSample, read_samples
from publisher.text import iso

_KEYS: Final = ("queue", "host", "complex")
_COLUMNS: Final = (
    Column("start", "instant"),
    Column("looks", "count"),
    Column("active", "number", "queues"),
    Column("queues", "number", "queues"),
    Column("share", "ratio"),
    Column("load", "number"),
    Column("queue_utilization", "number", "queues"),
)


class _Look(msgspec.Struct):
    """What was seen at one instant."""

    active: int = 0
    queues: int = 0
    loads: dict[str, int] = {}


class _Looks(msgspec.Struct):
    """What was seen in a bin."""

    number: int = 0
    active: int = 0
    queues: int = 0
    load: Fraction = Fraction(0)


class _Met(msgspec.Struct):
    """What samples there were, whether or not they match: what is said when none does."""

    first: int | None = None
    last: int = 0
    inside: int = 0
    words: dict[str, set[str]] = {}

    def lies_inside(self, sample: QueueSample, bins: Bins) -> bool:
        """Take a sample; whether it lies in the interval."""
        self.first = sample.at if self.first is None else min(self.first, sample.at)
        self.last = max(self.last, sample.at)
        if not bins.start <= sample.at < bins.stop:
            return False
        self.inside += 1
        for key, words in _words(sample).items():
            if len(known := self.words.setdefault(key, set())) <= MOST_SHOWN:
                known.update(words)
        return True

    def nothing(self, request: ReportRequest, paths: list[Path]) -> str:
        """Why there is nothing, and what there is."""
        if self.first is None:
            return f"there is no sample in {', '.join(map(str, paths))}"
        if not self.inside:
            return f"no sample lies in the interval; there are some from {iso(self.first)} to {iso(self.last)}"
        there = (f"{key} {some(self.words[key]) or 'is named by none'}" for key in _KEYS if key in request.filters)
        return f"none of the {self.inside} samples in the interval matches; there are: {'; '.join(there)}"


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    request.require_by("load", (), 1)
    bins = request.cut()
    paths = _paths(context, request)
    unreadable = 0
    met = _Met()
    found = [_Looks() for _ in range(bins.count)]
    for path in paths:
        looks: dict[int, _Look] = {}
        for sample in read_samples(path):
            if isinstance(sample, Unreadable):
                unreadable += 1
            elif met.lies_inside(sample, bins) and _matches(sample, request):
                _add(looks.setdefault(sample.at, _Look()), sample)
        for at, look in looks.items():
            _sum(found[(at - bins.start) // bins.size_s], look)
    busy = _utilization(context, request)
    rows = tuple(_rows(bins, found, busy))
    nothing = None if any(looks.number for looks in found) else met.nothing(request, paths)
    notes = [f"Lines of the stat_file that are not samples: {unreadable}."] if unreadable else []
    return Report(
        view="load",
        title="Active queues and load",
        site=context.config.site.name,
        start=bins.start,
        stop=bins.stop,
        columns=_COLUMNS,
        rows=rows,
        plots=_plots(bins, rows),
        notes=(
            *notes,
            *([] if nothing else ["The scale of the load is that of the stat_file; no document explains it."]),
        ),
        nothing=nothing,
        facts={"bin_s": bins.size_s},
    )


def _paths(context: ReportContext, request: ReportRequest) -> list[Path]:
    if unknown := [key for key in request.filters if key not in _KEYS]:
        raise UsageError(f"samples are not selected by {unknown[0]!r}; there are: {', '.join(_KEYS)}")
    if request.stat_file is not None:
        return [request.stat_file]
    paths = [source.stat_file for source in context.config.sources.values() if source.stat_file is not None]
    if not paths:
        raise UsageError(
            "no source has a stat_file", hint="Set `stat_file` of a source of type dqs, or give --stat-file FILE"
        )
    return paths


def _words(sample: QueueSample) -> dict[str, tuple[str, ...]]:
    return {"queue": (sample.queue,), "host": (sample.host,), "complex": sample.complexes}


def _matches(sample: QueueSample, request: ReportRequest) -> bool:
    words = _words(sample)
    return all(
        any(fnmatchcase(word, pattern) for word in words[key]) for key, pattern in request.filters.items()
    )  # fmt: skip


def _add(look: _Look, sample: QueueSample) -> None:
    look.active += sample.active
    look.queues += sample.queues
    look.loads[sample.host] = max(look.loads.get(sample.host, 0), sample.load)


def _sum(looks: _Looks, look: _Look) -> None:
    looks.number += 1
    looks.active += look.active
    looks.queues += look.queues
    looks.load += Fraction(sum(look.loads.values()), len(look.loads))


def _utilization(context: ReportContext, request: ReportRequest) -> list[float]:
    made = utilization(context, msgspec.structs.replace(request, interval=None))
    return [one.queue for one in made.report.bins] if made.jobs else []


def _rows(bins: Bins, found: list[_Looks], busy: list[float]) -> Iterator[tuple[Cell, ...]]:
    for place, (start, _) in enumerate(bins.edges()):
        looks = found[place]
        used = busy[place] if busy else None
        if not looks.number:
            yield (start, 0, None, None, None, None, used)
            continue
        share = looks.active / looks.queues if looks.queues else None
        load = float(looks.load / looks.number)
        yield (start, looks.number, looks.active / looks.number, looks.queues / looks.number, share, load, used)


def _plots(bins: Bins, rows: tuple[tuple[Cell, ...], ...]) -> tuple[Plot, ...]:
    def series(label: str, place: int) -> Series:
        values = (row[place] for row in rows)
        return Series(label, tuple(value if isinstance(value, float) else None for value in values))

    x = tuple(start for start, _ in bins.edges())
    queues = [series("active queues", 2), series("all queues", 3)]
    if any(row[6] is not None for row in rows):
        queues.append(series("queue utilization of the runs", 6))
    return (
        Plot(title="Queues", style="line", x=x, step_s=bins.size_s, unit="queues", series=tuple(queues)),
        Plot(title="Load", style="line", x=x, step_s=bins.size_s, unit="load average", series=(series("load", 5),)),
    )
