"""What a process did for its targets, counted from the events: posts, bytes, retries and how long answers took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from publisher.observe.events import BatchAnswered, BatchInFlight, BatchSettled, Event, RetryPlanned


class TargetTally(msgspec.Struct, frozen=True):
    """Since the process began: messages answered, records and bytes that the service took, tries after the first,
    seconds from leaving to the answer."""

    posts: int = 0
    records: int = 0
    bytes: int = 0
    retries: int = 0
    answer_s: float = 0.0


class Tally:
    """An observer; called from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[tuple[str, int], float] = {}
        self._targets: dict[str, TargetTally] = {}

    def __call__(self, event: Event) -> None:
        """Count an event."""
        with self._lock:
            match event:
                case BatchInFlight():
                    self._left[event.target, event.batch_id] = self._clock()
                case BatchAnswered():
                    left = self._left.pop((event.target, event.batch_id), None)
                    took_s = self._clock() - left if left is not None else 0.0
                    self._add(event.target, posts=1, answer_s=took_s)
                case BatchSettled() if event.outcome == "Accepted":
                    self._add(event.target, records=event.records, bytes=event.bytes)
                case RetryPlanned():
                    self._add(event.target, retries=1)

    def _add(self, target: str, **more: float) -> None:
        before = self._targets.get(target, TargetTally())
        changes = {name: getattr(before, name) + value for name, value in more.items()}
        self._targets[target] = msgspec.structs.replace(before, **changes)

    def targets(self) -> Mapping[str, TargetTally]:
        """The sums so far, by target."""
        with self._lock:
            return dict(self._targets)
