"""store: look after the store itself, and after the spooling contexts that follow it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher.cli import exit_code
from publisher.cli.command_group import CommandGroup
from publisher.cli.output import json_object, level_text, make_table, say, show
from publisher.cli.session import session
from publisher.errors import UsageError

if TYPE_CHECKING:
    from formats.calendar import Month
    from publisher.finding import Finding
    from publisher.maintenance import PurgePlan

_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = CommandGroup(help="Look after the store itself.")
    for name, command in _COMMANDS.items():
        group.command(name)(command)
    app.add_typer(group, name="store")


def copy(
    source: Annotated[str, typer.Argument(metavar="URL", help="Of the store that there is.")],
    destination: Annotated[str, typer.Argument(metavar="URL", help="Of the new one, which must be empty.")],
) -> None:
    """Copy everything from one store into another, SQLite or PostgreSQL, and compare both. Nobody may be at work."""
    from publisher.config.file import store_url  # noqa: PLC0415
    from publisher.config.schema import StoreSettings  # noqa: PLC0415
    from publisher.maintenance import copy_store  # noqa: PLC0415

    here = Path.cwd()
    urls = store_url(source, here), store_url(destination, here)
    tell = (lambda table: say(f"copying {table}")) if session.verbose else (lambda _table: None)
    copied = copy_store(*urls, StoreSettings().busy_timeout, tell)
    if session.json:
        json_object({"tables": {each.table: {"rows": each.rows, "digest": each.digest} for each in copied}})
        return
    rows: list[list[object]] = [[each.table, each.rows, each.digest] for each in copied]
    show(make_table("", ["table", "rows", "digest, the same in both"], rows, right={"rows"}))
    _tell("Everything was copied. Set store.url to the new one; the old one is as it was.")


def check(
    repair: Annotated[bool, typer.Option("--repair", help="Set counters right; nothing else mends itself.")] = False,
) -> None:
    """Test whether what the store holds agrees with itself, and say how to mend it. Exit code 5 if it does not."""
    with session.publisher() as publisher:
        keeper = publisher.keeper
        repaired = keeper.repair() if repair else []
        findings = keeper.check()
    if session.json:
        json_object(
            {
                "findings": [_finding_json(item) for item in findings],
                "repaired": [
                    {"target": each.target, "counter": each.word, "kept": each.kept, "counted": each.counted}
                    for each in repaired
                ],
            }
        )
    else:
        rows: list[list[object]] = [
            [level_text(item.level, item.level), item.subject, item.message, item.hint] for item in findings
        ]
        show(make_table("", ["", "what", "how it is", "what to do"], rows))
        for each in repaired:
            say(f"set right: {each.target}, {each.word}: was {each.kept}, is {each.counted}")
    if any(item.level == "red" for item in findings):
        raise typer.Exit(exit_code.STORE)


def _finding_json(item: Finding) -> dict[str, str]:
    return {key: getattr(item, key) for key in ("subject", "level", "message", "hint")}


def backup(file: Annotated[str, typer.Argument(metavar="FILE", help="To be made; nothing is replaced.")]) -> None:
    """Write a consistent copy of an SQLite store, beside a publisher at work, and look through it."""
    from publisher.config.file import is_url  # noqa: PLC0415

    if is_url(file):
        raise UsageError("a backup is a file, not a URL", hint="`store copy URL URL` copies into another database")
    with session.publisher() as publisher:
        done = publisher.keeper.backup(Path(file))
    if session.json:
        json_object({"file": str(done.file), "bytes": done.bytes, "runs": done.runs, "deliveries": done.deliveries})
    else:
        _tell(f"{done.file}: {done.bytes} bytes, {done.runs} runs, {done.deliveries} deliveries, found sound")


def purge(
    before: Annotated[
        str | None, typer.Option("--before", metavar="MONTH", help="Jobs that ended before it, for example 2025-01.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: _Yes = False,
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Give the space back to the system afterwards.")] = False,
) -> None:
    """Take out whole months of jobs that every target has; without --before, what the settings keep no longer."""
    month = _month(before) if before is not None else None
    with session.publisher() as publisher:
        keeper = publisher.keeper
        plan = keeper.plan_purge(month)
        if not (session.json or session.quiet) or dry_run:
            _explain(plan)
        if dry_run or (plan.empty and not vacuum):
            if not dry_run:
                keeper.tidy()
            if session.json:
                json_object({"plan": _plan_json(plan)})
            return
        _confirm("Take it out? It cannot be brought back.", yes=yes)
        done = keeper.purge(month)
        if vacuum:
            keeper.vacuum()
    if session.json:
        counts = {key: getattr(done, key) for key in ("runs", "classes", "messages", "receipts")}
        json_object({"plan": _plan_json(plan), "purged": counts})
    elif not session.quiet:
        say(f"{done.runs} runs, {done.messages} messages and {done.receipts} receipts were taken out")
        if done.runs and not vacuum:
            say("The space is used again by what comes; `store purge --vacuum` gives it back to the system")


def _explain(plan: PurgePlan) -> None:
    for each in plan.months:
        say(f"  {each.month}: {each.runs} runs, " + (f"kept: {each.kept}" if each.kept else "will go"))
    if plan.messages:
        say(f"  {plan.messages} messages will go, which no job in the store was sent in")
    if plan.receipts:
        say(f"  receipts of, and answers to, {plan.receipts} messages will go")
    if plan.empty:
        say("nothing can be taken out")


def _plan_json(plan: PurgePlan) -> dict[str, Any]:
    months = [{"month": str(each.month), "runs": each.runs, "kept": each.kept} for each in plan.months]
    return {"months": months, "runs": plan.runs, "messages": plan.messages, "receipts": plan.receipts}


def _month(text: str) -> Month:
    from formats.calendar import Month  # noqa: PLC0415

    year, dash, number = text.partition("-")
    if dash and len(year) == 4 and len(number) == 2 and (year + number).isascii() and (year + number).isdigit():
        month = Month(int(year), int(number))
        if 1 <= month.month <= 12:
            return month
    raise UsageError(
        f"--before: {text!r} is no month", hint="Write it like 2025-01: everything before its first second"
    )


def forget(
    person: Annotated[str, typer.Argument(metavar="DN", help="Distinguished name, or subject of a token.")],
    pseudonym: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Instead of a random one, where a rule goes by the name.")
    ] = None,
    yes: _Yes = False,
) -> None:
    """Put a pseudonym in place of a person's name, everywhere in the store. Nothing is sent again by that."""
    with session.publisher() as publisher:
        keeper = publisher.keeper
        _confirm("Forget this person? The name cannot be brought back.", yes=yes)
        done = keeper.forget(person, pseudonym)
    keys = ("pseudonym", "runs", "versions", "classes", "summaries", "entries")
    if session.json:
        json_object({key: getattr(done, key) for key in keys})
    else:
        _tell(f"{done.pseudonym} stands for the person now, in {done.runs} runs and {done.summaries} summaries")
        _tell("Services still have what they were sent; copies and backups of the store still have the name")


def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New, or empty.")],
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="json-lines, classic, delimited or xml.")
    ] = "json-lines",
) -> None:
    """Write everything the store holds into files, in a format of the spooling contexts."""
    with session.publisher() as publisher:
        manifest = publisher.keeper.export(directory, form)
    _show_objects(manifest.objects, "was exported")


def import_(directory: Annotated[Path, typer.Argument(metavar="DIR", help="What `store export` wrote.")]) -> None:
    """Put what was exported into the store of the configuration, which must be empty or not there yet."""
    with session.publisher() as publisher:
        manifest = publisher.import_store(directory)
    _show_objects(manifest.objects, "was imported, and found sound")


def _show_objects(objects: dict[str, int], done: str) -> None:
    if session.json:
        json_object({"objects": objects})
        return
    rows: list[list[object]] = [[kind, count] for kind, count in objects.items() if count]
    show(make_table("", ["kind", "objects"], rows, right={"objects"}))
    _tell(f"everything {done}")


def spool() -> None:
    """Write to the spooling contexts what they have not got, and tidy up their files. Exit code 1 if one cannot be."""
    with session.publisher() as publisher:
        states = publisher.spool()
    if session.json:
        keys = ("name", "format", "kinds", "trouble")
        json_object({"contexts": [{key: getattr(each, key) for key in keys} for each in states]})
    elif states:
        rows: list[list[object]] = [
            [each.name, each.format, " ".join(each.kinds), each.trouble or "up to date"] for each in states
        ]
        show(make_table("", ["context", "format", "kinds", "how it is"], rows))
    else:
        say("no spooling context is configured")
    if any(each.trouble for each in states):
        raise typer.Exit(exit_code.WAITING)


def _tell(*lines: str) -> None:
    if not session.quiet:
        say(*lines)


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to confirm", hint="Add --yes")
    typer.confirm(question, abort=True, err=True)


_COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "check": check,
    "backup": backup,
    "copy": copy,
    "purge": purge,
    "forget": forget,
    "export": export,
    "import": import_,
    "spool": spool,
}
