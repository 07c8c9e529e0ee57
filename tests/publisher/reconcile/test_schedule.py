"""`run` reconciles on a schedule: what agrees is confirmed, what is not stays unconfirmed and is reported.

The services are the simulators, with TLS; the clock is the site's.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from formats.calendar import month_of
from publisher.config.operation import Notices
from publisher.observe.mail import problems
from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Pki
from publisher.targets.base import EvidenceUnavailable, PeriodSum
from publisher.targets.sgas import SgasTarget
from tests.publisher.reconcile.reconciled_site import (
    DAY,
    ams,
    asked,
    confirmed,
    files,
    only,
    ran,
    resent,
    sgas,
    site_of,
    summaries,
)
from tests.publisher.site import NOVEMBER, NOW, OCTOBER, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store


class Late(SgasTarget):
    """Its built-in query, of an aggregation that has nothing of what came in the last minutes."""

    is_late = True
    sums_lag = True  # type: ignore[assignment]

    def usage(self, machine: str, first_day: int, until_day: int) -> list[PeriodSum] | EvidenceUnavailable:
        return [] if self.is_late else super().usage(machine, first_day, until_day)


def test_what_late_sums_lack_is_compared_in_the_next_run(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    site.make_target = Late
    result = site.publisher.run().reconciled["neic"]
    assert (result.confirmed, result.differences) == (0, 0)
    found = only(site)
    assert (found.missing, found.is_contradicted) == (0, False)
    with site.publisher.reconcile() as now:
        assert now.targets["neic"].too_recent == 3
        assert "neither missing nor confirmed" in now.targets["neic"].notes[0]
        assert now.targets["neic"].agrees
    site.now += 3600
    site.make_target = type("Caught", (Late,), {"is_late": False})
    assert ran(site) == {"neic"}, "again, before the day is over"
    assert confirmed(site) == 3
    site.now += 3600
    assert ran(site) == set()


def test_a_service_that_is_always_late_is_not_compared_in_every_run(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    site.make_target = Late
    reconciled = []
    for number in range(4, 9):
        site.sources["ce1"].add(make_job(number))
        reconciled.append(ran(site))
        site.now += 300
    assert reconciled == [{"neic"}, {"neic"}, set(), set(), set()]


def test_what_late_sums_lack_after_a_while_is_missing(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    site.make_target = Late
    site.now += 1000
    site.publisher.run()
    found = only(site)
    assert (found.missing, found.differing, found.is_contradicted) == (3, 0, True)
    site.make_target = type("Caught", (Late,), {"is_late": False})
    site.now += DAY
    site.publisher.run()
    assert only(site).is_contradicted is False


def notices(site: Site) -> list[str]:
    """The keys of the problems that are worth a mail, but for certificates, which age with the clock."""
    found = problems(site.publisher.status(), Notices(), site.now)
    return [one.key for one in found if not one.key.endswith("certificate")]


def test_a_run_confirms_what_sgas_has_once_a_day(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, [*make_jobs(3), make_job(4, end=OCTOBER - 90 * DAY)], neic=sgas(simulator))
    assert only(site).unconfirmed_since == NOW
    result = site.publisher.run().reconciled["neic"]
    assert (result.confirmed, result.accepted, result.differences, result.problem) == (4, 4, 0, None)
    assert confirmed(site) == 4, "an old month with unconfirmed jobs as well"
    found = only(site)
    assert (found.evidence, found.unconfirmed_since, found.reconciled_at) == ("query", None, NOW)

    site.sources["ce1"].add(make_job(5))
    site.now += DAY // 2
    assert ran(site) == set(), "not due yet"
    site.reopen()
    site.now += DAY // 4
    assert ran(site) == set(), "nor for another process: it is in the store"
    found = only(site)
    assert (found.accepted, found.confirmed, found.unconfirmed_since) == (5, 4, NOW + DAY // 2)
    site.now += DAY // 4
    assert ran(site) == {"neic"}
    assert confirmed(site) == 5


def test_what_is_due_too_far_in_the_future_was_noted_by_a_wrong_clock(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of(tmp_path, pki, make_jobs(1), neic=sgas(simulator))
    site.now += 400 * DAY
    assert ran(site) == {"neic"}
    site.now = NOW
    assert ran(site) == {"neic"}


@pytest.mark.parametrize(("every", "after_s"), [(0, None), ("1h", 3600), ("7d", 7 * DAY)])
def test_how_often_is_configured(
    simulator: Simulator, pki: Pki, tmp_path: Path, every: str | int, after_s: int | None
) -> None:
    site = site_of(tmp_path, pki, make_jobs(1), neic=sgas(simulator, reconcile_every=every))
    assert ran(site) == (set() if after_s is None else {"neic"})
    if after_s is not None:
        site.now += after_s - 1
        assert ran(site) == set()
        site.now += 1
        assert ran(site) == {"neic"}


def test_a_service_that_gives_no_evidence_stops_nothing(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    simulator.faults.replace([Fault("status", code=500, service="query")])
    site.sources["ce1"].add(make_job(3))
    result = site.publisher.run()
    assert result.targets["neic"].sent.accepted == 1
    assert result.targets["neic"].error is None
    assert "lacks the right `customquery:querygroup=usage-publisher`" in (result.reconciled["neic"].problem or "")
    found = only(site)
    assert (found.accepted, found.confirmed, found.last_error) == (3, 0, None)
    assert "lacks the right" in (found.evidence_problem or "")
    site.now += 30 * DAY
    assert notices(site) == [], "it never gave evidence: there is nothing that it should confirm"
    simulator.faults.replace([])
    assert ran(site) == {"neic"}
    assert confirmed(site) == 3
    assert only(site).evidence_problem is None


def test_it_is_asked_again_sooner_where_it_gave_no_evidence(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    simulator.faults.replace([Fault("close", service="query")])
    assert ran(site) == {"neic"}
    site.now += 3599
    assert ran(site) == set()
    site.now += 1
    simulator.faults.replace([])
    assert ran(site) == {"neic"}
    assert confirmed(site) == 2


def test_what_a_service_lost_is_unconfirmed_and_worth_a_mail(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = make_jobs(3)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    ran(site)
    simulator.sgas.forget([jobs[0].record_id])
    site.now += 6 * DAY
    assert ran(site) == {"neic"}
    found = only(site)
    assert (found.confirmed, found.unconfirmed_since, found.unconfirmed_days) == (0, NOW, 6)
    contradicted = "target neic: contradicted"
    assert (found.differences, found.confirmation_overdue, notices(site)) == (3, False, [contradicted])
    site.now += DAY
    assert sorted(notices(site)) == [contradicted, "target neic: unconfirmed"]
    with site.publisher.reconcile() as again:
        site.publisher.send_missing(again)
    site.now += 60
    with site.publisher.reconcile():
        assert notices(site) == []
    assert confirmed(site) == 3


def test_what_a_service_lost_stays_while_it_gives_no_evidence(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = make_jobs(3)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    ran(site)
    simulator.sgas.forget([jobs[0].record_id])
    site.now += DAY
    site.publisher.run()
    lost = only(site)
    assert (lost.missing + lost.differing, lost.is_contradicted) != (0, False)
    simulator.faults.replace([Fault("close", service="query")])
    site.now += DAY
    assert ran(site) == {"neic"}
    found = only(site)
    assert found.evidence_problem is not None
    assert (found.differences, found.missing, found.differing) == (lost.differences, lost.missing, lost.differing)
    with site.publisher.reconcile():
        assert only(site).is_contradicted
    simulator.faults.replace([])
    with site.publisher.reconcile() as again:
        site.publisher.send_missing(again)
    site.now += DAY
    site.publisher.run()
    assert not only(site).is_contradicted


def test_what_a_file_contradicts_stays_when_it_is_gone(tmp_path: Path) -> None:
    export = tmp_path / "held.json"
    jobs = make_jobs(2)
    site = site_of(tmp_path, None, jobs, out=files(evidence="held.json"))
    export.write_text(json.dumps([{"record_id": jobs[0].record_id}]))
    site.publisher.run()
    assert (only(site).missing, only(site).is_contradicted) == (1, True)
    export.unlink()
    for _ in range(2):
        site.now += DAY
        assert ran(site) == {"out"}
        assert (only(site).missing, only(site).is_contradicted) == (1, True)
    export.write_text(json.dumps([{"record_id": job.record_id} for job in jobs]))
    site.now += DAY
    site.publisher.run()
    assert not only(site).is_contradicted


def test_comparing_one_month_settles_nothing_of_the_others(tmp_path: Path) -> None:
    export = tmp_path / "held.json"
    jobs = [make_job(1, end=OCTOBER), make_job(2, end=OCTOBER + 1), make_job(3), make_job(4)]
    site = site_of(tmp_path, None, jobs, out=files(evidence="held.json"))
    export.write_text(json.dumps([{"record_id": jobs[0].record_id}, {"record_id": jobs[2].record_id}]))
    october, november = month_of(OCTOBER), month_of(NOVEMBER)
    with site.publisher.reconcile((), [october, november]):
        assert only(site).missing == 2
    with site.publisher.reconcile((), [november]):
        assert (only(site).missing, only(site).differences) == (2, 2)
    export.write_text(json.dumps([{"record_id": job.record_id} for job in jobs if job is not jobs[1]]))
    with site.publisher.reconcile((), [november]):
        assert (only(site).missing, only(site).differences, only(site).is_contradicted) == (1, 1, True)
    with site.publisher.reconcile((), [november]):
        assert only(site).missing == 1
    export.write_text(json.dumps([{"record_id": job.record_id} for job in jobs]))
    with site.publisher.reconcile((), [october]):
        assert not only(site).is_contradicted


@pytest.mark.parametrize("is_queue", [True, False])
def test_what_a_given_file_contradicts_stays_until_another_file_agrees(
    simulator: Simulator, pki: Pki, tmp_path: Path, *, is_queue: bool
) -> None:
    jobs = make_jobs(2)
    settings = files(layout="dirq", records="emi-car") if is_queue else ams(simulator, "emi-car")
    site = site_of(tmp_path, pki, jobs, queue=settings)
    export = tmp_path / "held.json"
    export.write_text(json.dumps([{"record_id": jobs[0].record_id}]))
    with site.publisher.reconcile((), None, [export]):
        pass
    said = [found.hint for found in site.publisher.check() if "missing" in found.message]
    assert said == ["usage-publisher reconcile queue --file FILE"]
    with site.publisher.reconcile():
        assert only(site).is_contradicted
    export.write_text(json.dumps([{"record_id": job.record_id} for job in jobs]))
    with site.publisher.reconcile((), None, [export]):
        assert not only(site).is_contradicted


def test_an_interrupted_run_reconciles_in_the_next_one(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    site.stop_when = lambda: True
    site.reopen()
    assert ran(site) == set()
    site.stop_when = lambda: False
    site.reopen()
    assert ran(site) == {"neic"}


@pytest.mark.parametrize("how", ["republish", "resend"])
def test_what_was_sent_again_is_confirmed_in_the_next_run(
    simulator: Simulator, pki: Pki, tmp_path: Path, how: str
) -> None:
    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    assert ran(site) == {"neic"}
    site.now += 60
    if how == "republish":
        site.republish("neic", NOVEMBER, NOW)
    else:
        simulator.sgas.forget([make_job(1).record_id])
        assert resent(site) == 3, "SGAS does not say which one is missing"
    assert (confirmed(site), only(site).accepted) == (0, 3)
    assert ran(site) == {"neic"}, "although it is not a day later"
    assert (confirmed(site), only(site).differences) == (3, 0)


def test_another_run_at_work_for_the_target_is_let_be(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    with site.another_publisher() as other, other.alone_at("neic"):
        assert ran(site) == set()
    assert ran(site) == {"neic"}


def test_targets_without_evidence_say_so_and_are_not_asked(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(
        tmp_path, pki, make_jobs(2), apel=ams(simulator, "emi-car"), queue=summaries(layout="dirq"), out=files(path="o")
    )
    assert ran(site) == {"out"}
    found = site.publisher.status().targets
    assert {name: one.evidence for name, one in found.items()} == {"apel": "none", "queue": "none", "out": "files"}
    assert found["out"].confirmed == 2
    assert (found["apel"].unconfirmed_since, found["queue"].unconfirmed_since) == (None, None)
    site.now += 30 * DAY
    assert notices(site) == []


def test_messages_that_the_loader_refuses_after_the_broker_took_them_stay_unconfirmed(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    """The broker answers before APEL's loader reads: what the loader refuses is accepted, and not confirmed."""
    export = tmp_path / "apel.json"
    site = site_of(
        tmp_path, pki, make_jobs(2), apel=ams(simulator, "emi-car", sync=True, evidence="apel.json", batch_records=1)
    )
    export.write_bytes(asked(simulator, pki, "GET", "/_simulator/holdings"))
    assert ran(site) == {"apel"}
    assert confirmed(site) == 2
    receiver = pki.issue("receiver", "receiver.example.org")
    site.configure("apel", encrypt_to=str(receiver.certificate))  # for which the loader has no key
    site.sources["ce1"].add(make_job(3))
    site.now += DAY
    result = site.publisher.run()
    assert (result.targets["apel"].sent.accepted, result.targets["apel"].error) == (1, None), "the broker took it"
    for _ in range(6):
        export.write_bytes(asked(simulator, pki, "GET", "/_simulator/holdings"))
        site.now += DAY
        site.publisher.run()
    assert json.loads(export.read_text())["apel"]["rejected"], "the loader refused it"
    found = only(site)
    assert (found.accepted, found.confirmed, found.unconfirmed_days) == (3, 2, 6)
    assert notices(site) == ["target apel: contradicted"]
    site.now += DAY
    assert sorted(notices(site)) == ["target apel: contradicted", "target apel: unconfirmed"]
    notice = next(one for one in problems(site.publisher.status(), Notices(), site.now) if "unconfirmed" in one.key)
    assert "has accepted 1 job that its evidence does not confirm, the oldest for 7 days" in notice.text


@contextmanager
def served(pki: Pki, answers: list[tuple[int, bytes]]) -> Iterator[str]:
    """A portal with TLS that asks for a client certificate; gives its URL."""

    class PortalHandler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server.certificate, pki.server.key)
    context.load_verify_locations(pki.ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PortalHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"https://localhost:{server.server_port}/export.csv"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_evidence_of_a_url_is_got_with_our_certificate(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    rows = b"month,jobs,wall_s\n2026-11,2,200\n"
    answers = [(200, rows)]
    with served(pki, answers) as url:
        site = site_of(tmp_path, pki, make_jobs(2), apel=ams(simulator, "apel-summary", evidence=url))
        assert ran(site) == {"apel"}
        assert confirmed(site) == 2
        assert only(site).evidence == "file"
        for answer, said in [
            ((404, b"gone"), "HTTP 404"),
            ((403, b"no"), "let the name"),
            ((200, b"<html>"), "has no row"),
        ]:
            answers[0] = answer
            site.now += DAY
            assert ran(site) == {"apel"}
            problem = only(site).evidence_problem or ""
            assert said in problem
            assert confirmed(site) == 2, "no evidence confirms nothing, and takes nothing back"
    site.now += DAY
    assert ran(site) == {"apel"}
    assert "localhost" in (only(site).evidence_problem or "")


def test_confirmed_is_never_more_than_accepted_and_falls_with_a_new_version_only(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    before = 0
    for day in range(6):
        site.now += DAY
        site.sources["ce1"].add(make_job(10 + day, end=NOVEMBER + day * DAY))
        ran(site)
        found = only(site)
        assert before <= found.confirmed <= found.accepted
        before = found.confirmed
    assert before == 8
    site.sources["ce1"].add(make_job(10, end=NOVEMBER, wall_s=200))
    site.now += DAY
    ran(site)
    assert confirmed(site) == 7, "SGAS keeps the first version of a job that changed"


def test_what_is_confirmed_already_is_not_written_again(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    """Rows are counted by triggers: of the second reconciliation only the one that says when it was is written."""
    site = site_of(tmp_path, pki, make_jobs(4), neic=sgas(simulator), out=files(path="o"), months=summaries(path="m"))
    ran(site)
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("CREATE TABLE written (name TEXT)")
        for table in ("deliveries", "groups", "counters"):
            if connection.dialect.name == "sqlite":
                body = f"BEGIN INSERT INTO written VALUES ('{table}'); END"
            else:
                body = f"FOR EACH ROW EXECUTE FUNCTION {table}_written()"
                connection.exec_driver_sql(
                    f"CREATE FUNCTION {table}_written() RETURNS trigger LANGUAGE plpgsql AS "
                    f"$$ BEGIN INSERT INTO written VALUES ('{table}'); RETURN NULL; END $$"
                )
            connection.exec_driver_sql(f"CREATE TRIGGER {table}_writes AFTER UPDATE ON {table} {body}")
    site.now += DAY
    assert ran(site) == {"neic", "out", "months"}
    with site.publisher.store.read() as connection:
        assert connection.exec_driver_sql("SELECT name FROM written").all() == []
    assert {name: one.confirmed for name, one in site.publisher.status().targets.items()} == {
        "neic": 4, "out": 4, "months": 4,
    }  # fmt: skip
