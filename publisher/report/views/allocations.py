"""View `allocations`: what is used and left of each allocation, and the day on which it runs dry at the present pace.

A run across the beginning or the end of an allocation counts by its parts, in proportion to its time in it: parts are
whole numbers that add up to the run. Each run counts in at most one allocation of a key, since those of the same key,
name, and resource do not overlap; in one of its project and one of its user, it counts in both.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import duckdb
import msgspec

from publisher.config.allocations import Allocation
from publisher.errors import UsageError
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import ALLOCATIONS
from publisher.text import counted

PACE_DAYS: Final = 30
_DAY_S: Final = 86_400
_HOUR_MS: Final = 3_600_000
_LENGTH: Final = 'greatest("stop" - "start", 1)'
_COLUMNS: Final = frozenset({"start", "stop", "end", "wall_ms", "slots", "gpus", "project", "account", "user"})
_HELD: Final = {"cores": "slots", "gpus": "gpus"}


class AllocationUse(msgspec.Struct, frozen=True):
    """What was used of an allocation, in all and in the last days, in amounts times milliseconds."""

    allocation: Allocation
    used_ms: int
    lately_ms: int
    lately_s: int

    @property
    def used_h(self) -> float:
        """What was used, in hours."""
        return self.used_ms / _HOUR_MS

    @property
    def left_h(self) -> float:
        """What is left, in hours; negative if more was used."""
        return float(self.allocation.amount) - self.used_h

    @property
    def pace_h(self) -> float | None:
        """Hours a day, of the last days; None before the allocation begins."""
        return self.lately_ms / _HOUR_MS / (self.lately_s / _DAY_S) if self.lately_s else None

    def dry(self, now: int) -> str | None:
        """The day on which nothing is left at this pace; None: not before it ends."""
        if self.left_h <= 0:
            return "used up"
        pace = self.pace_h
        if not pace or now >= self.allocation.until:
            return None
        at = now + self.left_h / pace * _DAY_S
        return f"{datetime.fromtimestamp(at, UTC).date()}" if at < self.allocation.until else None


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view, as of now. Raises `UsageError` if the configuration has no allocation."""
    allocations, now = context.config.allocations, context.now
    if not allocations:
        raise UsageError("the configuration has no allocation", hint="Add [[allocations]] to it")
    first = min(one.since for one in allocations)
    with context.tables(request, columns=_COLUMNS, start=min(first, now - PACE_DAYS * _DAY_S)) as connection:
        found = [_use(connection, one, now) for one in allocations]
        rest = _without(connection, allocations, now)
    return Report(
        view=ALLOCATIONS.name,
        title="Allocations",
        site=context.config.site.name,
        start=first,
        stop=now,
        columns=ALLOCATIONS.columns,
        rows=tuple(
            (
                one.allocation.name, one.allocation.holder, one.allocation.resource, one.allocation.since,
                one.allocation.until, float(one.allocation.amount), one.used_h, one.left_h,
                one.used_h / float(one.allocation.amount), one.allocation.elapsed(now), one.pace_h, one.dry(now),
            )
            for one in found
        ),
        notes=("Jobs count once they have ended.", *([rest] if rest else [])),
    )  # fmt: skip


def _part(resource: str, since: int, until: int) -> str:
    """The SQL of what runs held in an interval: up to its end, less what they had up to its beginning."""

    def up_to(at: int) -> str:
        inside = f'least(greatest({at} - "start", 0), {_LENGTH})'
        return f"CAST(greatest({_HELD[resource]}, 0) AS HUGEINT) * greatest(wall_ms, 0) * {inside} // {_LENGTH}"

    return f"({up_to(until)}) - ({up_to(since)})"


def _use(connection: duckdb.DuckDBPyConnection, one: Allocation, now: int) -> AllocationUse:
    begin, end = max(one.since, now - PACE_DAYS * _DAY_S), min(now, one.until)
    sums = f"sum({_part(one.resource, one.since, one.until)}), sum({_part(one.resource, begin, max(begin, end))})"
    query = f'SELECT {sums} FROM entries WHERE "{one.key}" = $1'  # noqa: S608 - names and numbers of ours
    used, lately = connection.execute(query, [one.value]).fetchone() or (0, 0)
    return AllocationUse(one, int(used or 0), int(lately or 0), max(0, end - begin))


def _without(connection: duckdb.DuckDBPyConnection, allocations: tuple[Allocation, ...], now: int) -> str:
    """The note on jobs of the last days that are in no allocation; empty if there are none."""
    since = now - PACE_DAYS * _DAY_S
    values: list[Any] = []
    within = []
    for one in allocations:
        values.append(one.value)
        within.append(f'("{one.key}" = ${len(values)} AND "stop" > {one.since} AND "start" < {one.until})')
    query = (
        f"SELECT count(*), coalesce(sum(CAST(slots AS HUGEINT) * greatest(wall_ms, 0)), 0) FROM entries "  # noqa: S608 - as above
        f'WHERE coalesce("end", "stop") >= {since} AND coalesce({" OR ".join(within)}, false) = false'
    )
    jobs, core_ms = connection.execute(query, values).fetchone() or (0, 0)
    if not jobs:
        return ""
    return f"{counted(jobs, 'job')} of the last {PACE_DAYS} days, {int(core_ms) / _HOUR_MS:,.1f} core h, have no allocation."
