"""How often runs serve a target: its setting `every`."""

from __future__ import annotations

import math

from publisher.config import Target
from publisher.store.registry import TargetRow
from publisher.times import past


def due_at(settings: Target, row: TargetRow | None, now: int) -> int | None:
    """When a run next serves the target, epoch seconds; None: the next run does.

    Counted from the last success, so that what failed is tried again by the next run; for a shadow, which has none,
    from the last rehearsal.
    """
    last = past(None if row is None else row.last_attempt if settings.shadow else row.last_success, now)
    due = None if settings.every is None or last is None else math.ceil(last + settings.every)
    return due if due is not None and due > now else None
