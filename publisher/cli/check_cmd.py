"""check: will a run go well?"""

from __future__ import annotations

import typer

from publisher.cli.output import json_object, level_text, make_table, show
from publisher.cli.session import session


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check() -> None:
    """Test everything that a run will need and say how to mend it. Sends no records. Exit code 1 if anything is red."""
    with session.publisher() as publisher:
        findings = publisher.check()
    if session.json:
        keys = ("subject", "level", "message", "hint")
        json_object({"findings": [{key: getattr(item, key) for key in keys} for item in findings]})
    else:
        rows: list[list[object]] = [
            [level_text(item.level, item.level), item.subject, item.message, item.hint] for item in findings
        ]
        show(make_table("", ["", "what", "how it is", "what to do"], rows))
    if any(item.level == "red" for item in findings):
        raise typer.Exit(1)
