"""Notices by mail: once when a trouble begins, once when it is over.

What was told is remembered in the store. A mail that the server did not take is tried again with the next run; it stops
nothing and loses nothing but itself.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid

from publisher.config_observe import Notices, address_of
from publisher.observe.troubles import ADVICE, Trouble, troubles
from publisher.pipeline.status import Status
from publisher.plain_text import safe
from publisher.store import notices as told
from publisher.store.database import Store

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
