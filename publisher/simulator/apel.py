"""SSM's receiver and the APEL loader: messages from the broker are decrypted, verified, parsed, and loaded or rejected.

As in reality a sender is not informed of a rejection; here it can be queried. Processing a message costs more than
accepting it: messages are processed when the content of the server is read, or at once if the broker is eager.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from formats.apel.text import TextRecord, parse
from formats.check.apel import check_text
from formats.rules import type_of
from formats.score import read_score, read_scores
from formats.signed_text import looks_encrypted
from formats.utilization.report import CSV_BEGINS, NotAReportError, UtilizationReport, check_report, read_report
from publisher.security import verify
from publisher.security.distinguished_name import slash_dn
from publisher.security.revocation import RevocationLists
from publisher.simulator.apel_tables import HeldRow, Key, LoadError, Table, Tables, read_car

_TABLES: dict[str, Table] = {
    "apel-job": "jobs",
    "apel-summary": "summaries",
    "apel-normalised-summary": "normalised",
    "apel-sync": "sync",
}
_DEFAULTS_NONE = ("SubmitHost", "GlobalUserName", "VO", "VOGroup", "VORole")


class Rejected(msgspec.Struct, frozen=True):
    """A message that was not loaded: its number in the order of arrival (from 0), its size, and the reason."""

    number: int
    size_bytes: int
    reason: str


class ApelHoldings(msgspec.Struct, frozen=True):
    """What the APEL server has. `record_ids`: how often each recordId of a CAR was loaded.

    `reports`: the last utilization report of each site and interval. APEL does not use them; they are for a portal that
    reads from this broker.
    """

    jobs: dict[Key, HeldRow]
    summaries: dict[Key, HeldRow]
    normalised: dict[Key, HeldRow]
    sync: dict[Key, HeldRow]
    record_ids: dict[str, int]
    rejected: tuple[Rejected, ...]
    messages: int
    reports: tuple[UtilizationReport, ...] = ()


class Receiver(msgspec.Struct, frozen=True):
    """The certificate that senders may encrypt messages for, and its key."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey


class ApelServer:
    """`authorities`: the trusted CAs; `signers`: the DNs that may sign (None: all certificates of these CAs)."""

    def __init__(
        self,
        authorities: Sequence[x509.Certificate],
        *,
        lists: RevocationLists | None = None,
        receiver: Receiver | None = None,
        signers: Sequence[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authorities = tuple(authorities)
        self._lists = lists or RevocationLists(None)
        self._receiver = receiver
        self._signers = None if signers is None else frozenset(signers)
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: list[Callable[[], bytes]] = []
        self.reset()

    def reset(self) -> None:
        """Delete everything."""
        with self._lock:
            self._pending.clear()
            self._tables = Tables()
            self._rejected: list[Rejected] = []
            self._reports: dict[tuple[str, int, int], UtilizationReport] = {}
            self._opened = 0

    def receive(self, content: Callable[[], bytes], *, eager: bool = False) -> None:
        """Accept a message; `content` returns its bytes when it is processed."""
        with self._lock:
            self._pending.append(content)
            if eager:
                self._open_pending()

    def holdings(self) -> ApelHoldings:
        """Process the waiting messages, and return what the server has. The dictionaries are copies."""
        with self._lock:
            self._open_pending()
            rows = {table: dict(held) for table, held in self._tables.rows.items()}
            return ApelHoldings(
                jobs=rows["jobs"], summaries=rows["summaries"], normalised=rows["normalised"], sync=rows["sync"],
                record_ids=dict(self._tables.record_ids), rejected=tuple(self._rejected), messages=self._opened,
                reports=tuple(self._reports.values()),
            )  # fmt: skip

    def _open_pending(self) -> None:
        for content in self._pending:
            message = content()
            try:
                self._load(message)
            except (LoadError, verify.SmimeError) as error:
                self._rejected.append(Rejected(self._opened, len(message), str(error)))
            self._opened += 1
        self._pending.clear()

    def _load(self, message: bytes) -> None:
        payload, publisher = self._open(message)
        try:
            text = payload.decode("utf-8")
        except UnicodeDecodeError as error:
            raise LoadError("not UTF-8") from error
        if text.startswith(("{", CSV_BEGINS)):
            self._keep_report(payload)
            return
        if text.lstrip().startswith("<"):
            table: Table = "jobs"
            records = read_car(payload, self._clock())
        else:
            table, records = _read_text(text, self._clock())
        for fields in records:
            self._tables.replace(table, fields, publisher)

    def _keep_report(self, payload: bytes) -> None:
        try:
            report = read_report(payload)
        except NotAReportError as error:
            raise LoadError(str(error)) from error
        if wrong := check_report(report):
            raise LoadError(f"{wrong[0].field}: {wrong[0].rule}")
        self._reports[report.site, report.start, report.stop] = report

    def _open(self, message: bytes) -> tuple[bytes, str]:
        """Payload and DN of the signer, as SSM accepts a message."""
        if not message.isascii():
            raise LoadError("not ASCII: SSM would stop here and pull this message for ever")
        if looks_encrypted(message):
            if self._receiver is None:
                raise LoadError("encrypted, and this receiver has no key")
            message = verify.decrypt(message, self._receiver.certificate, self._receiver.key)
        content = verify.open_signed(message)
        now = datetime.fromtimestamp(self._clock(), UTC)
        verify.verify_issued(content.certificate, self._authorities, now, self._lists)
        signer = slash_dn(content.certificate.subject)
        if self._signers is not None and signer not in self._signers:
            raise LoadError(f"Signer not in valid DNs list: {signer}")
        return content.payload, signer


def _read_text(text: str, now_s: float) -> tuple[Table, list[dict[str, str]]]:
    errors = [violation for violation in check_text(text, int(now_s)) if violation.level == "error"]
    if errors:
        first = errors[0]
        where = f"record {first.record}, {first.field}: " if first.record else ""
        raise LoadError(f"{where}{first.rule}")
    message = parse(text)
    kind = type_of(message.header, message.kind, message.version)
    assert kind is not None  # check_text refused other messages
    table = _TABLES[kind.name]
    return table, [_fields(record, table) for record in message.records]


def _fields(record: TextRecord, table: Table) -> dict[str, str]:
    """Fields as the server stores them: nulls as it writes them, the score by type and value with three decimals."""
    fields = {name: value for name in record.fields if (value := record.get(name)) is not None}
    if table == "sync":
        return {"SubmitHost": "None"} | fields
    fields = dict.fromkeys(_DEFAULTS_NONE, "None") | fields
    if table == "normalised":
        level = fields.get("NormalisedWallDuration", "")
        fields["ServiceLevelType"] = next(iter(read_scores(level)), "None") if level.startswith("{") else "None"
        return fields
    score = read_score(fields.get("ServiceLevel"), fields.get("ServiceLevelType"))
    if score is not None:
        fields["ServiceLevelType"], fields["ServiceLevel"] = score[0], f"{score[1]:.3f}"
    return fields
