"""The runs of the program, as `history` lists them, each with its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from publisher.page.html import markup
from publisher.status.run_summary import summary_of
from publisher.store.history import ProgramRun
from publisher.text import safe

MOST_RUNS: Final = 200
"""Runs that the page lists; `history --all` lists all."""


def history_page(runs: Sequence[ProgramRun], total: int, around: Mapping[str, Any]) -> str:
    """The newest runs, of so many."""
    found = [(each, [safe(error) for error in each.errors]) for each in map(summary_of, runs)]
    return markup("history.html", {"title": "Runs of the program", "runs": found, "total": total, **around})
