"""The findings on days, users, and VOs, from sums alone: what agrees, what is missing, and what is uncertain."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from publisher.config.target_kind import SumsKind
from publisher.reconcile.by_sums import CellKey, SumsCell, SumsDifference, compare_cells, verdict_on

KIND = SumsKind(key=("machine", "user", "vo"))
ADA = CellKey(("ce1", "ada", "atlas"), 1)
BO = CellKey(("ce1", "bo", "cms"), 1)
TOMORROW = CellKey(("ce1", "ada", "atlas"), 2)


def sums(jobs: int, wall_s: float = -1, perhaps: int = 0, within_s: float = 0) -> SumsCell:
    wall_s = jobs * 100 if wall_s < 0 else wall_s
    return SumsCell(jobs, wall_s, wall_s / 2, perhaps, within_s)


def verdicts(found: dict[CellKey, SumsDifference]) -> dict[CellKey, str]:
    return {cell: one.verdict for cell, one in found.items()}


def test_each_verdict() -> None:
    assert verdict_on(sums(3), sums(3)) == "agrees"
    assert verdict_on(sums(3), sums(0)) == "empty"
    assert verdict_on(sums(3), sums(2)) == "short"
    assert verdict_on(sums(3), sums(4)) == "over"
    assert verdict_on(sums(3), sums(3, 302)) == "hours"
    assert verdict_on(sums(3), SumsCell(3, 300, 155)) == "hours"
    assert verdict_on(sums(3), SumsCell(3, 300.9, 153.5)) == "agrees", "seconds are rounded"
    assert verdict_on(sums(3, perhaps=2), sums(3)) == "unclear"
    assert verdict_on(sums(3, perhaps=2), sums(5)) == "unclear"
    assert verdict_on(sums(3, perhaps=2), sums(6)) == "over"
    assert verdict_on(sums(3, perhaps=2), sums(2)) == "short"


def test_sums_may_be_off_by_what_rounding_each_row_makes_of_them_and_not_by_more() -> None:
    rounded = 4 * 18
    assert verdict_on(sums(4), SumsCell(4, 400 + rounded, 200 - rounded, within_s=rounded)) == "agrees"
    assert verdict_on(sums(4), SumsCell(4, 400 + rounded + 1, 200, within_s=rounded)) == "hours"
    assert verdict_on(sums(4), SumsCell(4, 400, 200 + rounded + 5, within_s=rounded)) == "hours"
    assert verdict_on(sums(4), SumsCell(3, 400, 200, within_s=3 * 18)) == "short", "jobs are never rounded"
    assert verdict_on(sums(4), SumsCell(5, 400, 200, within_s=5 * 18)) == "over"


def test_what_rounding_explains_of_a_day_does_not_hide_the_hours_of_a_user() -> None:
    many, few = sums(1000), sums(2)
    reported = {ADA: sums(1000, within_s=1000 * 18), BO: sums(2, 4000, within_s=2 * 18)}
    found = compare_cells(KIND, {ADA: many, BO: few}, reported)
    assert verdict_on(sums(1002), SumsCell(1002, 104000, 52000, within_s=1002 * 18)) == "agrees", "the day as a whole"
    assert verdicts(found) == {ADA: "agrees", BO: "hours"}


def test_a_day_that_differs_is_looked_at_by_user_and_vo() -> None:
    found = compare_cells(
        KIND, {ADA: sums(5), BO: sums(2), TOMORROW: sums(1)}, {ADA: sums(4), BO: sums(2), TOMORROW: sums(1)}
    )
    assert verdicts(found) == {ADA: "short", BO: "agrees", TOMORROW: "agrees"}
    assert found[ADA].text == "1970-01-02 ce1 ada atlas"


def test_names_that_differ_do_not_matter_where_the_day_agrees() -> None:
    anonymous = CellKey(("ce1", "", ""), 1)
    found = compare_cells(KIND, {ADA: sums(5), BO: sums(2)}, {anonymous: sums(7)})
    assert set(verdicts(found).values()) == {"agrees"}


def test_names_that_differ_leave_only_the_whole_day_to_judge() -> None:
    anonymous = CellKey(("ce1", "", ""), 1)
    found = compare_cells(KIND, {ADA: sums(5), BO: sums(2)}, {anonymous: sums(6)})
    assert verdicts(found) == dict.fromkeys((ADA, BO, anonymous), "short")
    (whole,) = {id(one): one for one in found.values()}.values()
    assert (whole.sent.jobs, whole.has.jobs, whole.text) == (7, 6, "1970-01-02 ce1")


def test_a_job_too_many_of_one_user_does_not_hide_one_that_another_lost() -> None:
    found = compare_cells(
        KIND, {ADA: sums(10), BO: sums(5)}, {ADA: sums(9, within_s=9 * 18), BO: sums(6, within_s=6 * 18)}
    )
    assert verdicts(found) == {ADA: "short", BO: "over"}
    assert verdicts(compare_cells(KIND, {ADA: sums(10), BO: sums(5)}, {ADA: sums(5), BO: sums(10)})) == {
        ADA: "short",
        BO: "over",
    }


RESPELLED = CellKey(("ce1", "bo of the service", "cms"), 1)
CY = CellKey(("ce1", "cy", "lhcb"), 1)


def test_names_that_differ_beside_names_that_do_not_are_judged_by_their_sum() -> None:
    found = compare_cells(KIND, {ADA: sums(5), BO: sums(2)}, {ADA: sums(4), RESPELLED: sums(2)})
    assert verdicts(found) == {ADA: "short", BO: "agrees", RESPELLED: "agrees"}


def test_a_name_spelled_differently_does_not_hide_what_users_of_the_same_names_lost() -> None:
    sent = {ADA: sums(10), BO: sums(2), CY: sums(5)}
    found = compare_cells(KIND, sent, {ADA: sums(9), RESPELLED: sums(2), CY: sums(6)})
    assert verdicts(found) == {ADA: "short", BO: "agrees", RESPELLED: "agrees", CY: "over"}


def test_jobs_of_a_name_that_the_service_spells_like_another_are_not_missing() -> None:
    found = compare_cells(KIND, {ADA: sums(10), BO: sums(5), CY: sums(3)}, {BO: sums(15), CY: sums(3)})
    assert verdicts(found) == {ADA: "agrees", BO: "agrees", CY: "agrees"}
    found = compare_cells(KIND, {ADA: sums(10), CY: sums(3)}, {ADA: sums(8), RESPELLED: sums(2), CY: sums(3)})
    assert verdicts(found) == {ADA: "agrees", RESPELLED: "agrees", CY: "agrees"}
    found = compare_cells(KIND, {ADA: sums(10), BO: sums(5, perhaps=1)}, {BO: sums(16)})
    assert verdicts(found) == {ADA: "unclear", BO: "unclear"}, "16 of 15 and perhaps 1"


def test_jobs_that_spelling_does_not_explain_are_missing_and_foreign() -> None:
    assert verdicts(compare_cells(KIND, {ADA: sums(10), BO: sums(5)}, {BO: sums(14)})) == {ADA: "empty", BO: "over"}
    other_hours = {BO: sums(15, 9000)}
    assert verdicts(compare_cells(KIND, {ADA: sums(10), BO: sums(5)}, other_hours)) == {ADA: "empty", BO: "over"}
    found = compare_cells(KIND, {ADA: sums(10), BO: sums(2)}, {ADA: sums(10), RESPELLED: sums(2, 4000)})
    assert verdicts(found) == {ADA: "agrees", BO: "empty", RESPELLED: "over"}


CELLS = st.builds(
    CellKey, st.tuples(st.sampled_from(["ce1", "ce2"]), st.sampled_from("ab"), st.sampled_from("xy")), st.integers(1, 3)
)
HOLDINGS = st.dictionaries(CELLS, st.integers(1, 5).map(sums), max_size=12)


@given(HOLDINGS)
def test_what_is_held_as_sent_agrees(held: dict[CellKey, SumsCell]) -> None:
    assert set(verdicts(compare_cells(KIND, held, copy.deepcopy(held))).values()) <= {"agrees"}


@given(HOLDINGS, HOLDINGS)
def test_missing_less_foreign_is_the_difference_and_nothing_short_agrees(
    sent: dict[CellKey, SumsCell], has: dict[CellKey, SumsCell]
) -> None:
    found = {id(one): one for one in compare_cells(KIND, sent, has).values()}.values()
    balance = sum(one.sent.jobs - one.has.jobs for one in found)
    assert balance == sum(one.jobs for one in sent.values()) - sum(one.jobs for one in has.values())
    for one in found:
        assert (one.sent.jobs == one.has.jobs) == (one.verdict in {"agrees", "hours"})


@given(HOLDINGS, st.data())
def test_with_the_same_names_on_both_sides_every_count_is_judged_by_itself(
    sent: dict[CellKey, SumsCell], data: st.DataObject
) -> None:
    has = {cell: sums(data.draw(st.integers(1, 5))) for cell in sent}
    assert verdicts(compare_cells(KIND, sent, has)) == {cell: verdict_on(one, has[cell]) for cell, one in sent.items()}


@given(HOLDINGS, st.data())
def test_what_differs_only_in_spelling_is_never_sent_again(sent: dict[CellKey, SumsCell], data: st.DataObject) -> None:
    machine_days = sorted({(cell.asked, cell.day) for cell in sent})
    has: dict[CellKey, SumsCell] = {}
    for machine, day in machine_days:
        spelling = data.draw(st.sampled_from("abc"))
        renamed = data.draw(st.sampled_from("ab"))
        for cell, one in sent.items():
            if (cell.asked, cell.day) == (machine, day):
                _, user, vo = cell.values
                user = spelling if user == renamed else user
                has.setdefault(CellKey((machine, user, vo), day), SumsCell()).plus(one)
    assert set(verdicts(compare_cells(KIND, sent, has)).values()) <= {"agrees"}


@given(HOLDINGS, st.data())
def test_a_lost_job_is_always_among_those_that_are_sent_again(
    sent: dict[CellKey, SumsCell], data: st.DataObject
) -> None:
    if not sent:
        return
    cell = data.draw(st.sampled_from(sorted(sent)))
    has = copy.deepcopy(sent)
    has[cell] = sums(sent[cell].jobs - 1)
    if not has[cell].jobs:
        del has[cell]
    assert compare_cells(KIND, sent, has)[cell].verdict in {"short", "empty"}
