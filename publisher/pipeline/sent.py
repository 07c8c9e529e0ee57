"""What a run did for one target."""

from __future__ import annotations

import msgspec


class Sent(msgspec.Struct):
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
