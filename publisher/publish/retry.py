"""One message to one service, tried again a few times where that may help. What became of it is for the caller."""

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
    """How long a run may pause for one target, all messages together. Shared by the messages of a run.

    A service that asks one message to wait asks all: none leaves until the pause is over, and none at all any more
    where it asks for a longer pause than is left.
    """

    def __init__(self, settings: TargetSettings) -> None:
        self.attempts = settings.attempts
        self.left_s = settings.retry_budget
        self._first_s = settings.retry_wait
        self._quiet = threading.Condition()
        self._pausing = 0
        self.ended: Throttled | None = None
        """What the service said when it asked for a longer pause than is left."""

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
    budget: RetryBudget,
    observer: Observer,
    sleep: Sleep = time.sleep,
    stopping: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Post a message; after a transient, throttled or unknown outcome again, as far as the run's budget goes.

    Gives the last outcome; unknown, or marked so, where an earlier try may have been accepted and no later one shows
    it. Raises `CredentialError` and `SigningError` as the target does.
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
    """What the service said, for people; empty for an acceptance."""
    return getattr(outcome, "answer", "")
