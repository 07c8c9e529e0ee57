"""The sums of source, store, what was sent, and service: nothing is missing between them that has no cause."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from formats.apel.fold import Group
from formats.job import Job
from publisher.errors import SourceError, StoppedError
from publisher.reconcile.amounts import NOTHING, Amounts, By
from publisher.reconcile.conservation import COLUMNS, NOT_READ, NOT_SENT, Conservation, SumsRow
from publisher.sources.base import Cursor, Page, Unreadable, Window
from publisher.store.schema import State, groups
from publisher.targets.base import Transient
from tests.extent import short_or_whole
from tests.publisher.receivers import RecordReceiver, SummaryReceiver, always
from tests.publisher.reconcile.reconciled_site import NOV, OCT, files, site_of
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store


def conserved(site: Site, by: By | None = None) -> Conservation:
    """The sums of October and November of every target; both equations hold in every row."""
    with site.publisher.reconcile((), (OCT, NOV)) as found:
        sums = site.publisher.conservation(found, by)
    for rows in sums.targets.values():
        for row in rows:
            assert row.amounts.keys() == {*COLUMNS} - {"service"}
            assert row.amounts["source"] == added(row, "store", *NOT_READ)
            assert row.amounts["store"] == added(row, "accepted", *NOT_SENT)
            assert row.amounts["sent"] == added(row, "accepted", "earlier_versions")
    return sums


def added(row: SumsRow, *columns: str) -> Amounts:
    total = NOTHING
    for column in columns:
        total = total.plus(row.amounts[column])
    return total


def november(found: Conservation, target: str = "one") -> SumsRow:
    return next(row for row in found.targets[target] if row.month == NOV and row.of is None)


def reported(row: SumsRow) -> dict[str, int]:
    """How many jobs each column has; those of none are left out."""
    return {column: amounts.jobs for column, amounts in row.amounts.items() if amounts.jobs}


def of_jobs(*jobs: Job) -> Amounts:
    core_ms = sum((job.wall_ms or 0) * (job.cores or 1) for job in jobs)
    return Amounts(len(jobs), core_ms, sum(job.cpu_ms or 0 for job in jobs))


@pytest.fixture
def service() -> RecordReceiver:
    return RecordReceiver("one")


@pytest.fixture
def site(tmp_path: Path, service: RecordReceiver) -> Site:
    return Site(tmp_path, [ListSource("ce1", page=3)], [service])


def test_all_that_was_sent_is_what_the_source_says(site: Site) -> None:
    jobs = [*make_jobs(3, cores=8), make_job(9, wall_ms=1_499, cpu_ms=7)]
    site.sources["ce1"].add(*jobs, make_job(10, end=OCTOBER + 60), make_job(11, status="running", end=None))
    site.collect()
    site.publish()
    found = conserved(site)
    row = november(found)
    assert reported(row) == {"source": 4, "store": 4, "accepted": 4, "sent": 4}
    assert {row.amounts[column] for column in ("source", "store", "sent")} == {of_jobs(*jobs)}
    assert found.agrees
    rows = [(each.month, each.amounts["source"].jobs) for each in found.targets["one"]]
    assert rows == [(OCT, 1), (NOV, 4), (None, 5)]


def test_what_is_not_read_yet_differs(site: Site) -> None:
    site.sources["ce1"].add(*make_jobs(2))
    site.collect()
    site.publish()
    late = make_job(3, cores=2)
    site.sources["ce1"].add(late)
    row = november(found := conserved(site))
    assert row.amounts["not_read"] == of_jobs(late)
    assert reported(row) == {"source": 3, "not_read": 1, "store": 2, "accepted": 2, "sent": 2}
    assert (row.explained, found.agrees) == (False, False)
    assert site.rows("SELECT COUNT(*) FROM runs") == [(2,)], "nothing was stored"


def test_causes_between_the_store_and_what_was_sent(site: Site, service: RecordReceiver) -> None:
    site.configure("one", vo=["atlas"], batch_records=1)
    site.sources["ce1"].add(*make_jobs(4), make_job(5, vo="cms", cores=3), make_job(6))
    service.poison = {make_job(2).record_id}
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(3, wall_s=70), make_job(7), make_job(8))
    site.collect()
    service.fault = always(Transient("HTTP 503"))
    site.publish()
    row = november(conserved(site))
    counts = reported(row)
    assert counts == {
        "source": 8, "store": 8, "not_selected": 1, "rejected": 1, "waiting": 2, "superseded": 1, "accepted": 3,
        "earlier_versions": 1, "sent": 4,
    }  # fmt: skip
    assert row.amounts["not_selected"] == of_jobs(make_job(5, vo="cms", cores=3))
    assert row.amounts["superseded"] == of_jobs(make_job(3, wall_s=70))
    assert row.amounts["earlier_versions"] == of_jobs(make_job(3)), "the service keeps the first version"
    assert row.amounts["sent"] == of_jobs(*(make_job(number) for number in (1, 3, 4, 6)))
    assert row.explained


def test_held_and_waived_are_causes(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [SummaryReceiver("one")])
    site.sources["ce1"].add(*make_jobs(2), make_job(3, benchmarks=()), make_job(4, benchmarks=()))
    site.collect()
    site.publish()
    site.publisher.waive(State.HELD, "one", [make_job(4).record_id], "it has no benchmark")
    row = november(conserved(site))
    assert reported(row) == {"source": 4, "store": 4, "held": 1, "waived": 1, "accepted": 2, "sent": 2}
    assert row.amounts["held"] == of_jobs(make_job(3))
    assert (row.stuck, row.explained) == (of_jobs(make_job(3)), True)
    assert row.explained


def test_what_changed_in_the_source_or_is_gone_from_it(site: Site) -> None:
    site.sources["ce1"].add(*make_jobs(3))
    site.collect()
    site.publish()
    log = site.sources["ce1"].log
    log[0] = make_job(1, wall_s=160)
    log[1] = Unreadable("log", None, None, "rotated away", b"")
    row = november(conserved(site))
    assert row.amounts["changed"] == Amounts(0, 60_000, 30_000)
    assert row.amounts["not_in_source"] == Amounts(-1, -100_000, -50_000)
    assert reported(row) == {"source": 2, "not_in_source": -1, "store": 3, "accepted": 3, "sent": 3}
    assert not row.explained


def test_a_rotated_log_is_no_difference(site: Site) -> None:
    site.sources["ce1"].add(*make_jobs(3))
    site.collect()
    site.publish()
    site.sources["ce1"].log.clear()
    found = conserved(site)
    assert reported(november(found)) == {"not_in_source": -3, "store": 3, "accepted": 3, "sent": 3}
    assert found.agrees


def test_a_run_that_a_copied_log_has_twice_counts_once_in_its_last_version(site: Site) -> None:
    site.sources["ce1"].add(make_job(1), make_job(2), make_job(1), make_job(2, wall_s=30))
    site.collect()
    site.publish()
    row = november(conserved(site))
    assert row.amounts["source"] == of_jobs(make_job(1), make_job(2, wall_s=30))
    assert row.explained


def test_a_run_whose_end_moved_to_another_month(site: Site) -> None:
    site.sources["ce1"].add(make_job(1), make_job(2))
    site.collect()
    site.sources["ce1"].log[0] = make_job(1, end=OCTOBER + 3600)
    october, row = conserved(site).targets["one"][:2]
    assert (october.month, october.amounts["changed"].jobs, row.amounts["changed"].jobs) == (OCT, 1, -1)


def test_purged_runs_are_no_longer_in_the_store(site: Site) -> None:
    site.sources["ce1"].add(make_job(1, end=OCTOBER + 60), make_job(2))
    site.collect()
    site.publish()
    assert site.publisher.maintenance.purge(NOV).runs == 1
    found = conserved(site)
    row = next(row for row in found.targets["one"] if row.month == OCT)
    assert (reported(row), row.purged, row.explained) == ({"source": 1, "purged": 1}, True, True)


def test_by_vo_and_user(site: Site) -> None:
    site.sources["ce1"].add(
        make_job(1), make_job(2, vo="cms", user_dn="CN=Bo,DC=org"), make_job(3, vo=None, fqans=("/bio/x",), cores=5)
    )
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(4, vo="cms"))
    by_vo = [(row.of, reported(row).get("source"), row.explained) for row in conserved(site, "vo").targets["one"]]
    assert by_vo == [
        ("cms", 2, False), ("atlas", 1, True), ("bio", 1, True),
        (None, 4, False), (None, None, True), (None, 4, False),
    ]  # fmt: skip
    by_user = {
        row.of: reported(row).get("source") for row in conserved(site, "user").targets["one"] if row.of is not None
    }
    assert by_user == {"/DC=org/CN=Ada": 3, "/DC=org/CN=Bo": 1}


def test_sums_of_summaries_are_those_of_the_groups_that_were_sent(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [SummaryReceiver("one")])
    jobs = [*make_jobs(3, cores=4), make_job(4, cores=2, wall_ms=1_499)]
    site.sources["ce1"].add(*jobs)
    site.collect()
    site.publish()
    row = november(conserved(site))
    assert (row.amounts["sent"], row.explained) == (of_jobs(*jobs), True)
    with site.publisher.store.write() as connection:  # as if a group had been folded wrongly
        query = select(groups.c.key, groups.c.body).where(groups.c.kind == "summary")
        key, body = connection.execute(query).all()[0]
        group = Group.from_json(bytes(body))
        wrong = msgspec.structs.replace(group, cpu_ms=group.cpu_ms + 1)
        values = {"body": wrong.to_json(), "digest": wrong.digest}
        connection.execute(update(groups).where(groups.c.key == key).values(values))
    row = november(found := conserved(site))
    assert row.amounts["earlier_versions"] == Amounts(0, 0, 1)
    assert (row.explained, found.agrees) == (False, False)


def test_beside_what_the_service_has(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(3), one=files())
    row = november(found := conserved(site))
    assert (row.service, found.agrees) == ((3, None, 150_000), True)
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            file.unlink()
    row = november(found := conserved(site))
    assert (row.service, row.explained, found.agrees) == ((0, None, 0), False, False)


def test_a_source_that_cannot_be_read_says_so(site: Site) -> None:
    site.sources["ce1"].add(*make_jobs(2), Unreadable("log", 3, None, "not a record", b"x"))
    site.collect()
    site.publish()

    class FailingSource(ListSource):
        def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
            yield from super().pages(cursor, window)
            raise SourceError("the disk is gone")

    broken = FailingSource("ce1")
    broken.log = site.sources["ce1"].log
    site.sources["ce1"] = broken
    found = conserved(site)
    assert found.readings["ce1"].error == "the disk is gone"
    assert not found.agrees
    assert reported(november(found)) == {"source": 2, "store": 2, "accepted": 2, "sent": 2}


def test_it_can_be_interrupted(site: Site) -> None:
    site.sources["ce1"].add(*make_jobs(2))
    site.collect()
    with site.publisher.reconcile((), (NOV,)) as found:
        site.stop_when = lambda: True
        with pytest.raises(StoppedError):
            site.publisher.conservation(found)


steps = st.lists(st.sampled_from(("jobs", "change", "collect", "publish", "fail", "vanish", "republish")), max_size=14)


@settings(max_examples=short_or_whole(6, 15))
@given(seed=st.integers(0, 999), todo=steps, kind=st.sampled_from(("sgas", "ams", "sums")))
def test_the_equations_hold_whatever_happened(
    tmp_path_factory: pytest.TempPathFactory, seed: int, todo: list[str], kind: str
) -> None:
    rng = random.Random(seed)
    service = SummaryReceiver("one") if kind == "sums" else RecordReceiver("one", kind)
    site = Site(tmp_path_factory.mktemp("site"), [ListSource("ce1", page=3)], [service])
    site.configure("one", batch_records=2, vo=["atlas"])
    source = site.sources["ce1"]
    try:
        for step in ["jobs", "collect", *todo]:
            number = rng.randrange(1, 9)
            if step in {"jobs", "change"}:
                facts: dict[str, Any] = {"vo": rng.choice(["atlas", "atlas", "cms"]), "cores": rng.randrange(1, 4)}
                facts |= {"benchmarks": ()} if rng.random() < 0.2 else {}
                end = rng.choice([OCTOBER, NOVEMBER]) + 3600 + number
                source.add(make_job(number, wall_s=rng.randrange(1, 9), end=end, **facts))
            elif step == "collect":
                site.collect()
            elif step == "publish":
                service.fault = lambda _message: None
                site.publish()
            elif step == "fail":
                service.fault = always(Transient("HTTP 503"))
                site.publish()
            elif step == "vanish" and source.log:
                source.log[rng.randrange(len(source.log))] = Unreadable("log", None, None, "gone", b"")
            elif step == "republish":
                site.publisher.republish("one", Window(OCTOBER, NOVEMBER))
            conserved(site)
            conserved(site, "vo")
    finally:
        site.reopen()
