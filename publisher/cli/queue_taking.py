"""import ssm-queue: what is in a queue that SSM left behind, and sending it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from publisher.cli.exit_code import CREDENTIALS, DONE, REJECTED, WAITING
from publisher.cli.output import json_object, make_table, say, show
from publisher.cli.session import session
from publisher.errors import UsageError

if TYPE_CHECKING:
    from publisher.config.schema import Config
    from publisher.migrate.ssm_queue import QueuedMessage, Taken

_SHOWN = 20


def take_queue(path: Path, target: str, *, dry_run: bool, yes: bool) -> int:
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
            found = list(queue.messages())
            if not session.json:
                _show(found)
            sends = any(message.fate != "leave" for message in found)
            if dry_run or not sends:
                if session.json:
                    json_object({"messages": found})
                return REJECTED if found and not sends else DONE
            _confirm(yes=yes)
            taken = queue.send(service, publisher.tools)
        finally:
            service.close()
        with publisher.store.write() as connection:
            detail = f"{path}: {taken.sent} messages sent, {taken.set_aside} not needed, {taken.left} left"
            registry.record_action(connection, "import ssm-queue", target, detail, publisher.tools.clock())
    _tell(path, found, taken)
    return _code(taken)


def _require_other_place(config: Config, target: str, path: Path) -> None:
    settings = config.targets[target]
    if not settings.kind.takes_apel:
        what = f"{target} takes only {settings.records}"
        raise UsageError(f"{what}, and SSM's messages are for APEL", hint="Name the target of APEL")
    if settings.shadow:
        raise UsageError(f"{target} is a shadow: nothing is sent to it", hint="Let SSM send what is in its queue")
    own = getattr(settings, "path", None)
    if own is not None and own.resolve() == path.resolve():
        raise UsageError(f"{path} is where {target} writes to", hint="SSM sends what is in it, as before")


def _confirm(*, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to confirm", hint="Add --yes, or --dry-run to look only")
    typer.confirm("Send them? SSM must be stopped.", abort=True, err=True)


def _show(found: list[QueuedMessage]) -> None:
    fates = Counter((message.format, message.fate, message.why) for message in found)
    records = Counter[tuple[str, str, str]]()
    for message in found:
        records[message.format, message.fate, message.why] += message.records
    rows: list[list[object]] = [
        [form or "?", count, records[form, fate, why], _WORDS[fate], why]
        for (form, fate, why), count in list(fates.items())[:_SHOWN]
    ]
    columns = ["format", "messages", "records", "what becomes of them", "why"]
    if rows:
        show(make_table("In the queue", columns, rows, right={"messages", "records"}))
        if len(fates) > len(rows):
            say(f"({len(fates) - len(rows):,} more kinds of messages; --json lists every message)")
    else:
        say("the queue is empty")


_WORDS = {"send": "sent", "older": "not needed", "empty": "not needed", "leave": "left in the queue"}


def _tell(path: Path, found: list[QueuedMessage], taken: Taken) -> None:
    if session.json:
        json_object({"messages": found, "taken": taken})
        return
    kept = path.with_name(path.name + ".taken-over")
    say(f"{taken.sent} messages with {taken.records} records sent, {taken.set_aside} not needed; kept in {kept}")
    if taken.left:
        say(f"{taken.left} are left in the queue, for the reasons above")
    if taken.busy:
        say(f"{taken.busy} are locked: SSM is at work, or was killed; stop it, and remove the .lck beside them")
    if taken.answer is not None:
        say(f"ended early: {taken.answer}; what is left stays in the queue, run this again")


def _code(taken: Taken) -> int:
    if taken.unauthorised:
        return CREDENTIALS
    if taken.answer is not None or taken.busy:
        return WAITING
    return REJECTED if taken.left else DONE
