"""Waldur usages: exact amounts, users that add up, and what follows an earlier total."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.rule_codes import CannotRenderError
from formats.view import View
from formats.waldur.fold import ComponentUsage, ResourceUsage, UsageComponent, WaldurFold, WaldurOptions
from formats.waldur.usage import FORMAT, WaldurUsageFormat, read_reports
from tests.publisher.site import make_job

COMPONENTS = (
    UsageComponent("cpu_k_hours", "core-hours", "1000"),
    UsageComponent("gpu_hours", "gpu-hours"),
    UsageComponent("node_hours", "node-hours"),
    UsageComponent("ram", "memory-gib-hours", "0.5"),
    UsageComponent("jobs", "jobs"),
)
VIEW = View(site="EXAMPLE-SITE", options=WaldurOptions(COMPONENTS))
JOB: dict[str, Any] = {
    "account": "physics", "local_user": "ada", "wall_s": 5400, "cores": 128, "gpus": 2, "nodes": 2,
    "memory_rss_kib": 3 << 20,
}  # fmt: skip


def folded(*facts: dict[str, Any], view: View = VIEW) -> ResourceUsage:
    fold = WaldurFold(view)
    for number, each in enumerate(facts, 1):
        fold.add(make_job(number, **JOB | each))
    (total,) = fold.groups()
    return total


def test_the_message_of_a_month() -> None:
    first = folded({}, {})
    total = folded({}, {"local_user": "bob", "wall_s": 1}).following(first, is_there=True)
    form = WaldurUsageFormat(VIEW)
    assert form.message([form.record(total).body]).decode() == (
        '[{"account":"physics","month":"2026-11","components":['
        '{"type":"cpu_k_hours","amount":"0.19","users":[{"username":"ada","usage":"0.19","before":["0.38"]},'
        '{"username":"bob","usage":"0.00"}],"before":["0.38"]},'
        '{"type":"gpu_hours","amount":"3.00","users":[{"username":"ada","usage":"3.00","before":["6.00"]},'
        '{"username":"bob","usage":"0.00"}],"before":["6.00"]},'
        '{"type":"jobs","amount":"2.00","users":[{"username":"ada","usage":"1.00","before":["2.00"]},'
        '{"username":"bob","usage":"1.00"}],"before":[]},'
        '{"type":"node_hours","amount":"3.00","users":[{"username":"ada","usage":"3.00","before":["6.00"]},'
        '{"username":"bob","usage":"0.00"}],"before":["6.00"]},'
        '{"type":"ram","amount":"9.00","users":[{"username":"ada","usage":"9.00","before":["18.00"]},'
        '{"username":"bob","usage":"0.00"}],"before":["18.00"]}]}]\n'
    )


UNITS = st.dictionaries(st.text("abc", max_size=2), st.integers(0, 10**15), max_size=6)
DIVISORS = st.fractions(Fraction(1, 10**6), 10**12)


@given(UNITS, DIVISORS)
def test_users_add_up_to_the_total(users: dict[str, int], unit: Fraction) -> None:
    usage = ComponentUsage(str(unit), users)
    exact = {user: units * 100 / unit for user, units in users.items()}
    shares = usage.shares()
    assert sum(shares.values()) == usage.cents
    assert abs(usage.cents - sum(exact.values())) <= Fraction(1, 2)
    assert all(abs(shares[user] - exact[user]) < 1 for user in users)
    assert all(shares[user] == 0 for user, units in users.items() if not units)
    assert ComponentUsage(str(unit), dict(reversed(users.items()))).shares() == shares


@given(UNITS, UNITS, UNITS, st.booleans())
def test_what_waldur_may_have_is_replaced_or_named(
    first: dict[str, int], second: dict[str, int], third: dict[str, int], is_there: bool
) -> None:
    """The last of three totals names each user that may have a value, and each amount that may be there."""
    one, two, three = (
        ResourceUsage(folded({}).key, {"cpu": ComponentUsage("100", each)}) for each in (first, second, third)
    )
    two = two.following(one, is_there=is_there)
    last = three.following(two, is_there=is_there)
    assert last.usage["cpu"].users.keys() >= {*first, *second, *third}
    assert last.usage["cpu"].cents == three.usage["cpu"].cents
    known = {0, last.usage["cpu"].cents, *last.before.get("cpu", ())}
    assert two.usage["cpu"].cents in known
    assert is_there or one.usage["cpu"].cents in known
    assert last.following(last, is_there=True).digest == last.digest
    zero = last.zeroed
    assert (zero.jobs, zero.usage["cpu"].cents, {*zero.usage["cpu"].users.values()} <= {0}) == (0, 0, True)
    assert zero.zeroed == zero
    assert last.usage["cpu"].cents in {0, *zero.before.get("cpu", ())}


def test_a_total_survives_the_store_and_the_message() -> None:
    total = folded({}, {"local_user": "bob"})
    kind = FORMAT.required_totals
    assert kind.from_json(total.to_json()) == total
    form = WaldurUsageFormat(VIEW)
    (report,) = read_reports(form.message([form.record(total).body]))
    assert (report.account, str(report.when)) == ("physics", "2026-11")
    assert kind.columns is not None
    assert {each.type: each.amount for each in report.components} == {
        name: amount for name, amount in kind.columns(total).amounts.items() if " of " not in name
    }


def test_a_component_that_nobody_used_is_not_named() -> None:
    assert "gpu_hours" not in folded({"gpus": None}).usage


def test_without_users_nobody_is_named() -> None:
    view = View(site="EXAMPLE-SITE", options=WaldurOptions(COMPONENTS, users=False))
    (report,) = read_reports(
        WaldurUsageFormat(view).message([WaldurUsageFormat(view).record(folded({}, view=view)).body])
    )
    assert all(each.users == [] for each in report.components)


def test_a_changed_divisor_changes_the_digest() -> None:
    other = View(site="EXAMPLE-SITE", options=WaldurOptions((UsageComponent("cpu_k_hours", "core-hours", "1"),)))
    same = View(site="EXAMPLE-SITE", options=WaldurOptions(COMPONENTS[:1]))
    assert folded({}, view=other).digest != folded({}, view=same).digest


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"account": None}, "backend_id"), ({"account": " "}, "backend_id"), ({"local_user": None}, "username"),
        ({"local_user": "x" * 101}, "username"), ({"cores": None}, "Processors"), ({"wall_ms": None}, "WallDuration"),
        ({"nodes": None}, "NodeCount"), ({"memory_rss_kib": None}, "Memory"), ({"cores": -1}, "Processors"),
        ({"wall_ms": 10**30}, "WallDuration"), ({"end": None}, "EndTime"),
    ],
)  # fmt: skip
def test_a_run_without_what_is_needed_is_held(facts: dict[str, Any], field: str) -> None:
    fold = WaldurFold(VIEW)
    with pytest.raises(CannotRenderError) as error:
        fold.add(make_job(1, **JOB | facts))
    assert field in error.value.field
    assert list(fold.groups()) == []


def test_an_amount_of_more_than_20_digits_is_held() -> None:
    tiny = View(site="S", options=WaldurOptions((UsageComponent("cpu", "core-hours", "1e-9"),)))
    total = folded({"cores": 2**31 - 1, "wall_s": 2**31 - 1}, view=tiny)
    with pytest.raises(CannotRenderError, match="20 digits"):
        WaldurUsageFormat(tiny).record(total)


def test_an_erased_person_keeps_the_usage() -> None:
    persons = FORMAT.required_totals.persons
    assert persons is not None
    total = folded({}, {"local_user": "bob"})
    renamed = persons.renamed(total, {"ada"}, "erased-1")
    assert persons.names(renamed) == {"bob", "erased-1"}
    assert renamed.usage["jobs"].users == {"bob": 1, "erased-1": 1}


def test_amounts_do_not_depend_on_the_context_of_decimals() -> None:
    unit = ComponentUsage("1", {"ada": 123_456_789_012_345_678})
    total = ResourceUsage(folded({}).key, {"cpu": unit})
    (report,) = read_reports(WaldurUsageFormat(VIEW).message([WaldurUsageFormat(VIEW).record(total).body]))
    assert report.components[0].amount == Decimal("123456789012345678.00")
