"""`OPTIONS`: the options of the views of `report`, with their types and help, and the values that they take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from formats.ending import ENDINGS

Interval = Literal["overlapping", "started", "ended"]
"""Which runs belong to an interval: those that overlap it, started in it, or ended in it."""
PeriodName = Literal["day", "week", "month", "quarter", "year"]
PERIODS: Final[tuple[PeriodName, ...]] = get_args(PeriodName)
PeriodLength = Literal[PeriodName, "all"]
"""`all`: one period, which is the interval."""
PERIOD_LENGTHS: Final[tuple[PeriodLength, ...]] = get_args(PeriodLength)
Compared = Literal["previous", "year"]
"""With which interval another is compared: the one before, or the same of the year before."""
Resource = Literal["cores", "memory", "vmem", "gpus"]


class ViewOption(msgspec.Struct, frozen=True):
    """An option of a command: its `name` without dashes, the type of its value, and its help."""

    name: str
    value: Any
    text: str
    metavar: str | None = None
    argument: bool = False
    """Whether it is given without its name."""


def _pattern(name: str, text: str) -> ViewOption:
    return ViewOption(name, str, f"{text}.", "PATTERN")


_PATTERNS: Final = (
    _pattern("user", "Only jobs of these users"),
    _pattern("group", "Only jobs of these groups"),
    _pattern("vo", "Only jobs of these VOs"),
    _pattern("project", "Only jobs of these projects"),
    _pattern("queue", "Only jobs in these queues"),
    _pattern("host", "Only jobs on these hosts"),
    _pattern("status", "Only jobs with this status, such as completed or failed"),
    _pattern("job", "Only jobs with this id (of an array: all tasks) or name"),
    _pattern("task", "Only these array tasks, such as 3 or 1-10:2"),
    _pattern("account", "Only jobs on these accounts"),
    _pattern("department", "Only jobs of these departments"),
    _pattern("complex", "Only jobs that requested this resource (DQS, Grid Engine)"),
    _pattern("pe", "Only jobs in these parallel environments"),
    _pattern("slots", "Only jobs with this number of slots"),
    _pattern("cluster", "Only jobs of these clusters"),
    _pattern("reservation", "Only jobs in these advance reservations"),
    _pattern("dn", "Only jobs of these distinguished names"),
    _pattern("ending", f"Only jobs with this ending: {', '.join(ENDINGS)}"),
)
OPTIONS: Final[Mapping[str, ViewOption]] = {
    option.name: option
    for option in (
        ViewOption("statement", str, "One SELECT statement.", "SQL", argument=True),
        ViewOption("by", str, "Group by a key.", "KEY[,KEY]"),
        ViewOption("bin", str, "Size of the bins. Default: 1h.", "DURATION"),
        ViewOption("bins", int, "Number of bins, instead of their size.", "N"),
        ViewOption("measure", Literal["queue", "cpu"], "What to show. Default: queue."),
        ViewOption("counted", Interval, "Count jobs that overlap the interval, started in it, or ended in it."),
        ViewOption("compare", Compared, "Compare with the period before, or with the same period a year before."),
        ViewOption("period", PeriodLength, "Length of a period; all: the whole interval. Default: month."),
        ViewOption("timezone", str, "Time zone in which days and months begin. Default: UTC.", "ZONE"),
        ViewOption("resource", Resource, "Which resource. Default: cores."),
        *_PATTERNS,
        ViewOption("archive", Path, "Read jobs from an archive instead of the store.", "DIR"),
        ViewOption("dask", str, "Read the archive with the Dask cluster of this scheduler.", "ADDRESS"),
        ViewOption("stat-file", Path, "DQS' samples of the queues.", "FILE"),
        ViewOption("sort", str, "Sort by this column: numbers largest first, +COLUMN smallest first.", "COLUMN"),
        ViewOption("top", int, "Show only the N largest; one row or bar sums up the others.", "N"),
    )
}
"""The options of views in the order of help; every view also takes an interval."""
