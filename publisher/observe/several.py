"""One observer that tells several."""

from __future__ import annotations

from collections.abc import Sequence

from publisher.observe.events import Event, Observer


def several(observers: Sequence[Observer]) -> Observer:
    """Each event goes to each of them, in this order."""

    def tell(event: Event) -> None:
        for observer in observers:
            observer(event)

    return tell
