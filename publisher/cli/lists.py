"""Lists: every one says how many there are and how many it shows, in text and in JSON; none is cut silently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import typer

from publisher.cli.output import say
from publisher.errors import UsageError

All: TypeAlias = Annotated[bool, typer.Option("--all", help="Show all of them, however many there are.")]


def limit_of(limit: int | None, default: int, *, show_all: bool) -> int | None:
    """How many to show at most; None: all. Raises `UsageError` where both options are given."""
    if limit is not None and show_all:
        raise UsageError("--limit and --all exclude each other")
    return None if show_all else default if limit is None else limit


def list_json(records: Sequence[Mapping[str, Any]], total: int, *, also_as: str | None = None) -> dict[str, Any]:
    """A list as `--json` gives it. `also_as`: the name that its records had before, which programs may still read."""
    listed = {"total": total, "shown": len(records), "records": records}
    return listed if also_as is None else listed | {also_as: records}


def say_if_cut(shown: int, total: int, what: str, *, of: str = "") -> None:
    """Say how many are shown where these are not all: `what` names which, such as "oldest"."""
    if shown < total:
        say(f"{of}{': ' if of else ''}the {what} {shown:,} of {total:,} are shown; --limit N or --all shows more")
