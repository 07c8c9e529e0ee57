"""The findings on days, users and VOs, from sums alone: what agrees, what is short, and what cannot be told."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from publisher.pipeline.reconciling.by_day import Cell, Finding, Sums, judged, verdict_on

ADA = Cell("ce1", "ada", "atlas", 1)
BO = Cell("ce1", "bo", "cms", 1)
TOMORROW = Cell("ce1", "ada", "atlas", 2)


def sums(jobs: int, wall_s: float = -1, perhaps: int = 0) -> Sums:
    wall_s = jobs * 100 if wall_s < 0 else wall_s
    return Sums(jobs, wall_s, wall_s / 2, perhaps)


def verdicts(found: dict[Cell, Finding]) -> dict[Cell, str]:
    return {cell: one.verdict for cell, one in found.items()}


def test_each_verdict() -> None:
    assert verdict_on(sums(3), sums(3)) == "agrees"
    assert verdict_on(sums(3), sums(0)) == "empty"
    assert verdict_on(sums(3), sums(2)) == "short"
    assert verdict_on(sums(3), sums(4)) == "over"
    assert verdict_on(sums(3), sums(3, 302)) == "differs"
    assert verdict_on(sums(3), Sums(3, 300, 155)) == "differs"
    assert verdict_on(sums(3), Sums(3, 300.9, 153.5)) == "agrees", "seconds are rounded"
    assert verdict_on(sums(3, perhaps=2), sums(3)) == "unclear"
    assert verdict_on(sums(3, perhaps=2), sums(5)) == "unclear"
    assert verdict_on(sums(3, perhaps=2), sums(6)) == "over"
    assert verdict_on(sums(3, perhaps=2), sums(2)) == "short"


def test_sums_of_a_large_month_may_be_off_by_what_fractions_lose() -> None:
    assert verdict_on(sums(10**6), Sums(10**6, 1e8 + 50, 5e7 + 50)) == "agrees"
    assert verdict_on(sums(10**6), Sums(10**6, 1e8 + 5000, 5e7)) == "differs"


def test_a_day_that_differs_is_looked_at_by_user_and_vo() -> None:
    found = judged({ADA: sums(5), BO: sums(2), TOMORROW: sums(1)}, {ADA: sums(4), BO: sums(2), TOMORROW: sums(1)})
    assert verdicts(found) == {ADA: "short", BO: "agrees", TOMORROW: "agrees"}
    assert found[ADA].text == "1970-01-02 ce1 ada atlas"


def test_names_that_differ_do_not_matter_where_the_day_agrees() -> None:
    anonymous = Cell("ce1", "", "", 1)
    found = judged({ADA: sums(5), BO: sums(2)}, {anonymous: sums(7)})
    assert set(verdicts(found).values()) == {"agrees"}


def test_names_that_differ_leave_only_the_whole_day_to_judge() -> None:
    anonymous = Cell("ce1", "", "", 1)
    found = judged({ADA: sums(5), BO: sums(2)}, {anonymous: sums(6)})
    assert verdicts(found) == dict.fromkeys((ADA, BO, anonymous), "short")
    (whole,) = {id(one): one for one in found.values()}.values()
    assert (whole.sent.jobs, whole.has.jobs, whole.text) == (7, 6, "1970-01-02 ce1")


CELLS = st.builds(
    Cell, st.sampled_from(["ce1", "ce2"]), st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 3)
)
HOLDINGS = st.dictionaries(CELLS, st.integers(1, 5).map(sums), max_size=12)


@given(HOLDINGS)
def test_what_is_held_as_sent_agrees(held: dict[Cell, Sums]) -> None:
    assert set(verdicts(judged(held, copy.deepcopy(held))).values()) <= {"agrees"}


@given(HOLDINGS, HOLDINGS)
def test_missing_less_foreign_is_the_difference_and_nothing_short_agrees(
    sent: dict[Cell, Sums], has: dict[Cell, Sums]
) -> None:
    found = {id(one): one for one in judged(sent, has).values()}.values()
    balance = sum(one.sent.jobs - one.has.jobs for one in found)
    assert balance == sum(one.jobs for one in sent.values()) - sum(one.jobs for one in has.values())
    for one in found:
        assert (one.sent.jobs == one.has.jobs) == (one.verdict in {"agrees", "differs"})


@given(HOLDINGS, st.data())
def test_a_lost_job_is_always_among_those_that_go_again(sent: dict[Cell, Sums], data: st.DataObject) -> None:
    if not sent:
        return
    cell = data.draw(st.sampled_from(sorted(sent)))
    has = copy.deepcopy(sent)
    has[cell] = sums(sent[cell].jobs - 1)
    if not has[cell].jobs:
        del has[cell]
    assert judged(sent, has)[cell].verdict in {"short", "empty"}
