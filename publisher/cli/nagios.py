"""check --nagios: one line with performance data, and the exit code that Nagios and Icinga read (0, 1, 2, 3)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from publisher.cli.output import safe

if TYPE_CHECKING:
    from publisher.finding import Finding
    from publisher.status.status import Status

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
_WORDS: Final = {OK: "OK", WARNING: "WARNING", CRITICAL: "CRITICAL", UNKNOWN: "UNKNOWN"}
_MOST: Final = 3
_LONGEST: Final = 1000
"""Characters of the line before its data; monitoring cuts longer ones."""


def verdict(findings: Sequence[Finding], status: Status) -> tuple[str, int]:
    """The line and the exit code: critical if anything is red, warning if anything is yellow."""
    red = [item for item in findings if item.level == "red"]
    yellow = [item for item in findings if item.level == "yellow"]
    code = CRITICAL if red else WARNING if yellow else OK
    bad = [*red, *yellow]
    text = "; ".join(f"{item.subject}: {item.message}" for item in bad[:_MOST])
    if len(bad) > _MOST:
        text += f"; and {len(bad) - _MOST} more"
    return line(code, text or f"{len(findings)} checks are well", " ".join(_data(status))), code


def line(code: int, text: str, data: str = "") -> str:
    """One line; `|` and line breaks have a meaning to monitoring, and go."""
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
