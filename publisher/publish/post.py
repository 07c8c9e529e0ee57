"""One message to one service, tried again a few times where that may help. What became of it is for the caller.

Couriers: threads that carry messages to one service, each over a connection of its own.

Promise kept here: never more messages on their way than there are couriers. What became of a message is for the caller,
who asks in the order in which he gave them.

A few steps ahead: the next pages are read and rendered while the messages before are on their way.

Promise kept here: memory does not grow with the work; never more than a few pages are made before they are asked for.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt

from publisher.config.schema import Target as TargetSettings
from publisher.events import Observer, RetryPlanned
from publisher.publish.context import Sleep, Tools
from publisher.targets.base import Message, Outcome, Target, Throttled, Transient, Unknown


class RetryBudget:
    """How long a run may pause for one target, all messages together. Shared by the messages of a run.

    A service that asks one message to wait asks all: none leaves until the pause is over, and none at all any more
    where it asks for more patience than there is.
    """

    def __init__(self, settings: TargetSettings) -> None:
        self.attempts = settings.attempts
        self.left_s = settings.retry_budget
        self._first_s = settings.retry_wait
        self._quiet = threading.Condition()
        self._pausing = 0
        self.ended: Throttled | None = None
        """What the service said when it asked for more patience than there is."""

    def turn(self) -> Throttled | None:
        """Wait while the service has asked for a pause; then None, or what it said if nothing is to leave any more."""
        with self._quiet:
            self._quiet.wait_for(lambda: not self._pausing)
            return self.ended

    def pause(self, sleep: Sleep, seconds: float, outcome: Outcome) -> None:
        """Pause after this outcome; the other messages as well if the service asked for it."""
        if not isinstance(outcome, Throttled):
            sleep(seconds)
            return
        with self._quiet:
            self._pausing += 1
        try:
            sleep(seconds)
        finally:
            with self._quiet:
                self._pausing -= 1
                self._quiet.notify_all()

    def end(self, outcome: Outcome) -> None:
        """This outcome of a message is the last; if the service asked to wait, no other leaves in this run."""
        if isinstance(outcome, Throttled):
            with self._quiet:
                self.ended = outcome

    def pause_s(self, attempt: int, outcome: Outcome) -> float:
        """The pause after this attempt: what the service asked for, else doubling with up to a quarter of jitter."""
        if isinstance(outcome, Throttled) and outcome.retry_after_s is not None:
            return outcome.retry_after_s
        doubled = self._first_s * 2.0 ** (attempt - 1)
        return doubled * (1 + random.random() / 4)  # noqa: S311 - jitter, not a secret


def post(
    target: Target,
    message: Message,
    batch_id: int,
    patience: RetryBudget,
    observer: Observer,
    sleep: Sleep = time.sleep,
    stopping: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Post a message; after a transient, throttled or unknown outcome again, as far as the run's patience goes.

    Gives the last outcome; unknown where an earlier try may have been taken and no later one tells. Raises
    `CredentialError` and `SigningError` as the target does.
    """
    unknown = False

    def once() -> Outcome:
        nonlocal unknown
        outcome = patience.turn() or target.post(message)
        unknown = unknown or isinstance(outcome, Unknown)
        return outcome

    def next_pause_s(state: RetryCallState) -> float:
        assert state.outcome is not None  # tenacity sets it before it asks
        return patience.pause_s(state.attempt_number, state.outcome.result())

    def out_of_patience(state: RetryCallState) -> bool:
        tried_enough = stop_after_attempt(patience.attempts)(state)
        ended = patience.ended is not None or stopping()
        return tried_enough or ended or state.upcoming_sleep > patience.left_s

    def tell_and_pause(state: RetryCallState) -> None:
        assert state.outcome is not None  # as above
        outcome: Outcome = state.outcome.result()
        patience.left_s -= state.upcoming_sleep
        attempt = state.attempt_number + 1
        observer(RetryPlanned(target.name, batch_id, attempt, state.upcoming_sleep, answer_of(outcome)))
        patience.pause(sleep, state.upcoming_sleep, outcome)

    retrying = Retrying(
        retry=retry_if_result(lambda outcome: isinstance(outcome, Transient | Throttled | Unknown)),
        stop=out_of_patience,
        wait=next_pause_s,
        before_sleep=tell_and_pause,
        sleep=lambda _seconds: None,
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    outcome: Outcome = retrying(once)
    patience.end(outcome)
    if unknown and isinstance(outcome, Transient | Throttled):
        return Unknown(outcome.answer)
    return outcome


def answer_of(outcome: Outcome) -> str:
    """What the service said, for people; empty for an acceptance."""
    return getattr(outcome, "answer", "")


class WorkerPool:
    """The couriers of one target, for one run. Use it in a `with` statement: at its end nobody is on his way.

    A single one works in the caller's thread: the next message is not made before the answer to the last is here.
    """

    def __init__(self, targets: Sequence[Target], patience: RetryBudget, tools: Tools) -> None:
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


Step = TypeVar("Step")
STEPS: Final = 3


class Prefetcher(Generic[Step]):
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
