"""A few steps ahead: the next pages are read and rendered while the messages before are on their way.

Promise kept here: memory does not grow with the work; never more than a few pages are made before they are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

Step = TypeVar("Step")
STEPS: Final = 3


class Ahead(Generic[Step]):
    """Calls `make` for one step after the other, in a thread of its own, once it was asked to begin.

    Use it in a `with` statement: at its end no step is under way any more.
    """

    def __init__(self, make: Callable[[], Step], name: str) -> None:
        """`make` is never called twice at a time. `name` is for the thread."""
        self._make = make
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-ahead")
        self._begun: deque[Future[Step]] = deque()

    def begin(self) -> None:
        """Begin the next steps, as far as they have not begun."""
        while len(self._begun) < STEPS:
            self._begun.append(self._thread.submit(self._make))

    def next(self) -> Step:
        """The result of the next step. Raises what `make` raises."""
        if not self._begun:
            return self._make()
        begun = self._begun.popleft()
        self.begin()
        return begun.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)
