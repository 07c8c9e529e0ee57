"""SGAS: usage records of OGF, posted over HTTPS with the client certificate.

A 200 whose JSON names the records is the receipt, checked record by record. SGAS stores a message whole or not at all,
has no status of its own for bad data (500 is either the data's fault or its own), and ignores a record it already has,
so sending again is harmless (the facts on receivers, section 1).
"""

from __future__ import annotations

import msgspec

from publisher import config
from publisher.finding import Finding
from publisher.targets import answers, checks, sgas_query
from publisher.targets.base import Accepted, DaySum, Message, Outcome, Refused, Unknown, Untold
from publisher.targets.context import Identity, TargetContext
from publisher.transport import Failure, Reply


class SgasTarget:
    """One SGAS server under its name in the configuration."""

    kind = "sgas"

    def __init__(self, name: str, settings: config.SgasTarget, context: TargetContext) -> None:
        """Raises `ConfigError` for a URL that would send records in plain text."""
        self.name = name
        base = settings.url.rstrip("/").removesuffix("/ur")
        self._base_url, self._insert_url = base, f"{base}/ur"
        self._identity = Identity(settings.credentials, context)
        self._limit_bytes = settings.batch_bytes
        self._client = self._identity.client(base, timeout_s=settings.timeout, proxy=settings.proxy)

    def payload_limit_bytes(self) -> int | None:
        """The payload travels as it is."""
        return self._limit_bytes

    def post(self, message: Message) -> Outcome:
        """Insert the records. See `publisher.targets.base.Target.post`."""
        if self._identity.has_expired():
            self.close()
        reply = self._client.request(
            "POST", self._insert_url, content=message.payload, headers={"Content-Type": message.content_type}
        )
        if not isinstance(reply, Reply):
            return answers.of_failure(reply)
        return judge(reply, message.record_ids, self._identity.clock())

    def check(self) -> list[Finding]:
        """Asks for the list of services and, without records, for the address that takes them."""
        findings = checks.certificate(self.name, self._identity)
        reply = self._client.request("GET", self._base_url) if not checks.is_red(findings) else None
        if reply is None:
            return findings
        findings += checks.reached(self.name, self._base_url, reply, self._identity.clock(), expected={200})
        if not checks.is_red(findings):
            insert = self._client.request("GET", self._insert_url)
            findings += checks.answered(
                f"{self.name}: inserting", self._insert_url, insert, expected={405}, means="takes POST"
            )
            findings.append(
                checks.registration(
                    self.name,
                    self._identity,
                    "Only records show whether this name may insert: it must have jobinsert in the sgas.authz of SGAS",
                )
            )
        return findings

    def usage(self, machine: str, first_day: int, behind_day: int) -> list[DaySum] | Untold:
        """What SGAS holds of a machine, by user, VO and day. See `publisher.targets.sgas_query`."""
        return sgas_query.usage(self._ask, machine, first_day, behind_day)

    def last_registration_s(self, machine: str) -> float | Untold | None:
        """Seconds since SGAS last took records of a machine; None: it never did."""
        return sgas_query.last_registration_s(self._ask, machine)

    def _ask(self, path: str) -> Reply | Failure:
        if self._identity.has_expired():
            self.close()
        return self._client.request("GET", self._base_url + path)

    def close(self) -> None:
        """Close the connection and forget the credentials."""
        self._client.close()
        self._identity.forget()


def judge(reply: Reply, record_ids: tuple[str, ...], now_s: float) -> Outcome:
    """What SGAS means by its answer."""
    if reply.status == 200:
        return _receipt(reply, record_ids)
    if reply.status == 406:
        return Refused(answers.describe(reply), certain=True)
    if reply.status == 500:
        return Refused(answers.describe(reply), certain=False)
    return answers.of_status(reply, now_s)


def _receipt(reply: Reply, record_ids: tuple[str, ...]) -> Outcome:
    """The ids of the reply against those sent.

    SGAS keeps a record under its GlobalJobId where it cannot use the LocalJobId. As many unexpected ids as missing
    ones, in order, are those; otherwise the missing are unknown.
    """
    try:
        rows = msgspec.json.decode(reply.body, type=dict[str, str | int])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Unknown(f"accepted without naming the records: {answers.describe(reply)}")
    sent = set(record_ids)
    missing = tuple(identity for identity in record_ids if identity not in rows)
    unexpected = [identity for identity in rows if identity not in sent]
    if not rows or (missing and not unexpected and len(missing) == len(record_ids)):
        return Unknown(f"accepted without naming the records: {answers.describe(reply)}")
    rewritten: dict[str, str] = {}
    if len(missing) == len(unexpected):
        rewritten = dict(zip(missing, unexpected, strict=True))
        missing = ()
    receipt = {identity: str(rows[identity]) for identity in record_ids if identity in rows}
    receipt |= {identity: str(rows[kept]) for identity, kept in rewritten.items()}
    return Accepted(receipt=receipt, missing=missing, rewritten=rewritten)
