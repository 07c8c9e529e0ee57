"""`reconcile` with the records of AUDITOR: what it shows beside the records that are missing or altered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.store.schema import State
from tests.publisher.auditor import AuditorDouble
from tests.publisher.site import ListSource, Site, make_job, make_jobs

SCORE = {"type": "HEPscore23", "value": 14.2}


@pytest.fixture
def double() -> Iterator[AuditorDouble]:
    with AuditorDouble().running() as made:
        yield made


@pytest.fixture
def site(tmp_path: Path, double: AuditorDouble) -> Iterator[Site]:
    source = ListSource("ce1")
    source.add(*make_jobs(3), make_job(4, benchmarks=()), make_job(5, benchmarks=()))
    made = Site(tmp_path, [source], [])
    made.table["sources"]["ce1"]["benchmark"] = SCORE
    made.table["targets"]["auditor"] = {"type": "auditor", "url": double.url, "attempts": 1}
    yield made
    made.reopen()


def found(site: Site) -> dict[str, tuple[str, str]]:
    with site.publisher.reconcile(["auditor"]) as result:
        assert result.targets["auditor"].unavailable is None
        return {each.record: (each.kind, each.detail) for each in result.differences("auditor")}


def test_a_benchmark_that_changed_later_is_listed(site: Site) -> None:
    """It is not a change of a job, so nothing is sent; and AUDITOR could not change it."""
    assert site.publisher.run().reconciled["auditor"].confirmed == 5
    site.table["sources"]["ce1"]["benchmark"] = {**SCORE, "value": 20.0}
    site.reopen()
    site.publish()
    assert site.counted("auditor") == {State.ACCEPTED: 5}
    listed = found(site)
    assert {record: kind for record, (kind, _) in listed.items()} == {
        make_job(number).record_id: "differs" for number in (4, 5)
    }
    assert "(hepscore23 14.2)" in listed[make_job(4).record_id][1]
    assert "sent Cores 1 (hepscore23 20)" in listed[make_job(4).record_id][1]


def test_what_is_missing_is_sent_again(site: Site, double: AuditorDouble) -> None:
    site.publisher.run()
    del double.rows[make_job(2).record_id]
    assert {record: kind for record, (kind, _) in found(site).items()} == {make_job(2).record_id: "missing"}
    with site.publisher.reconcile(["auditor"]) as result:
        site.publisher.send_missing(result)
    assert (len(double.rows), found(site)) == (5, {})


def test_a_service_that_gives_no_complete_day_confirms_nothing(site: Site, double: AuditorDouble) -> None:
    double.shortened = lambda stream: stream[:2]
    done = site.publisher.run().reconciled["auditor"]
    assert (done.confirmed, done.differences) == (0, 0)
    assert "in one order" in (done.problem or "")
