"""One message to one service, tried again a few times where that may help. What became of it is for the caller."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt

from publisher.config import Target as TargetSettings
from publisher.observe.events import Observer, RetryPlanned
from publisher.targets.base import Message, Outcome, Target, Throttled, Transient, Unknown

Sleep = Callable[[float], object]
"""Pauses for so many seconds, or until the program is told to stop."""


class Patience:
    """How long a run may pause for one target, all messages together. Shared by the messages of a run."""

    def __init__(self, settings: TargetSettings) -> None:
        self.attempts = settings.attempts
        self.left_s = settings.retry_budget
        self._first_s = settings.retry_wait

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
    patience: Patience,
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
        outcome = target.post(message)
        unknown = unknown or isinstance(outcome, Unknown)
        return outcome

    def next_pause_s(state: RetryCallState) -> float:
        assert state.outcome is not None  # tenacity sets it before it asks
        return patience.pause_s(state.attempt_number, state.outcome.result())

    def out_of_patience(state: RetryCallState) -> bool:
        tried_enough = stop_after_attempt(patience.attempts)(state)
        return tried_enough or state.upcoming_sleep > patience.left_s or stopping()

    def tell(state: RetryCallState) -> None:
        assert state.outcome is not None  # as above
        patience.left_s -= state.upcoming_sleep
        answer = answer_of(state.outcome.result())
        observer(RetryPlanned(target.name, batch_id, state.attempt_number + 1, state.upcoming_sleep, answer))

    def pause(seconds: float) -> None:
        sleep(seconds)

    retrying = Retrying(
        retry=retry_if_result(lambda outcome: isinstance(outcome, Transient | Throttled | Unknown)),
        stop=out_of_patience,
        wait=next_pause_s,
        before_sleep=tell,
        sleep=pause,
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    outcome: Outcome = retrying(once)
    if unknown and isinstance(outcome, Transient | Throttled):
        return Unknown(outcome.answer)
    return outcome


def answer_of(outcome: Outcome) -> str:
    """What the service said, for people; empty for an acceptance."""
    return getattr(outcome, "answer", "")
