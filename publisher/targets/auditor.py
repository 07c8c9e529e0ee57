"""AUDITOR: records as JSON, posted over HTTPS with the client certificate (facts on AUDITOR).

AUDITOR stores an array whole or not at all, and refuses one with a record that it has: 500 `RECORD_EXISTS` or, with its
option `ignore_record_exists_error`, 200 with a warning, which stores nothing either. So only a 200 without a body is an
acceptance. After a repeat, the records of these days are read back: what is absent is sent, and what is there is
compared. Equal is accepted; where only the end differs, or was unknown, `PUT` corrects it; all else is `kept`.

A stream of records that ends early looks complete, because AUDITOR ends it in the same way when its database fails. So
the records of a day are read in both orders, and are evidence only if both give the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn, TypeVar
from urllib.parse import quote

import msgspec

from formats.auditor.read import AuditorRecord, columns_of, compare, read_message
from formats.calendar import SECONDS_A_DAY
from formats.columns import RecordColumns
from formats.text import date_time
from publisher.config.auditor import AuditorSettings
from publisher.finding import Finding
from publisher.security.exchange import Failure
from publisher.security.http import Reply
from publisher.targets import answers
from publisher.targets.base import (
    Accepted,
    Blocked,
    EvidenceUnavailable,
    Message,
    Outcome,
    Oversized,
    Refused,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)
from publisher.targets.identity import Identity, TargetContext

_MOST_BYTES: Final = (1 << 20) - 1
"""AUDITOR refuses a body of more than 2 MiB; a proxy before it often one of more than 1 MiB."""
_EXISTS: Final = b"RECORD_EXISTS"
_JSON: Final = {"Content-Type": "application/json"}


class AuditorTarget:
    """One AUDITOR service."""

    kind = "auditor"

    def __init__(self, name: str, settings: AuditorSettings, context: TargetContext) -> None:
        """Raises `ConfigError` for a URL that would send records in plain text."""
        self.name = name
        self._base = settings.url.rstrip("/")
        self._limit_bytes = min(settings.batch_bytes, _MOST_BYTES)
        self._identity = Identity(settings.credentials, context)
        self._client = self._identity.client(self._base, timeout_s=settings.timeout, proxy=settings.proxy)

    def payload_limit_bytes(self) -> int | None:
        """The configured size, below what AUDITOR and proxies accept."""
        return self._limit_bytes

    def post(self, message: Message) -> Outcome:
        """Post all records; after a repeat, those that are absent, and compare the others."""
        if self._identity.has_expired():
            self.close()
        outcome = self._add(message.payload, message.record_ids)
        return outcome if outcome is not None else self._one_by_one(message)

    def records(self, day: int) -> Sequence[RecordColumns] | EvidenceUnavailable:
        """See `publisher.targets.base.GivesRecords`."""
        begin = day * SECONDS_A_DAY
        records = self._twice(begin, begin + SECONDS_A_DAY)
        try:
            return records if isinstance(records, EvidenceUnavailable) else [columns_of(record) for record in records]
        except ValueError as error:
            return EvidenceUnavailable(f"a record cannot be read: {error}")

    def check(self) -> list[Finding]:
        """Is it healthy, and may we read? Nothing shows whether we may write, but to write."""
        findings = answers.certificate(self.name, self._identity)
        if answers.is_red(findings):
            return findings
        now_s = self._identity.clock()
        url = f"{self._base}/health_check"
        findings += answers.reached(self.name, url, self._client.request("GET", url), now_s, expected={200})
        url = f"{self._base}/records?limit=1"
        reply = self._client.request("GET", url)
        findings += answers.answered(f"{self.name}: records", url, reply, expected={200}, means="can be read")
        where = "This name must be in `write_access_cn` and `read_access_cn` of AUDITOR, if it uses TLS"
        return [*findings, answers.registration(self.name, self._identity, where)]

    def close(self) -> None:
        """Close the connection; forget the credentials."""
        self._client.close()
        self._identity.forget()

    # --- sending

    def _add(self, payload: bytes, record_ids: Sequence[str]) -> Outcome | None:
        """Add an array of records; None if AUDITOR has one of them, or one is in it twice."""
        reply = self._client.request("POST", f"{self._base}/records", content=payload, headers=_JSON)
        return self._outcome(reply, record_ids)

    def _outcome(self, reply: Reply | Failure, record_ids: Sequence[str]) -> Outcome | None:
        if isinstance(reply, Failure):
            return answers.of_failure(reply)
        if reply.status == 200 and not reply.body.strip():
            return Accepted({"status": answers.describe(reply), "records": str(len(record_ids))})
        if _is_repeat(reply):
            return None
        answer = answers.describe(reply)
        if reply.status == 500:  # UNEXPECTED_ERROR: its database
            return Transient(answer)
        outcome = answers.of_status(reply, self._identity.clock())
        if isinstance(outcome, Unknown) and reply.status == 200:
            return Unknown(f"not an answer of AUDITOR: {answer}. Check the URL, and the proxy before it")
        return Refused(answer, certain=True) if isinstance(outcome, Refused) else outcome

    def _one_by_one(self, message: Message) -> Outcome:
        """What becomes of each record of a message with a repeat: see the module."""
        try:
            return _Repeats(self, message).outcome()
        except _HaltedError as stopped:
            return stopped.outcome

    def add_one(self, body: bytes, record_id: str) -> Outcome | None:
        """Add a record; None if AUDITOR has it."""
        reply = self._client.request("POST", f"{self._base}/record", content=body, headers=_JSON)
        return self._outcome(reply, [record_id])

    def add_all(self, bodies: Sequence[bytes], record_ids: Sequence[str]) -> Outcome | None:
        """Add an array of records; None as above."""
        return self._add(b"[" + b",".join(bodies) + b"]", record_ids)

    def correct(self, body: bytes, record_id: str) -> Outcome:
        """Change the end of a record."""
        headers = {**_JSON, "Content-Length": str(len(body))}
        reply = self._client.request("PUT", f"{self._base}/record", content=body, headers=headers)
        if isinstance(reply, Reply) and reply.status == 404:  # removed since it was read
            return Unknown(answers.describe(reply))
        return self._outcome(reply, [record_id]) or Unknown("AUDITOR answered to a PUT that the record exists")

    # --- reading

    def present(self, ours: Sequence[AuditorRecord]) -> dict[str, AuditorRecord] | Outcome:
        """Those of AUDITOR's records, by id, that ended when these did. They may be incomplete, and are not asked for
        if these ended on several days: most of them would be of other runs."""
        ends = [record.stop or 0 for record in ours]
        if max(ends) - min(ends) > SECONDS_A_DAY:
            return {}
        records = self._between(min(ends), max(ends) + 1)
        return records if not isinstance(records, list) else {record.record_id: record for record in records}

    def named(self, record_id: str) -> AuditorRecord | Outcome | None:
        """The record with an id; None if AUDITOR gives none."""
        records = self._get(f"record_id={quote(record_id, safe='')}")
        if not isinstance(records, list):
            return records
        return next((record for record in records if record.record_id == record_id), None)

    def _between(self, begin: int, end: int, order: str = "asc") -> list[AuditorRecord] | Outcome:
        """The records that ended from `begin` until `end` (exclusive), epoch seconds.

        The brackets must stand as they are: AUDITOR does not read them encoded.
        """
        query = f"stop_time[gte]={date_time(begin)}&stop_time[lt]={date_time(end)}&sort_by[{order}]=stop_time"
        records = self._get(query)
        if isinstance(records, Oversized) and end - begin > 1:
            middle = (begin + end) // 2
            first, second = self._between(begin, middle, order), self._between(middle, end, order)
            if isinstance(first, list) and isinstance(second, list):
                return [*first, *second]
            return second if isinstance(first, list) else first
        return records

    def _twice(self, begin: int, end: int) -> list[AuditorRecord] | EvidenceUnavailable:
        first, second = (self._between(begin, end, order) for order in ("asc", "desc"))
        if not isinstance(first, list) or not isinstance(second, list):
            bad = second if isinstance(first, list) else first
            return EvidenceUnavailable(getattr(bad, "answer", ""), unauthorised=isinstance(bad, Unauthorised))
        if {record.record_id for record in first} != {record.record_id for record in second}:
            return EvidenceUnavailable(
                f"AUDITOR gave {len(first):,} records of {date_time(begin)[:10]} in one order, and {len(second):,} in "
                "the other: its database failed, or another program is adding records. The next run asks again"
            )
        return first

    def _get(self, query: str) -> list[AuditorRecord] | Outcome:
        reply = self._client.request("GET", f"{self._base}/records?{query}")
        if isinstance(reply, Failure):
            return Oversized(reply.message) if reply.kind == "too-large" else answers.of_failure(reply)
        if reply.status != 200:
            return answers.of_status(reply, self._identity.clock())
        try:
            return list(_stream(reply.body))
        except (msgspec.ValidationError, ValueError) as error:
            return Unknown(f"AUDITOR's answer cannot be read: {error}")


def _is_repeat(reply: Reply) -> bool:
    """Whether AUDITOR has a record: with `ignore_record_exists_error` the answer is 200 with a warning."""
    if reply.status == 500:
        return reply.body.strip().strip(b'"') == _EXISTS
    if reply.status != 200:
        return False
    try:
        return bool(msgspec.json.decode(reply.body, type=_Warning).warning)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


class _Warning(msgspec.Struct, frozen=True):
    warning: str


_raw_decode: Final = json.JSONDecoder().raw_decode


def _stream(body: bytes) -> Iterator[AuditorRecord]:
    """The records of a stream: JSON objects one after the other, without commas. Raises `ValueError`."""
    text, place = body.decode().strip(), 0
    while place < len(text):
        record, place = _raw_decode(text, place)
        while text[place : place + 1].isspace():
            place += 1
        yield msgspec.convert(record, AuditorRecord)


_T = TypeVar("_T")


class _HaltedError(Exception):
    """An answer after which no further record is sent."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class _Repeats:
    """The records of a message of which AUDITOR has some."""

    def __init__(self, target: AuditorTarget, message: Message) -> None:
        self._target = target
        self._ids = message.record_ids
        bodies = msgspec.json.decode(message.payload, type=list[msgspec.Raw])
        self._bodies = dict(zip(self._ids, map(bytes, bodies), strict=True))
        self._ours = dict(zip(self._ids, read_message(message.payload), strict=True))
        self._receipt: Counter[str] = Counter()
        self._kept: dict[str, str] = {}

    def outcome(self) -> Outcome:
        """Send what is absent, compare the rest. Raises `_HaltedError`."""
        if len(self._bodies) < len(self._ids):  # two runs with one id of a collector: each is decided alone
            return Oversized("two records of the message have one id", measured=True)
        there = self._read(self._target.present(list(self._ours.values())))
        absent = []
        for record_id in self._ids:
            if record_id in there:
                self._settle(record_id, there[record_id])
            else:
                absent.append(record_id)
        if absent and not (there and self._add_all(absent)):
            for record_id in absent:
                self._add_one(record_id)
        receipt = {what: str(number) for what, number in self._receipt.items()}
        return Accepted(receipt, kept=self._kept)

    def _add_all(self, record_ids: Sequence[str]) -> bool:
        """Add these records; False if AUDITOR has one of them all the same: a stream ended early, or another end."""
        done = self._target.add_all([self._bodies[record_id] for record_id in record_ids], record_ids)
        if done is None:
            return False
        self._stored(done, len(record_ids))
        return True

    def _add_one(self, record_id: str) -> None:
        done = self._target.add_one(self._bodies[record_id], record_id)
        if done is not None:
            self._stored(done, 1)
            return
        theirs = self._read(self._target.named(record_id))
        if theirs is None:
            self._stop(Unknown(f"AUDITOR has the record {record_id}, and does not give it"))
        self._settle(record_id, theirs)

    def _settle(self, record_id: str, theirs: AuditorRecord) -> None:
        """What becomes of a record that AUDITOR has."""
        try:
            compared = compare(theirs, self._ours[record_id])
        except ValueError as error:
            self._stop(Transient(f"AUDITOR's record {record_id} cannot be read: {error}"))
        if not compared.difference:
            self._receipt["already there"] += 1
        elif compared.is_correctable:
            done = self._target.correct(self._bodies[record_id], record_id)
            if not isinstance(done, Accepted):
                self._stop(done)
            self._receipt["corrected"] += 1
        else:
            self._kept[record_id] = compared.difference

    def _stored(self, done: Outcome, number: int) -> None:
        if not isinstance(done, Accepted):
            self._stop(done)
        self._receipt["stored"] += number

    def _read(self, found: _T | Outcome) -> _T:
        """What was read. Raises `_HaltedError` where it could not be: reading shows nothing about the data sent."""
        if isinstance(found, Unauthorised | Throttled):
            self._stop(found)
        if isinstance(found, Accepted | Transient | Unknown | Refused | Blocked | Oversized):
            self._stop(Transient(getattr(found, "answer", "")))
        return found

    def _stop(self, outcome: Outcome) -> NoReturn:
        """Send no more. What was stored until then must not count as certainly not accepted."""
        if self._receipt["stored"] or self._receipt["corrected"]:
            if isinstance(outcome, Refused | Oversized | Unauthorised):
                outcome = msgspec.structs.replace(outcome, after_unknown=True)
            elif not isinstance(outcome, Accepted):
                outcome = Unknown(getattr(outcome, "answer", ""))
        raise _HaltedError(outcome)
