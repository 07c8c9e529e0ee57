"""What the shell offers for the names in a command line: targets, sources, formats, states, months.

Shown while somebody types, so nothing is printed, no error is raised, and no store is opened: a configuration that
cannot be read gives no names. Its tables are read without checking their settings, which takes a tenth of the time.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

STATES: Final = ("waiting", "in_flight", "accepted", "rejected", "held", "waived", "superseded")
"""The words of `publisher.store.schema.State`, which is not loaded here."""
_MONTHS: Final = 24


def targets(ctx: Any, incomplete: str) -> list[str]:
    """Names of configured targets."""
    return _beginning(incomplete, lambda: _names(ctx, "targets"))


def sources(ctx: Any, incomplete: str) -> list[str]:
    """Names of configured sources."""
    return _beginning(incomplete, lambda: _names(ctx, "sources"))


def formats(incomplete: str) -> list[str]:
    """Names of formats, those of add-ons included."""
    return _beginning(incomplete, _format_names)


def states(incomplete: str) -> list[str]:
    """States of deliveries."""
    return _beginning(incomplete, lambda: STATES)


def months(incomplete: str) -> list[str]:
    """The last two years, the newest first."""
    return _beginning(incomplete, _last_months)


def _beginning(incomplete: str, names: Callable[[], Iterable[str]]) -> list[str]:
    with contextlib.suppress(Exception):
        return [name for name in names() if name.startswith(incomplete)]
    return []


def _names(ctx: Any, section: str) -> Iterable[str]:
    from publisher.config.file import find  # noqa: PLC0415 - only where a name is completed

    given = ctx.find_root().params.get("config")
    with find(None if given is None else Path(given)).open("rb") as file:
        tables = tomllib.load(file).get(section)
    return tables if isinstance(tables, Mapping) else ()


def _format_names() -> Iterable[str]:
    from formats.registry import FORMATS  # noqa: PLC0415 - likewise
    from publisher import plugins  # noqa: PLC0415

    return [*FORMATS, *plugins.names(plugins.FORMATS)]


def _last_months() -> Iterable[str]:
    today = datetime.now(UTC)
    last = today.year * 12 + today.month - 1
    return [f"{number // 12}-{number % 12 + 1:02}" for number in range(last, last - _MONTHS, -1)]
