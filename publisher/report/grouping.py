"""Groups of runs by the keys of a request: their SQL, the report of them, and the axis of its pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from publisher.report.calendar import period_axis, periods, zone_of
from publisher.report.matching import Matching, key_label
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import ViewKind
from publisher.report.view_option import PERIODS

Label = tuple[str, ...]
"""The values of the keys of a group; empty where its runs have none."""


class Grouping(msgspec.Struct, frozen=True):
    """Keys as columns of a relation of runs: their names, and the SQL of their labels."""

    names: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(
        cls, request: ReportRequest, keys: Sequence[str] | None = None, own: Mapping[str, str] | None = None,
        at: str | None = None,
    ) -> Grouping:  # fmt: skip
        """By these keys, or those of the request. `own`: the labels of keys that are a view's own. `at`: see
        `key_label`."""
        chosen = request.by if keys is None else keys
        labels = (own[key] if own and key in own else key_label(request, key, at) for key in chosen)
        return cls(tuple(f"key{place}" for place in range(len(chosen))), tuple(labels))

    @property
    def columns(self) -> tuple[str, ...]:
        """The SQL of the columns, with their names."""
        return tuple(f"{label} AS {name}" for label, name in zip(self.labels, self.names, strict=True))

    def runs(self, relation: str, *more: str, where: str = "true") -> str:
        """The relation with these columns, and `more` of the kind."""
        return f"(SELECT {', '.join(('*', *more, *self.columns))} FROM {relation} WHERE {where})"  # noqa: S608 - names of ours

    def sums(self, amounts: Iterable[str], runs: str, *beside: str) -> str:
        """The statement of the labels and amounts of each group of `runs`. `beside`: columns that distinguish groups
        too."""
        group = f" GROUP BY {', '.join((*self.names, *beside))}" if self.names else ""
        return f"SELECT {', '.join((*self.names, *amounts))} FROM {runs}{group}"  # noqa: S608 - names of ours

    def rows(
        self, matching: Matching, amounts: Mapping[str, str], runs: str, *beside: str, order: str = ""
    ) -> Iterator[tuple[Label, dict[str, Any]]]:  # fmt: skip
        """The label and the amounts by name of each group of `runs`. `amounts`: the SQL of each; `beside`: see `sums`;
        `order`: the end of the statement, which becomes part of `Matching.text`."""
        rows = matching.rows(self.sums(amounts.values(), runs, *beside) + order, explained=True)
        keys = len(self.names)
        return ((row[:keys], dict(zip(amounts, row[keys:], strict=True))) for row in rows)


def grouped_report(
    kind: ViewKind, context: ReportContext, request: ReportRequest, groups: Iterable[tuple[Label, tuple[Cell, ...]]],
    of_all: tuple[Cell, ...] | None, **fields: Any,
) -> Report:  # fmt: skip
    """The cells of each group, with those of all as the row of the total; without keys, those of all alone. `of_all`
    None: there are no runs. `fields`: as of `ReportContext.report`."""
    by = request.by
    grouped = {
        "columns": (*(Column(key, "text", key=key) for key in by), *kind.columns),
        "rows": tuple((*label, *cells) for label, cells in groups) if by or of_all is None else (of_all,),
        "footer": ("total", *[None] * (len(by) - 1), *of_all) if by and of_all else (),
        "facts": {
            "by": list(by),
            "all": {column.name: cell for column, cell in zip(kind.columns, of_all or (), strict=False)},
        },
    }
    return context.report(kind, request, **(grouped | fields))


def key_axis(request: ReportRequest, key: str, values: Iterable[str]) -> tuple[list[str], dict[str, Any]]:
    """The values of a key along the x axis of a plot, and what the plot has of that axis: the periods of the interval
    if it is a period, else these values."""
    if key in PERIODS:
        cut = periods(request.start, request.stop, key, zone_of(request.timezone))
        return [period.name for period in cut], period_axis(cut)
    names = [*values]
    return names, {"x": tuple(name or UNKNOWN_NAME for name in names)}
