"""How often runs serve a target: its setting `every`."""

from __future__ import annotations

import math

from publisher.config import Target
from publisher.store.registry import TargetRow


def due_at(settings: Target, row: TargetRow | None) -> int | None:
    """When a run next serves the target, epoch seconds; None: it was not served yet, or every run does.

    Counted from the last success, so that what failed is tried again by the next run; for a shadow, which has none,
    from the last rehearsal.
    """
    last = None if row is None else row.last_attempt if settings.shadow else row.last_success
    return None if settings.every is None or last is None else math.ceil(last + settings.every)
