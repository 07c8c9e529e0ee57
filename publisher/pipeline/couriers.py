"""Couriers: threads that carry messages to one service, each over a connection of its own.

Promise kept here: never more messages on their way than there are couriers. What became of a message is for the caller,
who asks in the order in which he gave them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from publisher.pipeline.post import Patience, post
from publisher.pipeline.tools import Tools
from publisher.targets.base import Message, Outcome, Target


class Couriers:
    """The couriers of one target, for one run. Use it in a `with` statement: at its end nobody is on his way.

    A single one works in the caller's thread: the next message is not made before the answer to the last is here.
    """

    def __init__(self, targets: Sequence[Target], patience: Patience, tools: Tools) -> None:
        """`targets` are the same service, once for each courier."""
        self.count = len(targets)
        self._idle: SimpleQueue[Target] = SimpleQueue()
        for target in targets:
            self._idle.put(target)
        self._post: Callable[[Target, Message, int], Outcome] = partial(
            post, patience=patience, observer=tools.observer, sleep=tools.sleep, stopping=tools.stopping
        )
        self._threads = ThreadPoolExecutor(self.count, f"{targets[0].name}-courier") if self.count > 1 else None

    def send(self, message: Message, batch_id: int) -> Future[Outcome]:
        """Send a message on its way. The result raises `CredentialError` and `SigningError`."""
        if self._threads is not None:
            return self._threads.submit(self._carry, message, batch_id)
        answered: Future[Outcome] = Future()
        answered.set_result(self._carry(message, batch_id))
        return answered

    def _carry(self, message: Message, batch_id: int) -> Outcome:
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
