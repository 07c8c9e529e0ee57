"""republish: send a window of jobs again to one target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher import subprocess_worker
from publisher.cli import completion, exit_code, options
from publisher.cli.options import Yes, confirm
from publisher.cli.output import json_object, result_json, say
from publisher.cli.publish_cmd import delivered_json, error_json, said, show_delivered, status_after
from publisher.cli.recorded import noted, recorded
from publisher.cli.session import session
from publisher.config.target_kind import SecondVersion
from publisher.errors import TargetBusyError
from publisher.reason import sentence
from publisher.text import counted, iso

if TYPE_CHECKING:
    from publisher.publish.republish import GroupCounts, RepublishPlan, WindowCounts


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("republish")(republish)


def republish(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Name of the target.", autocompletion=completion.targets)
    ],
    month: Annotated[
        str | None,
        typer.Option(
            "--month",
            metavar="MONTH",
            help="A month, such as 2026-11, instead of --since and --until.",
            autocompletion=completion.months,
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    only_missing: Annotated[
        bool, typer.Option("--only-missing", help="Only jobs that were not delivered to the target.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent; send nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Send jobs that ended in a window again to one target; for summaries, whole months. Asks before it sends."""
    from publisher.sources.base import Window  # noqa: PLC0415

    window = Window(*options.month_window(month, since, until))
    with session.publisher() as publisher:
        subprocess_worker.tune_memory()
        plan = publisher.plan_republish(target, window, only_missing=only_missing)
        settings = publisher.config.targets[target]
        _explain(target, plan, settings.format.shape, settings.second_version)
        if dry_run:
            if session.json:
                json_object({"plan": _plan_json(plan)})
            return
        if plan.busy:
            raise TargetBusyError(target)
        if plan.sends_anything:
            hint = "Add --yes, or --dry-run to see what would be sent"
            confirm("Send them?", yes=yes, hint=hint)
        with recorded(publisher, "republish") as recording:
            delivered = {}
            if plan.sends_anything:  # else its lock is not taken, and what waits outside the window is left to publish
                delivered[target] = publisher.republish(target, window, only_missing=only_missing)
            status, problem = status_after(publisher)
            recording.done = {"plan": _plan_json(plan), "targets": delivered_json(delivered, status)} | error_json(
                problem
            )
            if session.json:
                json_object(recording.done)
            elif delivered and not session.quiet:
                show_delivered(delivered, status)
            held_before, contexts = plan.held_again, noted(recording, publisher.written_contexts())
            code = exit_code.of_run((), delivered, None, held_before=held_before, contexts=contexts)
            raise typer.Exit(said(problem, code))


def _explain(target: str, plan: RepublishPlan, shape: str, second_version: SecondVersion) -> None:
    counts = plan.counts
    say(f"Jobs that ended from {iso(plan.asked.begins)} until {iso(plan.asked.ends)}, for target {target}:")
    if plan.busy:
        say("  another run is sending to this target: try again when it has finished; the numbers may change")
    if plan.resumes is not None:
        say(f"  a republish of this window began at {iso(plan.resumes)}: {counts.new:,} are left")
    else:
        _explain_counts(counts, second_version)
    if plan.to_hold:
        say(f"  {sum(plan.to_hold.values()):,} will be held; {plan.held_again:,} of them are held now:")
    for code, jobs in plan.to_hold.items():
        reason = plan.reasons[code]
        of_first = ", for example" if jobs > 1 and reason.parameters else ""
        say(f"    {jobs:,}{of_first}: {sentence(reason)}")
    if plan.to_send:
        say(f"  {plan.to_send:,} will be sent")
    _explain_groups(*(("report", "reports") if shape == "report" else ("summary", "summaries")), plan.groups)
    _explain_groups("sync count", "sync counts", plan.sync)
    if not plan.sends_anything:
        say("  nothing to send again in this window")
    if plan.in_flight:
        say(f"  {plan.in_flight:,} outside the window are in flight from an interrupted run: they are sent again first")
    if plan.elsewhere and plan.sends_all_due:
        say(f"  {plan.elsewhere:,} more wait that ended outside the window: reports that are due are sent too")
    elif plan.elsewhere:
        say(f"  {plan.elsewhere:,} more wait that ended outside the window: `run` and `publish` send them")


_CHANGED_MEANS: Final = {
    SecondVersion.KEEPS_FIRST: "the service keeps the first version",
    SecondVersion.REFUSES_REPEATS: "compared with what the service has, which corrects what it can and keeps the rest",
}
_SAME_MEANS: Final = {
    SecondVersion.KEEPS_FIRST: "they are there already, so nothing changes",
    SecondVersion.REFUSES_REPEATS: "compared with what the service has: sent if it lacks them, superseded where it "
    "keeps other values than would be sent now",
}


def _explain_counts(counts: WindowCounts, second_version: SecondVersion) -> None:
    say(f"  {counts.new:,} new: not delivered yet")
    changed_means = _CHANGED_MEANS.get(second_version, "the new version replaces the old one")
    keeps_first = not second_version.sends_changed
    say(f"  {counts.changed + (counts.kept if keeps_first else 0):,} changed since they were sent: {changed_means}")
    if counts.kept and not keeps_first:
        say(f"  {counts.kept:,} changed and are no longer selected: not sent")
    same_means = _SAME_MEANS.get(
        second_version, "sent again as the configuration is now, in place of what the service has"
    )
    say(f"  {counts.unchanged:,} unchanged: {same_means}")
    if counts.held:
        say(f"  {counts.held:,} held (`usage-publisher records list --state held`): tried again")
    if counts.stays_held:
        say(f"  {counts.stays_held:,} held until `usage-publisher records retry` names them: not sent")
    if counts.waived:
        say(f"  {counts.waived:,} waived: not sent")


def _explain_groups(noun: str, plural: str, counts: GroupCounts) -> None:
    if counts.total:
        say(
            f"  {counted(counts.total, noun, plural)} will be sent: {counts.new:,} new, {counts.changed:,} changed, "
            f"{counts.emptied:,} emptied (zero, as they no longer exist), {counts.unchanged:,} as the "
            "service has them"
        )


def _plan_json(plan: RepublishPlan) -> dict[str, Any]:
    counts = plan.counts
    return {
        "since": iso(plan.asked.begins),
        "until": iso(plan.asked.ends),
        "new": counts.new,
        "changed": counts.changed,
        "unchanged": counts.unchanged,
        "kept_by_the_service": counts.kept,
        "waived": counts.waived,
        "assumed": counts.assumed,
        "held": counts.held,
        "stays_held": counts.stays_held,
        "busy": plan.busy,
        "resumes": iso(plan.resumes),
        "to_send": plan.to_send,
        "to_send_groups": result_json(plan.groups),
        "to_send_sync": result_json(plan.sync),
        "to_hold": plan.to_hold,
        "held_again": plan.held_again,
        "waiting_elsewhere": plan.elsewhere,
        "in_flight_elsewhere": plan.in_flight,
    }
