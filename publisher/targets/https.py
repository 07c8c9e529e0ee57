"""Any HTTPS service that accepts messages in any format, by POST, PUT, or PATCH, signed and encrypted if configured.

A status of 2xx is acceptance and the receipt. Each message has an Idempotency-Key, so that a service can recognise one
that is sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from publisher.config.targets import HttpsSettings
from publisher.finding import Finding
from publisher.security.http import Reply
from publisher.targets import answers
from publisher.targets.base import Accepted, Message, Outcome, Refused
from publisher.targets.identity import Identity, TargetContext, largest_payload

_SIGNED_TYPE = "message/rfc822"
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9/_.-]")


class HttpsTarget:
    """One URL that accepts messages."""

    kind = "https"

    def __init__(self, name: str, settings: HttpsSettings, context: TargetContext) -> None:
        """Raises `ConfigError` for a URL that would send records in plain text."""
        self.name = name
        self._url, self._method = settings.url, settings.method
        self._signs = settings.is_signed
        self._encrypt_to = settings.encrypt_to
        self._limit_bytes = settings.batch_bytes
        self._identity = Identity(settings.own_credentials, context)
        self._authorisation = self._identity.authorisation(timeout_s=settings.timeout, proxy=settings.proxy)
        self._client = self._identity.authorised_client(self._url, timeout_s=settings.timeout, proxy=settings.proxy)

    def payload_limit_bytes(self) -> int | None:
        """The configured size, less signature and encryption. Raises `CredentialError` if messages cannot be signed."""
        size_bound: Callable[[int], int] = self._identity.signer(self._encrypt_to).size_bound if self._signs else int
        return largest_payload(self._limit_bytes, size_bound)

    def post(self, message: Message) -> Outcome:
        """Sign if configured, and send. See `publisher.targets.base.Target.post`."""
        if self._identity.has_expired():
            self.close()
        content = self._identity.signer(self._encrypt_to).sign(message.payload) if self._signs else message.payload
        headers = {
            "Content-Type": _SIGNED_TYPE if self._signs else message.content_type,
            "Idempotency-Key": '"' + _NOT_IN_KEY.sub("-", message.idempotency_key or message.batch_id)[:100] + '"',
        }
        reply = self._client.request(self._method, self._url, content=content, headers=headers)
        if not isinstance(reply, Reply):
            return answers.of_failure(reply)
        return outcome_of_reply(reply, self._identity.clock())

    def check(self) -> list[Finding]:
        """Ask which methods the URL allows: harmless everywhere, and any answer shows that it is reachable."""
        findings = answers.certificate(self.name, self._identity, sends_token=self._identity.has_token)
        findings += answers.encryption(self.name, self._identity, self._encrypt_to if self._signs else None)
        findings += answers.token(self.name, self._authorisation, self._identity.clock())
        if answers.is_red(findings):
            return findings
        reply = self._client.request("OPTIONS", self._url)
        expected = {200, 204, 404, 405, 501}
        findings += answers.reached(self.name, self._url, reply, self._identity.clock(), expected=expected)
        if self._identity.optional() is None and self._identity.has_token:
            return findings
        where = "This name must be known to the service, where it asks for a certificate"
        return [*findings, answers.registration(self.name, self._identity, where)]

    def close(self) -> None:
        """Close the connection; forget token, credentials and signer."""
        self._client.close()
        self._identity.forget()


def outcome_of_reply(reply: Reply, now_s: float) -> Outcome:
    """2xx is acceptance; a 4xx without a common meaning is caused by the data."""
    answer = answers.describe(reply)
    if reply.status // 100 == 2:
        return Accepted(receipt={"status": answer})
    outcome = answers.of_status(reply, now_s, hint=answers.REFUSED if reply.secrets else answers.REGISTER)
    if isinstance(outcome, Refused) and reply.status // 100 == 4:
        return Refused(answer, certain=True)
    return outcome
