"""What is sent for a run that changed after delivery follows from what the service does with a second version.

The services are add-ons, so that their descriptors decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from formats.calendar import SECONDS_A_DAY, Month
from formats.columns import RecordColumns
from formats.job import Job
from formats.xml.columns import read_columns
from publisher import plugins
from publisher.config.schema import AddOnSettings
from publisher.config.target_kind import SecondVersion, TargetKind
from publisher.store.schema import State
from publisher.targets.base import Accepted, EvidenceUnavailable, Message, Outcome, Unknown
from tests.publisher.add_on import install
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs

ONE: Final = make_job(1)
CHANGED: Final = make_job(1, wall_s=200)
DIFFERENCE: Final = "wall 100 s there, 200 s here"


class VersionedService(RecordReceiver):
    """Keeps the first version of each record, and compares with it what is sent again."""

    def __init__(self, name: str = "mine") -> None:
        super().__init__(name)
        self.rows: dict[str, RecordColumns] = {}
        self.compares = True
        self.unavailable: EvidenceUnavailable | None = None
        self.asked: list[int] = []

    def store(self, message: Message) -> Accepted:
        """Keep what is new, and name what is there in another version."""
        kept = {}
        for row in read_columns(message.payload):
            before = self.rows.setdefault(row.record_id, row)
            if before.wall_ms != row.wall_ms:
                kept[row.record_id] = DIFFERENCE
        taken = {each: "row" for each in message.record_ids if each not in kept}
        return Accepted(taken, kept=kept) if self.compares else Accepted(dict.fromkeys(message.record_ids, "row"))

    def records(self, day: int) -> Sequence[RecordColumns] | EvidenceUnavailable:
        """Those that ended on a day."""
        self.asked.append(day)
        if self.unavailable is not None:
            return self.unavailable
        return [row for row in self.rows.values() if (row.end or 0) // SECONDS_A_DAY == day]


service = VersionedService()


def made(*_: Any) -> VersionedService:
    return service


def described(second_version: SecondVersion) -> TargetKind:
    return TargetKind(
        name="mine", settings=AddOnSettings, factory=made, second_version=second_version, evidence="records"
    )


KEEPS, REFUSES, REPLACES = map(
    described, (SecondVersion.KEEPS_FIRST, SecondVersion.REFUSES_REPEATS, SecondVersion.REPLACES)
)


@pytest.fixture
def source() -> ListSource:
    return ListSource("ce1")


@pytest.fixture(params=["REFUSES"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: ListSource
) -> Iterator[Site]:
    """A site with one target, of the kind that an add-on describes."""
    global service  # noqa: PLW0603 - an add-on is a module
    service = VersionedService()
    install(tmp_path / "package", monkeypatch, plugins.TARGETS, mine=f"{__name__}:{request.param}")
    found = Site(tmp_path, [source], [])
    found.table["targets"]["mine"] = {"type": "mine", "attempts": 2}
    yield found
    found.reopen()


def sent(site: Site, source: ListSource, *jobs: Job) -> None:
    source.add(*jobs)
    site.collect()
    site.publish()


def counted(site: Site) -> dict[State, int]:
    return site.counted("mine")


@pytest.mark.parametrize(
    ("site", "messages", "state"),
    [("KEEPS", 1, State.SUPERSEDED), ("REFUSES", 2, State.SUPERSEDED), ("REPLACES", 2, State.ACCEPTED)],
    indirect=["site"],
)
def test_a_changed_run(site: Site, source: ListSource, messages: int, state: State) -> None:
    service.compares = state is State.SUPERSEDED
    sent(site, source, ONE)
    sent(site, source, CHANGED)
    assert (len(service.messages), counted(site)) == (messages, {state: 1})


def test_a_version_that_the_service_does_not_change_is_superseded_with_the_difference(
    site: Site, source: ListSource
) -> None:
    sent(site, source, *make_jobs(3))
    assert [message.sent_before for message in service.messages] == [()]
    sent(site, source, CHANGED, make_job(4))
    assert [message.sent_before for message in service.messages[1:]] == [(ONE.record_id,)]
    assert counted(site) == {State.ACCEPTED: 3, State.SUPERSEDED: 1}
    assert DIFFERENCE in (site.reasons("mine")[ONE.record_id] or "")
    (versions,) = site.rows(
        "SELECT COUNT(DISTINCT d.sent_digest = r.digest) FROM deliveries d JOIN runs r ON id = run_id"
    )
    assert versions == (2,), "the ledger has the version that the service keeps"
    sent(site, source, ONE)
    assert counted(site) == {State.ACCEPTED: 4}, "it changed back to what the service has"


def test_a_run_that_changed_meanwhile_is_compared_again(site: Site, source: ListSource) -> None:
    sent(site, source, ONE)
    changes = [make_job(1), make_job(1, wall_s=300)]

    def change(_message: Message, accepted: Accepted) -> Outcome:
        if changes:
            source.add(changes.pop())
            with site.another_publisher() as other:
                other.collect()
        return accepted

    service.answer = change
    sent(site, source, CHANGED)
    assert counted(site) == {State.WAITING: 1}
    site.publish()
    assert counted(site) == {State.WAITING: 1}
    site.publish()
    assert counted(site) == {State.ACCEPTED: 1}


def test_an_attempt_after_an_unknown_one_says_what_may_be_there(site: Site, source: ListSource) -> None:
    answers: list[Outcome | None] = [Unknown("cut"), None]
    service.fault = lambda _message: answers.pop(0) if answers else None
    sent(site, source, ONE)
    assert [message.sent_before for message in service.messages] == [(), (ONE.record_id,)]
    assert counted(site) == {State.ACCEPTED: 1}


def test_a_run_reconciles_with_the_records_of_an_add_on(site: Site, source: ListSource) -> None:
    source.add(*make_jobs(50), make_job(60, end=NOVEMBER - 5))
    done = site.publisher.run().reconciled["mine"]
    assert (done.confirmed, done.accepted, done.differences, done.problem) == (51, 51, 0, None)
    assert len(set(service.asked)) == len(service.asked) == 31 + 20, "October, and November until today"
    name = make_job(7).record_id
    service.rows[name] = msgspec.structs.replace(service.rows[name], cpu_ms=1)
    del service.rows[make_job(8).record_id]
    service.rows["foreign"] = RecordColumns("foreign", NOVEMBER + 5, 1000, 1000)
    service.rows["other site"] = RecordColumns("other site", NOVEMBER + 5, 1000, 1000, {"site": "ELSEWHERE"})
    site.now += SECONDS_A_DAY
    done = site.publisher.run().reconciled["mine"]
    assert (done.confirmed, done.accepted, done.differences) == (49, 51, 3)
    with site.publisher.reconcile(["mine"]) as found:
        listed = {(each.kind, each.record) for each in found.differences("mine")}
        assert listed == {("differs", name), ("missing", make_job(8).record_id), ("foreign", "foreign")}
        assert found.targets["mine"].again_jobs == 1, "what differs is not corrected by sending it again"


def test_evidence_that_ends_within_a_month_settles_nothing(site: Site, source: ListSource) -> None:
    source.add(*make_jobs(3))
    service.unavailable = EvidenceUnavailable("HTTP 500")
    done = site.publisher.run().reconciled["mine"]
    assert (done.confirmed, done.differences, done.problem) == (0, 0, "HTTP 500")
    with site.publisher.reconcile(["mine"], [Month(2026, 11)]) as found:
        assert found.targets["mine"].months[0].service_jobs is None
