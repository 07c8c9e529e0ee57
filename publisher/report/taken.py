"""Which options each view of `report` takes: what a view would not look at is refused, not ignored.

A test holds the table in docs/report.md against `TAKEN`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from publisher.entries import KEYS
from publisher.errors import UsageError
from publisher.report.request import PERIODS
from publisher.report.result import VIEWS

_PATTERNS: Final = frozenset(KEYS)
_OF_RUNS: Final = _PATTERNS | {"counted", "archive"}
TAKEN: Final[Mapping[str, frozenset[str]]] = {
    "utilization": _OF_RUNS | {"by", "bin", "bins", "measure", "dask"},
    "totals": _OF_RUNS | {"by", "zone", "dask"},
    "occupation": _OF_RUNS | {"by", "period", "zone", "resource"},
    "waiting": _OF_RUNS | {"by", "zone"},
    "scarce": _OF_RUNS,
    "charges": _PATTERNS | {"by", "archive"},
    "paths": _OF_RUNS,
    "load": frozenset({"bin", "bins", "stat-file", "queue", "host", "complex", "archive"}),
    "job": frozenset({"job", "owner"}),
}
"""By view the options it takes, without their dashes. An interval is taken by all."""


def require_taken(view: str, given: Iterable[str], by: tuple[str, ...] = ()) -> None:
    """Raises `UsageError` for the first of the given options that the view does not take, with the views that do.

    `by` are the keys that runs are told apart by: without a period among them, `zone` says nothing of totals and waits.
    """
    taken = TAKEN.get(view, frozenset())
    for option in given:
        if option not in taken:
            views = [name for name in VIEWS if option in TAKEN[name]]
            raise UsageError(
                f"--{option} means nothing to the view {view}; it is for {_listed(views)}",
                hint=f"Leave it away, or choose another --view than {view}",
            )
        if option == "zone" and "by" in taken and "period" not in taken and not set(by) & set(PERIODS):
            raise UsageError(
                f"--zone says where days and months begin, and {view} is not told apart by any",
                hint="Leave it away, or add --by day, week, month or year",
            )


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
