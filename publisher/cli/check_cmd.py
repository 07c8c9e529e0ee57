"""check: will a run go well?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from publisher.cli.output import data, json_object, level_text, make_table, show
from publisher.cli.session import session
from publisher.errors import PublisherError

if TYPE_CHECKING:
    from publisher.finding import Finding


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    nagios: Annotated[
        bool,
        typer.Option(
            "--nagios", help="One line with performance data, and the exit codes of Nagios and Icinga: 0 to 3."
        ),
    ] = False,
) -> None:
    """Test everything that a run will need and say how to mend it. Sends no records. Exit code 1 if anything is red."""
    if nagios:
        raise typer.Exit(_nagios())
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


def _nagios() -> int:
    """Print the line for monitoring; gives its exit code: what cannot be looked at at all is unknown."""
    from publisher.cli import nagios  # noqa: PLC0415

    findings: list[Finding]
    try:
        with session.publisher() as publisher:
            findings = publisher.check()
            text, code = nagios.verdict(findings, publisher.status(assumed=False))
    except PublisherError as error:
        text, code = nagios.line(nagios.UNKNOWN, str(error)), nagios.UNKNOWN
    data(text)
    return code
