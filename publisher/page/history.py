"""The runs of the program, as `history` lists them, and one of them, as `history ID` shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from publisher.page.html import markup
from publisher.status.run_summary import LISTED, WorkTable, summary_of
from publisher.store.history import ProgramRun
from publisher.text import safe

MOST_RUNS: Final = 200
"""Runs that the page lists; `history --all` lists all."""


def history_page(runs: Sequence[ProgramRun], total: int, around: Mapping[str, Any]) -> str:
    """The newest runs, of so many, with what each did by source and target."""
    listed = [
        {
            "one": summary, "href": f"/history/{summary.run.id}", "works": [*_works(summary.tables)],
            "numbers": [(name, summary.total(name)) for name in LISTED],
            "errors": [safe(error) for error in summary.errors],
        }
        for summary in map(summary_of, runs)
    ]  # fmt: skip
    context = {"title": "Runs of the program", "runs": listed, "total": total, "listed": LISTED}
    return markup("history.html", {**context, **around})


def run_page(run: ProgramRun, around: Mapping[str, Any]) -> str:
    """One run in full."""
    one = summary_of(run)
    context = {
        "title": f"Run {run.id} of the program", "one": one, "tables": _safe(one.tables), "host": safe(run.host),
        "problem": one.problem and safe(one.problem), "findings": [safe(finding) for finding in one.findings],
    }  # fmt: skip
    return markup("run.html", {**context, **around})


def _works(tables: list[WorkTable]) -> Iterator[tuple[str, str]]:
    """Each source and target that had any number but 0, and these numbers."""
    for table in tables:
        for row in table.rows:
            numbers = [f"{name} {cell:,}" for name, cell in zip(table.numbers, row.cells, strict=True) if cell]
            if numbers:
                yield f"{table.what.capitalize()} {safe(row.name)}", ", ".join(numbers)


def _safe(tables: list[WorkTable]) -> list[WorkTable]:
    """The tables with texts that are safe to show."""
    return [
        msgspec.structs.replace(table, rows=[
            msgspec.structs.replace(row, name=safe(row.name), error=row.error and safe(row.error)) for row in table.rows
        ])
        for table in tables
    ]  # fmt: skip
