"""Read the sources again for some months, and compare their sums with the store.

Nothing is stored, and no cursor moves. Memory does not grow with the runs: they are put into a temporary file by their
key, since a copied log may have a run twice. The version that is read last counts, as when it is collected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from formats.calendar import Month, month_of, months_between
from formats.job import Job
from publisher.encoded_run import class_facts, cpu_total_ms, run_key
from publisher.errors import SourceError, StoppedError, StoreFullError
from publisher.reconcile.amounts import Amounts, AmountsByKey, ClassLabels, SumsKey, months_bounds
from publisher.sources.base import Page, Reader, Window
from publisher.sources.tool import HasTool, ToolSums
from publisher.sqlite_file import TemporaryDatabase
from publisher.store import sums
from publisher.store.admin import erase
from publisher.store.database import Store

_TABLES: Final = """
CREATE TABLE labels (id INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE);
CREATE TABLE runs (
    key BLOB PRIMARY KEY, month INTEGER NOT NULL, label INTEGER NOT NULL, core_ms INTEGER NOT NULL,
    cpu_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE of_source (
    source TEXT NOT NULL, key BLOB NOT NULL, lost INTEGER NOT NULL, wall_ms INTEGER NOT NULL, core_ms INTEGER NOT NULL,
    cpu_ms INTEGER NOT NULL, PRIMARY KEY (source, key)
) WITHOUT ROWID;
"""
"""`runs`: each run once, also if several sources have it; `of_source`: the runs of each source, for its own program."""
_OF_SOURCE: Final = (
    "SELECT count(*), coalesce(sum(wall_ms), 0), coalesce(sum(core_ms), 0), coalesce(sum(cpu_ms), 0) "
    "FROM of_source WHERE source = ? AND NOT lost"
)


MEASURES: Final = ("jobs", "wall_ms", "core_ms", "cpu_ms")
"""The sums that a program may have."""


class SourceReading(msgspec.Struct):
    """Result of reading one source. `error`: why it was not read to its end.

    `tool`: the sums of these months from the batch system's own program, `own`: the same from the runs that were read,
    and `tool_error`: why the program gave none. Lost runs are in neither: the batch system has no usage of them.
    """

    runs: int = 0
    unreadable: int = 0
    error: str | None = None
    tool: ToolSums | None = None
    own: ToolSums | None = None
    tool_error: str | None = None

    @property
    def differing(self) -> list[str]:
        """The fields in which `own` and `tool` differ."""
        if self.tool is None or self.own is None:
            return []
        # Only CPU time, which a program may add up in other units: a tolerance for the others would hide a missing job.
        within = {"cpu_ms": self.runs * self.tool.cpu_within_ms}
        sides = [(name, getattr(self.own, name), getattr(self.tool, name)) for name in MEASURES]
        return [name for name, own, other in sides if other is not None and abs(own - other) > within.get(name, 0)]


class SourceSums(msgspec.Struct):
    """The sums of all sources, by the months of the ends in the sources.

    `matched`: the runs that the store has, with the amounts of the source; `stored`: the same runs with the amounts and
    cells of the store; `purged`: the runs that were purged from the store.
    """

    readings: dict[str, SourceReading]
    all: AmountsByKey = msgspec.field(default_factory=lambda: defaultdict(Amounts))
    matched: AmountsByKey = msgspec.field(default_factory=lambda: defaultdict(Amounts))
    stored: AmountsByKey = msgspec.field(default_factory=lambda: defaultdict(Amounts))
    purged: AmountsByKey = msgspec.field(default_factory=lambda: defaultdict(Amounts))


def source_sums(
    store: Store,
    labels: ClassLabels,
    sources: Mapping[str, Reader],
    months: Sequence[Month],
    stopping: Callable[[], bool],
    *,
    with_tool: bool = False,
) -> SourceSums:
    """Read these sources for some months, which are in order, and compare them with the store run by run.

    `with_tool`: call the batch systems' own programs, too. If a source cannot be read to its end, its reading has the
    error. Raises `StoreError` and `StoppedError`.
    """
    summed = SourceSums({name: SourceReading() for name in sources})
    numbers = {month.number for month in months}
    clusters: dict[str, set[str]] = {name: set() for name in sources}
    with store.read() as connection:
        # A source still has the names of erased persons: with these, their runs would be in other cells than in the
        # store.
        as_stored = erase.pseudonyms(connection)
    with TemporaryDatabase(_TABLES, "reconcile --source", StoreFullError) as database:
        for name, source in sources.items():
            reading = summed.readings[name]
            try:
                for page in source.pages({}, Window(*months_bounds(months))):
                    jobs = page.jobs if isinstance(page, Page) else [run.job() for run in page.runs]
                    jobs = [as_stored(job) for job in jobs if job.has_record and _month(job) in numbers]
                    _keep(database, name, jobs, labels, with_tool=with_tool)
                    reading.runs += len(jobs)
                    clusters[name].update(job.cluster for job in jobs if job.cluster)
                    reading.unreadable += len(page.unreadable)
                    if stopping():
                        raise StoppedError("interrupted", hint="Nothing was changed")
            except SourceError as error:
                reading.error = str(error)
        _compare(store, database, labels, summed)
        if with_tool:
            for name, source in sources.items():
                _ask_tool(database, source, months, clusters[name], summed.readings[name])
    return summed


def _ask_tool(
    database: TemporaryDatabase,
    source: Reader,
    months: Sequence[Month],
    clusters: Collection[str],
    reading: SourceReading,
) -> None:
    first, end = months_bounds(months)
    if [month.number for month in months_between(first, end)] != [month.number for month in months]:
        reading.tool_error = "the program takes consecutive months only"
    else:
        try:
            reading.tool = source.tool_sums(Window(first, end), clusters) if isinstance(source, HasTool) else None
            if reading.tool is None:
                reading.tool_error = f"--with-tool: {source.kind} has no program of its own that adds up jobs"
        except SourceError as error:
            reading.tool_error = str(error)
    if reading.tool is not None:
        amounts = database.row(_OF_SOURCE, source.name)
        assert amounts is not None
        reading.own = ToolSums("", *map(int, amounts))


def _month(job: Job) -> int:
    return month_of(job.end or 0).number


def _keep(
    database: TemporaryDatabase, source: str, jobs: Sequence[Job], labels: ClassLabels, *, with_tool: bool
) -> None:
    rows, own = [], []
    for job in jobs:
        label, cores = labels.of_facts(source, class_facts(job))
        wall_ms = job.wall_ms or 0
        key, core_ms, cpu_ms = run_key(job.record_id), wall_ms * cores, cpu_total_ms(job)
        rows.append((key, _month(job), label, core_ms, cpu_ms))
        own.append((source, key, job.status == "lost", wall_ms, core_ms, cpu_ms))
    if with_tool:
        database.change("INSERT OR REPLACE INTO of_source VALUES (?, ?, ?, ?, ?, ?)", own)
    database.change("INSERT OR IGNORE INTO labels (label) VALUES (?)", {(row[2],) for row in rows})
    database.change(
        "INSERT OR REPLACE INTO runs SELECT ?, ?, id, ?, ? FROM labels WHERE label = ?",
        ((key, month, *more, label) for key, month, label, *more in rows),
    )


def _compare(store: Store, database: TemporaryDatabase, labels: ClassLabels, found: SourceSums) -> None:
    query = (
        "SELECT key, month, label.label, core_ms, cpu_ms FROM runs JOIN labels AS label ON label.id = runs.label "
        "WHERE key > ? ORDER BY key LIMIT ?"
    )
    for page in database.pages(query, after=b""):
        keys = [row[0] for row in page]
        with store.read() as connection:
            stored = sums.by_key(connection, keys)
            purged = sums.purged_among(connection, [key for key in keys if key not in stored])
        known = labels.of([each.class_id for each in stored.values()])
        for key, month, label, core_ms, cpu_ms in page:
            amounts, cell = Amounts(1, core_ms, cpu_ms), SumsKey(month, label)
            own = stored.get(key)
            whose = known[own.class_id] if own is not None else None
            if own is not None and whose is not None and own.end is not None:
                # the store may know the VO and user from a grid log, the source does not
                cell, cores = SumsKey(month, whose[0]), whose[1]
                there = SumsKey(month_of(own.end).number, whose[0])
                found.matched[cell] = found.matched[cell].plus(amounts)
                found.stored[there] = found.stored[there].plus(Amounts(1, own.wall_ms * cores, own.cpu_ms))
            elif key in purged:
                found.purged[cell] = found.purged[cell].plus(amounts)
            found.all[cell] = found.all[cell].plus(amounts)
