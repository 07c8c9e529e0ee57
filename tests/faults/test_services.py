"""What services and networks do to us, on real sockets with TLS: nothing lost, at most the batch in hand sent twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from publisher.security.exchange import Timing
from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Pki, make_pki
from publisher.store.schema import State
from publisher.targets import make_target
from tests.faults.guarantees import Guarantees
from tests.faults.simulated_site import BATCH, JOBS, FaultySite, Outcome, make_job, make_jobs
from tests.publisher.scripted_server import ScriptedConnection, ScriptedRequest, serve
from tests.publisher.site import OCTOBER

MIDWAY = 4
"""Batches that go well first."""
SLOW = 3600
"""Seconds: a time-out that no test waits for."""

Ending = Callable[[str, FaultySite, Outcome], Outcome]


@pytest.fixture
def ends_well(guarantees: Guarantees) -> Ending:
    """See the inner function."""

    def ending(key: str, site: FaultySite, first: Outcome) -> Outcome:
        """The fault is over: the next run delivers the rest. The row says what happened, and is right about it."""
        site.befall()
        again = site.run()
        assert again.code in {0, 3}
        assert site.everything_arrived()
        found = site.balance()
        reported = f"{first.words}: {first.said}" if first.said else first.words
        guarantees.row(key, f"{reported}; then {again.words}", len(found.lost), len(found.twice))
        assert not found.lost
        assert len(found.twice) <= BATCH
        assert not site.in_state("neic", State.REJECTED)
        return again

    return ending


def let_time_run_out(site: FaultySite) -> None:
    """As soon as a fault has struck, the time allowed for an answer is over."""

    def now() -> float:
        applied = sum(times for _, times in site.simulator.faults.applied())
        return time.monotonic() + 2 * SLOW * applied

    timing = Timing(clock=now, check_every_s=0.02)
    site.make_target = lambda name, settings, context: make_target(
        name, settings, msgspec.structs.replace(context, timing=timing)
    )


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("storm", Fault("status", code=503, skip=MIDWAY)),
        ("outage", Fault("status", code=500, skip=MIDWAY)),
        ("full", Fault("status", code=500, texts=tuple(f'"{make_job(n).record_id}"' for n in range(41, JOBS + 1)))),
        ("reset", Fault("reset", skip=MIDWAY, count=2)),
        ("cut", Fault("reset", stored=True, skip=MIDWAY, count=2)),
        ("html", Fault("html", code=200, stored=True, skip=MIDWAY, count=1)),
        ("unauthorised", Fault("status", code=403, skip=MIDWAY)),
    ],
)
def test_a_service_that_fails_midway(
    tmp_path: Path, simulator: Simulator, ends_well: Ending, key: str, fault: Fault
) -> None:
    site = FaultySite(tmp_path, simulator)
    site.befall(fault)
    first = site.run()
    assert first.code == (4 if key == "unauthorised" else 1)
    assert first.accepted == MIDWAY * BATCH
    assert first.waiting == JOBS - first.accepted, "what was in flight waits again"
    assert simulator.sgas.stats()["posts"] <= MIDWAY + 40, "few posts to a service that is not well"
    ends_well(key, site, first)


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("hang", Fault("hang", skip=MIDWAY, count=1)),
        ("slow", Fault("slow", code=503, stored=True, interval_s=0.005, skip=MIDWAY, count=1)),
    ],
)
def test_a_service_that_does_not_come_to_an_end(
    tmp_path: Path, simulator: Simulator, ends_well: Ending, key: str, fault: Fault
) -> None:
    site = FaultySite(tmp_path, simulator, timeout=SLOW)
    let_time_run_out(site)
    site.befall(fault)
    first = site.run()
    assert (first.code, first.accepted) == (1, MIDWAY * BATCH)
    ends_well(key, site, first)


@pytest.mark.parametrize("stored", [False, True])
def test_a_kept_connection_that_is_reset_once_is_not_a_problem(
    tmp_path: Path, simulator: Simulator, stored: bool
) -> None:
    site = FaultySite(tmp_path, simulator)
    site.befall(Fault("reset", stored=stored, skip=MIDWAY, count=1))
    first = site.run()
    assert (first.code, first.accepted) == (0, JOBS)
    assert len(site.balance().twice) == (BATCH if stored else 0)


def test_a_storm_within_a_run_is_waited_out(tmp_path: Path, simulator: Simulator) -> None:
    site = FaultySite(tmp_path, simulator, attempts=4)
    site.befall(Fault("status", code=503, skip=MIDWAY, count=3))
    assert site.run().code == 0
    assert len(site.slept_s) == 3
    assert site.everything_arrived()
    assert not site.balance().twice


def test_retry_after_is_obeyed(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator, attempts=2)
    site.befall(Fault("status", code=429, retry_after="77", skip=MIDWAY, count=1))
    first = site.run()
    assert site.slept_s == [77.0]
    found = site.balance()
    guarantees.row("throttled", f"waits as asked: {first.words}", len(found.lost), len(found.twice))
    assert site.everything_arrived()
    assert not found.twice


def test_a_message_too_large_is_parted(tmp_path: Path, pki: Pki, guarantees: Guarantees) -> None:
    with Simulator(pki, limit_bytes=8_000) as narrow:
        site = FaultySite(tmp_path, narrow)
        first = site.run()
        refused = site.posts() - narrow.sgas.stats()["posts"]
        found = site.balance()
        assert site.everything_arrived()
    assert refused >= JOBS / BATCH
    guarantees.row("oversized", f"split until it fits: {first.words}", len(found.lost), len(found.twice))
    assert (first.code, found.twice) == (0, frozenset())


def test_the_same_receipt_for_two_batches(
    tmp_path: Path, simulator: Simulator, pki: Pki, guarantees: Guarantees
) -> None:
    """A broker that numbers its messages carelessly. What is accepted is known by the batch, not by the number."""
    arrived: dict[str, int] = {}

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        for part in request.body.decode().split('recordId="')[1:]:
            record_id = part.partition('"')[0]
            arrived[record_id] = arrived.get(record_id, 0) + 1
        connection.answer(200, b'{"messageIds": ["7"]}')

    with serve(script, pki) as server:
        site = FaultySite(tmp_path, simulator)
        site.arrived = lambda: arrived  # type: ignore[method-assign]
        site.table["targets"]["neic"] = {
            "type": "https", "url": f"{server.url}/usage", "records": "ogf-ur", "attempts": 1, "workers": 1,
            "batch_records": BATCH,
        }  # fmt: skip
        first = site.run()
        again = site.run()
    found = site.balance()
    guarantees.row("duplicate receipts", f"{first.words}; then {again.words}", len(found.lost), len(found.twice))
    assert site.everything_arrived()
    assert not found.twice


@pytest.mark.parametrize(
    ("key", "answer", "taken"),
    [("maintenance", b'{"error": "maintenance"}', 0), ("stale receipt", None, 1), ("numbers", b'{"0": 0}', 0)],
)
def test_an_answer_that_names_no_record_that_was_sent(
    tmp_path: Path, simulator: Simulator, pki: Pki, guarantees: Guarantees, key: str, answer: bytes | None, taken: int
) -> None:
    """Messages have one record, so that any object with one key looks like a receipt."""
    arrived: dict[str, int] = {}
    receipts: list[bytes] = []
    is_up = False

    def script(request: ScriptedRequest, connection: ScriptedConnection) -> None:
        reply = answer if not is_up else None
        if reply is None and receipts and not is_up:
            reply = receipts[0]
        if reply is None:
            record_id = request.body.decode().partition('recordId="')[2].partition('"')[0]
            arrived[record_id] = arrived.get(record_id, 0) + 1
            receipts.append(f'{{"{record_id}": "{len(receipts) + 1}"}}'.encode())
            reply = receipts[-1]
        connection.answer(200, reply)

    with serve(script, pki) as server:
        site = FaultySite(tmp_path, simulator, url=f"{server.url}/sgas", batch_records=1)
        site.arrived = lambda: arrived  # type: ignore[method-assign]
        first = site.run()
        assert (first.code, first.accepted, first.waiting) == (1, taken, JOBS - taken)
        assert len(arrived) == taken
        is_up = True
        again = site.run()
    found = site.balance()
    words = f"{first.words}: {first.said}; then {again.words}"
    guarantees.row(key, words, len(found.lost), len(found.twice))
    assert (again.code, site.everything_arrived(), found.twice) == (0, True, frozenset())


# --- before a service is reached


def test_a_name_that_does_not_resolve(tmp_path: Path, simulator: Simulator, ends_well: Ending) -> None:
    site = FaultySite(tmp_path, simulator, url="https://no-such-name.invalid/sgas")
    first = site.run()
    assert (first.code, first.waiting) == (1, JOBS)
    site.configure("neic", url=simulator.sgas_url)
    ends_well("dns", site, first)


def test_a_handshake_that_fails(tmp_path: Path, simulator: Simulator, ends_well: Ending) -> None:
    with serve(lambda _request, connection: connection.cut()) as plain:  # the server at this port has no TLS
        site = FaultySite(tmp_path, simulator, url=f"https://localhost:{plain.port}/sgas")
        first = site.run()
    assert (first.code, first.waiting) == (1, JOBS)
    site.configure("neic", url=simulator.sgas_url)
    ends_well("handshake", site, first)


def test_a_certificate_of_an_unknown_authority(
    tmp_path: Path, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory, ends_well: Ending
) -> None:
    stranger = make_pki(tmp_path_factory.mktemp("stranger"), ca_cn="A Stranger", client_key="ec")
    site = FaultySite(tmp_path, simulator, credentials={"ca_directory": stranger.ca_directory})
    first = site.run()
    assert first.waiting == JOBS
    assert simulator.sgas.stats()["posts"] == 0
    site.table["credentials"]["ca_directory"] = str(simulator.pki.ca_directory)
    site.reopen()
    ends_well("untrusted", site, first)


# --- our own credentials


def test_our_certificate_expires_between_two_batches(
    tmp_path: Path, simulator: Simulator, pki: Pki, ends_well: Ending
) -> None:
    later = 0.0

    def a_year_goes_by() -> None:
        nonlocal later
        later = 366 * 86_400.0

    site = FaultySite(tmp_path, simulator)
    site.make_target = lambda name, settings, context: make_target(
        name, settings, msgspec.structs.replace(context, clock=lambda: time.time() + later)
    )
    with site.at_batch(MIDWAY, a_year_goes_by):
        first = site.run()
    assert first.code == 4
    assert MIDWAY * BATCH <= first.accepted <= (MIDWAY + 1) * BATCH
    assert first.waiting == JOBS - first.accepted
    later = 0.0  # as a renewed certificate would
    ends_well("expired", site, first)


def test_messages_that_cannot_be_signed(tmp_path: Path, simulator: Simulator, pki: Pki, ends_well: Ending) -> None:
    wrong = pki.other_key("wrong", key="ec")
    site = FaultySite(tmp_path, simulator, kind="ams", credentials={"key": wrong})
    first = site.run()
    assert (first.code, first.waiting) == (4, JOBS)
    assert simulator.ams.messages() == []
    site.table["credentials"]["key"] = str(pki.client.key)
    site.reopen()
    ends_well("signing", site, first)


def test_a_broker_that_takes_a_message_and_answers_500(tmp_path: Path, simulator: Simulator, ends_well: Ending) -> None:
    site = FaultySite(tmp_path, simulator, kind="ams")
    site.befall(Fault("status", code=500, service="publish", stored=True, skip=MIDWAY, count=1))
    first = site.run()
    assert (first.code, first.accepted) == (1, MIDWAY * BATCH)
    ends_well("ams lost answer", site, first)
    apel = simulator.apel.holdings()
    assert len(apel.jobs) == JOBS, "APEL counts what came twice once"
    assert apel.rejected == ()


# --- records


def test_poisoned_records(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator)
    poisoned = {make_job(number).record_id for number in (1, 33, 34, 77, 100)}
    site.befall(Fault("status", code=500, texts=tuple(f'"{record_id}"' for record_id in poisoned)))
    first = site.run()
    assert site.in_state("neic", State.REJECTED) == poisoned
    assert all("HTTP 500" in (site.reasons("neic")[record_id] or "") for record_id in poisoned)
    found = site.balance()
    words = f"{first.words}: refused again alone, after others were accepted"
    guarantees.row("poison", words, len(found.lost), len(found.twice))
    assert (first.code, first.accepted, first.rejected) == (3, JOBS - 5, 5)
    assert len(found.twice) <= 1, "one record shows that the service is well"
    site.befall()
    site.publisher.retry(State.REJECTED, "neic")
    assert site.run().accepted == len(poisoned)


def test_a_bad_summary_alone_in_the_oldest_month(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    october = make_job(1, user_dn="/DC=org/CN=Bad", end=OCTOBER + 5)
    site = FaultySite(
        tmp_path,
        simulator,
        jobs=[october, *make_jobs(JOBS - 1, first=2)],
        kind="ams",
        records="apel-summary",
        sync=True,
    )
    site.befall(Fault("status", code=400, service="publish", texts=("CN=Bad",)))
    first = site.run()
    assert (first.code, first.accepted, first.rejected) == (3, JOBS - 1, 1)
    assert site.in_state("neic", State.REJECTED) == {october.record_id}
    again = site.run()
    held = simulator.apel.holdings()
    counted = sum(int(dict(row.fields)["NumberOfJobs"]) for row in held.summaries.values())
    assert (again.accepted, again.rejected, held.rejected) == (0, 0, ())
    words = f"{first.words}: after later months were accepted; then {again.words}"
    guarantees.row("bad group", words, JOBS - 1 - counted, 0)
    assert counted == JOBS - 1


def test_a_disk_that_fills_while_a_bad_record_is_looked_for(
    tmp_path: Path, simulator: Simulator, guarantees: Guarantees
) -> None:
    """Whenever it fills, and for however long: what is new, good or bad, is answered 500 then, what it has 200."""
    bad = make_job(45).record_id
    poison = Fault("status", code=500, texts=(f'"{bad}"',))
    new = tuple(f'"{make_job(number).record_id}"' for number in range(41, JOBS + 1))
    lost, twice = 0, 0
    for skip, count in ((0, 3), (1, 2), (1, 9), (2, 4), (3, 1), (4, 2), (5, 3), (6, 1), (8, 5)):
        folder = tmp_path / f"{skip}-{count}"
        folder.mkdir()
        site = FaultySite(folder, simulator)
        site.befall(Fault("status", code=500, texts=new, skip=skip, count=count), poison)
        site.run()
        assert site.in_state("neic", State.REJECTED) <= {bad}, (skip, count)
        site.befall(poison)
        site.sources["ce1"].add(make_job(JOBS + 1))
        site.run()
        assert site.in_state("neic", State.REJECTED) == {bad}
        assert set(site.counted("neic")) == {State.ACCEPTED, State.REJECTED}
        found = site.balance()
        lost, twice = lost + len(found.lost), max(twice, len(found.twice))
        site.reopen()
    words = "after the next run all are accepted, and only the bad one is rejected"
    guarantees.row("filling", words, lost, twice)


@pytest.mark.parametrize(
    ("key", "facts"),
    [
        ("not latin-1", {"name": "Łódź 北京", "user_dn": "/DC=org/CN=Łukasz"}),
        ("markup", {"name": "a < b & c", "queue": "a&b<c>", "fqans": ("/atlas/Role=a&b",)}),
    ],
)
def test_names_that_are_hard_to_write(
    tmp_path: Path, simulator: Simulator, guarantees: Guarantees, key: str, facts: dict[str, Any]
) -> None:
    jobs = [*make_jobs(JOBS // 2), make_job(51, **facts), *make_jobs(JOBS // 2 - 1, first=52)]
    reported, lost, twice = [], 0, 0
    for kind, name in (("sgas", "SGAS"), ("ams", "APEL")):
        folder = tmp_path / kind
        folder.mkdir()
        site = FaultySite(folder, simulator, jobs=jobs, kind=kind)
        first = site.run()
        assert (first.code, site.everything_arrived()) == (0, True)
        reported.append(f"{name}: {first.words}")
        found = site.balance()
        lost, twice = lost + len(found.lost), twice + len(found.twice)
    assert simulator.apel.holdings().rejected == ()
    guarantees.row(key, ". ".join(reported), lost, twice)
    assert (lost, twice) == (0, 0)


def test_jobs_that_arrive_late(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator)
    assert site.run().code == 0
    before = site.publisher.status().targets["neic"].last_sent_end_time
    assert before is not None
    late = [make_job(number, end=before - number * 10_000) for number in range(200, 230)]
    site.sources["ce1"].add(*late, make_job(230, end=before))
    second = site.run()
    found = site.balance()
    guarantees.row("late", second.words, len(found.lost), len(found.twice))
    assert (second.code, second.accepted, found.twice) == (0, 31, frozenset())
    assert site.everything_arrived()


def test_one_target_that_cannot_be_used(tmp_path: Path, simulator: Simulator, guarantees: Guarantees) -> None:
    site = FaultySite(tmp_path, simulator)
    bad = dict(site.table["targets"]["neic"], url="https://no-such-name.invalid/sgas", vo=["no-such-vo", "atlas"])
    site.table["targets"] = {"first": bad, "neic": site.table["targets"]["neic"]}
    first = site.run()
    found = site.balance()
    guarantees.row("other target", f"the second: {first.accepted} accepted", len(found.lost), len(found.twice))
    assert site.everything_arrived()
    assert site.in_state("first", State.WAITING) == site.selected()
