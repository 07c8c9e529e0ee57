"""`reconcile` with the records of AUDITOR: what it shows beside the records that are missing or altered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.calendar import SECONDS_A_DAY
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
        make_job(number).record_id: "outdated" for number in (4, 5)
    }
    assert "(hepscore23 14.2)" in listed[make_job(4).record_id][1]
    assert "by the present settings Cores 1 (hepscore23 20)" in listed[make_job(4).record_id][1]
    site.now += SECONDS_A_DAY
    done = site.publisher.run().reconciled["auditor"]
    assert (done.confirmed, done.differences) == (5, 0)  # so `run` ends with 0


@pytest.mark.parametrize("table", ["site", "source"])
def test_what_was_sent_before_the_site_got_another_name_is_there(site: Site, table: str) -> None:
    def named(name: str) -> None:
        if table == "site":
            site.table["site"]["name"] = name
        else:
            site.table["sources"]["ce1"]["site"] = name
        site.reopen()

    named("FORMER-SITE")
    site.publisher.run()
    named("LATER-SITE")
    site.now += SECONDS_A_DAY
    done = site.publisher.run().reconciled["auditor"]
    assert (done.confirmed, done.differences) == (5, 0)
    assert {kind for kind, _ in found(site).values()} == {"outdated"}


def test_a_record_altered_there_is_found_after_a_change_of_the_benchmark(site: Site, double: AuditorDouble) -> None:
    """It is compared with what was sent, not with what would be sent now."""
    site.publisher.run()
    site.table["sources"]["ce1"]["benchmark"] = {**SCORE, "value": 20.0}
    site.reopen()
    site.publish()
    site.sources["ce1"].add(make_job(6, benchmarks=()))
    site.publisher.run()
    altered = json.dumps(double.rows[make_job(4).record_id]).replace("14.2", "20.0")
    double.rows[make_job(4).record_id] = json.loads(altered)
    listed = found(site)
    assert {record: kind for record, (kind, _) in listed.items()} == {
        make_job(4).record_id: "differs", make_job(5).record_id: "outdated",
    }  # fmt: skip
    assert listed[make_job(4).record_id][1].startswith("components Cores 1 (hepscore23 20)")
    assert "sent Cores 1 (hepscore23 14.2)" in listed[make_job(4).record_id][1]


def test_what_was_sent_is_not_missing_when_its_benchmark_is_removed(site: Site, double: AuditorDouble) -> None:
    """Its id is that of the record that was sent, though none could be made now."""
    site.publisher.run()
    del site.table["sources"]["ce1"]["benchmark"]
    site.reopen()
    site.publish()
    with site.publisher.reconcile(["auditor"]) as result:
        (month,) = [each for each in result.targets["auditor"].months if each.sent.jobs]
        assert (month.confirmed, month.missing, month.outdated) == (5, 0, 0)


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
