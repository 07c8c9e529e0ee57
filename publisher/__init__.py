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
    from publisher.errors import PublisherError
    from publisher.observe.events import Event, Observer
    from publisher.pipeline.collect import Collected
    from publisher.pipeline.deliver import Delivery
    from publisher.pipeline.status import Status
    from publisher.pipeline.tools import Tools
    from publisher.report.picture.draw import draw
    from publisher.report.picture.look import Look
    from publisher.report.request import ReportRequest
    from publisher.report.result import Report
    from publisher.sources.base import Window
    from publisher.store.states import State
    from publisher.times import moment_s

__all__ = [
    "Collected", "Delivery", "Event", "Job", "Look", "Observer", "Publisher", "PublisherError", "Report",
    "ReportRequest", "RunResult", "State", "Status", "Tools", "Window", "draw", "moment_s",
]  # fmt: skip

_HOMES = {
    "Collected": "publisher.pipeline.collect",
    "Delivery": "publisher.pipeline.deliver",
    "Event": "publisher.observe.events",
    "Job": "formats.job",
    "Look": "publisher.report.picture.look",
    "Observer": "publisher.observe.events",
    "Publisher": "publisher.api",
    "PublisherError": "publisher.errors",
    "Report": "publisher.report.result",
    "ReportRequest": "publisher.report.request",
    "RunResult": "publisher.api",
    "State": "publisher.store.states",
    "Status": "publisher.pipeline.status",
    "Tools": "publisher.pipeline.tools",
    "Window": "publisher.sources.base",
    "draw": "publisher.report.picture.draw",
    "moment_s": "publisher.times",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'publisher' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
