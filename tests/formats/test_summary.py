"""Folding: associative, in any order, by the receiver's key, exact."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.apel.fold import Fold, Group, Month, SyncCount, SyncFold, month_bounds, month_of, normalised_seconds
from formats.calendar import month_numbered
from formats.job import Benchmark, Job
from formats.rule_codes import CannotRenderError
from formats.view import View
from tests.strategies import jobs, plain_jobs

VIEW = View(site="EXAMPLE-SITE")
NOVEMBER = 1_793_491_200
"""The first second of November 2026."""


def job(**changes: object) -> Job:
    plain = Job(
        record_id="ur-1", system="arc", status="completed", local_id="1", user_dn="/O=Grid/CN=Ada", vo="atlas",
        fqans=("/atlas/Role=production",), endpoint_url="https://ce1.example.org:443/arex",
        endpoint_type="org.nordugrid.arcrest", nodes=1, cores=8, start=NOVEMBER, end=NOVEMBER + 100, wall_ms=10_000,
        cpu_ms=8_000, benchmarks=(Benchmark("HEPSPEC", 12.26),),
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def fold(jobs_: list[Job], view: View = VIEW, *, normalised: bool = False) -> Fold:
    made = Fold(view, normalised=normalised)
    for one in jobs_:
        try:
            made.add(one)
        except CannotRenderError:
            continue
    return made


few = st.lists(plain_jobs() | jobs(), max_size=8)
"""Ordinary and hostile runs."""


@st.composite
def similar_jobs(draw: st.DrawFn) -> list[Job]:
    """Runs of few groups, in spellings that fold together."""
    return draw(
        st.lists(
            st.builds(
                job,
                user_dn=st.sampled_from(("/O=Grid/CN=Ada", "/O=grid/CN=ada ", "/O=Grid/CN=Zo\u00eb", "/O=Grid/CN=Zoe")),
                end=st.sampled_from((NOVEMBER - 1, NOVEMBER, NOVEMBER + 7)),
                wall_ms=st.integers(0, 10**9),
                cpu_ms=st.integers(0, 10**9),
                vo=st.sampled_from((None, "atlas", "ATLAS", "none")),
                benchmarks=st.sampled_from(
                    ((Benchmark("HEPSPEC", 12.26),), (Benchmark("hepspec", 12.2604),), (Benchmark("si2k", 2501.333),))
                ),
            ),
            max_size=12,
        )
    )


@pytest.mark.parametrize("normalised", [False, True])
@given(runs=similar_jobs() | few, data=st.data())
def test_any_order_and_any_split_give_the_same_groups(normalised: bool, runs: list[Job], data: st.DataObject) -> None:
    whole = list(fold(runs, normalised=normalised).groups())
    shuffled = data.draw(st.permutations(runs))
    assert list(fold(shuffled, normalised=normalised).groups()) == whole
    cut = data.draw(st.integers(0, len(runs)))
    one, other = (fold(part, normalised=normalised) for part in (shuffled[:cut], shuffled[cut:]))
    one.merge(other)
    assert list(one.groups()) == whole
    assert [group.digest for group in one.groups()] == [group.digest for group in whole]


@given(one=jobs() | plain_jobs())
def test_any_run_is_folded_or_held(one: Job) -> None:
    for normalised in (False, True):
        alone = Fold(VIEW, normalised=normalised)
        try:
            key = alone.add(one)
        except CannotRenderError:
            assert list(alone.groups()) == []
            continue
        (group,) = alone.groups()
        assert (group.key, group.jobs) == (key, 1)
        assert Group.from_json(group.to_json()) == group


@given(runs=similar_jobs())
def test_no_two_groups_have_one_key_at_the_receiver(runs: list[Job]) -> None:
    groups = list(fold(runs).groups())
    assert len({group.spelling.folded() for group in groups}) == len(groups)
    assert sum(group.jobs for group in groups) == len(runs)
    assert sum(group.wall_ms for group in groups) == sum(one.wall_ms or 0 for one in runs)


def test_a_cached_identity_is_that_of_a_fresh_fold() -> None:
    changes: list[dict[str, object]] = [
        {}, {"user_dn": "/CN=B"}, {"fqans": ()}, {"vo": "cms"}, {"endpoint_url": None}, {"endpoint_type": None},
        {"cluster": "c", "endpoint_url": None}, {"infrastructure": "local"}, {"nodes": 2}, {"cores": None},
        {"cores": None, "slots": 3}, {"benchmarks": (Benchmark("si2k", 1.0),)}, {"end": NOVEMBER - 1},
        {"user_dn": None, "fqans": (), "endpoint_url": None}, {"status": "failed"},
        {"user_dn": None, "fqans": (), "endpoint_url": None, "token_subject": "s"},
    ]  # fmt: skip
    shared = Fold(VIEW)
    for change in changes:
        assert shared.add(job(**change)) == Fold(VIEW).add(job(**change)), change


def test_case_and_trailing_blanks_do_not_count_and_the_least_spelling_is_sent() -> None:
    (group,) = fold([job(user_dn="/O=grid/CN=ada"), job(user_dn="/O=Grid/CN=Ada ")]).groups()
    assert group.key.user == "/o=grid/cn=ada"
    assert group.spelling.user == "/O=Grid/CN=Ada"
    assert group.jobs == 2


def test_null_words_are_the_servers_none() -> None:
    (group,) = fold([job(vo="null"), job(vo="None"), job(vo="NONE")]).groups()
    assert group.spelling.vo == "None"


def test_scores_count_to_three_decimals() -> None:
    assert len(fold([job(), job(benchmarks=(Benchmark("hepspec", 12.2604),))])) == 1
    assert len(fold([job(), job(benchmarks=(Benchmark("hepspec", 12.261),))])) == 2


def test_normalised_groups_distinguish_benchmarks_but_not_scores() -> None:
    runs = [job(), job(benchmarks=(Benchmark("HEPSPEC", 10.0),)), job(benchmarks=(Benchmark("Si2k", 2500.0),))]
    assert [group.jobs for group in fold(runs, normalised=True).groups()] == [2, 1]
    assert [group.jobs for group in fold(runs, View(site="S", version="0.3"), normalised=True).groups()] == [3]


def test_normalised_as_the_server_computes() -> None:
    (group,) = fold([job(wall_ms=7_000, benchmarks=(Benchmark("Si2k", 1234.567),))] * 3, normalised=True).groups()
    assert normalised_seconds(group.normalised_wall) == round(21 * 1234.567 / 250)  # 103.703628
    (half,) = fold([job(wall_ms=1_000, benchmarks=(Benchmark("HEPSPEC", 2.5),))], normalised=True).groups()
    assert normalised_seconds(half.normalised_wall) == 3, "half a second up, as MySQL's ROUND"


def test_sums_are_exact_and_rounded_once() -> None:
    (group,) = fold([job(wall_ms=400)] * 5).groups()
    assert group.wall_ms == 2_000


@pytest.mark.parametrize(
    "change",
    [
        {"benchmarks": ()}, {"benchmarks": (Benchmark("custom", 1.0),)}, {"end": None}, {"end": -1}, {"end": 2**31},
        {"wall_ms": None}, {"wall_ms": -1}, {"wall_ms": 2**31 * 1000}, {"cpu_ms": None}, {"cpu_ms": 10**40},
        {"status": "running"}, {"status": "never_started"}, {"cores": 2**31}, {"endpoint_url": "u" * 256},
    ],
)  # fmt: skip
def test_what_apel_insists_on_is_held_and_adds_nothing(change: dict[str, object]) -> None:
    made = fold([job()])
    before = list(made.groups())
    with pytest.raises(CannotRenderError):
        made.add(job(**change))
    assert list(made.groups()) == before


def test_a_site_without_a_name_is_held() -> None:
    with pytest.raises(CannotRenderError, match="Site"):
        Fold(View(site="null")).add(job())


def test_user_and_system_time_replace_a_missing_total() -> None:
    (group,) = fold([job(cpu_ms=None, cpu_user_ms=3, cpu_system_ms=4)]).groups()
    assert group.cpu_ms == 7


def test_zeroed_keeps_the_key_and_loses_the_rest() -> None:
    (group,) = fold([job()]).groups()
    assert (group.zeroed.key, group.zeroed.spelling, group.zeroed.jobs) == (group.key, group.spelling, 0)
    assert (group.zeroed.earliest, group.zeroed.latest) == (None, None)
    assert group.zeroed.plus(group) == group
    assert group.zeroed.digest != group.digest


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_months_are_those_of_the_calendar(end: int) -> None:
    date = datetime.fromtimestamp(end, UTC)
    month = month_of(end)
    assert month == Month(date.year, date.month)
    start, stop = month_bounds(month)
    assert start <= end < stop
    assert month_of(start) == month
    assert month_of(stop) == month.following
    assert month_numbered(month.number) == month


def test_months_at_their_edges() -> None:
    assert str(month_of(NOVEMBER)) == "2026-11"
    assert str(month_of(NOVEMBER - 1)) == "2026-10"
    assert month_bounds(Month(2028, 2)) == (1_832_976_000, 1_832_976_000 + 29 * 86_400)
    assert Month(2026, 12).following == Month(2027, 1)


@given(runs=similar_jobs(), data=st.data())
def test_sync_counts_add_up_in_any_split(runs: list[Job], data: st.DataObject) -> None:
    def counts(part: list[Job]) -> SyncFold:
        made = SyncFold(VIEW)
        for one in part:
            made.add(one)
        return made

    whole = list(counts(runs).groups())
    shuffled = data.draw(st.permutations(runs))
    cut = data.draw(st.integers(0, len(runs)))
    one = counts(shuffled[:cut])
    one.merge(counts(shuffled[cut:]))
    assert list(one.groups()) == whole
    assert sum(count.jobs for count in whole) == len(runs)
    assert all(SyncCount.from_json(count.to_json()) == count for count in whole)


def test_a_held_run_still_counts_for_sync_by_the_submit_host_of_the_records() -> None:
    made = SyncFold(VIEW)
    key = made.add(job(benchmarks=(), wall_ms=None))
    assert (key.submit_host, key.when) == ("arcrest:https://ce1.example.org:443/arex", Month(2026, 11))
    assert Fold(VIEW).add(job()).submit_host == key.submit_host
    with pytest.raises(CannotRenderError):
        made.add(job(end=None))
    with pytest.raises(CannotRenderError):
        made.add(job(status="running"))
