"""publish: send waiting records to the targets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from publisher import subprocess_worker
from publisher.cli import completion, exit_code
from publisher.cli.collect_cmd import say_if_new_store
from publisher.cli.output import json_object, say
from publisher.cli.recorded import noted, recorded
from publisher.cli.render_cmd import held_json, note_lines
from publisher.cli.session import session
from publisher.cli.table import level_text, show_table
from publisher.errors import StoreError, UsageError
from publisher.status.notes import totals_left
from publisher.text import counted, iso, unknown_name

if TYPE_CHECKING:
    from rich.text import Text

    from publisher.api import Publisher
    from publisher.preview.render import Broken, HeldPreview, Noted
    from publisher.publish.publish import Delivery
    from publisher.status.status import Status, TargetStatus


_MOST_NOTES: Final = 10


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("publish")(publish)


def publish(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="Names of targets. Default: all.", autocompletion=completion.targets),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show how much would be sent; send nothing.")] = False,
) -> None:
    """Send everything that waits to the targets."""
    if dry_run:
        _show_dry_run(targets or ())
        return
    with session.publisher() as publisher, recorded(publisher, "publish") as recording:
        subprocess_worker.tune_memory()
        delivered = publisher.publish(targets or ())
        say_if_new_store(publisher)
        status, problem = status_after(publisher)
        recording.done = {"targets": delivered_json(delivered, status)} | error_json(problem)
        if session.json:
            json_object(recording.done)
        elif not session.quiet:
            show_delivered(delivered, status)
        contexts = noted(recording, publisher.written_contexts())
        code = exit_code.of_run((), delivered, status, only=targets or (), contexts=contexts)
        raise typer.Exit(said(problem, code))


def status_after(publisher: Publisher) -> tuple[Status | None, StoreError | None]:
    """The state after the work of a command, or why the store cannot be read: what was sent is shown nevertheless."""
    try:
        return publisher.status(assumed=False), None
    except StoreError as error:
        return None, error


def error_json(problem: StoreError | None) -> dict[str, Any]:
    """What an object of results has beside them where the store could not be used after the work."""
    if problem is None:
        return {}
    return {"error": "\n".join(problem.lines), "exit_code": exit_code.STORE}


def said(problem: StoreError | None, code: int) -> int:
    """Say why the store could not be used after the work; the exit code, which is `code` if it could be."""
    if problem is None:
        return code
    say(*(f"usage-publisher: {line}" for line in problem.lines))
    return exit_code.STORE


class DryRun(msgspec.Struct):
    """What `publish` would send to a target: records, the messages, and their bytes before signing; both with sync.
    `notes`: what is altered in them."""

    records: int
    messages: int
    bytes: int
    held: list[HeldPreview]
    broken_rules: list[Broken]
    notes: list[Noted]


def dry_run_of(publisher: Publisher, target: str) -> DryRun:
    """Render and check everything that waits for a target."""
    from publisher.preview.render import Validation  # noqa: PLC0415
    from publisher.sources.base import Window  # noqa: PLC0415

    records = publisher.config.targets[target].records
    rendering = publisher.rendering(records, target, Window(), with_sync=True)
    validation = Validation(publisher.tools.clock())
    messages = size = 0
    for message in rendering.messages():
        validation.passes(message)
        messages += 1
        size += len(message.payload)
    return DryRun(rendering.records, messages, size, rendering.held, validation.broken, rendering.notes)


def dry_run_json(found: DryRun) -> dict[str, Any]:
    """A dry run, for `--json`."""
    return {
        "records": found.records,
        "messages": found.messages,
        "bytes": found.bytes,
        "held": len(found.held),
        "broken_rules": found.broken_rules,
        "held_records": held_json(found.held),
    }


def _show_dry_run(targets: Sequence[str]) -> None:
    with session.publisher() as publisher:
        subprocess_worker.tune_memory()
        for name in targets:
            if name not in publisher.config.targets:
                raise UsageError(unknown_name("target", name, publisher.config.targets))
        dry_runs = {name: dry_run_of(publisher, name) for name in targets or publisher.config.targets}
        shadows = {name for name in dry_runs if publisher.config.targets[name].shadow}
        held = {name: of.held for name, of in publisher.status(assumed=False).targets.items() if name in dry_runs}
    if session.json:
        json_object({"targets": {name: dry_run_json(each) for name, each in dry_runs.items()}})
        return
    columns = ["target", "records", "held", "messages", "KiB", "status"]
    rows = [
        [
            name, each.records, len(each.held), each.messages, each.bytes // 1024,
            "a shadow: publish sends nothing" if name in shadows else "",
        ]
        for name, each in dry_runs.items()
    ]  # fmt: skip
    show_table("Would be sent", columns, rows, right=set(columns[1:-1]))
    for name, each in dry_runs.items():
        say(*(f"{name}: {line}" for line in islice(note_lines(each.notes), _MOST_NOTES)))
        if held.get(name):
            say(
                f"{name}: {counted(held[name], 'record')} held already: `run` tries them again when what they lack is "
                f"there. `usage-publisher records list --state held --target {name}` says what that is"
            )
    say("Nothing was sent. `usage-publisher render FORMAT --target NAME` shows the messages")


def delivered_json(delivered: dict[str, Delivery], status: Status | None) -> dict[str, Any]:
    """The result of publishing, for `--json`: accepted and rejected count this run; the others are totals, which are
    left out without a status."""
    result: dict[str, Any] = {}
    for name in delivered if status is None else status.targets:
        item = delivered.get(name)
        total = None if status is None else status.targets[name]
        entry: dict[str, Any] = {
            "accepted": item.sent.accepted if item else 0,
            "rejected": item.sent.rejected if item else 0,
            **({} if total is None else {"held": total.held, "waiting": total.waiting, "in_flight": total.in_flight}),
            "batches": item.sent.batches if item else 0,
            "bytes": item.sent.bytes if item else 0,
            "error": problem(item) if item else None,
            "busy": item.busy if item else False,
            "shared": item.shared if item else False,
            "resting_rounds": item.resting if item else None,
            "rehearsed": item.rehearsed if item else None,
        }
        if total is not None and total.groups is not None:
            entry["groups"] = item.sent.groups if item else 0
        result[name] = entry
    return result


def problem(item: Delivery) -> str | None:
    """Why a delivery stopped; None if it did not."""
    return str(item.error) if item.error is not None else item.sent.paused


def _resting_text(rounds: int) -> str:
    when = f"after {counted(rounds, 'more run')}" if rounds else "in the next run"
    return f"failed repeatedly, tried again {when}"


def _settled_text(total: TargetStatus) -> Text:
    """The remark on a target that accepted everything sent: green only if nothing else is there."""
    left = [(total.rejected, "rejected"), (total.held, "held"), (total.superseded, "superseded")]
    words = [f"{number:,} {word}" for number, word in left if number]
    words += totals_left(total)
    return level_text("yellow", f"done; {', '.join(words)}") if words else level_text("green", "done")


def show_delivered(delivered: dict[str, Delivery], status: Status | None) -> None:
    """Print the result of publishing as a table; problems were printed when they happened. Without a status, totals are
    unknown."""
    columns = ["target", "accepted", "totals", "rejected", "held", "waiting", "batches", "KiB", "status"]
    rows: list[list[object]] = []
    for name, item in delivered.items():
        total = None if status is None else status.targets[name]
        if item.busy:
            remark = level_text("yellow", "another run is sending")
        elif item.rehearsed is not None and not problem(item):
            remark = level_text("yellow", "a shadow: nothing is sent")
        elif item.early:
            due_at = None if total is None else total.due_at
            remark = level_text("green", "not due" + (f" before {iso(due_at)}" if due_at else " yet"))
        elif item.resting is not None:
            remark = level_text("yellow", _resting_text(item.resting))
        elif problem(item):
            remark = level_text("red", "stopped")
        elif item.shared:
            remark = level_text("green", "done; other publishers send the rest")
        elif total is None:
            remark = level_text("red", "the rest is unknown")
        else:
            remark = _settled_text(total)
        sent, left = item.sent, ("", "") if total is None else (total.held, total.waiting)
        numbers = [sent.accepted, sent.groups or "", sent.rejected, *left, sent.batches, sent.bytes // 1024]
        rows.append([name, *numbers, remark])
    show_table("Published", columns, rows, right=set(columns[1:-1]))
    if any(item.sent.rejected for item in delivered.values()):
        say("`usage-publisher records list --state rejected` lists rejected records with the services' answers")
    if status is not None and any(status.targets[name].held for name in delivered):
        say("`usage-publisher records list --state held` lists held records with the reasons")
