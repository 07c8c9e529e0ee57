"""Notices by mail: once when a problem begins, once when it is over, to a real mail server."""

from __future__ import annotations

import email
import email.policy
import smtplib
import socket
from collections.abc import Iterator
from decimal import Decimal
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiosmtpd.controller import Controller

from publisher.config.allocations import Allocation
from publisher.config.operation import Notices
from publisher.errors import StoreCorruptError, StoreError, StoreFullError
from publisher.observe.allocations import AllocationUse
from publisher.observe.mail import MailError, problems, send_notices, send_unusable
from publisher.security.mail_server import MailServer
from publisher.status.check_host import mail as check_mail
from publisher.status.status import Status
from publisher.store import registry
from publisher.store.database import Store, open_store
from publisher.store.deliveries import HeldFor
from publisher.text import iso
from tests.publisher.observe.test_metrics import NOW, SOURCE, STATUS, TARGET
from tests.publisher.torque_cluster import NOW as CLUSTER_NOW
from tests.publisher.torque_cluster import TorqueCluster, torque_line


class Box:
    """What the server got."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.answer = "250 OK"

    async def handle_RCPT(  # noqa: N802 - the library's name
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if "unknown" in address:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - the library's name
        if self.answer.startswith("250"):
            message = email.message_from_bytes(envelope.content, policy=email.policy.SMTP)
            assert isinstance(message, EmailMessage)
            self.mails.append(message)
        return self.answer


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def settings(box: Box) -> Iterator[Notices]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = Controller(box, hostname="127.0.0.1", port=port)
    server.start()
    yield Notices(mail_to=("ops@example.org",), mail_from="usage@example.org", smtp=f"127.0.0.1:{port}")
    server.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/store.db")
    yield opened
    opened.close()


def status(**target: Any) -> Status:
    well = msgspec.structs.replace(TARGET, rejected=0)
    return msgspec.structs.replace(STATUS, targets={"neic": msgspec.structs.replace(well, **target)})


def test_suspect_jobs_of_a_source_are_a_problem_until_somebody_decides() -> None:
    doubtful = {"ce1": msgspec.structs.replace(SOURCE, suspect=2)}
    (found,) = problems(msgspec.structs.replace(status(), sources=doubtful), Notices(), NOW)
    assert found.key == "source ce1: suspect"
    assert "2 suspect jobs" in found.text
    assert found.text.endswith("usage-publisher collect ce1 --unreadable")
    assert problems(status(), Notices(), NOW) == []


def test_damaged_jobs_are_a_problem_until_they_are_replaced() -> None:
    (found,) = problems(msgspec.structs.replace(status(), damaged_jobs=2), Notices(), NOW)
    assert found.key == "store: damaged"
    assert "2 damaged jobs" in found.text
    assert "store check" in found.text


@pytest.mark.parametrize("contradiction", [{"missing": 3}, {"differing": 2}])
def test_what_the_evidence_contradicts_is_a_problem_until_it_agrees(contradiction: dict[str, int]) -> None:
    (found,) = problems(status(reconciled_at=NOW, **contradiction), Notices(), NOW)
    assert found.key == "target neic: contradicted"
    assert "usage-publisher reconcile neic" in found.text
    assert problems(status(shadow=True, reconciled_at=NOW, **contradiction), Notices(), NOW) == []


def test_a_problem_is_reported_once_and_its_end_once(store: Store, settings: Notices, box: Box) -> None:
    for _ in range(3):
        send_notices(store, settings, "EXAMPLE-SITE", status(rejected=2), NOW)
    assert len(box.mails) == 1
    assert box.mails[0]["Subject"] == "usage-publisher EXAMPLE-SITE: target neic: rejected"
    assert "has rejected 2 records" in box.mails[0].get_content()
    assert box.mails[0]["To"] == "ops@example.org"
    for _ in range(2):
        send_notices(store, settings, "EXAMPLE-SITE", status(), NOW + 3600)
    assert len(box.mails) == 2
    assert "solved: target neic: rejected" in box.mails[1]["Subject"]
    send_notices(store, settings, "EXAMPLE-SITE", status(rejected=1), NOW + 7200)
    assert len(box.mails) == 3


def test_what_begins_and_ends_together_is_one_mail(store: Store, settings: Notices, box: Box) -> None:
    send_notices(store, settings, "S", status(rejected=2), NOW)
    send_notices(
        store, settings, "S", status(certificate_days_left=3, last_error="HTTP 503", last_success=NOW - 90_000), NOW
    )
    assert len(box.mails) == 2
    text = box.mails[1].get_content()
    assert "valid for 3 more days" in text
    assert "HTTP 503" in text
    assert "Solved: target neic: rejected" in text


def test_a_mail_that_was_not_taken_is_tried_again(store: Store, settings: Notices, box: Box) -> None:
    box.answer = "451 later"
    with pytest.raises(MailError, match="could not be mailed"):
        send_notices(store, settings, "S", status(rejected=2), NOW)
    box.answer = "250 OK"
    send_notices(store, settings, "S", status(rejected=2), NOW)
    assert len(box.mails) == 1


def test_a_mail_server_that_is_not_there_is_an_error_that_names_it(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(MailError, match=f"127.0.0.1:{port}: Connection refused"):
        send_notices(
            store, Notices(mail_to=("ops@example.org",), smtp=f"127.0.0.1:{port}"), "S", status(rejected=1), NOW
        )


def test_without_recipients_nothing_is_tried(store: Store) -> None:
    send_notices(store, Notices(smtp="127.0.0.1:1"), "S", status(rejected=1), NOW)


def test_answers_from_outside_cannot_add_headers_or_steer_terminals(store: Store, settings: Notices, box: Box) -> None:
    said = "HTTP 500\r\nBcc: someone@example.org\x1b[2J"
    send_notices(store, settings, "S\nBcc: x@example.org", status(last_error=said, last_success=None), NOW)
    (mail,) = box.mails
    assert mail["Bcc"] is None
    assert "\x1b" not in mail.get_content()
    assert "Bcc: someone" in mail.get_content()


@pytest.mark.parametrize(
    ("last_success", "accepted", "said"),
    [
        (NOW - 86_400, 5, "has accepted nothing since"),
        (None, 0, "has never accepted anything"),
        (None, 5, "is failing"),
    ],
)
def test_a_failing_target_whose_last_success_a_clock_hides(last_success: int | None, accepted: int, said: str) -> None:
    failing = status(last_error="refused", last_success=last_success, accepted=accepted, waiting=1)
    (problem,) = [one for one in problems(failing, Notices(target_fails_for=0), NOW) if "failing" in one.key]
    assert said in problem.text
    assert "Waiting: 1 job." in problem.text


def test_a_run_that_stopped_is_mailed_until_one_does_not(store: Store, settings: Notices, box: Box) -> None:
    error = StoreFullError("the store x cannot be written", hint="Free some space")
    for stopped in (error, error, None, None):
        send_notices(store, settings, "EXAMPLE", status(), NOW, stopped=stopped)
    assert [mail["Subject"] for mail in box.mails] == [
        "usage-publisher EXAMPLE: run: stopped", "usage-publisher EXAMPLE: solved: run: stopped"
    ]  # fmt: skip
    text = " ".join(box.mails[0].get_content().split())
    assert "A run stopped before its end: the store x cannot be written. Free some space" in text
    assert "What to do: usage-publisher check" in text


def test_a_store_that_nobody_can_use_is_mailed(settings: Notices, box: Box) -> None:
    send_unusable(settings, "EXAMPLE", StoreError("the store x is that of the user y"), NOW)
    assert not box.mails
    send_unusable(settings, "EXAMPLE", StoreCorruptError("the store x is damaged"), NOW)
    assert [mail["Subject"] for mail in box.mails] == ["usage-publisher EXAMPLE: store: cannot be used"]


def test_what_is_worth_a_mail() -> None:
    silent = msgspec.structs.replace(SOURCE, silent=True)
    unread = msgspec.structs.replace(SOURCE, error="permission denied")
    found = Status(complete=False, sources={"a": silent, "b": unread}, targets=status(certificate_days_left=-1).targets)
    keys = [problem.key for problem in problems(found, Notices(), NOW)]
    assert keys == ["source a: silent", "source b: failing", "target neic: certificate"]


def test_jobs_that_no_evidence_confirms_are_reported() -> None:
    late = {"accepted": 8_076, "confirmed": 0, "unconfirmed_days": 9}
    assert not problems(status(**late), Notices(), NOW)
    (found,) = problems(status(**late, confirmation_overdue=True, evidence_problem="HTTP 500"), Notices(), NOW)
    assert found.key == "target neic: unconfirmed"
    assert "8,076 jobs" in found.text
    assert "for 9 days" in found.text
    assert "HTTP 500" in found.text
    assert "usage-publisher reconcile neic" in found.text


def test_a_failing_target_is_reported_after_the_time_that_is_set() -> None:
    failing = status(last_error="HTTP 503", last_success=NOW - 3600)
    assert not problems(failing, Notices(target_fails_for="2h"), NOW)  # type: ignore[arg-type]
    assert problems(failing, Notices(target_fails_for="1h"), NOW)  # type: ignore[arg-type]


def test_held_records_are_reported_as_long_as_they_are_held(tmp_path: Path, settings: Notices, box: Box) -> None:
    """A mail for each reason that begins and ends: a run ends with 3 only once, and a stuck job was forgotten."""
    cluster = TorqueCluster(tmp_path)
    cluster.log(torque_line(1, CLUSTER_NOW - 7200), torque_line(2, CLUSTER_NOW - 7100))
    with cluster.publisher() as publisher:
        publisher.run()
        for _ in range(2):
            send_notices(publisher.store, settings, "S", publisher.status(), CLUSTER_NOW)
    (mail,) = box.mails
    assert mail["Subject"] == "usage-publisher S: target spool: held, no-benchmark"
    assert (
        "Held for the target spool, and not sent: 2 records (no-benchmark), the first since 2026" in mail.get_content()
    )
    cluster.source["benchmark"] = {"type": "HEPscore23", "value": 14.2}
    with cluster.publisher() as publisher:
        publisher.run()
        send_notices(publisher.store, settings, "S", publisher.status(), CLUSTER_NOW)
    assert "solved: target spool: held, no-benchmark" in box.mails[-1]["Subject"]


def test_what_is_released_soon_is_reported_after_a_while() -> None:
    """A grid log has the entry of a job some minutes later: a mail every hour would say nothing."""
    held = {"neic": [HeldFor("no-grid-log-entry", 3, NOW - 3600), HeldFor("no-vo", 1, NOW)]}
    now = problems(status(held=4), Notices(), NOW, held)
    assert [problem.key for problem in now] == ["target neic: held, no-vo"]
    later = problems(status(held=4), Notices(held_for="1h"), NOW, held)  # type: ignore[arg-type]
    assert [problem.key for problem in later] == ["target neic: held, no-grid-log-entry", "target neic: held, no-vo"]
    assert not problems(status(held=4, shadow=True), Notices(), NOW, held)


def test_the_check_asks_for_each_recipient_and_sends_nothing(settings: Notices, box: Box) -> None:
    (well,) = check_mail(settings)
    assert (well.level, well.message) == ("green", f"{settings.smtp} takes mails to ops@example.org")
    some = settings.model_copy(update={"mail_to": ("ops@example.org", "unknown@example.org")})
    (bad,) = check_mail(some)
    assert (bad.level, bad.message) == ("yellow", f"{settings.smtp} refuses unknown@example.org: 550 no such user")
    assert box.mails == []
    assert list(check_mail(Notices())) == []


def test_the_check_says_that_no_server_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (bad,) = check_mail(Notices(mail_to=("ops@example.org",), smtp=f"127.0.0.1:{port}"))
    assert (bad.subject, bad.level) == ("mail", "yellow")
    assert bad.message == f"127.0.0.1:{port}: Connection refused"


def test_a_mail_server_that_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = MailServer("127.0.0.1", silent.getsockname()[1], False, timeout_s=0.05)
        with pytest.raises(smtplib.SMTPServerDisconnected, match="timed out"):
            server.refusals("a@example.org", ["b@example.org"])


def test_each_threshold_of_an_allocation_is_mailed_once(store: Store, settings: Notices, box: Box) -> None:
    def send(*used_h: float, **changes: Any) -> list[str]:
        before = len(box.mails)
        send_notices(store, settings, "SITE", status(), NOW, [allocation_use(hours, **changes) for hours in used_h])
        return [f"{mail['Subject']}\n{mail.get_content()}" for mail in box.mails[before:]]

    assert send(74) == []
    (first,) = send(76)
    assert "usage-publisher SITE: allocation Thesis: 75 % used" in first
    assert "The allocation Thesis (user ada) has used 76.0 % of its 100 core hours, in 50 % of its time." in first
    assert send(80) == send(70) == send(76) == []  # a correction sends none again, and none is ever "solved"
    (last,) = send(101)
    assert "allocation Thesis: 100 % used" in last  # not also of 90 %
    assert send(95) == send(140) == []
    assert send(99, until=NOW) == []  # it has ended
    (raised,) = send(170, amount=Decimal(200))
    assert "75 % used" in raised
    with store.read() as connection:
        assert not [key for key in registry.notified(connection) if "ada" in key or "Thesis" in key]


def test_a_threshold_that_the_mail_server_did_not_take_is_mailed_later(
    store: Store, settings: Notices, box: Box
) -> None:
    box.answer = "451 try again later"
    with pytest.raises(MailError):
        send_notices(store, settings, "SITE", status(), NOW, [allocation_use(91)])
    box.answer = "250 OK"
    send_notices(store, settings, "SITE", status(), NOW, [allocation_use(91)])
    assert len(box.mails) == 1
    assert "At the pace of the last 30 days it runs dry on" in box.mails[0].get_content()


def allocation_use(used_h: float, **changes: Any) -> AllocationUse:
    half = 10 * 86_400
    words = {"name": "Thesis", "user": "ada", "amount": 100, "since": iso(NOW - half), "until": iso(NOW + half)}
    one = Allocation.model_validate(words)
    used_ms = round(used_h * 3_600_000)
    return AllocationUse(one.model_copy(update=changes), used_ms, used_ms, half)
