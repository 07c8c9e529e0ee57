"""View `allocations`: what is used and left of each allocation, and the day on which it runs dry at the present pace.

A run across the beginning or the end of an allocation counts by its parts, in proportion to its time in it: parts are
whole numbers that add up to the run. It counts in each allocation whose words it has, such as that of its project and
that of its user; those of one holder and resource do not overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from publisher.config.allocations import Allocation
from publisher.errors import UsageError
from publisher.messages.entries import word_test
from publisher.observe.allocations import DAY_S, PACE_DAYS, AllocationUse
from publisher.report.allocation_files import all_allocations
from publisher.report.matching import Matching, columns_of
from publisher.report.report import Cell, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading
from publisher.report.view_kind import ALLOCATIONS
from publisher.text import counted

_MOST_NAMED: Final = 3
_HOUR_MS: Final = 3_600_000
_COLUMNS: Final = ("wall_ms", "slots", "gpus", "project", "account", "user", "cluster")
_MOST_HELD: Final = 1 << 24
_MOST_WALL_MS: Final = 1 << 42
"""What nobody has, 10^7 cores or 100 years, counts as so much: products stay below 127 bits."""
_LENGTH: Final = 'greatest("stop" - "start", 1)'
_HELD: Final = (
    f"CAST(least(greatest(coalesce(CASE WHEN of_gpus THEN gpus ELSE slots END, 0), 0), {_MOST_HELD}) AS HUGEINT) "
    f"* least(greatest(coalesce(wall_ms, 0), 0), {_MOST_WALL_MS})"
)
_CORE_MS: Final = f"CAST(least(greatest(coalesce(slots, 0), 0), {_MOST_HELD}) AS HUGEINT) * greatest(wall_ms, 0)"
_TIMES: Final = ("since", "until", "pace_since", "pace_until")
_Table = tuple[str, tuple[str, ...]]
"""The name of a table of allocations, and the keys that its holders are known by."""


def uses(context: ReportContext) -> list[AllocationUse]:
    """The use of all allocations now. Raises `UsageError` and `ConfigError`."""
    return _AllocationUses(context, ReportRequest(start=0, stop=1)).uses


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view, as of now. Raises `UsageError` if the configuration has no allocation, and `ConfigError`."""
    made = _AllocationUses(context, request)
    now = context.now
    notes = [*made.notes, "Jobs count once they have ended."]
    if made.unused:
        named = ", ".join(f"{one.name!r} ({one.holder})" for one in made.unused[:_MOST_NAMED])
        more = f", and {len(made.unused) - _MOST_NAMED} others" if len(made.unused) > _MOST_NAMED else ""
        notes.append(f"No job counts yet in {named}{more}. See `report totals --by project,account` for names.")
    lasting = [use for use in made.uses if use.allocation.is_current(now) and use.dry(now) is None]
    if lasting:
        which = ", ".join(use.allocation.name for use in lasting[:_MOST_NAMED])
        which += f", and {len(lasting) - _MOST_NAMED} others" if len(lasting) > _MOST_NAMED else ""
        notes.append(f"At the pace of the last {PACE_DAYS} days not dry before its end: {which}.")
    if made.without_jobs:
        jobs = f"{counted(made.without_jobs, 'job')} of the last {PACE_DAYS} days"
        notes.append(f"Without an allocation: {jobs}, {made.without_core_ms / _HOUR_MS:,.1f} core h.")
    return context.report(
        ALLOCATIONS,
        request,
        start=made.first,
        stop=max(now, made.first + 1),
        rows=tuple(_row(one, made.uses, now) for one in made.uses),
        plots=_plots(made.uses, now),
        notes=tuple(notes),
        sql=made.sql,
        nothing=None if made.uses else "no allocation is one of these jobs",
        facts={
            "without_allocation": {"jobs": made.without_jobs, "core_ms": made.without_core_ms, "days": PACE_DAYS},
        },
    )


def _row(use: AllocationUse, among: Sequence[AllocationUse], now: int) -> tuple[Cell, ...]:
    one = use.allocation
    same = [other.allocation for other in among if other.allocation.holder == one.holder]
    renewed = [other for other in same if other.resource == one.resource and other.since >= one.until]
    return (
        one.name, one.holder, one.resource, one.since, one.until, use.amount_h, use.used_h, use.left_h,
        use.used_h / use.amount_h, one.elapsed(now), use.pace_h, use.dry(now),
        min(renewed, key=lambda other: other.since).name if renewed else None,
    )  # fmt: skip


def _plots(among: Sequence[AllocationUse], now: int) -> tuple[Plot, ...]:
    """How much of the amount and of the time of each present allocation is over."""
    present = [use for use in among if use.allocation.is_current(now)]
    if not present:
        return ()
    names = tuple(
        use.allocation.name + ("" if use.allocation.resource == "cores" else f" ({use.allocation.resource})")
        for use in present
    )
    used = tuple(100 * use.used_h / use.amount_h for use in present)
    elapsed = tuple(100 * use.allocation.elapsed(now) for use in present)
    series = (Series("amount", used), Series("time", elapsed))
    return (ALLOCATIONS.pictures["used"].plot("bar", *series, x=names, top=100),)


class _AllocationUses:
    """The uses of the allocations that a request asks for, and the runs of the last days that none has."""

    def __init__(self, context: ReportContext, request: ReportRequest) -> None:
        allocations, self.notes = all_allocations(context.config)
        if not allocations:
            hint = "Add [[allocations]] or [[allocation_files]] to it"
            raise UsageError("the configuration has no allocation", hint=hint)
        now = context.now
        self.first = min(allocation.since for allocation in allocations)
        start = min(self.first, now - PACE_DAYS * DAY_S)
        asked = msgspec.structs.replace(request, start=start, stop=max(now, start + 1))
        with context.tables(asked, EntryReading(columns_of(asked, *_COLUMNS), start)) as connection:
            matching = Matching(connection, asked, "overlapping")
            tables = _tabulate(matching, allocations, now)
            shown = range(len(allocations)) if not request.filters else _with_runs(matching, allocations, tables, asked)
            sums = _sums(matching, tables)
            recent = f'coalesce("end", "stop") >= {now - PACE_DAYS * DAY_S}'
            none = "".join(f" AND NOT EXISTS (SELECT 1 FROM {_joined(table, 'matching')})" for table in tables)  # noqa: S608 - names and numbers of ours
            query = f"SELECT count(*), coalesce(sum({_CORE_MS}), 0) FROM matching WHERE {recent}{none}"  # noqa: S608 - as above
            ((self.without_jobs, core_ms),) = matching.rows(query)
            self.sql = matching.text(*(_sum_query(table) for table in tables), query)
        self.without_core_ms = int(core_ms)
        self.uses = [
            AllocationUse(allocations[number], *sums.get(number, (0, 0)), _pace_s(allocations[number], now))
            for number in shown
        ]
        self.unused = [one for number in shown if number not in sums and (one := allocations[number]).since < now]
        """Those that have begun and in whose time no job ran: their words may be mistyped."""


def _pace(one: Allocation, now: int) -> tuple[int, int]:
    """From when to when its pace is measured: the last days, as far as they are in its time."""
    begin, end = max(one.since, now - PACE_DAYS * DAY_S), min(now, one.until)
    return begin, max(begin, end)


def _pace_s(one: Allocation, now: int) -> int:
    begin, end = _pace(one, now)
    return end - begin


def _tabulate(matching: Matching, allocations: Iterable[Allocation], now: int) -> list[_Table]:
    """Make a table of the allocations for each kind of holder, with a row for each word that a run may have."""
    rows: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for number, one in enumerate(allocations):
        times = dict(zip(_TIMES, (one.since, one.until, *_pace(one, now)), strict=True))
        for words in one.words:
            named = {f"of_{key}": word for key, word in zip(one.keys, words, strict=True)}
            rows[one.keys].append({"number": number, "of_gpus": one.resource == "gpus", **named, **times})
    tables = []
    for keys, cells in rows.items():
        schema = [("number", pa.int64()), ("of_gpus", pa.bool_())]
        schema += [*((f"of_{key}", pa.string()) for key in keys), *((name, pa.int64()) for name in _TIMES)]
        name = f"held_by_{'_'.join(keys)}"
        matching.tabulate(name, pa.Table.from_pylist(cells, pa.schema(schema)), "allocations of the configuration")
        tables.append((name, keys))
    return tables


def _joined(table: _Table, runs: str) -> str:
    """The SQL of a table with the condition that runs count in its allocations."""
    name, keys = table
    words = "".join(f' AND {runs}."{key}" = {name}.of_{key}' for key in keys)
    return f'{name} WHERE greatest({runs}."stop", {runs}."start" + 1) > since AND {runs}."start" < until{words}'


def _with_runs(
    matching: Matching, allocations: Sequence[Allocation], tables: Iterable[_Table], request: ReportRequest
) -> list[int]:
    """The allocations in which matching runs count, and those of the user that is asked for."""
    is_user = word_test("user", request.filters["user"])
    numbers = {number for number, one in enumerate(allocations) if one.user is not None and is_user(one.user)}
    for table in tables:
        query = f"SELECT DISTINCT number FROM matching, {_joined(table, 'matching')}"  # noqa: S608 - as above
        numbers |= {row[0] for row in matching.rows(query)}
    return sorted(numbers)


def _sums(matching: Matching, tables: Iterable[_Table]) -> dict[int, tuple[int, int]]:
    """By number of the allocation, what all runs held of it in its time, and in the time of its pace."""
    return {
        number: (int(used_ms), int(lately_ms))
        for table in tables
        for number, used_ms, lately_ms in matching.rows(_sum_query(table))
    }


def _sum_query(table: _Table) -> str:
    used, lately = _part("since", "until"), _part("pace_since", "pace_until")
    return f"SELECT number, sum({used}), sum({lately}) FROM entries, {_joined(table, 'entries')} GROUP BY number"  # noqa: S608 - as above


def _part(since: str, until: str) -> str:
    """The SQL of what a run held in an interval: up to its end, less what it had held up to its beginning."""

    def up_to(at: str) -> str:
        return f'{_HELD} * least(greatest({at} - "start", 0), {_LENGTH}) // {_LENGTH}'

    whole = f'"start" >= {since} AND "start" < {until} AND "stop" <= {until}'
    return f"CASE WHEN {whole} THEN {_HELD} ELSE ({up_to(until)}) - ({up_to(since)}) END"
