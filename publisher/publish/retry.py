"""Send one message to one service, with retries where they may help. The caller handles the final outcome."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from msgspec import structs
from tenacity import RetryCallState, Retrying, retry_if_result

from publisher.config.schema import Target as TargetSettings
from publisher.events import Observer, RetryPlanned
from publisher.publish.context import Sleep
from publisher.targets.base import Accepted, Message, Outcome, Oversized, Target, Throttled, Transient, Unknown


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
        self._largest_accepted_bytes = 0
        self._is_slow = False
        """A message timed out repeatedly, and none was accepted since."""
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

    def judged(self, message: Message, outcome: Outcome) -> Outcome:
        """Return the outcome of an attempt in the light of those before it.

        A proxy that fails may answer 413 to anything. If a larger message was accepted, splitting this one would end in
        the rejection of good records.
        """
        size_bytes = len(message.payload)
        if isinstance(outcome, Accepted):
            with self._quiet:
                self._largest_accepted_bytes = max(self._largest_accepted_bytes, size_bytes)
                self._is_slow = False
        elif isinstance(outcome, Oversized) and not outcome.measured and size_bytes <= self._largest_accepted_bytes:
            return Transient(
                f"{outcome.answer} (to a message of {size_bytes:,} bytes, although one of "
                f"{self._largest_accepted_bytes:,} bytes was accepted in this run)"
            )
        return outcome

    def is_enough(self, attempt: int, outcome: Outcome) -> bool:
        """Whether no further attempt is made after this one. When the service is slow, a message is tried once: it is
        smaller the next time."""
        return attempt >= self.attempts or (self._is_slow and timed_out(outcome))

    def is_too_slow(self, outcomes: Sequence[Outcome]) -> bool:
        """Whether all attempts to send a message timed out, and repeatedly: it is sent in smaller parts."""
        with self._quiet:
            if not all(map(timed_out, outcomes)) or (len(outcomes) == 1 and not self._is_slow):
                return False
            self._is_slow = True
            return True

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
        # Jitter: all sites whose messages failed at one moment would come back at one moment, and fail together again.
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
    shows it; it is marked as timed out only if that happened repeatedly. Raises `CredentialError` and `SigningError` as
    the target does.
    """
    outcomes: list[Outcome] = []

    def once() -> Outcome:
        may_be_there = any(isinstance(outcome, Unknown) for outcome in outcomes)
        # An attempt without an answer may have been taken: a target that can look for its records must do so first.
        again = structs.replace(message, sent_before=message.keys) if may_be_there else message
        outcome = budget.turn() or budget.judged(message, target.post(again))
        outcomes.append(outcome)
        return outcome

    def next_pause_s(state: RetryCallState) -> float:
        assert state.outcome is not None  # tenacity sets it before it asks
        return budget.pause_s(state.attempt_number, state.outcome.result())

    def is_exhausted(state: RetryCallState) -> bool:
        assert state.outcome is not None  # as above
        tried_enough = budget.is_enough(state.attempt_number, state.outcome.result())
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
    return _judged_together(outcome, outcomes, budget)


def _judged_together(outcome: Outcome, outcomes: Sequence[Outcome], budget: RetryBudget) -> Outcome:
    """The last outcome in the light of all attempts: after an unknown one, the service may have the message."""
    is_unknown = any(isinstance(outcome, Unknown) for outcome in outcomes)
    if isinstance(outcome, Transient | Throttled | Unknown):
        too_slow = budget.is_too_slow(outcomes)
        if isinstance(outcome, Throttled) and not is_unknown:
            return outcome
        return (Unknown if is_unknown else Transient)(outcome.answer, timed_out=too_slow)
    if not is_unknown or isinstance(outcome, Accepted):
        return outcome
    # Refused now, and perhaps taken before: the ledger must not forget that the service may have this version.
    return structs.replace(outcome, after_unknown=True)


def timed_out(outcome: Outcome) -> bool:
    """Whether the exchange took too long."""
    return isinstance(outcome, Transient | Unknown) and outcome.timed_out


def answer_of(outcome: Outcome) -> str:
    """Return what the service answered, for people; empty for an acceptance."""
    return getattr(outcome, "answer", "")
