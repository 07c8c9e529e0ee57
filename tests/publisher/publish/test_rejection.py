"""What refusals say of the records in a message."""

from __future__ import annotations

from publisher.messages.item import Item, Members
from publisher.publish.rejection import Refusals


def items(*run_ids: int) -> list[Item]:
    return [Item(str(run_id), Members([run_id], [0]), b"", b"", 0) for run_id in run_ids]


def test_one_refusal_proves_nothing_and_a_second_without_a_new_record_in_between_neither() -> None:
    refusals = Refusals()
    refusals.add(items(1), knew=0, seen=5)
    assert not refusals.is_conclusive("1")
    refusals.add(items(1), knew=5, seen=7)
    assert not refusals.is_conclusive("1"), "what was taken had left before the refusal was known"


def test_a_second_refusal_after_a_new_record_was_taken_proves_it() -> None:
    refusals = Refusals()
    refusals.add(items(1), knew=0, seen=5)
    refusals.add(items(1), knew=6, seen=7)
    assert refusals.is_conclusive("1")


def test_a_message_counts_against_a_record_when_all_others_of_it_were_taken() -> None:
    refusals = Refusals()
    refusals.add(items(1, 2, 3), knew=0, seen=1)
    refusals.taken(items(1))
    refusals.add(items(3), knew=2, seen=4)
    assert not refusals.is_conclusive("3"), "the second may have been what it was refused for"
    refusals.taken(items(2))
    assert refusals.is_conclusive("3")


def test_a_bad_record_explains_the_messages_in_which_it_was() -> None:
    refusals = Refusals()
    refusals.add(items(1, 2), knew=0, seen=1)
    refusals.rejected("1")
    refusals.add(items(2), knew=2, seen=4)
    assert not refusals.is_conclusive("2")
    assert refusals.has_later_acceptance("1", taken=0), "it is no more to be judged"


def test_a_message_that_was_refused_for_nothing_asks_for_one_refusal_more() -> None:
    refusals = Refusals()
    refusals.add(items(1), knew=0, seen=1)
    refusals.add(items(2), knew=0, seen=2)
    refusals.add(items(1), knew=3, seen=4)
    assert refusals.is_conclusive("1")
    refusals.taken(items(2))
    assert not refusals.is_conclusive("1")
    refusals.add(items(1), knew=5, seen=6)
    assert refusals.is_conclusive("1")


def test_refusals_are_ripe_when_a_new_record_was_taken_after_all_of_them() -> None:
    refusals = Refusals()
    refusals.add(items(1, 2), knew=0, seen=1)
    refusals.add(items(1), knew=0, seen=4)
    assert refusals.has_later_acceptance("2", taken=2)
    assert not refusals.has_later_acceptance("1", taken=4)
    assert refusals.has_later_acceptance("1", taken=5)
