"""store: maintain the store, its audit log, and the spooling contexts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher.cli import completion, exit_code
from publisher.cli.command_group import CommandGroup
from publisher.cli.options import All, Yes, confirm, limit_of, list_json, month_in, say_if_cut
from publisher.cli.output import json_object, say
from publisher.cli.session import session
from publisher.cli.table import level_text, show_table
from publisher.errors import UsageError
from publisher.text import counted, iso, size_text

if TYPE_CHECKING:
    from publisher.finding import Finding
    from publisher.maintenance import PurgePlan
    from publisher.spool.spooler import ContextState

_AUDIT_SHOWN: Final = 100


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = CommandGroup(help="Maintain the store, its audit log, and the spooling contexts.")
    for name, command in _COMMANDS.items():
        group.command(name)(command)
    app.add_typer(group, name="store")


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="URL of the existing store.")],
    destination: Annotated[str, typer.Argument(metavar="TO", help="URL of the new store, which must be empty.")],
) -> None:
    """Copy a store to another one, SQLite or PostgreSQL, and compare both. Stop all publishers first."""
    from publisher.config.schema import StoreSettings  # noqa: PLC0415
    from publisher.config.store_url import store_url  # noqa: PLC0415
    from publisher.maintenance import copy_store  # noqa: PLC0415
    from publisher.store.sent_mark import RESTORED_HINT  # noqa: PLC0415

    here = Path.cwd()
    urls = store_url(source, here), store_url(destination, here)
    report = (lambda table: say(f"copying {table}")) if session.verbose else (lambda _table: None)
    copied = copy_store(*urls, StoreSettings().busy_timeout, report, mark=_mark_file_of(urls[0]))
    if session.json:
        tables = {each.table: {"rows": each.rows, "digest": each.digest} for each in copied.tables}
        json_object({"tables": tables, "why_not_latest": copied.why_not_latest})
        return
    rows: list[list[object]] = [[each.table, each.rows, each.digest] for each in copied.tables]
    show_table("", ["table", "rows", "digest (equal in both)"], rows, right={"rows"})
    _say("Everything was copied. Set store.url to the new store; the old one is unchanged.")
    if copied.why_not_latest is not None:
        _say(f"The copy sends nothing, as the old one: {copied.why_not_latest}.", f"{RESTORED_HINT}.")


def _mark_file_of(url: str) -> Path | None:
    """The file outside of a store that says what was sent last: of the configured store, the configured one."""
    from publisher.config import file  # noqa: PLC0415
    from publisher.config.schema import StoreSettings  # noqa: PLC0415

    if file.find(session.config).exists():
        settings = file.load(session.config).store
        if settings.url == url:
            return settings.mark_file
    return StoreSettings(url=url).mark_file


def check(
    repair: Annotated[bool, typer.Option("--repair", help="Correct wrong counters and local users.")] = False,
) -> None:
    """Check the store for damage and contradictions, and show how to fix them. Exit code 5: something is wrong."""
    with session.publisher() as publisher:
        maintenance = publisher.maintenance
        repaired = maintenance.repair() if repair else []
        findings = maintenance.check()
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
        show_table("", ["", "subject", "finding", "what to do"], rows)
        for each in repaired:
            say(f"corrected: {each.target}, {each.word}: was {each.kept:,}, is {each.counted:,}")
    if any(item.level == "red" for item in findings):
        raise typer.Exit(exit_code.STORE)


def _finding_json(item: Finding) -> dict[str, str]:
    return {key: getattr(item, key) for key in ("subject", "level", "message", "hint")}


def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file.")],
) -> None:
    """Write a consistent copy of an SQLite store, even while publishers run, and check it."""
    from publisher.config.store_url import is_url  # noqa: PLC0415

    if is_url(file):
        raise UsageError("a backup is a file, not a URL", hint="`store copy FROM TO` copies into another database")
    with session.publisher() as publisher:
        done = publisher.maintenance.backup(Path(file))
    if session.json:
        counts = {key: getattr(done, key) for key in ("bytes", "runs", "jobs", "deliveries")}
        json_object({"file": str(done.file), **counts})
    else:
        jobs = f"{size_text(done.bytes)}, {counted(done.jobs, 'job')}"
        _say(f"{done.file}: {jobs}, {done.deliveries:,} deliveries, as `status` counts them; checked")


def accept_restored(yes: Yes = False) -> None:
    """Allow sending from a restored store that may not know of all that was sent. First find out what was sent."""
    with session.publisher() as publisher:
        maintenance = publisher.maintenance
        why = publisher.store.why_not_latest()
        if why is not None:
            say(why)
            confirm("Send from it from now on?", yes=yes)
        maintenance.accept_restored()
    if session.json:
        json_object({"accepted": why is not None, "reason": why})
    else:
        _say("nothing to accept: the store has a record of everything that was sent" if why is None else "accepted")


def rename_source(
    before: Annotated[str, typer.Argument(metavar="OLD", help="Its name in the store.")],
    after: Annotated[str, typer.Argument(metavar="NEW", help="Its name in the configuration.")],
) -> None:
    """Rename a source in the store after its table in the configuration was renamed. Nothing is sent again."""
    with session.publisher() as publisher:
        jobs = publisher.maintenance.rename_source(before, after)
    if session.json:
        json_object({"source": after, "was": before, "jobs": jobs})
    else:
        _say(f"{before} is {after} now: {counted(jobs, 'job')}")


def purge(
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="MONTH",
            help="Purge jobs that ended before this month: 2025-01.",
            autocompletion=completion.months,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be purged; purge nothing.")] = False,
    yes: Yes = False,
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Return the freed space to the file system.")] = False,
) -> None:
    """Remove whole months of jobs that were delivered to every target. Default: what the retention settings expire."""
    month = month_in(before, "--before") if before is not None else None
    with session.publisher() as publisher:
        maintenance = publisher.maintenance
        plan = maintenance.plan_purge(month)
        if not (session.json or session.quiet) or dry_run:
            _explain(plan)
        if dry_run or (plan.empty and not vacuum):
            if not dry_run:
                maintenance.tidy()
            if session.json:
                json_object({"plan": _plan_json(plan)})
            return
        confirm("Purge? This cannot be undone.", yes=yes)
        done = maintenance.purge(month)
        if vacuum:
            maintenance.vacuum()
    if session.json:
        counts = {key: getattr(done, key) for key in ("runs", "classes", "messages", "receipts")}
        json_object({"plan": _plan_json(plan), "purged": counts})
    elif not session.quiet:
        messages, receipts = counted(done.messages, "message"), counted(done.receipts, "receipt")
        say(f"purged {counted(done.runs, 'job')}, {messages}, and {receipts}")
        if done.runs and not vacuum:
            say("The store uses the freed space again; `store purge --vacuum` returns it to the file system")


def _explain(plan: PurgePlan) -> None:
    for month in plan.months:
        say(
            f"  {month.month}: {counted(month.runs, 'job')}, "
            + (f"kept: {month.kept}" if month.kept else "will be purged")
        )
    if plan.messages:
        say(f"  {counted(plan.messages, 'message')} without a job in the store will be purged")
    if plan.receipts:
        say(f"  receipts and answers of {counted(plan.receipts, 'message')} will be purged")
    if plan.empty:
        say("nothing to purge")


def _plan_json(plan: PurgePlan) -> dict[str, Any]:
    months = [{"month": str(month.month), "runs": month.runs, "kept": month.kept} for month in plan.months]
    return {"months": months, "runs": plan.runs, "messages": plan.messages, "receipts": plan.receipts}


def forget(
    person: Annotated[str, typer.Argument(metavar="DN", help="Distinguished name, or subject of a token.")],
    pseudonym: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="This pseudonym instead of a random one.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Replace a person's name by a pseudonym everywhere in the store. Nothing is sent again because of this."""
    with session.publisher() as publisher:
        maintenance = publisher.maintenance
        confirm("Forget this person? This cannot be undone.", yes=yes)
        done = maintenance.forget(person, pseudonym)
    keys = ("pseudonym", "runs", "versions", "classes", "summaries", "entries")
    if session.json:
        json_object({key: getattr(done, key) for key in keys})
    else:
        _say(f"the person is now {done.pseudonym} in {counted(done.runs, 'job')} and {done.summaries:,} summaries")
        _say(
            "Services still have what they were sent; archives, copies, and backups of the store still contain the name"
        )


def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty folder.")],
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="json-lines, classic, delimited or xml.")
    ] = "json-lines",
) -> None:
    """Write the whole store into files, in a format of the spooling contexts."""
    with session.publisher() as publisher:
        manifest = publisher.maintenance.export(directory, form)
    _show_objects(manifest.objects, "everything was exported")


def import_(directory: Annotated[Path, typer.Argument(metavar="DIR", help="What `store export` wrote.")]) -> None:
    """Read an export into the store of the configuration, which must be empty or must not exist."""
    with session.publisher() as publisher:
        manifest = publisher.import_store(directory)
    _show_objects(manifest.objects, "everything was imported and checked")


def _show_objects(objects: dict[str, int], done: str) -> None:
    if session.json:
        json_object({"objects": objects})
        return
    rows: list[list[object]] = [[kind, count] for kind, count in objects.items() if count]
    show_table("", ["kind", "objects"], rows, right={"objects"})
    _say(done)


def spool() -> None:
    """Bring the spooling contexts up to date, and clean up their files. Exit code 1: one cannot be written."""
    with session.publisher() as publisher:
        states = publisher.spool()
    if session.json:
        keys = ("name", "format", "kinds")
        json_object(
            {
                "contexts": [
                    {key: getattr(state, key) for key in keys}
                    | {"problem": state.problem, "was_incomplete": state.was_incomplete}
                    for state in states
                ]
            }
        )
    elif states:
        rows: list[list[object]] = [
            [state.name, state.format, " ".join(state.kinds), state.problem or _context_word(state)] for state in states
        ]
        show_table("", ["context", "format", "kinds", "status"], rows)
    else:
        say("no spooling context is configured")
    if any(state.problem for state in states):
        raise typer.Exit(exit_code.WAITING)


def _context_word(state: ContextState) -> str:
    return "objects had been removed or altered: filled again, up to date" if state.was_incomplete else "up to date"


def _say(*lines: str) -> None:
    if not session.quiet:
        say(*lines)


def audit(
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="The newest N. Default: 100.")
    ] = None,
    show_all: All = False,
) -> None:
    """List the actions of people, newest first: republish, retry, waive, purge, import, and others."""
    with session.publisher() as publisher:
        entries = publisher.audit(limit_of(limit, _AUDIT_SHOWN, show_all=show_all))
        total = publisher.count_audit()
    if session.json:
        keys = ("who", "action", "subject", "detail")
        records = [{"at": iso(entry.at)} | {key: getattr(entry, key) for key in keys} for entry in entries]
        json_object(list_json(records, total))
    elif entries:
        rows = [[iso(entry.at), entry.who, entry.action, entry.subject, entry.detail] for entry in entries]
        show_table("", ["when", "who", "action", "subject", "detail"], rows)
        say_if_cut(len(entries), total, "newest")
    else:
        say(publisher.missing or "the audit log is empty")


_COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "check": check,
    "backup": backup,
    "accept-restored": accept_restored,
    "rename-source": rename_source,
    "copy": copy,
    "purge": purge,
    "forget": forget,
    "export": export,
    "import": import_,
    "spool": spool,
    "audit": audit,
}
