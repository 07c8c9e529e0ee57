"""Any HTTPS service that accepts a POST: messages in any format, signed and encrypted if configured.

A status of 2xx is acceptance and the receipt. Each message has an Idempotency-Key, so that a service can recognise one
that is sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from publisher.config.targets import HttpsSettings
from publisher.errors import CredentialError
from publisher.finding import Finding
from publisher.security.credentials import read_secret
from publisher.security.http import Reply
from publisher.targets import answers
from publisher.targets.base import Accepted, Message, Outcome, Refused
from publisher.targets.identity import Identity, TargetContext, largest_payload

_SIGNED_TYPE = "message/rfc822"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,8192}")
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9/_.-]")


class HttpsTarget:
    """One URL that accepts messages."""

    kind = "https"

    def __init__(self, name: str, settings: HttpsSettings, context: TargetContext) -> None:
        """Raises `ConfigError` for a URL that would send records in plain text."""
        self.name = name
        self._url = settings.url
        self._signs = settings.is_signed
        self._encrypt_to = settings.encrypt_to
        self._token_file = settings.token_file
        self._limit_bytes = settings.batch_bytes
        self._identity = Identity(settings.credentials, context)
        self._client = self._identity.client(self._url, timeout_s=settings.timeout, proxy=settings.proxy)
        self._token: str | None = None

    def payload_limit_bytes(self) -> int | None:
        """The configured size, less signature and encryption. Raises `CredentialError` if messages cannot be signed."""
        size_bound: Callable[[int], int] = self._identity.signer(self._encrypt_to).size_bound if self._signs else int
        return largest_payload(self._limit_bytes, size_bound)

    def post(self, message: Message) -> Outcome:
        """Sign if configured, and post. See `publisher.targets.base.Target.post`."""
        if self._identity.has_expired():
            self.close()
        content = self._identity.signer(self._encrypt_to).sign(message.payload) if self._signs else message.payload
        headers = {
            "Content-Type": _SIGNED_TYPE if self._signs else message.content_type,
            "Idempotency-Key": '"' + _NOT_IN_KEY.sub("-", message.idempotency_key or message.batch_id)[:100] + '"',
            **self._authorisation(),
        }
        reply = self._client.request("POST", self._url, content=content, headers=headers)
        if not isinstance(reply, Reply):
            return answers.of_failure(reply)
        return outcome_of_reply(reply, self._identity.clock(), self._token or "")

    def check(self) -> list[Finding]:
        """Ask which methods the URL allows: harmless everywhere, and any answer shows that it is reachable."""
        findings = answers.certificate(self.name, self._identity)
        findings += answers.encryption(self.name, self._identity, self._encrypt_to if self._signs else None)
        try:
            headers = self._authorisation()
        except CredentialError as error:
            return [*findings, Finding(f"{self.name}: token", "red", error.message, error.hint)]
        if answers.is_red(findings):
            return findings
        reply = self._client.request("OPTIONS", self._url, headers=headers)
        expected = {200, 204, 404, 405, 501}
        findings += answers.reached(self.name, self._url, reply, self._identity.clock(), expected=expected)
        where = "This name must be known to the service, where it asks for a certificate"
        return [*findings, answers.registration(self.name, self._identity, where)]

    def close(self) -> None:
        """Close the connection; forget token, credentials and signer."""
        self._client.close()
        self._identity.forget()
        self._token = None

    def _authorisation(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        if self._token is None:
            token = read_secret(self._token_file, "token").decode("ascii", "replace").strip()
            if not _TOKEN.fullmatch(token):
                raise CredentialError(f"the file {self._token_file} does not contain a bearer token")
            self._token = token
        return {"Authorization": f"Bearer {self._token}"}


def outcome_of_reply(reply: Reply, now_s: float, token: str) -> Outcome:
    """2xx is acceptance; a 4xx without a common meaning is caused by the data."""
    answer = answers.describe(reply, secret=token)
    if reply.status // 100 == 2:
        return Accepted(receipt={"status": answer})
    outcome = answers.of_status(reply, now_s, secret=token)
    if isinstance(outcome, Refused) and reply.status // 100 == 4:
        return Refused(answer, certain=True)
    return outcome
