"""The usage publisher: from the accounting of batch systems to accounting services, each run once.

As a library, `import publisher` gives the names in `__all__`; they stay within a major version. Each is loaded
when it is first used, so that a command loads only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from formats.job import Job
    from publisher.api import Publisher, RunResult
    from publisher.collect.collect import Collected
    from publisher.errors import PublisherError
    from publisher.events import Event, Observer
    from publisher.publish.context import Tools
    from publisher.publish.publish import Delivery
    from publisher.report.plot.draw import draw
    from publisher.report.plot.style import Look
    from publisher.report.report import Report
    from publisher.report.request import ReportRequest
    from publisher.sources.base import Window
    from publisher.status.status import Status
    from publisher.store.schema import State
    from publisher.text import moment_s

__all__ = [
    "Collected", "Delivery", "Event", "Job", "Look", "Observer", "Publisher", "PublisherError", "Report",
    "ReportRequest", "RunResult", "State", "Status", "Tools", "Window", "draw", "moment_s",
]  # fmt: skip

_HOMES = {
    "Collected": "publisher.collect.collect",
    "Delivery": "publisher.publish.publish",
    "Event": "publisher.events",
    "Job": "formats.job",
    "Look": "publisher.report.plot.style",
    "Observer": "publisher.events",
    "Publisher": "publisher.api",
    "PublisherError": "publisher.errors",
    "Report": "publisher.report.report",
    "ReportRequest": "publisher.report.request",
    "RunResult": "publisher.api",
    "State": "publisher.store.schema",
    "Status": "publisher.status.status",
    "Tools": "publisher.publish.context",
    "Window": "publisher.sources.base",
    "draw": "publisher.report.plot.draw",
    "moment_s": "publisher.text",
}


def __getattr__(name: str) -> Any:
    from publisher.former_names import FORMER, warn  # noqa: PLC0415 - for the library alone

    if now := FORMER.library.get(name):
        warn(f"publisher.{name}", now)
        name = now
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'publisher' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
