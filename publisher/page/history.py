"""The runs of the program, as `history` lists them, and one of them, as `history ID` shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from publisher.page.html import markup
from publisher.status.run_summary import LISTED, WorkTable, summary_of
from publisher.store.history import ProgramRun

MOST_RUNS: Final = 200
"""Runs that the page lists; `history --all` lists all."""


def history_page(runs: Sequence[ProgramRun], total: int, around: Mapping[str, Any]) -> str:
    """The newest runs, of so many, with what each did by source and target."""
    listed = [(summary, [*_works(summary.tables)]) for summary in map(summary_of, runs)]
    context = {"title": "Runs of the program", "runs": listed, "total": total, "listed": LISTED}
    return markup("history.html", {**context, **around})


def run_page(run: ProgramRun, around: Mapping[str, Any]) -> str:
    """One run in full."""
    return markup("run.html", {"title": f"Run {run.id} of the program", "one": summary_of(run), **around})


def _works(tables: list[WorkTable]) -> Iterator[tuple[str, str]]:
    """Each source and target that had any number but 0, and these numbers."""
    for table in tables:
        for row in table.rows:
            numbers = [f"{name} {cell:,}" for name, cell in zip(table.numbers, row.cells, strict=True) if cell]
            if numbers:
                yield f"{table.what.capitalize()} {row.name}", ", ".join(numbers)
