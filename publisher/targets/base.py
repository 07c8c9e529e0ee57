"""The protocol of targets, between the ledger and the services that accept usage records.

A target posts one finished message and returns the outcome. It does not retry, does not split, and keeps no state but
its connection, its token, and what it learned of the service in this run: `publisher.publish.sender` decides what
follows, and the store records it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from formats.calendar import Month
from formats.columns import RecordColumns, TotalColumns
from publisher.finding import Finding


class Message(msgspec.Struct, frozen=True):
    """A finished message before it is signed: `payload` is what the service will read.

    `record_ids`: of the records in it, in order; empty for formats whose records have no id (APEL text). `keys`: the
    same, or the keys of totals, counts, or reports. `sent_before`: those keys of which a version, this one or another,
    was sent before, or may have been. `batch_id`:
    unique to the contents of the batch, and the same when that is sent again. `idempotency_key`: for services that
    answer a repeated request from memory (empty: the batch id); a group gets a new one each time, since it may replace
    another that replaced the same contents before.
    """

    batch_id: str
    format: str
    content_type: str
    payload: bytes
    record_ids: tuple[str, ...] = ()
    idempotency_key: str = ""
    sent_before: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


class Accepted(msgspec.Struct, frozen=True):
    """The service accepted the message.

    `receipt`: its answer, which is kept (SGAS: record id to row id; AMS: message ids; directory: file names).
    `missing`: record ids that the answer should name and does not: their outcome is unknown. `rewritten`: from record
    ids to the ids under which the service keeps those records: accepted, and reported. `kept`: from record ids to what
    differs in the records that the service already had and does not change: they are superseded.
    """

    receipt: Mapping[str, str]
    missing: tuple[str, ...] = ()
    rewritten: Mapping[str, str] = {}
    kept: Mapping[str, str] = {}


class Transient(msgspec.Struct, frozen=True):
    """Not accepted, and not because of the data: everything in it waits. `answer`: what the service answered, or
    what happened. `timed_out`: the exchange took too long, which a smaller message may not."""

    answer: str
    timed_out: bool = False


class Throttled(msgspec.Struct, frozen=True):
    """Not accepted now: the service asks to wait for this many seconds (None: it gives no time)."""

    answer: str
    retry_after_s: float | None


class Oversized(msgspec.Struct, frozen=True):
    """Not accepted because of its size: send it in smaller parts. `measured`: it was not sent, because its size is
    known to be too large; otherwise the service said so. `after_unknown`: see `Refused`."""

    answer: str
    measured: bool = False
    after_unknown: bool = False


class Refused(msgspec.Struct, frozen=True):
    """Refused. `certain`: the answer is about the data (SGAS 406), and another attempt changes nothing. Otherwise it
    may be an outage (SGAS 500).

    `parts`: the record ids of the message, in parts of which the service accepts or refuses each as a whole, whatever
    is sent with it; a single part with all of them is refused for itself. Empty if the answer does not show any.
    `known_before`: nothing was sent, because the service refused one of the parts before in this run. `after_unknown`:
    an earlier attempt to send this message may have been accepted; set by the retry, not by targets.
    """

    answer: str
    certain: bool
    parts: tuple[tuple[str, ...], ...] = ()
    known_before: bool = False
    after_unknown: bool = False


class Unauthorised(msgspec.Struct, frozen=True):
    """We may not send here: this target pauses until a person has looked at it.

    `misdirected`: not because of our identity, but because the address is wrong (URL, project, or topic).
    `after_unknown`: see `Refused`.
    """

    answer: str
    misdirected: bool = False
    after_unknown: bool = False


class Blocked(msgspec.Struct, frozen=True):
    """Refused because of the state of what the totals belong to at the service, which is not in the data: an account is
    unknown or closed, a limit is reached, or a period is over. They are held with the answer, the others are sent, and
    each run tries again. For totals, one in a message; records are refused. `after_unknown`: see `Refused`.
    `untouched`: what it belongs to is not there, so that nothing of it was written; else a part may be.
    """

    answer: str
    after_unknown: bool = False
    untouched: bool = False


class Unknown(msgspec.Struct, frozen=True):
    """It is unknown whether it was accepted (connection cut, invalid answer). It is sent again with the same ids.
    `timed_out`: see `Transient`."""

    answer: str
    timed_out: bool = False


Outcome: TypeAlias = Accepted | Transient | Throttled | Oversized | Refused | Blocked | Unauthorised | Unknown


class PeriodSum(msgspec.Struct, frozen=True):
    """A sum that a service has of the jobs whose records have these values, in the columns that its kind states
    (`publisher.config.target_kind.SumsKind`), and end in a period, by its first day (counted from 1970).

    Values are empty where the service has none. `within_s`: the possible difference of each of the two times from what
    was sent, because the service rounds.
    """

    values: tuple[str, ...]
    day: int
    jobs: int
    wall_s: float = 0.0
    cpu_s: float = 0.0
    within_s: float = 0.0


class EvidenceUnavailable(msgspec.Struct, frozen=True):
    """A service does not report what it has, and why. `unauthorised`: because of our identity."""

    reason: str
    unauthorised: bool = False


@runtime_checkable
class GivesSums(Protocol):
    """A target whose service reports sums of what it has."""

    def usage(self, of: str, first_day: int, until_day: int) -> Sequence[PeriodSum] | EvidenceUnavailable:
        """The sums of the records with this value in the first column of the key (empty: it has none), for the periods
        from `first_day` until `until_day` (exclusive)."""
        ...

    def last_registration_s(self, of: str) -> float | EvidenceUnavailable | None:
        """Seconds since the service last accepted such records; None: it never did, or does not say."""
        ...


@runtime_checkable
class GivesRecords(Protocol):
    """A target whose service can be asked for its records, by the day of their ends."""

    def records(self, day: int) -> Sequence[RecordColumns] | EvidenceUnavailable:
        """All records that ended on a day (counted from 1970, UTC)."""
        ...


@runtime_checkable
class GivesTotals(Protocol):
    """A target whose service can be asked for the totals of a month."""

    def totals(self, month: Month) -> Sequence[TotalColumns] | EvidenceUnavailable:
        """All totals of a month that the service has, with the fields that the format's `columns` have."""
        ...


@runtime_checkable
class SumsLag(Protocol):
    """A target that gives sums of what the service counted some time ago.

    `sums_lag`: whether its last answer may lack what the service accepted in the last `SumsKind.lag_s` seconds: that is
    neither missing nor confirmed, and is compared again later.
    """

    sums_lag: bool


@runtime_checkable
class ChecksSettings(Protocol):
    """A target that knows before its first message whether the service would take none of them."""

    def why_not_ready(self) -> Outcome | None:
        """Why every message would be refused, such as a setting that is wrong there; None: it may accept them. Asked
        once in a run, before anything is in flight: what was never sent needs not be corrected at the service."""
        ...


class KeptMessage(msgspec.Struct, frozen=True):
    """A message that a target still has, as it travels: its name and its bytes, or why they cannot be read."""

    name: str
    content: bytes | str


@runtime_checkable
class KeepsMessages(Protocol):
    """A target that can list the messages that were sent to it.

    `taken_away`: another program may remove messages from it, so that an absent one is not missing.
    """

    taken_away: bool

    def kept(self) -> Iterator[KeptMessage]:
        """The messages that are present, in the order in which they were written. Raises `TargetError`."""
        ...

    def keeps(self, name: str) -> bool:
        """Whether the message with this name, as in its receipt, is present."""
        ...


class Target(Protocol):
    """A service under its name in the configuration. Used by one thread at a time; `close` frees its connection."""

    name: str
    kind: str

    def payload_limit_bytes(self) -> int | None:
        """The largest payload whose message, as it is sent (signed, base64), fits the configured size."""
        ...

    def post(self, message: Message) -> Outcome:
        """Sign if the kind of target requires it, send, and interpret the answer.

        Raises `CredentialError` and `SigningError` if nothing was sent because of our own credentials. A problem with
        the network or the service is an `Outcome`, never an exception.
        """
        ...

    def check(self) -> list[Finding]:
        """Is it reachable, trusted, and are we authorised? Sends no records."""
        ...

    def close(self) -> None:
        """Close the connection. The target can be used again; it then opens a new one."""
        ...
