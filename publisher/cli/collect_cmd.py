"""collect: sources into the store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher import subprocess_worker
from publisher.cli import completion, exit_code, options
from publisher.cli.options import All, limit_of, list_json, say_if_cut
from publisher.cli.output import data, json_object, result_json, say
from publisher.cli.recorded import noted, recorded
from publisher.cli.session import session
from publisher.cli.table import show_table
from publisher.errors import UsageError
from publisher.status.notes import usage_notes
from publisher.text import counted, duration_text, iso, safe

if TYPE_CHECKING:
    from formats.job import Job
    from publisher.api import Publisher
    from publisher.collect.collect import Collected
    from publisher.collect.meters import MeterResult
    from publisher.collect.suspects import AcceptedSuspects
    from publisher.sources.base import Window
    from publisher.store.unreadable_input import UnreadableRow

_LISTED: Final = 1000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("collect")(collect)


def collect(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help="Names of sources. Default: all.", autocompletion=completion.sources),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    unreadable: Annotated[
        bool, typer.Option("--unreadable", help="List the input that could not be read; read nothing.")
    ] = False,
    settle: Annotated[
        bool,
        typer.Option(
            "--settle", help="With --unreadable: mark this input as settled; without a choice, none with suspect jobs."
        ),
    ] = False,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="With --unreadable: count the suspect jobs of this input; no user made them."),
    ] = False,
    piece: Annotated[
        list[int] | None,
        typer.Option("--piece", metavar="N", help="With --settle or --accept: only this piece; may be repeated."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="With --settle or --accept: only suspect jobs of this local user."),
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option("--lines", metavar="A-B", help="With --settle or --accept: only these lines of the files."),
    ] = None,
    reason: Annotated[
        str,
        typer.Option("--reason", metavar="TEXT", help="With --settle or --accept: what was done, or why it is right."),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="With --unreadable: the newest N. Default: 1000."),
    ] = None,
    show_all: All = False,
) -> None:
    """Read finished jobs from the sources into the store. With --since or --until, read this window again."""
    from publisher.sources.base import Window  # noqa: PLC0415
    from publisher.store.suspects import PieceFilter  # noqa: PLC0415

    begin, end = options.window_bounds(since, until)
    decides = settle or accept
    if decides and not unreadable:
        option = "--settle" if settle else "--accept"
        raise UsageError(f"{option} needs --unreadable", hint="`collect --unreadable` lists what it would decide on")
    if settle and accept:
        raise UsageError("--settle and --accept contradict each other")
    if (reason or piece or user or lines) and not decides:
        raise UsageError("--reason, --piece, --user, and --lines need --settle or --accept")
    chosen = PieceFilter(piece or (), user, _lines_of(lines))
    if (limit is not None or show_all) and (decides or not unreadable):
        raise UsageError("--limit and --all need --unreadable")
    most = limit_of(limit, _LISTED, show_all=show_all)
    with session.publisher() as publisher:
        if settle:
            settled = sorted(publisher.settle_unreadable(reason, sources or (), chosen), key=_place_of)
            left = publisher.maintenance.count_suspects(sources or ()) if chosen.takes_all else 0
            _show_settled(settled, left)
            return
        if accept:
            _show_accepted(publisher.maintenance.accept_suspects(sources or (), chosen, reason))
            return
        if unreadable:
            rows = publisher.unreadable(most, sources or ())
            rows.sort(key=_place_of)
            suspects = publisher.maintenance.suspects([row.id for row in rows]) if rows else {}
            _list_unreadable(rows, suspects, publisher.count_unreadable(sources or ()))
            return
        _collect(publisher, sources or (), Window(begin, end) if begin is not None or end is not None else None)


def _collect(publisher: Publisher, sources: Sequence[str], window: Window | None) -> None:
    with recorded(publisher, "collect") as recording:
        subprocess_worker.tune_memory()
        collected = publisher.collect(sources, window)
        measured = {} if sources or window is not None else publisher.read_meters()
        say_if_new_store(publisher)
        if collected is None:
            say("another run is collecting; nothing was read")
            collected = {}
        say_problems(collected)
        say_measured(measured)
        recording.done = {"sources": collected_json(collected)}
        if session.json:
            json_object(recording.done)
        elif not session.quiet:
            show_collected(collected)
        beside = noted(recording, publisher.written_contexts(), measured)
        raise typer.Exit(exit_code.of_run(collected.values(), {}, None, contexts=beside))


def _lines_of(text: str | None) -> tuple[int, int] | None:
    """The first and the last line of `10-20` or `10`. Raises `UsageError`."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", text, re.ASCII)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise UsageError(f"--lines {text} is not a range of lines", hint="Write it as 10-20")
    return int(match[1]), int(match[2] or match[1])


def collected_json(found: dict[str, Collected]) -> dict[str, Any]:
    """The result of collecting, for `--json`."""
    return {name: {"jobs": item.jobs, **result_json(item)} for name, item in found.items()}


def say_if_new_store(publisher: Publisher) -> None:
    """Say once that a store was created, so that a wrong `store.url` is noticed."""
    store = publisher.store
    if store.is_new and not session.quiet:
        say(f"created a new store: {store.place}. If you expected an existing store, check store.url")
    store.is_new = False


def say_problems(found: dict[str, Collected]) -> None:
    """Print why sources were not read to their end, how much of their input is unreadable, and whose CPU time is not as
    the batch system has it; also with `--json`."""
    for name, item in found.items():
        if item.interrupted:
            begun = f"interrupted after {item.read:,} records" if item.read else "interrupted"
            say(f"{name}: {begun}; the next collect reads the rest")
        if item.error is not None:
            say(f"{name}: {item.error}")
        if item.unreadable:
            pieces = counted(item.unreadable, "piece")
            say(f"{name}: {pieces} of input could not be read; `usage-publisher collect --unreadable` lists them")
        for text in usage_notes(item):
            say(f"{name}: {text}")
        if item.suspect:
            jobs = counted(item.suspect, "job")
            say(f"{name}: {jobs} of these may be made by a user: they are counted nowhere until they are accepted")


def say_measured(found: Mapping[str, MeterResult]) -> None:
    """Print what meters of energy gave, if anything changed or is wrong."""
    for path, item in found.items():
        if item.error is not None:
            say(item.error)
        if item.stored and not session.quiet:
            say(f"{path}: energy of {counted(item.stored, 'job')} is new or changed")
        if item.without_run:
            say(f"{path}: {counted(item.without_run, 'value')} of {item.read:,} belong to no stored job")
        if item.impossible:
            say(f"{path}: {counted(item.impossible, 'value')} not used; {item.refused}")


def show_collected(found: dict[str, Collected]) -> None:
    """Print the result of collecting as a table."""
    columns = ["source", "read", "jobs", "new", "changed", "unchanged", "merged", "skipped", "unreadable"]
    rows: list[list[object]] = [
        [
            name, item.read, item.jobs, item.new, item.changed, item.unchanged, item.merged, item.skipped,
            item.unreadable,
        ]
        for name, item in found.items()
    ]  # fmt: skip
    if rows:
        is_whole = not any(item.interrupted for item in found.values())
        title = "Collected" if is_whole else "Collected before the interruption"
        show_table(title, columns, rows, right=set(columns[1:]))


def _list_unreadable(rows: Sequence[UnreadableRow], suspects: Mapping[int, Job], total: int) -> None:
    if session.json:
        json_object(list_json([_unreadable_json(row, suspects.get(row.id)) for row in rows], total))
        return
    _show_unreadable(rows, suspects)
    if suspects:
        say(
            f"{counted(len(suspects), 'suspect job')}: add --settle --piece N for those that a user made, then "
            "--accept for the others; both need --reason, and take --user NAME and --lines A-B"
        )
    say_if_cut(len(rows), total, "newest")
    if not rows:
        say("no input is unreadable")
    elif total > len(rows):
        from publisher.store.unreadable_input import KEPT_OF_FILE  # noqa: PLC0415

        say(f"at most {KEPT_OF_FILE:,} pieces of a file are kept; the others are counted only")


def _place_of(row: UnreadableRow) -> tuple[bool, str, str, int, int]:
    """Files that disappeared come first; the others in the order of their lines."""
    return row.unread_from is None, row.source, row.file, row.line or 0, row.offset or 0


def _show_settled(rows: Sequence[UnreadableRow], left: int) -> None:
    """`left`: how many suspect jobs stay, since no piece was chosen."""
    if session.json:
        json_object(list_json([_unreadable_json(row) for row in rows], len(rows)))
    else:
        _show_unreadable(rows, {})
    discarded = Counter(row.source for row in rows if row.is_suspect)
    for name, number in Counter(row.source for row in rows).items():
        jobs = f", {counted(discarded[name], 'suspect job')} discarded" if discarded[name] else ""
        say(f"{name}: {number:,} settled{jobs}")
    if left:
        say(f"{counted(left, 'suspect job')} left: --settle discards them only with --piece, --user, or --lines")
    if session.json:
        return
    if rows:
        say("`usage-publisher collect --unreadable` lists the rest. Input that is read again is listed again")
    elif not left:
        say("no input is unreadable")


def _show_accepted(found: Mapping[str, AcceptedSuspects]) -> None:
    if session.json:
        json_object({"sources": found})
        return
    for name, item in found.items():
        say(f"{name}: {counted(item.stored, 'suspect job')} accepted; the next publish sends them")
        if item.left:
            say(f"{name}: {counted(item.left, 'suspect job')} left, since the same job is stored with other values")
        if item.damaged:
            say(
                f"{name}: {counted(item.damaged, 'suspect job')} left, damaged in the store: `usage-publisher store "
                "check` names them, and what to do"
            )
    if not found:
        say("no job is suspect")


def _show_unreadable(rows: Sequence[UnreadableRow], suspects: Mapping[int, Job]) -> None:
    for row in rows:
        data(f"{row.id}  {safe(row.source)}  {safe(row.place)}  {safe(row.reason)}")
        if (job := suspects.get(row.id)) is not None:
            cores = job.cores or job.slots
            wall = "unknown" if job.wall_ms is None else duration_text(job.wall_ms / 1000)
            cpu = "unknown" if job.cpu_ms is None else duration_text(job.cpu_ms / 1000)
            data(
                f"    job {safe(job.local_id or job.record_id)} of {safe(job.local_user or 'unknown')}, ended "
                f"{iso(job.end)}, wall time {wall}, CPU time {cpu}, cores {cores if cores is not None else 'unknown'}"
            )
        if row.raw:  # a file that was truncated has no text to show
            data(f"    {safe(row.raw[:200].decode('utf-8', 'replace'))}")


def _unreadable_json(row: UnreadableRow, job: Job | None = None) -> dict[str, Any]:
    return {
        **result_json(row, "seen_at", "is_suspect"),
        "raw": row.raw.decode("utf-8", "backslashreplace"),
        "suspect": None if job is None else _suspect_json(job),
    }


def _suspect_json(job: Job) -> dict[str, Any]:
    return {
        "record_id": job.record_id,
        "local_id": job.local_id,
        "local_user": job.local_user,
        "end_time": iso(job.end),
        "wall_ms": job.wall_ms,
        "cpu_ms": job.cpu_ms,
        "cores": job.cores or job.slots,
    }
