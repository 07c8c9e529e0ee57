"""forget: no name is left, nothing is counted or sent anew, and what is read again stays forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.calendar import Month
from formats.job import Job
from publisher.encoded_run import unpack
from publisher.errors import UsageError
from publisher.sources.base import Unreadable, Window
from publisher.store.schema import State, metadata
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

pytestmark = pytest.mark.either_store

BOB = "/DC=org/CN=Bob Builder"
RFC_BOB = "CN=Bob Builder,DC=org"
ALL = Window(None, None)


def bobs(number: int, **facts: object) -> Job:
    """A job of the person to be erased, with the name in every field that can have a name."""
    usual = {"user_dn": BOB, "local_user": "bob", "extras": {"subject": f"x {BOB}"}}
    return make_job(number, **(usual | facts))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site whose services have jobs of two persons; one of Bob's changed since."""
    services = [RecordReceiver("sgas"), SummaryReceiver("sums"), RecordReceiver("apel", "ams")]
    site = Site(tmp_path, [ListSource("ce1")], services)
    site.sources["ce1"].add(
        *(bobs(number) for number in range(1, 5)), bobs(5, user_dn=RFC_BOB), make_job(6), bobs(7, end=OCTOBER + 99),
        Unreadable("log", 3, 77, f"no end time of {BOB}", f"x:{BOB}".encode()),
        Unreadable("log", 4, 99, "may be text", b"x", suspect=bobs(40)),
        Unreadable("log", 5, 111, "may be text", b"y", suspect=make_job(41, name=f"x {BOB}")),
    )  # fmt: skip
    site.collect()
    site.publish()
    site.sources["ce1"].add(bobs(1, wall_s=50))
    site.collect()
    site.publish()
    return site


def names_left(site: Site) -> list[str]:
    """The tables that still hold the name, be it in what is compressed."""
    found = []
    for table in metadata.sorted_tables:
        rows = site.rows(f'SELECT * FROM "{table.name}"')
        values = [value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row]
        if "run" in table.c and table.name == "unreadable":
            values += [unpack(row[0][16:])[1] for row in site.rows("SELECT run FROM unreadable") if row[0]]
        if "job" in table.c:
            values += [unpack(bytes(row[0]))[1] for row in site.rows(f'SELECT job FROM "{table.name}"')]
        text = b"\n".join(values)
        if b"Bob" in text or b"bob" in text:
            found.append(table.name)
    return found


def test_no_name_is_left_and_nothing_counts_as_changed(site: Site) -> None:
    assert {"runs", "versions", "classes", "groups", "unreadable"} <= set(names_left(site))
    before, posts = site.publisher.status(), {name: each.posts for name, each in site.receivers.items()}
    done = site.publisher.maintenance.forget(BOB)
    assert (done.runs, done.versions, done.summaries) == (6, 1, 2)
    assert names_left(site) == []
    assert site.publisher.status() == before
    found = site.collect(window=ALL)["ce1"]
    assert (found.new, found.changed, found.unchanged) == (0, 0, 8)
    assert names_left(site) == [], "the log was read again"
    site.publish()
    assert {name: each.posts for name, each in site.receivers.items()} == posts
    assert all(each.level == "green" for each in site.publisher.maintenance.check())
    entry = site.publisher.audit()[0]
    assert entry.action == "forget"
    assert entry.subject == done.pseudonym
    assert done.pseudonym in {run.run.job.user_dn for run in site.publisher.jobs(ALL)}


def test_no_byte_of_the_file_holds_the_name(site: Site) -> None:
    site.publisher.maintenance.forget(BOB)
    site.publisher.maintenance.vacuum()
    for file in site.store_file.parent.glob(f"{site.store_file.name}*"):
        assert b"bob" not in file.read_bytes().lower(), file
    assert names_left(site) == []


def test_republish_sends_the_pseudonym_under_the_same_id(site: Site) -> None:
    site.publisher.maintenance.forget(BOB, "/CN=erased 1")
    held = dict(site.receivers["apel"].held)
    site.republish("apel", OCTOBER, NOVEMBER + 86_400)
    assert set(site.receivers["apel"].held) == set(held)
    plan = site.publisher.plan_republish("apel", Window(OCTOBER, NOVEMBER + 86_400))
    assert (plan.counts.new, plan.counts.changed, plan.counts.unchanged) == (0, 0, 7)


def test_late_jobs_of_before_are_forgotten_too_and_later_ones_are_not(site: Site) -> None:
    site.publisher.maintenance.forget(BOB, "/CN=erased 1")
    site.sources["ce1"].add(bobs(20), bobs(21, end=site.now + 100))
    site.collect()
    assert [site.publisher.job(bobs(number).record_id)[0].run.job.user_dn for number in (20, 21)] == [
        "/CN=erased 1", BOB,
    ]  # fmt: skip


def test_a_summary_that_the_service_has_under_the_name_is_not_sent_beside_it(site: Site) -> None:
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    site.publisher.maintenance.forget(BOB, "/CN=erased 1")
    before = dict(sums.sums)
    site.sources["ce1"].add(bobs(20), bobs(30, end=OCTOBER - 86_400), make_job(31))
    site.now += 10
    site.collect()
    site.publish()
    site.publish()
    assert site.in_state("sums", State.HELD) == {bobs(20).record_id}
    assert "erased" in (site.reasons("sums")[bobs(20).record_id] or "")
    assert {key: value for key, value in sums.sums.items() if "ob " in key} == {
        key: value for key, value in before.items() if "ob " in key
    }
    assert sums.users()["/cn=erased 1"] == 1, "September's, which the service had nothing of"
    assert sums.total()[0] == 9


def test_a_month_with_a_summary_under_the_name_is_held_where_other_settings_would_move_its_jobs(site: Site) -> None:
    """Without names every summary has another key: the service would count the person's jobs in it beside those under
    the name."""
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    site.publisher.maintenance.forget(BOB, "/CN=erased 1")
    before = dict(sums.sums)
    site.configure("sums", dn="withhold")
    site.sources["ce1"].add(make_job(31))
    site.now += 10
    for _ in range(2):
        site.collect()
        site.publish()
        assert sums.sums == before
        assert site.in_state("sums", State.HELD) == {make_job(31).record_id}
    assert "erased" in (site.reasons("sums")[make_job(31).record_id] or "")
    site.configure("sums", dn="send")
    site.collect()
    site.publish()
    assert site.in_state("sums", State.HELD) == set()
    assert sums.total()[0] == 1 + sum(jobs for jobs, *_ in before.values())


def test_a_summary_without_names_is_sent_again_as_before(tmp_path: Path) -> None:
    sums = SummaryReceiver("sums")
    site = Site(tmp_path, [ListSource("ce1")], [sums])
    site.configure("sums", dn="withhold")
    site.sources["ce1"].add(bobs(1), make_job(2))
    site.collect()
    site.publish()
    site.publisher.maintenance.forget(BOB)
    site.sources["ce1"].add(make_job(3))
    site.now += 10
    site.collect()
    site.publish()
    assert (site.counted("sums"), sums.total()[0]) == ({State.ACCEPTED: 3}, 3)


def test_what_is_purged_is_known_again_under_both_names(site: Site) -> None:
    site.publisher.maintenance.purge(Month(2026, 11))
    site.publisher.maintenance.forget(BOB)
    site.now += 60 * 86_400
    found = site.collect(window=ALL)["ce1"]
    assert (found.new, found.changed) == (0, 0)
    site.publisher.maintenance.purge(Month(2027, 1))
    found = site.collect(window=ALL)["ce1"]
    assert (found.new, found.changed) == (0, 0)
    assert site.rows("SELECT count(*) FROM runs") == [(0,)]


def test_a_rule_that_matches_the_name_needs_a_pseudonym_that_it_matches(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.table["map"] = [{"when": {"dn": "/DC=org/*"}, "vo": "builders"}]
    site.sources["ce1"].add(bobs(1, vo=None))
    site.collect()
    site.publish()
    with pytest.raises(UsageError, match="rule goes by this name"):
        site.publisher.maintenance.forget(BOB)
    assert site.publisher.maintenance.forget(BOB, "/DC=org/CN=somebody").runs == 1


def test_unknown_persons_and_used_names_are_refused(site: Site) -> None:
    for person, pseudonym in (("/CN=Nobody", None), (BOB, "/DC=org/CN=Ada")):
        with pytest.raises(UsageError):
            site.publisher.maintenance.forget(person, pseudonym)
    site.sources["ce1"].add(bobs(20))
    site.collect()
    with pytest.raises(UsageError, match="publish sums"):
        site.publisher.maintenance.forget(BOB)
    assert "runs" in names_left(site)
