"""What refusals say of the records in a message, and what the rejection policy makes of it; without a store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from publisher.messages.item import Item, Members
from publisher.publish.context import StopSending
from publisher.publish.rejection import (
    PolicyStep,
    Probe,
    ProbeResult,
    Refusals,
    Reject,
    RejectionPolicy,
    ResendAccepted,
    Steps,
    Stop,
    TryAgain,
)


def items(*run_ids: int) -> list[Item]:
    return [Item(str(run_id), Members([run_id], [0]), b"", b"", 0) for run_id in run_ids]


def test_one_refusal_proves_nothing_and_a_second_without_a_new_record_in_between_neither() -> None:
    refusals = Refusals()
    refusals.add(items(1), accepted_before=0, sent_before=5)
    assert not refusals.is_conclusive("1")
    refusals.add(items(1), accepted_before=5, sent_before=7)
    assert not refusals.is_conclusive("1"), "what was taken had left before the refusal was known"


def test_a_second_refusal_after_a_new_record_was_taken_proves_it() -> None:
    refusals = Refusals()
    refusals.add(items(1), accepted_before=0, sent_before=5)
    refusals.add(items(1), accepted_before=6, sent_before=7)
    assert refusals.is_conclusive("1")


def test_a_message_counts_against_a_record_when_all_others_of_it_were_taken() -> None:
    refusals = Refusals()
    refusals.add(items(1, 2, 3), accepted_before=0, sent_before=1)
    refusals.accepted(items(1))
    refusals.add(items(3), accepted_before=2, sent_before=4)
    assert not refusals.is_conclusive("3"), "the second may have been what it was refused for"
    refusals.accepted(items(2))
    assert refusals.is_conclusive("3")


def test_a_bad_record_explains_the_messages_in_which_it_was() -> None:
    refusals = Refusals()
    refusals.add(items(1, 2), accepted_before=0, sent_before=1)
    refusals.rejected("1")
    refusals.add(items(2), accepted_before=2, sent_before=4)
    assert not refusals.is_conclusive("2")
    assert refusals.has_later_acceptance("1", last_new=0), "it is no more to be judged"


def test_a_message_that_was_refused_for_nothing_asks_for_one_refusal_more() -> None:
    refusals = Refusals()
    refusals.add(items(1), accepted_before=0, sent_before=1)
    refusals.add(items(2), accepted_before=0, sent_before=2)
    refusals.add(items(1), accepted_before=3, sent_before=4)
    assert refusals.is_conclusive("1")
    refusals.accepted(items(2))
    assert not refusals.is_conclusive("1")
    refusals.add(items(1), accepted_before=5, sent_before=6)
    assert refusals.is_conclusive("1")


def test_refusals_are_ripe_when_a_new_record_was_taken_after_all_of_them() -> None:
    refusals = Refusals()
    refusals.add(items(1, 2), accepted_before=0, sent_before=1)
    refusals.add(items(1), accepted_before=0, sent_before=4)
    assert refusals.has_later_acceptance("2", last_new=2)
    assert not refusals.has_later_acceptance("1", last_new=4)
    assert refusals.has_later_acceptance("1", last_new=5)


# --- the policy, without a store


class PolicyRun:
    """Items sent one by one to a service that refuses those that `is_refused` names, as the policy asks for it."""

    def __init__(self, is_refused: Callable[[str], bool], *, replaces: bool = False) -> None:
        self.policy = RejectionPolicy(replaces=replaces)
        self.is_refused = is_refused
        self.left: list[Item] = []
        self.rejected: list[str] = []
        self.sent: list[str] = []

    def send(self, item: Item) -> bool:
        """Whether it was accepted."""
        self.sent.append(item.key)
        batch_id = len(self.sent)
        accepted_before = self.policy.last_new
        if not self.is_refused(item.key):
            self.policy.accepted(batch_id, [item], [item])
            return True
        self.follow(
            self.policy.refused(
                batch_id,
                [item],
                "no",
                certain=False,
                as_a_whole=True,
                accepted_before=accepted_before,
                sent_before=batch_id,
                since=batch_id,
            )
        )
        return False

    def send_all(self, *run_ids: int) -> None:
        """Send these, and conclude."""
        self.left = items(*run_ids)
        while self.left:
            self.send(self.left.pop(0))
        self.follow(self.policy.conclude(is_last=True))

    def follow(self, steps: Steps[None]) -> None:
        """Carry out what the policy asks for."""
        answer: Any = None
        with suppress(StopIteration):
            while True:
                answer = self._answer(steps.send(answer))

    def _answer(self, step: PolicyStep) -> Any:
        match step:
            case Probe():
                if not self.left:
                    return ProbeResult.NOTHING_LEFT
                return ProbeResult.NEW if self.send(self.left.pop()) else ProbeResult.NOT_ACCEPTED
            case ResendAccepted():
                self.sent.append(step.item.key)
                return not self.is_refused(step.item.key)
            case TryAgain():
                accepted_before, key = self.policy.last_new, step.record.item.key
                self.sent.append(key)
                batch_id = len(self.sent)
                if self.is_refused(key):
                    self.policy.refused_again(
                        step.record, batch_id, "no", accepted_before=accepted_before, sent_before=batch_id
                    )
                else:
                    self.policy.accepted(batch_id, [step.record.item], [step.record.item])
            case Reject():
                self.rejected += [record.item.key for record in step.records]
            case Stop():
                raise StopSending(step.why)
        return None


def test_a_record_is_rejected_when_another_was_accepted_after_it() -> None:
    run = PolicyRun(lambda key: key == "2")
    run.send_all(1, 2, 3)
    assert run.rejected == ["2"]
    assert run.sent == ["1", "2", "3", "2", "3"], "it is tried again, and then one that the service has"


def test_a_record_that_nothing_was_accepted_after_waits() -> None:
    run = PolicyRun(lambda key: key == "3")
    with pytest.raises(StopSending, match="accepted no new record after it refused 1"):
        run.send_all(1, 2, 3)
    assert run.rejected == []


def test_where_no_record_is_accepted_none_is_rejected() -> None:
    run = PolicyRun(lambda _key: True)
    with pytest.raises(StopSending, match="accepted no record in this run"):
        run.send_all(1, 2, 3)
    assert run.rejected == []


def test_a_service_that_is_not_well_at_the_end_has_nothing_rejected() -> None:
    run = PolicyRun(lambda key: key == "2" or len(run.sent) > 4)
    with pytest.raises(StopSending, match="everything waits"):
        run.send_all(1, 2, 3)
    assert run.rejected == []


def test_a_record_that_is_accepted_when_it_is_tried_again_is_not_rejected() -> None:
    run = PolicyRun(lambda key: key == "2" and run.sent.count("2") == 1)
    run.send_all(1, 2, 3)
    assert run.rejected == []


def test_after_many_refusals_a_probe_shows_that_the_service_is_at_fault() -> None:
    run = PolicyRun(lambda key: key != "1")
    with pytest.raises(StopSending, match="accepts no new record any more"):
        run.send_all(*range(1, 100))
    assert run.rejected == []
    assert "99" in run.sent, "the newest is the first probe"


def test_a_refused_group_needs_no_second_refusal_but_a_service_that_is_well() -> None:
    run = PolicyRun(lambda key: key == "3", replaces=True)
    run.send_all(1, 2, 3)
    assert (run.rejected, run.sent) == (["3"], ["1", "2", "3", "2"])
    alone = PolicyRun(lambda key: key == "3", replaces=True)
    with pytest.raises(StopSending, match="accepted no record in this run"):
        alone.send_all(3)
