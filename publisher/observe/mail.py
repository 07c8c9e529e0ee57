"""Notices by mail: once when a trouble begins, once when it is over.

What was told is remembered in the store. A mail that the server did not take is tried again with the next run; it stops
nothing and loses nothing but itself.

Troubles worth a mail: pure, from the status and what is configured.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Final

import msgspec

from publisher.config.services import Notices, address_of
from publisher.status.status import SourceStatus, Status, TargetStatus
from publisher.store import registry as told
from publisher.store.database import Store
from publisher.text import elapsed_s, iso, safe

ADVICE: Final = "usage-publisher status tells more."


class Trouble(msgspec.Struct, frozen=True):
    """One thing that is wrong. `key` is the same as long as it goes on; `text` tells people what and what now."""

    key: str
    text: str


def troubles(status: Status, settings: Notices, now: int) -> list[Trouble]:
    """All that is wrong now."""
    found: list[Trouble] = []
    for name, source in status.sources.items():
        found += _of_source(name, source)
    for name, target in status.targets.items():
        found += _of_target(name, target, settings, now)
    return found


def _of_source(name: str, source: SourceStatus) -> Iterator[Trouble]:
    if source.error is not None:
        yield Trouble(f"source {name}: failing", f"The source {name} could not be read: {source.error}")
    if source.silent:
        last = iso(source.last_job_end) or "never"
        yield Trouble(
            f"source {name}: silent",
            f"The source {name} is silent for longer than expect_every; its last job ended {last}. "
            "Does the batch system run jobs, and still write its accounting where we read it?",
        )


def _of_target(name: str, target: TargetStatus, settings: Notices, now: int) -> Iterator[Trouble]:
    if target.last_error is not None and _fails_for_s(target, now) >= settings.target_fails_for:
        since = iso(target.last_success) or "ever"
        yield Trouble(
            f"target {name}: failing",
            f"The target {name} has had no success since {since}; {target.waiting} jobs wait for it. "
            f"It says: {target.last_error}",
        )
    if target.rejected:
        yield Trouble(
            f"target {name}: rejected",
            f"The target {name} rejects records, {target.rejected} by now: "
            f"usage-publisher rejected list --target {name}",
        )
    days = target.certificate_days_left
    if days is not None and days < settings.certificate_days:
        when = "has expired" if days < 0 else f"is valid for {days} more days"
        yield Trouble(f"target {name}: certificate", f"Our certificate for the target {name} {when}. Renew it.")


def _fails_for_s(target: TargetStatus, now: int) -> float:
    """How long there was no success; a target that never had any fails for as long as one can think of."""
    elapsed = elapsed_s(target.last_success, now)
    return float("inf") if elapsed is None else elapsed


_TIMEOUT_S = 20.0


class MailError(Exception):
    """The mail server did not take a notice; the text says why."""


def tell(store: Store, settings: Notices, site: str, status: Status, now: int) -> None:
    """Send a mail about what began and what ended since the last one, if anything did. Raises `MailError`."""
    if not settings.mail_to:
        return
    present = {trouble.key: trouble.text for trouble in troubles(status, settings, now)}
    with store.read() as connection:
        before = told.known(connection)
    began = [Trouble(key, text) for key, text in present.items() if key not in before]
    ended = {key: since for key, since in before.items() if key not in present}
    if not began and not ended:
        return
    _send(settings, message(settings, site, began, ended, now))
    with store.write() as connection:
        told.remember(connection, [trouble.key for trouble in began], now)
        told.forget(connection, list(ended))


def message(settings: Notices, site: str, began: Sequence[Trouble], ended: Mapping[str, int], now: int) -> EmailMessage:
    """The mail. `ended`: when each began, by key."""
    mail = EmailMessage()
    mail["From"] = settings.mail_from or f"usage-publisher@{socket.getfqdn()}"
    mail["To"] = ", ".join(settings.mail_to)
    mail["Date"] = format_datetime(_utc(now))
    mail["Message-ID"] = make_msgid(domain=socket.getfqdn())
    mail["Auto-Submitted"] = "auto-generated"
    first = began[0].key if began else f"over: {next(iter(ended))}"
    more = len(began) + len(ended) - 1
    mail["Subject"] = safe(f"usage-publisher {site}: {first}" + (f" and {more} more" if more else ""))
    lines = [safe(trouble.text) for trouble in began]
    lines += [f"Over: {safe(key)}, which began {_utc(since):%Y-%m-%d %H:%M} UTC." for key, since in ended.items()]
    mail.set_content("\n\n".join([*lines, ADVICE]) + "\n")
    return mail


def _utc(instant: int) -> datetime:
    return datetime.fromtimestamp(instant, UTC)


def _send(settings: Notices, mail: EmailMessage) -> None:
    host, port = address_of(settings.smtp)
    try:
        with smtplib.SMTP(host, port, timeout=_TIMEOUT_S) as server:
            if settings.starttls:
                server.starttls(context=ssl.create_default_context())
            refused = server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise MailError(f"the notice could not be mailed through {settings.smtp}: {error}") from error
    if refused:
        raise MailError(f"the mail server {settings.smtp} refused {', '.join(sorted(refused))}")
