"""What every format of totals promises by its descriptor."""

from __future__ import annotations

import msgspec
import pytest

from formats.job import Benchmark, Job
from formats.registry import FORMATS, totals_format
from formats.totals import Sums
from formats.view import View

VIEW = View(site="EXAMPLE-SITE")
END = 1_793_491_200
WITH_TOTALS = [form for form in FORMATS.values() if form.totals is not None]


def job(number: int) -> Job:
    return Job(
        record_id=f"ur-{number}", system="arc", status="completed", user_dn=f"/DC=org/CN=User {number % 2}", vo="atlas",
        endpoint_url="https://ce1.example.org/arex", end=END + number, wall_ms=60_000, cpu_ms=30_000,
        benchmarks=(Benchmark("HEPSPEC", 10.0),), cores=2, account="physics", local_user=f"user{number % 2}",
    )  # fmt: skip


def test_the_words_of_the_ledger_never_change() -> None:
    """They are stored: with another word, all totals would count as never sent."""
    kinds = {form.name: form.required_totals.kind for form in WITH_TOTALS}
    assert kinds == {
        "apel-summary": "summary", "apel-normalised-summary": "summary", "apel-sync": "sync",
        "waldur-usage": "waldur-usage",
    }  # fmt: skip
    assert {form.shape for form in WITH_TOTALS} == {"totals", "sync"}


@pytest.mark.parametrize("form", WITH_TOTALS, ids=lambda form: form.name)
def test_totals_are_stored_sent_and_read_back(form) -> None:  # type: ignore[no-untyped-def]
    totals = form.required_totals
    fold = totals.fold(VIEW)
    keys = {fold.add(job(number)) for number in range(4)}
    groups = list(fold.groups())
    assert [group.key for group in groups] == sorted(keys)
    bound = totals_format(form.name, VIEW)
    message = bound.message([bound.record(group).body for group in groups])
    read = groups if totals.read is None else totals.read(message)
    for group, back in zip(groups, read, strict=True):
        assert totals.from_json(group.to_json()) == group
        assert (group.zeroed.jobs, group.zeroed.key, group.zeroed.latest) == (0, group.key, None)
        assert group.zeroed.digest != group.digest
        assert back.key.when == group.key.when
        columns = totals.columns(group)
        assert tuple(columns.fields) == totals.dimensions
        assert columns.jobs == totals.columns(back).jobs == group.jobs
    again = totals.fold(VIEW)
    for group in groups:
        again.merge_group(group)
    assert list(again.groups()) == groups


@pytest.mark.parametrize(
    "form", [each for each in WITH_TOTALS if each.required_totals.from_columns], ids=lambda form: form.name
)
def test_runs_that_are_alike_add_up_as_one_by_one(form) -> None:  # type: ignore[no-untyped-def]
    one_by_one, at_once = form.required_totals.fold(VIEW), form.required_totals.fold(VIEW)
    for number in (0, 2, 4):
        one_by_one.add(job(number))
    assert at_once.add_alike(job(0), Sums(3, 180_000, 90_000, END, END + 4)) == one_by_one.add_alike(
        job(0), Sums(0, 0, 0, END, END)
    )
    assert list(at_once.groups()) == list(one_by_one.groups())


def test_the_sync_count_of_totals_is_that_of_their_runs() -> None:
    summary, sync = FORMATS["apel-summary"].required_totals, FORMATS["apel-sync"].required_totals
    fold, counted, derived = summary.fold(VIEW), sync.fold(VIEW), sync.fold(VIEW)
    for number in range(4):
        fold.add(job(number))
        counted.add(job(number))
    assert summary.sync_count is not None
    for group in fold.groups():
        derived.merge_group(summary.sync_count(group))
    assert list(derived.groups()) == list(counted.groups())


def test_another_name_in_place_of_a_person() -> None:
    totals = FORMATS["apel-summary"].required_totals
    assert totals.persons is not None
    fold = totals.fold(VIEW)
    fold.add(job(1))
    (group,) = fold.groups()
    (name,) = totals.persons.names(group)
    assert name == totals.persons.spelled(VIEW, "/DC=org/CN=User 1")
    renamed = totals.persons.renamed(group, {name.casefold()}, "/CN=erased")
    assert totals.persons.names(renamed) == ("/CN=erased",)
    assert msgspec.structs.replace(renamed, key=group.key, spelling=group.spelling) == group
