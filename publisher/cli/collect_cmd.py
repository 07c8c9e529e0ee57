"""collect: sources into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from publisher.cli import exit_code, when
from publisher.cli.output import data, json_object, make_table, safe, say, show
from publisher.cli.session import session

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.pipeline.collect import Collected


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("collect")(collect)


def collect(
    sources: Annotated[list[str] | None, typer.Argument(metavar="[SOURCE]...", help="Only these.")] = None,
    from_: when.From = None,
    until: when.Until = None,
    unreadable: Annotated[
        bool, typer.Option("--unreadable", help="Read nothing: list the input that is no record.")
    ] = False,
) -> None:
    """Read finished jobs from the sources into the store. With --from, a window is read again."""
    from publisher.sources.base import Window  # noqa: PLC0415

    begin, end = when.window_bounds(from_, until)
    with session.publisher() as publisher:
        if unreadable:
            _list_unreadable(publisher.unreadable())
            return
        window = Window(begin, end) if begin is not None or end is not None else None
        found = publisher.collect(sources or (), window)
        tell_new_store(publisher)
    if found is None:
        say("another run is collecting; nothing was done")
        found = {}
    tell_troubles(found)
    if session.json:
        json_object({"sources": collected_json(found)})
    elif not session.quiet:
        show_collected(found)
    raise typer.Exit(exit_code.of_run(found.values(), {}, None))


def collected_json(found: dict[str, Collected]) -> dict[str, Any]:
    """What was found, as `--json` gives it."""
    return {
        name: {
            "read": item.read,
            "new": item.new,
            "changed": item.changed,
            "unchanged": item.unchanged,
            "skipped": item.skipped,
            "unreadable": item.unreadable,
            "error": item.error,
        }
        for name, item in found.items()
    }


def tell_new_store(publisher: Publisher) -> None:
    """Say that a store was made, once: whoever expected to find his own there has a wrong `store.url`."""
    store = publisher.store
    if store.is_new and not session.quiet:
        say(f"a new store was made: {store.place}. If there was one before, look at store.url: nothing was known here")
    store.is_new = False


def tell_troubles(found: dict[str, Collected]) -> None:
    """What kept sources from being read; told whatever else is to be shown."""
    for name, item in found.items():
        if item.error is not None:
            say(f"{name}: {item.error}")


def show_collected(found: dict[str, Collected]) -> None:
    """A table of what was found."""
    columns = ["source", "read", "new", "changed", "unchanged", "skipped", "unreadable"]
    rows: list[list[object]] = [
        [name, item.read, item.new, item.changed, item.unchanged, item.skipped, item.unreadable]
        for name, item in found.items()
    ]
    if rows:
        show(make_table("Collected", columns, rows, right=set(columns[1:])))


def _list_unreadable(rows: list[Any]) -> None:
    if session.json:
        json_object({"unreadable": [_unreadable_json(row) for row in rows]})
        return
    for row in rows:
        place = f"{row.file}:{row.line}" if row.line is not None else row.file
        data(f"{safe(row.source)}  {safe(place)}  {safe(row.reason)}")
        if row.raw:  # of a file that was cut there is nothing to show
            data(f"    {safe(row.raw[:200].decode('utf-8', 'replace'))}")
    if not rows:
        say("nothing unreadable was met")


def _unreadable_json(row: Any) -> dict[str, Any]:
    return {
        "source": row.source,
        "file": row.file,
        "line": row.line,
        "offset": row.offset,
        "reason": row.reason,
        "raw": row.raw.decode("utf-8", "backslashreplace"),
    }
