"""The mail server that takes notices: connected to with or without STARTTLS, and asked whether it would take one."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from publisher.text import problem_text, safe

_OK: Final = 250
_TAKEN: Final = frozenset({_OK, 251})  # RFC 5321, 4.2.3: the latter forwards


class MailServer(msgspec.Struct, frozen=True):
    """Where it is; `starttls`: only with TLS and a valid certificate. `timeout_s`: of each answer."""

    host: str
    port: int
    starttls: bool
    timeout_s: float = 20.0

    @contextmanager
    def connected(self) -> Iterator[smtplib.SMTP]:
        """A server that was greeted. Raises OSError, SMTPException."""
        with smtplib.SMTP(self.host, self.port, timeout=self.timeout_s) as server:
            if self.starttls:
                server.starttls(context=ssl.create_default_context())
            server.ehlo_or_helo_if_needed()
            yield server

    def refusals(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        """The addresses of a mail that it would refuse, each with its answer; it is asked, and no mail is sent.
        Raises OSError, SMTPException."""
        with self.connected() as server:
            answers = {sender: server.mail(sender)}
            if answers[sender][0] == _OK:
                answers |= {recipient: server.rcpt(recipient) for recipient in recipients}
            server.rset()
        return {
            address: safe(f"{code} {text.decode('utf-8', 'replace')}")
            for address, (code, text) in answers.items()
            if code not in _TAKEN
        }


def default_sender() -> str:
    """The address that notices come from where none is configured."""
    return f"usage-publisher@{socket.getfqdn()}"


def mail_problem(error: OSError) -> str:
    """Why a mail server cannot be used; what it answered, with its code, or what the system says."""
    return str(error) if isinstance(error, smtplib.SMTPException) else problem_text(error)
