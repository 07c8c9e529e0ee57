"""check: test everything that a run needs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from publisher.cli.output import data, json_object
from publisher.cli.session import session
from publisher.cli.table import level_text, show_table
from publisher.errors import PublisherError
from publisher.text import safe

if TYPE_CHECKING:
    from publisher.finding import Finding
    from publisher.status.status import Status


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    nagios: Annotated[
        bool,
        typer.Option(
            "--nagios",
            help="Print one line with performance data; use the exit codes of Nagios and Icinga (0 to 3).",
        ),
    ] = False,
) -> None:
    """Test everything that a run needs, and show how to fix problems. Sends no records. Exit code 1: a test is red."""
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
        show_table("", ["", "subject", "finding", "what to do"], rows)
    if any(item.level == "red" for item in findings):
        raise typer.Exit(1)


# --- one line with performance data, and the exit code that Nagios and Icinga read


_OK, _WARNING, _CRITICAL, _UNKNOWN = 0, 1, 2, 3
_WORDS: Final = {_OK: "OK", _WARNING: "WARNING", _CRITICAL: "CRITICAL", _UNKNOWN: "UNKNOWN"}
_MOST: Final = 3
_LONGEST: Final = 1000
"""Characters of the line before its data; monitoring cuts longer ones."""


def verdict(findings: Sequence[Finding], status: Status) -> tuple[str, int]:
    """The line and the exit code: critical if anything is red, warning if anything is yellow."""
    red = [item for item in findings if item.level == "red"]
    yellow = [item for item in findings if item.level == "yellow"]
    code = _CRITICAL if red else _WARNING if yellow else _OK
    bad = [*red, *yellow]
    text = "; ".join(f"{item.subject}: {item.message}" for item in bad[:_MOST])
    if len(bad) > _MOST:
        text += f"; and {len(bad) - _MOST} more"
    return nagios_line(code, text or f"{len(findings)} checks passed", " ".join(_data(status))), code


def nagios_line(code: int, text: str, data: str = "") -> str:
    """One line; `|` and line breaks, which have a meaning to monitoring, are replaced."""
    shown = safe(text.replace("|", "/").replace("\n", " "))[:_LONGEST]
    return f"USAGE-PUBLISHER {_WORDS[code]} - {shown}" + (f" | {data}" if data else "")


def _data(status: Status) -> Iterator[str]:
    now = time.time()
    for name, target in status.targets.items():
        label = _label(name)
        for key in ("waiting", "in_flight", "rejected", "held"):
            yield f"'{label}_{key}'={getattr(target, key)};;;0"
        if target.oldest_waiting_end_time is not None and not target.shadow:
            yield f"'{label}_oldest_waiting'={max(0, int(now - target.oldest_waiting_end_time))}s;;;0"
        if target.certificate_days_left is not None:
            yield f"'{label}_certificate_days'={target.certificate_days_left}"
    for name, source in status.sources.items():
        yield f"'{_label(name)}_jobs'={source.jobs}c;;;0"
        yield f"'{_label(name)}_unreadable'={source.unreadable};;;0"


def _label(name: str) -> str:
    return "".join(char if char.isalnum() or char in "_-." else "_" for char in name)


def _nagios() -> int:
    """Print the line for monitoring; gives its exit code: unknown where nothing could be tested."""
    findings: list[Finding]
    try:
        with session.publisher() as publisher:
            findings = publisher.check()
            text, code = verdict(findings, publisher.status(assumed=False))
    except PublisherError as error:
        text, code = nagios_line(_UNKNOWN, str(error)), _UNKNOWN
    data(text)
    return code
