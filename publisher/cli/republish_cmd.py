"""republish: send a window of jobs again to one target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from publisher import subprocess_worker
from publisher.cli import exit_code, options
from publisher.cli.options import Yes, confirm
from publisher.cli.output import json_object, say
from publisher.cli.publish_cmd import delivered_json, show_delivered
from publisher.cli.session import session
from publisher.errors import TargetBusyError
from publisher.text import iso

if TYPE_CHECKING:
    from publisher.publish.republish import RepublishPlan


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("republish")(republish)


def republish(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Target to send to.")],
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="First end time (inclusive), UTC.")],
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Last end time (exclusive), UTC.")],
    only_missing: Annotated[
        bool, typer.Option("--only-missing", help="Only jobs that this store has not delivered to the target.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent.")] = False,
    yes: Yes = False,
) -> None:
    """Send jobs that ended in a window again to one target; for summaries, whole months. Asks before it sends."""
    from publisher.sources.base import Window  # noqa: PLC0415

    begin, end = options.window_bounds(since, until)
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
        if plan.to_send or plan.held or plan.resumes is not None:
            hint = "Add --yes, or --dry-run to see what would be sent"
            confirm("Send them?", yes=yes, hint=hint)
            delivered = {target: publisher.republish(target, window, only_missing=only_missing)}
        else:  # the target's lock is not taken, and what waits outside the window is left to publish
            delivered = {}
        status = publisher.status(assumed=False)
    if session.json:
        json_object({"plan": _plan_json(plan), "targets": delivered_json(delivered, status)})
    elif delivered and not session.quiet:
        show_delivered(delivered, status)
    raise typer.Exit(exit_code.of_run((), delivered, None, contexts=publisher.context_errors()))


def _explain(target: str, plan: RepublishPlan, *, keeps_first: bool) -> None:
    say(f"Jobs that ended from {iso(plan.from_)} until {iso(plan.until)}, for target {target}:")
    if plan.busy:
        say("  another run is at work for this target: try again when it is done; the numbers may change")
    if plan.resumes is not None:
        say(f"  a republish of this window began at {iso(plan.resumes)}: {plan.new:,} are left and will be sent")
        return
    say(f"  {plan.new:,} new: not delivered yet")
    changed_means = "the service keeps the first version" if keeps_first else "the new version replaces the old one"
    say(f"  {plan.changed + (plan.kept if keeps_first else 0):,} changed since they were sent: {changed_means}")
    if plan.kept and not keeps_first:
        say(f"  {plan.kept:,} changed and are no longer selected: not sent")
    same_means = "the service recognises their record ids and ignores them" if keeps_first else "replaced by the same"
    say(f"  {plan.unchanged:,} unchanged: {same_means}")
    if plan.key_changed:
        say(f"  {plan.key_changed:,} would count twice: held (`usage-publisher records list --state held`)")
    if plan.held:
        say(f"  {plan.held:,} held (`usage-publisher records list --state held`): sent where the reason is gone")
    if plan.waived:
        say(f"  {plan.waived:,} waived: not sent")
    if plan.to_send or plan.held:
        say(f"  {plan.to_send:,} will be sent{', and those of the held that can be' if plan.held else ''}")
    else:
        say("  nothing to send again in this window")
        return
    if plan.elsewhere:
        say(f"  {plan.elsewhere:,} more wait for this target and ended outside the window: they are sent too")


def _plan_json(plan: RepublishPlan) -> dict[str, Any]:
    return {
        "since": iso(plan.from_),
        "until": iso(plan.until),
        "new": plan.new,
        "changed": plan.changed,
        "unchanged": plan.unchanged,
        "kept_by_the_service": plan.kept,
        "waived": plan.waived,
        "assumed": plan.assumed,
        "key_changed": plan.key_changed,
        "held": plan.held,
        "busy": plan.busy,
        "resumes": iso(plan.resumes),
        "to_send": plan.to_send,
        "waiting_elsewhere": plan.elsewhere,
    }
