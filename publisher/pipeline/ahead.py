"""One step ahead: the next page is read and rendered while the message before is on its way.

Promise kept here: memory does not grow with the work; never more than one page is made before somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

Step = TypeVar("Step")


class Ahead(Generic[Step]):
    """Calls `make` for one step after the other, in a thread of its own, when it is asked to begin or for a result.

    Use it in a `with` statement: at its end no step is under way any more.
    """

    def __init__(self, make: Callable[[], Step], name: str) -> None:
        """`make` is never called twice at a time. `name` is for the thread."""
        self._make = make
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-ahead")
        self._begun: Future[Step] | None = None

    def begin(self) -> None:
        """Begin the next step, if it has not begun."""
        if self._begun is None:
            self._begun = self._thread.submit(self._make)

    def next(self) -> Step:
        """The result of the next step. Raises what `make` raises."""
        if self._begun is None:
            return self._make()
        begun, self._begun = self._begun, None
        return begun.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)
