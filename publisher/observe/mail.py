"""Notices by mail: one when a problem begins, one when it is over; and one for each threshold of an allocation.

The store has the problems that were reported. A mail that the server did not accept is sent again by the next run, and
does not affect anything else. The problems are a pure function of the status and the settings.
"""

from __future__ import annotations

import shlex
import smtplib
import socket
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Final

import msgspec

from publisher.config.operation import Notices, address_of
from publisher.errors import PublisherError, StoreCorruptError, StoreError, StoreFullError, StoreUnreachableError
from publisher.observe.allocations import AllocationUse, is_of_allocation
from publisher.reason import RELEASED_SOON
from publisher.security.mail_server import MailServer, default_sender, mail_problem
from publisher.status.status import SourceStatus, Status, TargetStatus, reconcile_command
from publisher.store import deliveries, registry
from publisher.store.database import Store
from publisher.store.deliveries import HeldFor
from publisher.text import counted, elapsed_s, iso, safe

ADVICE: Final = "For details: usage-publisher status. What to do: usage-publisher check"


class Problem(msgspec.Struct, frozen=True):
    """One problem. `key` stays the same while it lasts; `text` says what happened and what to do."""

    key: str
    text: str


def problems(
    status: Status, settings: Notices, now: int, held: Mapping[str, Sequence[HeldFor]] | None = None
) -> list[Problem]:
    """All problems at `now` (epoch seconds). `held`: by target, why records are held."""
    listed: list[Problem] = []
    if status.damaged_jobs:
        listed.append(
            Problem(
                "store: damaged",
                f"The store has {counted(status.damaged_jobs, 'damaged job')}, which no message includes until their "
                "source was read again. `usage-publisher store check` shows them, and says what to do.",
            )
        )
    for name, source in status.sources.items():
        listed += _of_source(name, source)
    for name, target in status.targets.items():
        listed += _of_target(name, target, settings, now)
        if not target.shadow:
            listed += _of_held(name, (held or {}).get(name, ()), settings, now)
    return listed


def _of_allocations(uses: Sequence[AllocationUse], before: Container[str], now: int) -> tuple[list[Problem], list[str]]:
    """What began of the present allocations: of each the highest threshold reached of which no mail was sent; and the
    keys of all thresholds that these mails settle. None is ever over: a correction sends none of them again."""
    began: list[Problem] = []
    settled: list[str] = []
    for use in uses:
        if not use.allocation.is_current(now):
            continue
        new = [one for one in use.reached if use.notice_key(one) not in before]
        settled += map(use.notice_key, new)
        if new and max(new) == max(use.reached):
            began.append(Problem(f"allocation {use.allocation.name}: {max(new)} % used", use.text(now)))
    return began, settled


def _of_held(name: str, held: Sequence[HeldFor], settings: Notices, now: int) -> Iterator[Problem]:
    """A problem for each reason: a new one must not hide behind a known one. `run` reports each record only once."""
    for held_item in held:
        if held_item.code in RELEASED_SOON and (elapsed_s(held_item.since, now) or 0) < settings.held_for:
            continue
        yield Problem(
            f"target {name}: held, {held_item.code}",
            f"Held for the target {name}, and not sent: {counted(held_item.jobs, 'record')} ({held_item.code}), "
            f"the first since {iso(held_item.since)}. What is missing: usage-publisher records list --state held "
            f"--target {name}",
        )


def _of_source(name: str, source: SourceStatus) -> Iterator[Problem]:
    if source.error is not None:
        yield Problem(f"source {name}: failing", f"The source {name} could not be read: {source.error}")
    if source.silent:
        last = iso(source.last_job_end) or "never"
        yield Problem(
            f"source {name}: silent",
            f"The source {name} has been silent for longer than expect_every; its last job ended {last}. "
            "Check whether the batch system runs jobs, and writes its accounting where it is read.",
        )
    if source.suspect:
        yield Problem(
            f"source {name}: suspect",
            f"Held of the source {name}: {counted(source.suspect, 'suspect job')}, which a user may have made. Look at "
            f"them, then accept or settle them: usage-publisher collect {shlex.quote(name)} --unreadable",
        )


def _of_target(name: str, target: TargetStatus, settings: Notices, now: int) -> Iterator[Problem]:
    if target.last_error is not None and _fails_for_s(target, now) >= settings.target_fails_for:
        since = iso(target.last_success)
        success = f"has accepted nothing since {since}"
        if since is None:  # or it is in the future, and a clock was wrong
            success = "is failing" if target.accepted else "has never accepted anything"
        yield Problem(
            f"target {name}: failing",
            f"The target {name} {success}. Waiting: {counted(target.waiting, 'job')}. "
            f"Its last error: {target.last_error}",
        )
    if target.rejected:
        yield Problem(
            f"target {name}: rejected",
            f"The target {name} has rejected {counted(target.rejected, 'record')}: "
            f"usage-publisher records list --state rejected --target {name}",
        )
    if not target.shadow and target.totals_rejected and not target.rejected:
        yield Problem(
            f"target {name}: totals rejected",
            f"The target {name} has rejected {counted(target.totals_rejected, 'total')}, and has other values of the "
            f"same months. `usage-publisher check` names them. Correct the cause, then send them again: "
            f"usage-publisher republish {name} --month MONTH",
        )
    if not target.shadow and target.totals_held:
        yield Problem(
            f"target {name}: totals held",
            f"The service of the target {name} does not take {counted(target.totals_held, 'total')}, and has other "
            f"values of the same months. `usage-publisher publish {name}` tries again, and says why.",
        )
    if not target.shadow and (target.missing or target.differing):
        yield Problem(
            f"target {name}: contradicted",
            f"The service of the target {name} lacks {target.missing:,} of what was sent, and has {target.differing:,} "
            f"with other values, as of {iso(target.reconciled_at)}. Look at them: {reconcile_command(name, target)}",
        )
    if target.confirmation_overdue and target.unconfirmed_days is not None:
        said = (
            f" The last reconciliation had no evidence: {target.evidence_problem}." if target.evidence_problem else ""
        )
        yield Problem(
            f"target {name}: unconfirmed",
            f"The target {name} has accepted {counted(target.accepted - target.confirmed, 'job')} that its evidence "
            f"does not confirm, the oldest for {target.unconfirmed_days} days: the service may have refused what its "
            f"broker accepted.{said} Compare with {reconcile_command(name, target)}, then ask its administrator.",
        )
    days = target.certificate_days_left
    if days is not None and days < settings.certificate_days:
        when = "has expired" if days < 0 else f"is valid for {counted(days, 'more day')}"
        text = f"Our certificate for the target {name} {when}. Renew it in the file that `usage-publisher check` names."
        yield Problem(f"target {name}: certificate", text)


def _fails_for_s(target: TargetStatus, now: int) -> float:
    """Seconds since the last success; infinite for a target that never had one."""
    elapsed = elapsed_s(target.last_success, now)
    return float("inf") if elapsed is None else elapsed


class MailError(Exception):
    """The mail server did not accept a notice. The text says why."""


_FOR_EVERY_USER: Final = (StoreFullError, StoreCorruptError, StoreUnreachableError)
"""Of a store that another user cannot use either: root who runs a command by mistake sends no mail."""


def send_unusable(settings: Notices, site: str, error: StoreError, now: int) -> None:
    """Mail that the store cannot be used, in which case nothing knows what was mailed before. Raises `MailError`."""
    if isinstance(error, _FOR_EVERY_USER):
        text = f"The store cannot be used, and nothing is collected or sent: {error}"
        _send(settings, notice(settings, site, [Problem("store: cannot be used", text)], {}, now))


def send_notices(
    store: Store, settings: Notices, site: str, status: Status, now: int, allocations: Sequence[AllocationUse] = (),
    stopped: PublisherError | None = None,
) -> None:  # fmt: skip
    """Mail which problems began and which ended since the last mail, if any did, and which thresholds allocations have
    reached. `stopped`: the error that ended the run before its end. Raises `MailError`."""
    if not settings.mail_to:
        return
    with store.read() as connection:
        rows = {name: registry.get_target(connection, name) for name, target in status.targets.items() if target.held}
        held = {name: deliveries.held_by_reason(connection, row.id) for name, row in rows.items() if row is not None}
        present = {problem.key: problem.text for problem in problems(status, settings, now, held)}
        if stopped is not None:
            present["run: stopped"] = f"A run stopped before its end: {stopped}"
        before = registry.notified(connection)
    began = [Problem(key, text) for key, text in present.items() if key not in before]
    ended = {key: since for key, since in before.items() if key not in present and not is_of_allocation(key)}
    reached, settled = _of_allocations(allocations, before, now)
    if not began and not ended and not reached:
        return
    _send(settings, notice(settings, site, [*began, *reached], ended, now))
    with store.write() as connection:
        registry.record_notices(connection, [*(problem.key for problem in began), *settled], now)
        registry.forget_notices(connection, list(ended))


def notice(settings: Notices, site: str, began: Sequence[Problem], ended: Mapping[str, int], now: int) -> EmailMessage:
    """The mail about these problems. `ended`: when each began (epoch seconds), by key."""
    mail = EmailMessage()
    mail["From"] = settings.mail_from or default_sender()
    mail["To"] = ", ".join(settings.mail_to)
    mail["Date"] = format_datetime(_utc(now))
    mail["Message-ID"] = make_msgid(domain=socket.getfqdn())
    mail["Auto-Submitted"] = "auto-generated"
    first = began[0].key if began else f"solved: {next(iter(ended))}"
    more = len(began) + len(ended) - 1
    mail["Subject"] = safe(f"usage-publisher {site}: {first}" + (f" and {more} more" if more else ""))
    lines = [safe(problem.text) for problem in began]
    lines += [f"Solved: {safe(key)} (since {_utc(since):%Y-%m-%d %H:%M} UTC)." for key, since in ended.items()]
    mail.set_content("\n\n".join([*lines, ADVICE]) + "\n")
    return mail


def _utc(instant: int) -> datetime:
    return datetime.fromtimestamp(instant, UTC)


def _send(settings: Notices, mail: EmailMessage) -> None:
    try:
        with MailServer(*address_of(settings.smtp), settings.starttls).connected() as server:
            refused = server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise MailError(f"the notice could not be mailed through {settings.smtp}: {mail_problem(error)}") from error
    if refused:
        raise MailError(f"the mail server {settings.smtp} refused {', '.join(sorted(refused))}")
