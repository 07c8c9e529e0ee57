"""Parts of the descriptor of a view: its pictures, and which jobs a row of its table counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from publisher.report.report import Plot, PlotStyle, Series, keys_text
from publisher.report.view_option import Interval

RunRule = Literal["all", "ended", "lasting", "possible", "first", "last"]
"""Which of the matching runs a view counts: those that ended; that took time; whose amounts are possible; of each job
the first whose waiting time is known; the last with events."""


class RowJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a row of a view counts: those with the values of its keys, in its bin or period, and what follows."""

    filters: Mapping[str, str] = {}
    """Filters besides the keys (`KEYS`, or words of `publisher.report.row_jobs`), by the column that has the value."""
    runs: RunRule = "all"
    interval: Interval | None = None
    """Which runs belong to the interval of a row; None: as in the view."""
    times: tuple[str, str] | None = None
    """The columns of the begin and end of its interval; None: that of its bin or period, or that of the report."""
    by_node: Literal["", "any", "first"] = ""
    """Whether a row is of nodes: jobs count that held the resource there; `first`: on the first host of theirs."""
    unknown: str = ""
    """The cell of a key for jobs without a value."""
    everyone: str = ""
    """The cell of a key for all jobs."""
    nobody: str = ""
    """The cell of a key for what no job has used."""
    none: str = ""
    """Why the rows do not lead to jobs; empty: they do."""


class Picture(msgspec.Struct, frozen=True):
    """A picture of a view: the beginning of its title, and what its axis of values is of, as `Column.unit`."""

    title: str
    axis: str

    def titled(self, by: Iterable[str] = ()) -> str:
        """Its title, by these keys."""
        keys = keys_text(by)
        return f"{self.title} by {keys}" if keys else self.title

    def plot(
        self, style: PlotStyle, *series: Series, keys: Iterable[str] = (), units: Mapping[str, str] = {}, **more: Any
    ) -> Plot:
        """A plot of these series, with the `keys` in its title. `units`: what the axis has in braces; `more`: further
        fields of `Plot`."""
        return Plot(title=self.titled(keys), style=style, unit=self.axis.format(**units), series=series, **more)
