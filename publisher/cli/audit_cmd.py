"""audit: who did what."""

from __future__ import annotations

from typing import Annotated

import typer

from publisher.cli.output import json_object, make_table, say, show
from publisher.cli.session import session
from publisher.times import iso


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(limit: Annotated[int, typer.Option("--limit", min=1, help="How many entries, newest first.")] = 100) -> None:
    """What people did: republish, retry, waive, settle; with who and when."""
    with session.publisher() as publisher:
        entries = publisher.audit(limit)
    if session.json:
        keys = ("who", "action", "subject", "detail")
        json_object(
            {"entries": [{"at": iso(entry.at)} | {key: getattr(entry, key) for key in keys} for entry in entries]}
        )
    elif entries:
        rows: list[list[object]] = [
            [iso(entry.at), entry.who, entry.action, entry.subject, entry.detail] for entry in entries
        ]
        show(make_table("", ["when", "who", "did", "to", "what"], rows))
    else:
        say(publisher.missing or "nobody did anything yet that is put down")
