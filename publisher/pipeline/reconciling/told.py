"""What somebody tells of what a service has: groups of jobs with their sums, by the fields that he tells them by."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from formats.month import Month
from formats.summary import Group
from formats.sync_count import SyncCount
from formats.xml_text import duration_seconds
from publisher.store import groups

Value: TypeAlias = str | int
Cell: TypeAlias = tuple[Value, ...]

DIMENSIONS: Final = (
    "site", "submit_host", "vo", "vo_group", "vo_role", "user", "infrastructure", "nodes", "processors", "benchmark",
    "score_milli",
)  # fmt: skip
"""What a group may be told by: the fields of a summary's key, month apart."""

SCORES: Final = frozenset({"benchmark", "score_milli"})
"""Those that may differ among the runs of a class, because benchmarks may go by the end of a run."""


class ToldGroup(msgspec.Struct, frozen=True):
    """A group of jobs as it is told. `kind`: a summary, or a sync count. `fields` are among `DIMENSIONS`, compared as
    the server compares them. Sums in seconds, None where they are not told, right within so many seconds.
    """

    kind: str
    month: Month
    fields: dict[str, Value]
    jobs: int
    wall_s: float | None = None
    cpu_s: float | None = None
    within_s: float = 1.0

    @staticmethod
    def of_summary(group: Group) -> ToldGroup:
        """A summary, by its whole key."""
        fields = {name: folded(getattr(group.key, name)) for name in DIMENSIONS}
        wall_s, cpu_s = duration_seconds(group.wall_ms), duration_seconds(group.cpu_ms)
        return ToldGroup(groups.SUMMARY, group.key.when, fields, group.jobs, wall_s, cpu_s)

    @staticmethod
    def of_sync(count: SyncCount) -> ToldGroup:
        """A sync count."""
        fields: dict[str, Value] = {"site": folded(count.key.site), "submit_host": folded(count.key.submit_host)}
        return ToldGroup(groups.SYNC, count.key.when, fields, count.jobs)

    def cell(self, dimensions: tuple[str, ...]) -> Cell:
        """The group by these fields."""
        return tuple(self.fields.get(name, "none") for name in dimensions)


def folded(value: Value) -> Value:
    """A value as the server's database compares it: without case and trailing blanks."""
    return value.rstrip(" ").lower() if isinstance(value, str) else value
