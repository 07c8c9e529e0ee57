"""audit: who did what."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from publisher.cli.lists import All, limit_of, list_json, say_if_cut
from publisher.cli.output import json_object, make_table, say, show
from publisher.cli.session import session
from publisher.text import iso

_SHOWN: Final = 100


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="At most so many, the newest. Default: 100.")
    ] = None,
    show_all: All = False,
) -> None:
    """What people did: republish, retry, waive, settle; with who and when."""
    with session.publisher() as publisher:
        entries = publisher.audit(limit_of(limit, _SHOWN, show_all=show_all))
        total = publisher.count_audit()
    if session.json:
        keys = ("who", "action", "subject", "detail")
        records = [{"at": iso(entry.at)} | {key: getattr(entry, key) for key in keys} for entry in entries]
        json_object(list_json(records, total, also_as="entries"))
    elif entries:
        rows: list[list[object]] = [
            [iso(entry.at), entry.who, entry.action, entry.subject, entry.detail] for entry in entries
        ]
        show(make_table("", ["when", "who", "did", "to", "what"], rows))
        say_if_cut(len(entries), total, "newest")
    else:
        say(publisher.missing or "nobody did anything yet that is put down")
