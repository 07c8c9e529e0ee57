"""publish: everything undelivered to the targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from publisher import subprocess_worker
from publisher.cli import exit_code
from publisher.cli.collect_cmd import tell_new_store
from publisher.cli.output import counted, json_object, level_text, make_table, say, show
from publisher.cli.session import session
from publisher.text import iso

if TYPE_CHECKING:
    from rich.text import Text

    from publisher.publish.publish import Delivery
    from publisher.status.status import Status, TargetStatus


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("publish")(publish)


def publish(
    targets: Annotated[list[str] | None, typer.Argument(metavar="[TARGET]...", help="Only these.")] = None,
) -> None:
    """Send everything undelivered to the targets."""
    subprocess_worker.keep_little()
    with session.publisher() as publisher:
        delivered = publisher.publish(targets or ())
        tell_new_store(publisher)
        status = publisher.status(assumed=False)
    if session.json:
        json_object({"targets": delivered_json(delivered, status)})
    elif not session.quiet:
        show_delivered(delivered, status)
    contexts = publisher.context_errors()
    raise typer.Exit(exit_code.of_run((), delivered, status, only=targets or (), contexts=contexts))


def delivered_json(delivered: dict[str, Delivery], status: Status) -> dict[str, Any]:
    """What was delivered, as `--json` gives it: accepted and rejected are this run's, the others totals."""
    result: dict[str, Any] = {}
    for name, total in status.targets.items():
        item = delivered.get(name)
        entry: dict[str, Any] = {
            "accepted": item.sent.accepted if item else 0,
            "rejected": item.sent.rejected if item else 0,
            "held": total.held,
            "waiting": total.waiting,
            "in_flight": total.in_flight,
            "batches": item.sent.batches if item else 0,
            "bytes": item.sent.bytes if item else 0,
            "error": trouble(item) if item else None,
            "busy": item.busy if item else False,
            "shared": item.shared if item else False,
            "resting_rounds": item.resting if item else None,
            "rehearsed": item.rehearsed if item else None,
        }
        if total.groups is not None:
            entry["groups"] = item.sent.groups if item else 0
        result[name] = entry
    return result


def trouble(item: Delivery) -> str | None:
    """What stopped a delivery, if anything did."""
    return str(item.error) if item.error is not None else item.sent.paused


def _resting_text(rounds: int) -> str:
    when = f"after {counted(rounds, 'more round')}" if rounds else "in the next round"
    return f"failed repeatedly, tried again {when}"


def _settled_text(total: TargetStatus) -> Text:
    """Of a target that took what it was sent: green only where nothing is left behind."""
    left = [(total.rejected, "rejected"), (total.held, "held")]
    words = [f"{number:,} {word}" for number, word in left if number]
    return level_text("yellow", f"done; {', '.join(words)}") if words else level_text("green", "done")


def show_delivered(delivered: dict[str, Delivery], status: Status) -> None:
    """A table of what was delivered; troubles were told when they happened."""
    columns = ["target", "accepted", "rejected", "held", "waiting", "batches", "KiB", ""]
    rows: list[list[object]] = []
    for name, item in delivered.items():
        total = status.targets[name]
        if item.busy:
            remark = level_text("yellow", "another run is at work")
        elif item.rehearsed is not None and not trouble(item):
            remark = level_text("yellow", "a shadow: nothing is sent")
        elif item.early:
            remark = level_text("green", "not due" + (f" before {iso(total.due_at)}" if total.due_at else " yet"))
        elif item.resting is not None:
            remark = level_text("yellow", _resting_text(item.resting))
        elif trouble(item):
            remark = level_text("red", "stopped")
        elif item.shared:
            remark = level_text("green", "done; others send the rest")
        else:
            remark = _settled_text(total)
        sent = item.sent
        rows.append(
            [name, sent.accepted, sent.rejected, total.held, total.waiting, sent.batches, sent.bytes // 1024, remark]
        )
    show(make_table("Published", columns, rows, right=set(columns[1:-1])))
    if any(item.sent.rejected for item in delivered.values()):
        say("`usage-publisher rejected list` shows what was rejected, with the answers")
    if any(total.held for total in status.targets.values()):
        say("`usage-publisher held list` shows what is held, with the reasons")
