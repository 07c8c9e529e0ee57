"""What a run did for one target."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class DeliveryStats(msgspec.Struct):
    """What a run did for one target, counted in jobs (`groups` counts summaries)."""

    accepted: int = 0
    rejected: int = 0
    held: int = 0
    batches: int = 0
    bytes: int = 0
    groups: int = 0
    paused: str | None = None
    """Why nothing more was sent, if the run stopped before its end."""
    unauthorised: bool = False
    """Our credentials were refused."""


def together(several: Sequence[DeliveryStats]) -> DeliveryStats:
    """What several did, one after the other: sums, and why the last one stopped."""
    return DeliveryStats(
        accepted=sum(each.accepted for each in several),
        rejected=sum(each.rejected for each in several),
        held=sum(each.held for each in several),
        batches=sum(each.batches for each in several),
        bytes=sum(each.bytes for each in several),
        groups=sum(each.groups for each in several),
        paused=several[-1].paused,
        unauthorised=any(each.unauthorised for each in several),
    )
