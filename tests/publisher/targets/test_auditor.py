"""AUDITOR: repeats are compared and corrected, nothing is accepted that it does not have, evidence is complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from formats.auditor.record import AuditorFormat
from formats.calendar import SECONDS_A_DAY
from formats.job import Job
from formats.view import View
from publisher.config.auditor import AuditorSettings
from publisher.targets.auditor import AuditorTarget
from publisher.targets.base import (
    Accepted,
    EvidenceUnavailable,
    Message,
    Outcome,
    Oversized,
    Refused,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)
from publisher.targets.identity import TargetContext
from tests.publisher.auditor import AuditorDouble
from tests.publisher.site import NOVEMBER, make_job, make_jobs
from tests.publisher.store.server import PostgresqlServer

FORM: Final = AuditorFormat(View(site="EXAMPLE-SITE"))


@pytest.fixture
def service() -> Iterator[AuditorDouble]:
    with AuditorDouble().running() as double:
        yield double


@pytest.fixture
def target(service: AuditorDouble) -> Iterator[AuditorTarget]:
    made = target_of(service)
    yield made
    made.close()


def target_of(service: AuditorDouble, **more: Any) -> AuditorTarget:
    settings = AuditorSettings(type="auditor", url=service.url, **more)
    return AuditorTarget("auditor", settings, TargetContext())


def message_of(*jobs: Job) -> Message:
    made = [FORM.record(job, 0) for job in jobs]
    ids = tuple(each.record_id for each in made)
    return Message("batch", FORM.name, FORM.content_type, FORM.message([each.body for each in made]), ids)


def accepted(outcome: Outcome) -> dict[str, str]:
    assert isinstance(outcome, Accepted), outcome
    assert not outcome.missing
    return dict(outcome.receipt)


def test_new_records_are_stored_with_one_request(service: AuditorDouble, target: AuditorTarget) -> None:
    assert accepted(target.post(message_of(*make_jobs(5)))) == {"status": "HTTP 200", "records": "5"}
    assert (len(service.rows), [(each.method, each.path) for each in service.requests]) == (5, [("POST", "/records")])


@pytest.mark.parametrize("ignores_repeats", [False, True])
def test_a_message_with_repeats_stores_what_is_absent(
    service: AuditorDouble, target: AuditorTarget, ignores_repeats: bool
) -> None:
    service.ignores_repeats = ignores_repeats
    target.post(message_of(*make_jobs(3)))
    assert accepted(target.post(message_of(*make_jobs(5)))) == {"already there": "3", "stored": "2"}
    assert accepted(target.post(message_of(*make_jobs(5)))) == {"already there": "5"}
    assert len(service.rows) == 5


def test_what_cannot_be_corrected_is_named(service: AuditorDouble, target: AuditorTarget) -> None:
    target.post(message_of(*make_jobs(3)))
    outcome = target.post(message_of(make_job(1), make_job(2, cores=8), make_job(4)))
    assert isinstance(outcome, Accepted)
    assert outcome.kept == {
        make_job(2).record_id: "components Cores 1 (hepscore23 14.2), NNodes 1, TotalCPU 50 there, "
        "Cores 8 (hepscore23 14.2), NNodes 1, TotalCPU 50 here"
    }
    assert outcome.receipt == {"already there": "1", "stored": "1"}
    assert len(service.rows) == 4


@pytest.mark.parametrize("end", [None, "2026-11-02T07:00:00Z", "2026-11-01T01:00:01.500Z"])
def test_an_end_that_was_unknown_or_another_is_corrected(
    service: AuditorDouble, target: AuditorTarget, end: str | None
) -> None:
    target.post(message_of(*make_jobs(2)))
    row = service.rows[make_job(1).record_id]
    right, row["stop_time"] = row["stop_time"], end
    assert accepted(target.post(message_of(*make_jobs(3))))["corrected"] == "1"
    assert service.rows[make_job(1).record_id]["stop_time"] == right
    assert len(service.rows) == 3


def test_two_runs_with_one_id_are_decided_alone(service: AuditorDouble, target: AuditorTarget) -> None:
    first, second = make_job(1), make_job(2, record_id=make_job(1).record_id)
    assert target.post(message_of(first, second)) == Oversized("two records of the message have one id", measured=True)
    assert accepted(target.post(message_of(first)))
    outcome = target.post(message_of(second))
    assert isinstance(outcome, Accepted)
    assert list(outcome.kept) == [first.record_id]
    assert len(service.rows) == 1


def test_a_stream_that_ends_early_doubles_and_loses_nothing(service: AuditorDouble, target: AuditorTarget) -> None:
    target.post(message_of(*make_jobs(4)))
    service.shortened = lambda stream: stream[: (len(stream) + 1) // 2]
    outcome = target.post(message_of(make_job(1), make_job(3, nodes=7), make_job(4), make_job(9)))
    assert isinstance(outcome, Accepted)
    assert (outcome.receipt, list(outcome.kept)) == ({"already there": "2", "stored": "1"}, [make_job(3).record_id])


ANSWERS: Final[list[tuple[str, type[Any]]]] = [
    ("400", Refused), ("401", Unauthorised), ("403", Unauthorised), ("404", Unauthorised), ("413", Oversized),
    ("429", Throttled), ("500", Transient), ("502", Unknown), ("503", Transient), ("cut", Unknown), ("stored", Unknown),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "outcome"), ANSWERS)
def test_answers(service: AuditorDouble, target: AuditorTarget, fault: str, outcome: type[Any]) -> None:
    service.fault = lambda _method, _path: fault
    found = target.post(message_of(make_job(1)))
    assert isinstance(found, outcome)
    assert not isinstance(found, Refused) or found.certain
    assert len(service.rows) == (fault == "stored")


@pytest.mark.parametrize("at", range(2, 7))
@pytest.mark.parametrize(("fault", "outcome"), ANSWERS)
def test_what_was_stored_before_a_fault_is_not_certainly_absent(
    service: AuditorDouble, target: AuditorTarget, fault: str, outcome: type[Any], at: int
) -> None:
    """Whichever request of a message with repeats fails: nothing is said to be absent that was stored."""
    target.post(message_of(make_job(1), make_job(2, end=NOVEMBER)))
    before, count = len(service.rows), 0

    def fail(_method: str, _path: str) -> str:
        nonlocal count
        count += 1
        return fault if count == at else ""

    service.fault = fail
    message = message_of(make_job(1), make_job(2), make_job(3), make_job(4))
    found = target.post(message)
    stored = len(service.rows) > before
    if isinstance(found, Transient | Throttled):
        assert not stored
    elif isinstance(found, Refused | Oversized | Unauthorised):
        assert found.after_unknown == stored
    service.fault = lambda _method, _path: ""
    assert isinstance(target.post(message), Accepted)
    assert len(service.rows) == 4


def test_an_answer_that_is_not_auditors_is_unknown(service: AuditorDouble, target: AuditorTarget) -> None:
    service.add = lambda _records: (200, "<html>a page of a proxy</html>")  # type: ignore[method-assign]
    assert isinstance(target.post(message_of(make_job(1))), Unknown)


def test_the_records_of_a_day(service: AuditorDouble, target: AuditorTarget) -> None:
    day = NOVEMBER // SECONDS_A_DAY
    target.post(message_of(*make_jobs(3), make_job(7, end=NOVEMBER), make_job(8, end=NOVEMBER + SECONDS_A_DAY)))
    target.post(message_of(make_job(9, end=NOVEMBER - 1)))
    found = target.records(day)
    assert not isinstance(found, EvidenceUnavailable)
    assert sorted(each.record_id for each in found) == sorted(make_job(n).record_id for n in (1, 2, 3, 7))
    one = next(each for each in found if each.record_id == make_job(7).record_id)
    assert (one.end, one.wall_ms, one.columns["site"]) == (NOVEMBER, 100_000, "EXAMPLE-SITE")
    assert target.records(day + 9) == []


def test_a_day_whose_streams_differ_is_no_evidence(service: AuditorDouble, target: AuditorTarget) -> None:
    target.post(message_of(*make_jobs(4)))
    service.shortened = lambda stream: stream[:2]
    found = target.records(NOVEMBER // SECONDS_A_DAY)
    assert isinstance(found, EvidenceUnavailable)
    assert "4" not in found.reason
    assert "gave 2 records of 2026-11-01 in one order, and 2 in the other" in found.reason


@pytest.mark.parametrize(("fault", "is_refused"), [("403", True), ("500", False), ("cut", False)])
def test_a_day_that_cannot_be_read(service: AuditorDouble, target: AuditorTarget, fault: str, is_refused: bool) -> None:
    service.fault = lambda _method, _path: fault
    found = target.records(20_000)
    assert isinstance(found, EvidenceUnavailable)
    assert found.unauthorised == is_refused


@pytest.mark.parametrize("stream", ['{"record_id": "a"', "[]", '{"record_id": 7}', "\x00"])
def test_a_stream_that_cannot_be_read(service: AuditorDouble, target: AuditorTarget, stream: str) -> None:
    service.shortened = lambda _stream: [stream]
    assert isinstance(target.records(20_000), EvidenceUnavailable)


def test_a_large_day_is_read_in_parts(service: AuditorDouble, target: AuditorTarget) -> None:
    target.post(message_of(*make_jobs(24)))
    for row in service.rows.values():
        row["meta"]["note"] = ["x" * 700_000]
    found = target.records(NOVEMBER // SECONDS_A_DAY)
    assert not isinstance(found, EvidenceUnavailable)
    assert len(found) == 24


def test_check(service: AuditorDouble, target: AuditorTarget) -> None:
    assert {each.level for each in target.check()} <= {"green", "yellow"}
    service.fault = lambda _method, path: "403" if path == "/records" else ""
    assert [each.subject for each in target.check() if each.level == "red"] == ["auditor: records"]


@pytest.mark.parametrize(("configured", "limit"), [(10_000, 10_000), (50_000_000, (1 << 20) - 1)])
def test_a_message_is_smaller_than_a_mebibyte(service: AuditorDouble, configured: int, limit: int) -> None:
    assert target_of(service, batch_bytes=configured).payload_limit_bytes() == limit


def test_texts_with_brackets_are_read(service: AuditorDouble, target: AuditorTarget) -> None:
    job = make_job(1, user_dn='/DC=org/CN=Ada {"x"} [\\] ä')
    target.post(message_of(job))
    assert accepted(target.post(message_of(job))) == {"already there": "1"}
    assert json.dumps(service.rows).count("Ada") == 1


TABLE: Final = """
CREATE TABLE auditor_accounting (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, record_id TEXT NOT NULL UNIQUE, meta JSONB, components JSONB,
    start_time TIMESTAMPTZ NOT NULL, stop_time TIMESTAMPTZ, runtime BIGINT, updated_at TIMESTAMPTZ NOT NULL
)
"""
"""As AUDITOR makes it; `tests/real` has its own."""


def test_the_table_of_auditor_takes_records_with_any_text(postgresql: PostgresqlServer) -> None:
    """A NUL or a lone surrogate in a text would stop the whole message."""
    assert_table_takes_any_text(postgresql, TABLE)


def assert_table_takes_any_text(postgresql: PostgresqlServer, schema: str) -> int:
    """The number of records that a table of AUDITOR took, and has as they were sent."""
    import psycopg

    texts = ("\x00", "\ud800", '"\\', "\x1f\x7f", "ä\U0001f600", "null", "a" * 200)
    jobs = [make_job(n, user_dn=f"/CN={text}", vo=text or None) for n, text in enumerate(texts, 1)]
    jobs.append(make_job(99, record_id="ur-\x00ä/" + "x" * 200, cores=2**63 - 1))
    records = json.loads(message_of(*jobs).payload)
    with psycopg.connect(postgresql.url(postgresql.loaded(schema))) as session:
        for record in records:
            values = (record["record_id"], json.dumps(record["meta"]), json.dumps(record["components"]))
            session.execute(
                "INSERT INTO auditor_accounting (record_id, meta, components, start_time, stop_time, updated_at) "
                "VALUES (%s, %s, %s, %s, %s, now())",
                (*values, record["start_time"], record["stop_time"]),
            )
        rows = session.execute("SELECT record_id, meta, components FROM auditor_accounting ORDER BY id").fetchall()
    assert rows == [(record["record_id"], record["meta"], record["components"]) for record in records]
    return len(rows)
