"""status: the state of sources and targets, and what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import typer

from publisher.cli.history_cmd import run_json
from publisher.cli.output import data, json_object, result_json, say
from publisher.cli.session import session
from publisher.cli.table import level_text, show_table
from publisher.finding import DAMAGE_HINT
from publisher.status.notes import (
    FEW_DAYS,
    SELECTS_NONE,
    evidence_notes,
    removed_amount_notes,
    totals_left,
    unconfirmed_text,
    usage_notes,
)
from publisher.text import counted, future_notes, iso, safe

if TYPE_CHECKING:
    from rich.text import Text

    from publisher.status.status import SourceStatus, Status, TargetStatus
    from publisher.store.history import ProgramRun


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status() -> None:
    """Show what was read, what each target accepted, what waits, is held, or was rejected, and what to do next."""
    with session.publisher() as publisher:
        current = publisher.status()
    if session.json:
        from importlib.metadata import version  # noqa: PLC0415

        head = {
            "site": publisher.config.site.name,
            "version": version("usage-publisher"),
            "now": iso(publisher.tools.clock()),
        }
        json_object(head | status_json(current))
    else:
        if publisher.missing:
            say(publisher.missing)
        show_status(current)


def status_json(found: Status) -> dict[str, Any]:
    """Sources and targets as `--json` gives them."""
    return {
        "complete": found.complete,
        "delivered": found.delivered,
        "not_latest": found.not_latest,
        "damaged_jobs": found.damaged_jobs,
        "last_run": None if found.last_run is None else run_json(found.last_run),
        "sources": {name: result_json(source, "retired") for name, source in found.sources.items()},
        "removed_sources": {name: result_json(source) for name, source in found.removed_sources.items()},
        "targets": {name: _target_json(target) for name, target in found.targets.items()},
        "removed_targets": {name: _removed_json(target) for name, target in found.removed_targets.items()},
    }


_OF_REMOVED: Final = (
    "accepted", "waiting", "in_flight", "rejected", "held", "waived", "superseded", "confirmed",
    "oldest_waiting_end_time", "last_sent_end_time",
)  # fmt: skip


_OF_GROUPS: Final = ("accepted", "waiting", "in_flight", "rejected", "held", "confirmed")


def _removed_json(target: TargetStatus) -> dict[str, Any]:
    fields = result_json(target)
    return {name: fields[name] for name in _OF_REMOVED}


def _target_json(target: TargetStatus) -> dict[str, Any]:
    fields = result_json(target, "certificate_days_left", "confirmation_overdue")
    if target.groups is None:
        del fields["groups"]
    else:
        fields["groups"] = {state: target.groups.get(state, 0) for state in _OF_GROUPS}
    return fields


def show_status(found: Status) -> None:
    """The status as people read it."""
    if found.last_run is not None:
        data(_last_run_text(found.last_run))
    source_columns = ["source", "jobs", "unreadable", "last collected", "last job end", "status"]
    rows: list[list[object]] = [
        [name, item.jobs, item.unreadable, iso(item.last_collected), iso(item.last_job_end), _source_word(item)]
        for name, item in found.sources.items()
    ]
    rows += [
        [name, item.jobs, None, None, iso(item.last_job_end), "not in the configuration any more"]
        for name, item in found.removed_sources.items()
    ]
    show_table("Sources", source_columns, rows, right={"jobs", "unreadable"})
    columns = ["target", "accepted", "confirmed", "waiting", "in flight", "rejected", "held", "superseded"]
    listed = found.targets | found.removed_targets
    more = [name for name in ("waived", "not_selected") if any(getattr(item, name) for item in listed.values())]
    columns += [name.replace("_", " ") for name in more]
    counts = set(columns[1:])
    columns += ["oldest waiting", "last sent end", "complete until", "status"]
    rows = [
        [
            name,
            item.accepted,
            _confirmed_text(item),
            item.waiting,
            item.in_flight,
            item.rejected,
            item.held,
            item.superseded,
            *(getattr(item, column) for column in more),
            iso(item.oldest_waiting_end_time),
            iso(item.last_sent_end_time),
            iso(item.complete_until),
            _target_word(item) if name in found.targets else "not in the configuration any more",
        ]
        for name, item in listed.items()
    ]
    if rows:
        show_table("Targets", columns, rows, right=counts)
    else:
        data("No target is configured: nothing is sent.")
    for advice in _advice(found):
        data(advice)


def _last_run_text(run: ProgramRun) -> str:
    from publisher.status.run_summary import summary_of  # noqa: PLC0415

    last = summary_of(run)
    began = iso(run.began_at) or "unknown"
    times = f"{began}, {last.took}" if last.took else began
    problem = f"\nIts problem: {last.problem}" if last.problem else ""
    return f"Last run: {run.command}, {times}, {last.result}{last.work}; usage-publisher history {run.id}{problem}"


def _source_word(item: SourceStatus) -> Text:
    if item.error is not None:
        return level_text("red", item.error)
    if item.times_in_future:
        return level_text("yellow", "read while a clock was wrong")
    if item.last_collected is None and not item.retired:
        return level_text("yellow", "never read")
    words = (
        (not item.read_to_end, "not read to its end"),
        (item.ends_in_future, "the last job ended in the future: a clock is wrong"),
        (item.silent, "silent for longer than expected"),
        (item.suspect, f"{counted(item.suspect, 'suspect job')} held"),
        (item.unreadable, "some input is unreadable"),
        (item.waiting, "a record is incomplete"),
        (item.cpu_doubtful, "some CPU times are doubtful"),
    )
    word = next((word for holds, word in words if holds), None)
    return level_text("yellow", word) if word else level_text("green", "retired" if item.retired else "read to its end")


def _confirmed_text(item: TargetStatus) -> object:
    return "no evidence" if item.evidence == "none" and not item.confirmed else item.confirmed


def _target_word(item: TargetStatus) -> Text:
    if item.last_error is not None:
        return level_text("red", item.last_error)
    if item.certificate_days_left is not None and item.certificate_days_left < FEW_DAYS:
        return level_text("yellow", f"certificate ends in {counted(item.certificate_days_left, 'day')}")
    if item.shadow or item.is_rejected or item.is_held or item.superseded:
        return level_text("yellow", "a shadow: nothing is sent" if item.shadow else _undelivered_word(item))
    if item.has_work:
        early = item.due_at is not None
        return level_text("green" if early else "yellow", f"waiting until {iso(item.due_at)}" if early else "waiting")
    return _word_of_settled(item)


def _undelivered_word(item: TargetStatus) -> str:
    """How many jobs of each kind are not delivered until somebody acts."""
    counts = {"rejected": item.rejected, "held": item.held, "superseded": item.superseded}
    words = [f"{jobs:,} {state}" for state, jobs in counts.items() if jobs]
    return ", ".join(words + totals_left(item))


def _word_of_settled(item: TargetStatus) -> Text:
    """The status of a target to which nothing can be sent now."""
    if item.times_in_future:
        return level_text("yellow", "a clock was wrong")
    if item.confirmation_overdue:
        return level_text("yellow", unconfirmed_text(item))
    if item.not_due:
        return level_text("green", f"{item.not_due} of a period that is not over")
    if item.accepted and item.complete_until is None:
        return level_text("yellow", "all that was read is delivered")
    return level_text("green", "all delivered" if item.accepted else "nothing to deliver")


def _is_to_send(item: TargetStatus) -> bool:
    """Whether something waits that can be sent now."""
    held_back = item.shadow or item.due_at is not None
    return not held_back and item.has_work


def _advice(found: Status) -> list[str]:
    """What to do next, a line for each, the most urgent first."""
    targets = found.targets
    advice = [] if found.not_latest is None else [safe(f"Nothing is sent: {found.not_latest}")]
    if found.damaged_jobs:
        advice.append(f"Damaged:            {counted(found.damaged_jobs, 'stored job')}; {DAMAGE_HINT}")
    advice += _advice_on_removed_targets(found)
    advice += _advice_on_clocks(found)
    never_read = (each.last_collected is None and not each.times_in_future for each in found.sources.values())
    if any(unread and each.error is None for unread, each in zip(never_read, found.sources.values(), strict=True)):
        advice.append("Never read:         usage-publisher check, then usage-publisher run")
    if any(each.error for each in found.sources.values()) or any(each.last_error for each in targets.values()):
        advice.append("Problems:           usage-publisher check says what to do; nothing is lost")
    if any(each.last_collected and not each.read_to_end and not each.error for each in found.sources.values()):
        advice.append("Not read to the end: usage-publisher collect reads the rest")
    if any(source.suspect for source in found.sources.values()):
        advice.append(
            "Suspect jobs:       usage-publisher collect --unreadable; they are counted nowhere until decided"
        )
    if any(source.unreadable for source in found.sources.values()):
        advice.append("Unreadable input:   usage-publisher collect --unreadable")
    for name, source in found.sources.items():
        advice += [safe(f"{name}, incomplete: {text}") for text in source.waiting]
        advice += [safe(f"{name}: {text}") for text in usage_notes(source)]
    if any(target.rejected for target in targets.values()):
        advice.append("Rejected records:   usage-publisher records list --state rejected")
    if any(target.held for target in targets.values()):
        advice.append("Held records:       usage-publisher records list --state held")
    if any(target.superseded for target in targets.values()):
        advice.append("Superseded records: usage-publisher records list --state superseded")
    if found.not_latest is None and any(_is_to_send(target) for target in targets.values()):
        advice.append("Send what waits:    usage-publisher publish")
    return advice + _advice_by_target(found)


def _advice_on_clocks(found: Status) -> list[str]:
    in_future = {name: source.times_in_future for name, source in found.sources.items()}
    of_targets = {name: target.times_in_future for name, target in found.targets.items()}
    named = (*in_future.items(), *of_targets.items())
    return [safe(f"{name}: {text}") for name, times in named for text in future_notes(times)]


def _advice_by_target(found: Status) -> list[str]:
    collected = any(source.last_job_end is not None for source in found.sources.values())
    advice = []
    for name, target in found.targets.items():
        if collected and target.untouched:
            advice.append(f"{name} {SELECTS_NONE}")
        if target.shadow:
            advice.append(f"Compare the shadow: usage-publisher shadow {shlex.quote(name)}")
        if target.assumed:
            before = f"accepted, but delivered before and not sent from this store: {counted(target.assumed, 'job')}"
            advice.append(f"{name}: {before}")
        notes = (*evidence_notes(name, target), *removed_amount_notes(name, target))
        advice += [safe(f"{name}: {text}") for text in notes]
    return advice


def _advice_on_removed_targets(found: Status) -> list[str]:
    advice = []
    for name, target in found.removed_targets.items():
        left = target.waiting + target.in_flight + target.held + target.rejected
        if left:
            are_not = "job is not delivered" if left == 1 else "jobs are not delivered"
            advice.append(
                f"Removed targets:    {left:,} {are_not} to {safe(name)}; add [targets.{safe(name)}] again to send them"
            )
    return advice
