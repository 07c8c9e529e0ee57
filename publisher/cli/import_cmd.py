"""import: the configuration and state of another publisher, and the messages that it left unsent."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from publisher.cli import completion, options
from publisher.cli.command_group import CommandGroup
from publisher.cli.exit_code import CREDENTIALS, DONE, REJECTED, WAITING
from publisher.cli.options import Yes, confirm
from publisher.cli.output import exact, json_object, say, write_configuration
from publisher.cli.session import session
from publisher.cli.table import show_table
from publisher.errors import UsageError
from publisher.text import counted

if TYPE_CHECKING:
    from publisher.config.schema import Config
    from publisher.migrate.proposal import Proposal
    from publisher.migrate.ssm_queue import QueuedMessage, Taken

Output = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write the configuration to this file.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file of --output.")]
SiteName = Annotated[str, typer.Option("--site", metavar="NAME", help="Name of the site, as in GOCDB.")]
DeliveredUntil = Annotated[
    str | None,
    typer.Option("--delivered-until", metavar="TIME", help="Jobs that ended before count as delivered."),
]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = CommandGroup(
        help="Migrate from another publisher: convert its configuration and state, and send its unsent messages."
    )
    group.command("arc")(arc)
    group.command("apel")(apel)
    group.command("sgas-bart")(sgas_bart)
    group.command("ssm-queue")(ssm_queue)
    app.add_typer(group, name="import")


def arc(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Usually /etc/arc.conf.")],
    output: Output = None,
    publishing_db: Annotated[
        Path | None,
        typer.Option("--publishing-db", metavar="FILE", help="State of ARC's publisher, if not in the usual place."),
    ] = None,
    release: Annotated[str, typer.Option("--release", metavar="VERSION", help="Release of ARC, such as 6.17.")] = "",
    site: SiteName = "",
    force: Force = False,
) -> None:
    """Convert ARC's arc.conf, and the state in publishing.db."""
    from publisher.migrate.arc import from_arc  # noqa: PLC0415

    _finish(from_arc(file, publishing_db, site, release), output, force=force)


def apel(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="client.cfg, parser.cfg and sender.cfg.")],
    output: Output = None,
    delivered_until: DeliveredUntil = None,
    site: SiteName = "",
    force: Force = False,
) -> None:
    """Convert the configuration of the APEL client, its parsers, and SSM."""
    from publisher.migrate.apel import from_apel  # noqa: PLC0415

    until = options.moment(delivered_until, "--delivered-until")
    _finish(from_apel(files, site, until), output, force=force)


def sgas_bart(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Usually /etc/bart/bart.conf.")],
    output: Output = None,
    delivered_until: DeliveredUntil = None,
    zone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="Time zone of this host, such as Europe/Oslo.")
    ] = "",
    site: SiteName = "",
    force: Force = False,
) -> None:
    """Convert the configuration, maps, and state of SGAS' BaRT."""
    from publisher.migrate.bart import from_bart  # noqa: PLC0415

    until = options.moment(delivered_until, "--delivered-until")
    _finish(from_bart(file, site, until, zone), output, force=force)


def ssm_queue(
    queue: Annotated[Path, typer.Argument(metavar="DIR", help="Usually /var/spool/apel/outgoing.")],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Name of the target for APEL.", autocompletion=completion.targets),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what is in the queue; send nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Send the messages that SSM left in its outgoing queue, unchanged. Stop SSM first. Asks before it sends."""
    raise typer.Exit(_take_queue(queue, target, dry_run=dry_run, yes=yes))


def _finish(proposal: Proposal, output: Path | None, *, force: bool) -> None:
    """Print the configuration, or write it and print the remarks about it."""
    from publisher.config import file as config_file  # noqa: PLC0415
    from publisher.store import registry  # noqa: PLC0415

    proposal.taken_over(registry.who(), options.now())
    text = proposal.text()
    proposal.config(output or config_file.find(session.config))  # raises where our own reader would refuse it
    if output is not None:
        write_configuration(output, text, force=force)
    if session.json:
        json_object(
            {
                "configuration": text,
                "file": None if output is None else str(output),
                "remarks": [{"kind": one.kind, "where": one.where, "text": one.text} for one in proposal.remarks],
            }
        )
        return
    if output is None:
        exact(text)
    else:  # without it they are shown once, in the comments of the configuration
        for remark in proposal.remarks:
            say(f"{remark.kind}: {remark.where}: {remark.text}")
    place = "" if output is None else f"wrote {output}; "
    waiting = sum(remark.kind == "choose" for remark in proposal.remarks)
    marked = "" if output is not None else ", marked `choose` in its comments"
    say(f"{place}{counted(waiting, 'choice')} to make first{marked}" if waiting else f"{place}no choice to make")
    if output is None:
        say("Write it with --output FILE.")
    else:
        say(f"Next: usage-publisher --config {output} check")


# --- import ssm-queue


_SHOWN = 20


def _take_queue(path: Path, target: str, *, dry_run: bool, yes: bool) -> int:
    """Show what is in the queue, ask, and send it; gives the exit code."""
    from publisher.migrate.ssm_queue import Queue  # noqa: PLC0415
    from publisher.store import registry  # noqa: PLC0415
    from publisher.targets import make_target  # noqa: PLC0415
    from publisher.targets.identity import TargetContext  # noqa: PLC0415

    with session.publisher() as publisher, publisher.alone_at(target) as plan:
        _require_other_place(publisher.config, target, path)
        settings = publisher.config.targets[target]
        service = make_target(target, settings, TargetContext(publisher.config.credentials, time.time))
        try:
            now = publisher.tools.clock()
            queue = Queue(path, publisher.store, plan.target_id, settings, service.payload_limit_bytes(), now)
            messages = list(queue.messages())
            if not session.json:
                _show_queue(messages)
            sends = any(message.fate != "leave" for message in messages)
            if dry_run or not sends:
                if session.json:
                    json_object({"messages": messages})
                return REJECTED if messages and not sends else DONE
            confirm(
                "Send them? SSM must be stopped.", yes=yes, hint="Add --yes, or --dry-run to see what would be sent"
            )
            taken = queue.send(service, publisher.tools)
        finally:
            service.close()
        with publisher.store.write() as connection:
            detail = f"{path}: {taken.sent} messages sent, {taken.set_aside} not needed, {taken.left} left"
            registry.record_action(connection, "import ssm-queue", target, detail, publisher.tools.clock())
    _show_taken(path, messages, taken)
    return _code_of(taken)


def _require_other_place(config: Config, target: str, path: Path) -> None:
    settings = config.targets[target]
    if not settings.kind.takes_apel:
        raise UsageError(f"{target} does not take messages for APEL, as SSM's are", hint="Name the target for APEL")
    if settings.shadow:
        raise UsageError(f"{target} is a shadow: nothing is sent to it", hint="Let SSM send what is in its queue")
    own = getattr(settings, "path", None)
    if own is not None and own.resolve() == path.resolve():
        raise UsageError(f"{path} is the folder of target {target}", hint="SSM sends what is in it, as before")


def _show_queue(found: list[QueuedMessage]) -> None:
    fates = Counter((message.format, message.fate, message.why) for message in found)
    records = Counter[tuple[str, str, str]]()
    for message in found:
        records[message.format, message.fate, message.why] += message.records
    rows: list[list[object]] = [
        [form or "?", count, records[form, fate, why], _WORDS[fate], why]
        for (form, fate, why), count in list(fates.items())[:_SHOWN]
    ]
    columns = ["format", "messages", "records", "action", "reason"]
    if rows:
        show_table("In the queue", columns, rows, right={"messages", "records"})
        if len(fates) > len(rows):
            say(f"({len(fates) - len(rows):,} more kinds of messages; --json lists every message)")
    else:
        say("the queue is empty")


_WORDS = {
    "send": "sent",
    "part": "sent in part",
    "older": "not needed",
    "empty": "not needed",
    "leave": "left in the queue",
}


def _show_taken(path: Path, found: list[QueuedMessage], taken: Taken) -> None:
    if session.json:
        json_object({"messages": found, "taken": taken})
        return
    kept = path.with_name(path.name + ".taken-over")
    sent = f"{counted(taken.sent, 'message')} with {counted(taken.records, 'record')} sent"
    say(f"{sent}, {taken.set_aside:,} not needed; kept in {kept}")
    if taken.left:
        say(f"{taken.left:,} are left in the queue for the reasons above")
    if taken.busy:
        say(f"{taken.busy:,} are locked: SSM is running or was killed; stop it, and remove their .lck folders")
    if taken.answer is not None:
        say(f"ended early: {taken.answer}; the rest stays in the queue: run this command again")


def _code_of(taken: Taken) -> int:
    if taken.unauthorised:
        return CREDENTIALS
    if taken.answer is not None or taken.busy:
        return WAITING
    return REJECTED if taken.left else DONE
