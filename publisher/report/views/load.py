"""View `load`: samples of DQS' stat_file over time, and the queue utilization computed from runs.

DQS writes a sample for each kind of queue every few minutes. All lines of one instant are one look at a cell of DQS:
its queues and active queues are their sums, its load is the mean of its hosts. A bin has the mean of the looks in it,
and is empty without a look. (DQS accounting manual, "Statistics".) Each cell has a file, and looks at other instants:
the means of the cells are added, those of the load weighted by hosts.

By host, queue, complex, or state, queues and active queues are divided by all looks at the cell, so that the values of
all hosts or queues add up. A queue with several complexes or states counts under each.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from formats.utilization.measure import Bins
from publisher.errors import UsageError
from publisher.report.met import MOST_SHOWN, some
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import LOAD
from publisher.report.views.utilization import queue_per_bin
from publisher.sources.base import Unreadable
from publisher.sources.dqs_stat import STATES, QueueSample, read_samples
from publisher.text import iso

_KEYS: Final = ("queue", "host", "complex")
_SEVERAL: Final = frozenset({"complex", "state"})
"""Keys with several values for one queue."""
_START, *_MEASURES = LOAD.columns


class _LoadSample(msgspec.Struct):
    """The samples of one instant; `loads` by host."""

    active: int = 0
    queues: int = 0
    loads: dict[str, int] = {}


class _LoadSamples(msgspec.Struct):
    """The sums of the looks of a file in a bin."""

    number: int = 0
    active: int = 0
    queues: int = 0
    hosts: int = 0
    load: Fraction = Fraction(0)

    def add(self, look: _LoadSample) -> None:
        """Add a look."""
        self.number += 1
        self.active += look.active
        self.queues += look.queues
        self.hosts += len(look.loads)
        self.load += Fraction(sum(look.loads.values()), len(look.loads))


class _Means(NamedTuple):
    """What a row of a bin shows: the columns of the view."""

    looks: int
    active: float
    queues: float
    share: float | None
    hosts: float
    load: float


class _LoadBin(msgspec.Struct):
    """The looks of a bin: how many, by file, and their sums, by value of the key (empty without a key) and file."""

    looks: Counter[Path] = msgspec.field(default_factory=Counter)
    seen: dict[str, dict[Path, _LoadSamples]] = {}

    def means(self, value: str) -> _Means:
        """The means of the looks at a value that was seen."""
        number, active, queues, hosts, load = 0, Fraction(0), Fraction(0), Fraction(0), Fraction(0)
        for path, samples in self.seen[value].items():
            of = self.looks[path]
            number += samples.number
            active += Fraction(samples.active, of)
            queues += Fraction(samples.queues, of)
            hosts += Fraction(samples.hosts, of)
            load += Fraction(samples.hosts, of) * samples.load / samples.number
        share = float(active / queues) if queues else None
        return _Means(number, float(active), float(queues), share, float(hosts), float(load / hosts))


class _SampleCounts(msgspec.Struct):
    """Facts about all samples, for the message that none matches."""

    first: int | None = None
    last: int = 0
    inside: int = 0
    words: dict[str, set[str]] = {}

    def lies_inside(self, sample: QueueSample, bins: Bins) -> bool:
        """Add a sample; returns whether it is in the interval."""
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
        """Why there is nothing to show, and which values exist."""
        if self.first is None:
            return f"no samples in {', '.join(map(str, paths))}"
        if not self.inside:
            return f"no sample is in the interval; there are samples from {iso(self.first)} to {iso(self.last)}"
        there = (f"{key} {some(self.words[key]) or 'is in no sample'}" for key in _KEYS if key in request.filters)
        return f"none of the {self.inside:,} samples in the interval matches; existing values: {'; '.join(there)}"


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    bins = request.cut()
    paths = _paths(context, request)
    unreadable = 0
    met = _SampleCounts()
    load_bins = [_LoadBin() for _ in range(bins.count)]
    for path in paths:
        looks: dict[int, dict[str, _LoadSample]] = {}
        for sample in read_samples(path):
            if isinstance(sample, Unreadable):
                unreadable += 1
            elif met.lies_inside(sample, bins) and _matches(sample, request):
                look = looks.setdefault(sample.at, {})
                for value in _values(sample, request.by):
                    _add(look.setdefault(value, _LoadSample()), sample)
        for at, values in looks.items():
            load_bin = load_bins[(at - bins.start) // bins.size_s]
            load_bin.looks[path] += 1
            for value, seen in values.items():
                load_bin.seen.setdefault(value, {}).setdefault(path, _LoadSamples()).add(seen)
    nothing = None if any(load_bin.looks for load_bin in load_bins) else met.nothing(request, paths)
    notes = [f"Lines of the stat_file that are not samples: {unreadable:,}."] if unreadable else []
    if not nothing:
        notes.append("The load is that of the stat_file, whose scale is not documented.")
        if set(request.by) & _SEVERAL:
            notes.append(
                f"A queue counts under each {request.by[0]} that it has, so the values do not add up to all queues."
            )
    if request.by:
        made = _by_key(bins, load_bins, request.by)
    else:
        busy = queue_per_bin(context, msgspec.structs.replace(request, interval=None))
        made = _of_all(bins, load_bins, busy)
    return context.report(
        LOAD,
        request,
        columns=made.columns,
        rows=made.rows,
        sorted_by="active",
        plots=made.plots,
        notes=tuple(notes),
        nothing=nothing,
        facts={"bin_s": bins.size_s, "by": list(request.by)},
    )


def _paths(context: ReportContext, request: ReportRequest) -> list[Path]:
    if unknown := [key for key in request.filters if key not in _KEYS]:
        raise UsageError(f"samples cannot be selected by {unknown[0]!r}; choose one of: {', '.join(_KEYS)}")
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


def _values(sample: QueueSample, by: tuple[str, ...]) -> tuple[str, ...]:
    """The values of the key under which a sample counts."""
    if not by:
        return ("",)
    if by == ("state",):
        return tuple(STATES[letter] for letter in sorted(sample.states)) or ("",)
    return _words(sample)[by[0]] or ("",)


def _matches(sample: QueueSample, request: ReportRequest) -> bool:
    words = _words(sample)
    return all(
        any(fnmatchcase(word, pattern) for word in words[key]) for key, pattern in request.filters.items()
    )  # fmt: skip


def _add(look: _LoadSample, sample: QueueSample) -> None:
    look.active += sample.active
    look.queues += sample.queues
    look.loads[sample.host] = max(look.loads.get(sample.host, 0), sample.load)


class _LoadTables(msgspec.Struct, frozen=True):
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    plots: tuple[Plot, ...]


def _of_all(bins: Bins, found: list[_LoadBin], busy: list[float]) -> _LoadTables:
    """A row for each bin, with the queue utilization of the jobs (`busy`; empty if nothing ran)."""
    rows: list[tuple[Cell, ...]] = []
    for place, (start, _) in enumerate(bins.edges()):
        one = found[place]
        measures = one.means("") if one.looks else (0, *[None] * (len(_MEASURES) - 1))
        rows.append((start, *measures, busy[place] if busy else None))
    columns = (*LOAD.columns, *LOAD.more_columns)
    names = [column.name for column in columns]

    def series(label: str, column: str) -> Series:
        values = (row[names.index(column)] for row in rows)
        return Series(label, tuple(value if isinstance(value, float) else None for value in values))

    queues = [series("active queues", "active"), series("all queues", "queues")]
    if busy:
        queues.append(series("queue utilization of the jobs", "queue_utilization"))
    return _LoadTables(columns, tuple(rows), _plots(bins, tuple(queues), (series("load", "load"),)))


def _by_key(bins: Bins, found: list[_LoadBin], by: tuple[str, ...]) -> _LoadTables:
    """A row for each bin and value of the key in it."""
    (key,) = by
    by_bin = [{value: one.means(value) for value in sorted(one.seen)} for one in found]
    rows = tuple(
        (start, value, *means)
        for (start, _), one in zip(bins.edges(), by_bin, strict=True)
        for value, means in one.items()
    )

    def series(value: str, drawn: str, absent: float | None) -> Series:
        values = ((getattr(one[value], drawn) if value in one else absent) if one else None for one in by_bin)
        return Series(value or UNKNOWN_NAME, tuple(values))

    names = sorted({value for one in by_bin for value in one})
    queues = tuple(series(name, "queues" if key == "state" else "active", 0.0) for name in names)
    loads = tuple(series(name, "load", None) for name in names)
    adds_up = key not in _SEVERAL
    measures = (
        msgspec.structs.replace(measure, adds="sum") if adds_up and measure.name in {"active", "queues"} else measure
        for measure in _MEASURES
    )
    columns = (_START, Column(key, "text", key=key), *measures)
    return _LoadTables(columns, rows, _plots(bins, queues, loads, by=key))


def _plots(bins: Bins, queues: tuple[Series, ...], loads: tuple[Series, ...], by: str = "") -> tuple[Plot, ...]:
    keys = (by,) if by else ()
    axis: dict[str, Any] = {"x": tuple(start for start, _ in bins.edges()), "step_s": bins.size_s, "by": by}
    active, load = LOAD.pictures["active" if by and by != "state" else "queues"], LOAD.pictures["load"]
    adds_up = bool(by) and by not in _SEVERAL
    return (
        active.plot("line", *queues, keys=keys, stacked=adds_up, **axis),
        load.plot("line", *loads, keys=keys, **axis),
    )
