"""republish: a window again to one target."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from publisher import subprocess_worker
from publisher.cli import exit_code, when
from publisher.cli.output import json_object, say
from publisher.cli.publish_cmd import delivered_json, show_delivered
from publisher.cli.session import session
from publisher.errors import TargetBusyError, UsageError
from publisher.text import iso

if TYPE_CHECKING:
    from publisher.publish.republish import RepublishPlan


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("republish")(republish)


def republish(
    target: Annotated[str, typer.Argument(metavar="TARGET")],
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="First end time, inclusive.")],
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Last end time, exclusive.")],
    only_missing: Annotated[
        bool, typer.Option("--only-missing", help="Only what the target has not got from us.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it means, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Send jobs that ended in a window again to one target; for summaries whole months. Says first what it means."""
    from publisher.sources.base import Window  # noqa: PLC0415

    begin, end = when.window_bounds(from_, until)
    window = Window(begin, end)
    subprocess_worker.keep_little()
    with session.publisher() as publisher:
        plan = publisher.plan_republish(target, window, only_missing=only_missing)
        keeps_first = publisher.config.targets[target].kind.keeps_first
        _explain(target, plan, keeps_first=keeps_first)
        if dry_run:
            if session.json:
                json_object({"plan": _plan_json(plan)})
            return
        if plan.busy:
            raise TargetBusyError(target)
        if not yes and (plan.to_send or plan.held):
            if not sys.stdin.isatty():
                raise UsageError("nobody is there to confirm", hint="Add --yes, or --dry-run to look only")
            typer.confirm("Send them?", abort=True, err=True)
        delivered = {target: publisher.republish(target, window, only_missing=only_missing)}
        status = publisher.status(assumed=False)
    if session.json:
        json_object({"plan": _plan_json(plan), "targets": delivered_json(delivered, status)})
    elif not session.quiet:
        show_delivered(delivered, status)
    raise typer.Exit(exit_code.of_run((), delivered, None, contexts=publisher.context_errors()))


def _explain(target: str, plan: RepublishPlan, *, keeps_first: bool) -> None:
    say(f"Jobs that ended from {iso(plan.from_)} until {iso(plan.until)}, towards {target}:")
    if plan.busy:
        say("  another run is at work for this target: nothing is sent again before it is done, and the numbers change")
    if plan.resumes is not None:
        say(f"  begun at {iso(plan.resumes)} and not finished: {plan.new} are left, and will be sent")
        return
    say(f"  {plan.new} new: the service has not got them")
    changed_means = "the service keeps the first version it got" if keeps_first else "the new version replaces the old"
    say(f"  {plan.changed + (plan.kept if keeps_first else 0)} changed since they were sent: {changed_means}")
    if plan.kept and not keeps_first:
        say(f"  {plan.kept} changed and are no longer wanted: they are not sent")
    same_means = "recognised by their record id and ignored" if keeps_first else "replaced by the same"
    say(f"  {plan.unchanged} unchanged: {same_means}")
    if plan.rekeyed:
        say(f"  {plan.rekeyed} would count twice: they are not sent, but held (`usage-publisher held list`)")
    if plan.held:
        say(f"  {plan.held} held: tried again, and sent where the reason is gone (`usage-publisher held list`)")
    if plan.waived:
        say(f"  {plan.waived} waived: they are not sent")
    say(f"  {plan.to_send} will be sent{', and as many of the held as can be' if plan.held else ''}")


def _plan_json(plan: RepublishPlan) -> dict[str, Any]:
    return {
        "from": iso(plan.from_),
        "until": iso(plan.until),
        "new": plan.new,
        "changed": plan.changed,
        "unchanged": plan.unchanged,
        "kept_by_the_service": plan.kept,
        "waived": plan.waived,
        "assumed": plan.assumed,
        "rekeyed": plan.rekeyed,
        "held": plan.held,
        "busy": plan.busy,
        "resumes": iso(plan.resumes),
        "to_send": plan.to_send,
    }
