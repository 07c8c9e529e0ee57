"""import: what another publisher's configuration becomes here, and the messages it left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from publisher.cli import when
from publisher.cli.command_group import CommandGroup
from publisher.cli.output import counted, exact, json_object, say
from publisher.cli.session import session

if TYPE_CHECKING:
    from publisher.migrate.proposal import Proposal

Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write the configuration there, instead of showing it.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file of --output where it is there.")]
SiteName = Annotated[str, typer.Option("--site", metavar="NAME", help="Name of the site, as in GOCDB.")]
DeliveredUntil = Annotated[
    str | None,
    typer.Option("--delivered-until", metavar="TIME", help="Jobs that ended up to then count as delivered before."),
]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = CommandGroup(
        help="Move over from another publisher: shows the configuration it becomes, and changes nothing else."
    )
    group.command("arc")(arc)
    group.command("apel")(apel)
    group.command("sgas-bart")(sgas_bart)
    group.command("ssm-queue")(ssm_queue)
    app.add_typer(group, name="import")


def arc(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As a rule /etc/arc.conf.")],
    output: Output = None,
    publishing_db: Annotated[
        Path | None,
        typer.Option("--publishing-db", metavar="FILE", help="ARC's state, where it is not in its usual place."),
    ] = None,
    release: Annotated[
        str, typer.Option("--release", metavar="VERSION", help="ARC's, such as 6.17: for spellings in the history.")
    ] = "",
    site: SiteName = "",
    force: Force = False,
) -> None:
    """What ARC's arc.conf becomes, with the state of its publishing.db."""
    from publisher.migrate.arc import from_arc  # noqa: PLC0415

    _finish(from_arc(file, publishing_db, site, release), output, force=force)


def apel(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="client.cfg, parser.cfg and sender.cfg.")],
    output: Output = None,
    delivered_until: DeliveredUntil = None,
    site: SiteName = "",
    force: Force = False,
) -> None:
    """What the files of the APEL client, its parsers and SSM become."""
    from publisher.migrate.apel import from_apel  # noqa: PLC0415

    until = when.moment(delivered_until, "--delivered-until")
    _finish(from_apel(files, site, until), output, force=force)


def sgas_bart(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As a rule /etc/bart/bart.conf.")],
    output: Output = None,
    delivered_until: DeliveredUntil = None,
    zone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="Of this host, such as Europe/Oslo: for BaRT's state.")
    ] = "",
    site: SiteName = "",
    force: Force = False,
) -> None:
    """What the configuration of SGAS' BaRT becomes, with its maps and its state."""
    from publisher.migrate.bart import from_bart  # noqa: PLC0415

    until = when.moment(delivered_until, "--delivered-until")
    _finish(from_bart(file, site, until, zone), output, force=force)


def ssm_queue(
    queue: Annotated[Path, typer.Argument(metavar="DIR", help="As a rule /var/spool/apel/outgoing.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="That of APEL in our configuration.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is in it, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Send the messages that SSM left in its outgoing queue, as they are. Stop SSM first. Says first what is in it."""
    from publisher.cli.queue_taking import take_queue  # noqa: PLC0415

    raise typer.Exit(take_queue(queue, target, dry_run=dry_run, yes=yes))


def _finish(proposal: Proposal, output: Path | None, *, force: bool) -> None:
    """Show the configuration, or write it; then what is not the same."""
    from publisher.cli.new_file import write_new  # noqa: PLC0415
    from publisher.config import file as config_file  # noqa: PLC0415
    from publisher.store import registry  # noqa: PLC0415

    proposal.taken_over(registry.who(), when.now())
    text = proposal.text()
    proposal.config(output or config_file.find(session.config))  # what our reader would refuse is not handed out
    if output is not None:
        write_new(output, text, force=force)
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
    if output is not None or not sys.stdout.isatty():  # else they are on the screen already, above the configuration
        for remark in proposal.remarks:
            say(f"{remark.kind}: {remark.where}: {remark.text}")
    place = "" if output is None else f"wrote {output}; "
    waiting = sum(remark.kind == "choose" for remark in proposal.remarks)
    say(f"{place}{counted(waiting, 'thing')} to decide first" if waiting else f"{place}nothing to decide")
    if output is None:
        say("Write it with --output FILE.")
    else:
        say(f"Next: usage-publisher --config {output} check")
