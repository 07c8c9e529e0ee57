"""Workers that send messages to one service in parallel, and a thread that prepares pages meanwhile.

Promise kept here: there are never more messages in flight than workers, each with its own connection. The caller
handles the outcomes, in the order in which the messages were given. Only a few pages are prepared ahead, so memory does
not grow with the work.
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
    """The workers of one target, for one run. Use it in a `with` statement: at its end no message is in flight.

    A single worker runs in the caller's thread: the next message is not made before the previous answer has arrived.
    """

    def __init__(self, targets: Sequence[Target], budget: RetryBudget, tools: Tools) -> None:
        """`targets`: the same service, once for each worker."""
        self.count = len(targets)
        self._idle: SimpleQueue[Target] = SimpleQueue()
        for target in targets:
            self._idle.put(target)
        self._post: Callable[[Target, Message, int], Outcome] = partial(
            post, budget=budget, observer=tools.observer, sleep=tools.sleep, stopping=tools.stopping
        )
        self._threads = ThreadPoolExecutor(self.count, f"{targets[0].name}-worker") if self.count > 1 else None

    def send(self, message: Message, batch_id: int) -> Future[Outcome]:
        """Start sending a message. The result raises `CredentialError` and `SigningError`."""
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
"""How many pages are prepared ahead at most."""


class Prefetcher(Generic[Step]):
    """Calls `make` repeatedly in its own thread, ahead of the consumer, once started.

    Use it in a `with` statement: at its end no call is running.
    """

    def __init__(self, make: Callable[[], Step], name: str) -> None:
        """`make` is never called twice at a time. `name` names the thread."""
        self._make = make
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-prefetch")
        self._begun: deque[Future[Step]] = deque()

    def begin(self) -> None:
        """Start the next steps that have not started."""
        while len(self._begun) < STEPS:
            self._begun.append(self._thread.submit(self._make))

    def next(self) -> Step:
        """Return the result of the next step. Raises what `make` raises."""
        if not self._begun:
            return self._make()
        begun = self._begun.popleft()
        self.begin()
        return begun.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)
