"""SGAS: usage records of OGF, posted over HTTPS with the client certificate.

A 200 whose JSON names the records that were sent is the receipt, checked record by record; a 200 that names none of
them proves nothing. SGAS stores a message whole or not at all, has no status of its own for bad data (500 is either the
data's fault or its own), and ignores a record it already has, so sending again is harmless (the facts on receivers,
section 1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from formats.rules import SgasRules
from publisher import config
from publisher.finding import Finding
from publisher.targets import answers, checks, sgas_query
from publisher.targets.base import Accepted, DaySum, Message, Outcome, Refused, Unknown, Untold
from publisher.targets.context import Identity, TargetContext
from publisher.transport import Failure, Reply

_is_row_id = re.compile(r"[1-9][0-9]{0,18}").fullmatch
"""Matches the id of a row in SGAS' database, as text: a positive bigint."""


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
        return judge(reply, message, self._identity.clock())

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


def judge(reply: Reply, message: Message, now_s: float) -> Outcome:
    """What SGAS means by its answer to a message."""
    if reply.status == 200:
        return _receipt(reply, message)
    if reply.status == 406:
        return Refused(answers.describe(reply), certain=True)
    if reply.status == 500:
        return Refused(answers.describe(reply), certain=False)
    return answers.of_status(reply, now_s)


def _receipt(reply: Reply, message: Message) -> Outcome:
    """The rows of the reply against the records sent: accepted are those that it names, each with the id of a row.

    SGAS keeps a record under its GlobalJobId where it cannot use the LocalJobId; such a record is named by that. What
    is not named is unknown, and so are all if the reply is not an object of row ids, no two the same: a page of a
    proxy, an answer to another message that a cache repeats, or the `null` that SGAS answers after a restart of its
    database although it stored them.
    """
    unknown = Unknown(f"the answer does not name the records that were sent: {answers.describe(reply)}")
    try:
        rows = {
            identity: str(row) for identity, row in msgspec.json.decode(reply.body, type=dict[str, str | int]).items()
        }
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return unknown
    if not all(map(_is_row_id, rows.values())) or len(set(rows.values())) < len(rows):
        return unknown
    receipt = {identity: rows[identity] for identity in message.record_ids if identity in rows}
    missing = [identity for identity in message.record_ids if identity not in rows]
    others = rows.keys() - receipt.keys()
    rewritten = _rewritten(message.payload, missing, others) if missing and others else {}
    receipt |= {identity: rows[kept] for identity, kept in rewritten.items()}
    if not receipt:
        return unknown
    left = tuple(identity for identity in missing if identity not in rewritten)
    return Accepted(receipt=receipt, missing=left, rewritten=rewritten)


def _rewritten(payload: bytes, missing: Sequence[str], others: AbstractSet[str]) -> dict[str, str]:
    """The records that are `missing` in a reply and kept under their GlobalJobId, one of the `others` that it names.

    Only SGAS' own rule counts: a LocalJobId that it cannot use, and the GlobalJobId of that very record. Two records
    with the same GlobalJobId are one row there, so it stands for neither.
    """
    from formats.read_xml import NotAMessageError, read  # noqa: PLC0415 - the parser is needed for such replies alone

    try:
        jobs = [record.job for record in read(payload)]
    except NotAMessageError:  # a format of an add-on that is not XML
        return {}
    sent_as = Counter(job.global_id for job in jobs)
    unnamed = set(missing)
    return {
        job.record_id: job.global_id
        for job in jobs
        if job.record_id in unnamed
        and job.global_id in others
        and job.global_id is not None
        and sent_as[job.global_id] == 1
        and SgasRules.rewrites_record_id(job.local_id or "")
    }
