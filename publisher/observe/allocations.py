"""The use of allocations: how much, how fast, and which thresholds it has reached, for reports, mails, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily

from publisher.config.allocations import Allocation
from publisher.text import iso, number_text

THRESHOLDS: Final = (75, 90, 100)
"""Percent of an allocation: when its use reaches them, a mail is sent."""
PACE_DAYS: Final = 30
"""Of so many last days is the pace."""
DAY_S: Final = 86_400
_HOUR_MS: Final = 3_600_000
_NANO: Final = 10**9
_NOTICE: Final = "allocation "
_LABELS: Final = ("allocation", "holder", "resource", "since")


class AllocationUse(msgspec.Struct, frozen=True):
    """What was used of an allocation, in all and in the last days, in amounts times milliseconds."""

    allocation: Allocation
    used_ms: int
    lately_ms: int
    lately_s: int

    @property
    def amount_h(self) -> float:
        """What it is of, in hours."""
        return float(self.allocation.amount)

    @property
    def used_h(self) -> float:
        """What was used, in hours."""
        return self.used_ms / _HOUR_MS

    @property
    def left_h(self) -> float:
        """What is left, in hours; negative if more was used."""
        return self.amount_h - self.used_h

    @property
    def pace_h(self) -> float | None:
        """Hours a day, of the last days; None where none of them are in its time."""
        return self.lately_ms / _HOUR_MS / (self.lately_s / DAY_S) if self.lately_s else None

    @property
    def reached(self) -> tuple[int, ...]:
        """The thresholds that its use has reached: exact, so that a mail is not sent for what is shown as less."""
        amount = int(self.allocation.amount * _NANO) * _HOUR_MS
        return tuple(threshold for threshold in THRESHOLDS if self.used_ms * 100 * _NANO >= threshold * amount)

    def dry(self, now: int) -> str | None:
        """The day on which nothing is left at this pace; None: not before it ends."""
        if self.left_h <= 0:
            return "used up"
        pace = self.pace_h
        if not pace or not self.allocation.is_current(now):
            return None
        at = now + self.left_h / pace * DAY_S
        return f"{datetime.fromtimestamp(at, UTC).date()}" if at < self.allocation.until else None

    def notice_key(self, threshold: int) -> str:
        """The key under which the store has that a mail on this threshold was sent: it names nobody, and another
        amount or time is another allocation."""
        one = self.allocation
        words = "\0".join(map(str, (one.holder, one.resource, one.amount.normalize(), one.since, one.until)))
        return f"{_NOTICE}{blake2b(words.encode(), digest_size=8).hexdigest()}: {threshold} %"

    def text(self, now: int) -> str:
        """What a mail says of it."""
        one, dry = self.allocation, self.dry(now)
        unit = {"cores": "core hours", "gpus": "GPU hours"}[one.resource]
        used = f"{100 * self.used_h / self.amount_h:.1f} % of its {number_text(self.amount_h)} {unit}"
        text = (
            f"The allocation {one.name} ({one.holder}) has used {used}, in {100 * one.elapsed(now):.0f} % of its time."
        )
        if dry is not None and self.left_h > 0:
            text += f" At the pace of the last {PACE_DAYS} days it runs dry on {dry}, before it ends on "
            text += f"{(iso(one.until) or '')[:10]}."
        return f"{text} See: usage-publisher report allocations"


def is_of_allocation(key: str) -> bool:
    """Whether a key of notices is one of `notice_key`."""
    return key.startswith(_NOTICE)


def families(uses: Sequence[AllocationUse], now: int, prefix: str) -> Iterator[GaugeMetricFamily]:
    """The metrics of the present allocations, whose names begin with `prefix`."""
    described: dict[str, tuple[str, Callable[[AllocationUse], float]]] = {
        "amount_hours": ("Hours of the allocation.", lambda one: one.amount_h),
        "used_hours": ("Hours that were used of it.", lambda one: one.used_h),
        "used_ratio": ("Share that was used of it.", lambda one: one.used_h / one.amount_h),
        "elapsed_ratio": ("Share of its time that is over.", lambda one: one.allocation.elapsed(now)),
        "threshold_percent": (
            f"The highest of {', '.join(map(str, THRESHOLDS))} % that its use has reached; 0: none.",
            lambda one: max(one.reached, default=0),
        ),
    }
    for name, (text, value_of) in described.items():
        family = GaugeMetricFamily(f"{prefix}{name}", text, labels=_LABELS)
        for use in uses:
            one = use.allocation
            if one.is_current(now):
                family.add_metric([one.name, one.holder, one.resource, iso(one.since) or ""], value_of(use))
        yield family
