"""Send one message to one service, with retries where they may help. The caller handles the final outcome."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from msgspec import structs
from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt

from publisher.config.schema import Target as TargetSettings
from publisher.events import Observer, RetryPlanned
from publisher.publish.context import Sleep
from publisher.targets.base import Accepted, Message, Outcome, Target, Throttled, Transient, Unknown


class RetryBudget:
    """The time that a run may pause for one target, shared by all its messages.

    A service that asks one message to wait asks all: none is sent until the pause is over, and none at all if the
    service asks for a longer pause than is left.
    """

    def __init__(self, settings: TargetSettings) -> None:
        self.attempts = settings.attempts
        self.left_s = settings.retry_budget
        self._first_s = settings.retry_wait
        self._quiet = threading.Condition()
        self._pausing = 0
        self.ended: Throttled | None = None
        """What the service answered when it asked for a longer pause than is left."""

    def turn(self) -> Throttled | None:
        """Wait out a pause that the service asked for; return None, or its answer if nothing more is sent."""
        with self._quiet:
            self._quiet.wait_for(lambda: not self._pausing)
            return self.ended

    def pause(self, sleep: Sleep, seconds: float, outcome: Outcome) -> None:
        """Pause after this outcome; if the service asked for it, the other messages pause too."""
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
        """Record the last outcome of a message; if the service asked to wait, no other message is sent in this run."""
        if isinstance(outcome, Throttled):
            with self._quiet:
                self.ended = outcome

    def pause_s(self, attempt: int, outcome: Outcome) -> float:
        """Return the pause after this attempt: what the service asked for, else exponential with up to a quarter of
        jitter."""
        if isinstance(outcome, Throttled) and outcome.retry_after_s is not None:
            return outcome.retry_after_s
        doubled = self._first_s * 2.0 ** (attempt - 1)
        return doubled * (1 + random.random() / 4)  # noqa: S311 - jitter, not a secret


def post(
    target: Target,
    message: Message,
    batch_id: int,
    budget: RetryBudget,
    observer: Observer,
    sleep: Sleep = time.sleep,
    stopping: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Post a message; after a transient, throttled, or unknown outcome again, within the run's budget.

    Returns the last outcome. It is unknown, or marked so, if an earlier attempt may have been accepted and no later one
    shows it. Raises `CredentialError` and `SigningError` as the target does.
    """
    unknown = False

    def once() -> Outcome:
        nonlocal unknown
        outcome = budget.turn() or target.post(message)
        unknown = unknown or isinstance(outcome, Unknown)
        return outcome

    def next_pause_s(state: RetryCallState) -> float:
        assert state.outcome is not None  # tenacity sets it before it asks
        return budget.pause_s(state.attempt_number, state.outcome.result())

    def is_exhausted(state: RetryCallState) -> bool:
        tried_enough = stop_after_attempt(budget.attempts)(state)
        ended = budget.ended is not None or stopping()
        return tried_enough or ended or state.upcoming_sleep > budget.left_s

    def report_and_pause(state: RetryCallState) -> None:
        assert state.outcome is not None  # as above
        outcome: Outcome = state.outcome.result()
        budget.left_s -= state.upcoming_sleep
        attempt = state.attempt_number + 1
        observer(RetryPlanned(target.name, batch_id, attempt, state.upcoming_sleep, answer_of(outcome)))
        budget.pause(sleep, state.upcoming_sleep, outcome)

    retrying = Retrying(
        retry=retry_if_result(lambda outcome: isinstance(outcome, Transient | Throttled | Unknown)),
        stop=is_exhausted,
        wait=next_pause_s,
        before_sleep=report_and_pause,
        sleep=lambda _seconds: None,
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    outcome: Outcome = retrying(once)
    budget.end(outcome)
    if not unknown or isinstance(outcome, Accepted | Unknown):
        return outcome
    if isinstance(outcome, Transient | Throttled):
        return Unknown(outcome.answer)
    return structs.replace(outcome, after_unknown=True)


def answer_of(outcome: Outcome) -> str:
    """Return what the service answered, for people; empty for an acceptance."""
    return getattr(outcome, "answer", "")
