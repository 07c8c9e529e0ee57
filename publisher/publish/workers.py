"""Messages on their way to one service at a time, and pages made ready meanwhile.

Promise kept here: never more messages on their way than there are workers, each with a connection of its own. What
became of a message is for the caller, who asks in the order in which they were given. Never more than a few pages are
made before they are asked for, so that memory does not grow with the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from publisher.publish.context import Tools
from publisher.publish.retry import RetryBudget, post
from publisher.targets.base import Message, Outcome, Target


class WorkerPool:
    """The workers of one target, for one run. Use it in a `with` statement: at its end no message is on its way.

    A single one works in the caller's thread: the next message is not made before the answer to the last is here.
    """

    def __init__(self, targets: Sequence[Target], budget: RetryBudget, tools: Tools) -> None:
        """`targets` are the same service, once for each worker."""
        self.count = len(targets)
        self._idle: SimpleQueue[Target] = SimpleQueue()
        for target in targets:
            self._idle.put(target)
        self._post: Callable[[Target, Message, int], Outcome] = partial(
            post, budget=budget, observer=tools.observer, sleep=tools.sleep, stopping=tools.stopping
        )
        self._threads = ThreadPoolExecutor(self.count, f"{targets[0].name}-worker") if self.count > 1 else None

    def send(self, message: Message, batch_id: int) -> Future[Outcome]:
        """Send a message on its way. The result raises `CredentialError` and `SigningError`."""
        if self._threads is not None:
            return self._threads.submit(self._post_one, message, batch_id)
        answered: Future[Outcome] = Future()
        answered.set_result(self._post_one(message, batch_id))
        return answered

    def _post_one(self, message: Message, batch_id: int) -> Outcome:
        target = self._idle.get()
        try:
            return self._post(target, message, batch_id)
        finally:
            self._idle.put(target)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)


Step = TypeVar("Step")
STEPS: Final = 3
"""Pages made ready at most before they are asked for."""


class Prefetcher(Generic[Step]):
    """Calls `make` for one step after the other, in a thread of its own, once it was asked to begin.

    Use it in a `with` statement: at its end no step is under way any more.
    """

    def __init__(self, make: Callable[[], Step], name: str) -> None:
        """`make` is never called twice at a time. `name` is for the thread."""
        self._make = make
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-prefetch")
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
