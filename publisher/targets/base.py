"""What a target is: the one seam between the ledger and the services that take usage records.

A target posts one finished message and says what became of it. It does not retry, does not split and keeps no state but
its connection and token: what happens next is decided by `publisher.publish.sender`, and remembered by the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from publisher.finding import Finding


class Message(msgspec.Struct, frozen=True):
    """A finished message before it is signed: `payload` is what the service will read.

    `record_ids` are those of the records in it, in order; empty for formats whose records have no id (APEL text).
    `batch_id` is unique to what is in this batch, and stays the same when that is sent again. `idempotency_key` is for
    services that answer a repeated request from memory (empty: the batch id): a group has another each time, since it
    may replace one that replaced the same before.
    """

    batch_id: str
    format: str
    content_type: str
    payload: bytes
    record_ids: tuple[str, ...] = ()
    idempotency_key: str = ""


class Accepted(msgspec.Struct, frozen=True):
    """The service took the message.

    `receipt` is what it answered, to be kept (SGAS: record id to row id; AMS: message ids; directory: file names).
    `missing` are record ids that the answer should name and does not: their outcome is unknown.
    `rewritten` maps record ids to the ids under which the service keeps those records: accepted, and worth a note.
    """

    receipt: Mapping[str, str]
    missing: tuple[str, ...] = ()
    rewritten: Mapping[str, str] = {}


class Transient(msgspec.Struct, frozen=True):
    """Not taken, not the data's fault: everything in it waits. `answer` is what was said or seen."""

    answer: str


class Throttled(msgspec.Struct, frozen=True):
    """Not taken now: the service asks to wait for so many seconds (None: it did not say)."""

    answer: str
    retry_after_s: float | None


class Oversized(msgspec.Struct, frozen=True):
    """Not taken because of its size: send it in smaller parts. `after_unknown`: see `Refused`."""

    answer: str
    after_unknown: bool = False


class Refused(msgspec.Struct, frozen=True):
    """Refused. `certain`: the answer is about the data (SGAS 406), and trying again changes nothing.

    Otherwise it may be an outage as well (SGAS 500). `parts`: the record ids of the message in parts of which the
    service takes or refuses each as a whole, whatever is sent with it; one part with all of them is refused for itself.
    Empty where the answer does not show any. `after_unknown`: no one can say whether an earlier try of this message was
    taken; set by who tries again, not by targets.
    """

    answer: str
    certain: bool
    parts: tuple[tuple[str, ...], ...] = ()
    after_unknown: bool = False


class Unauthorised(msgspec.Struct, frozen=True):
    """We may not send here: this target pauses until someone has looked at it.

    `misdirected`: not because of who we are, but because this is not the place (a wrong URL, project or topic).
    `after_unknown`: see `Refused`.
    """

    answer: str
    misdirected: bool = False
    after_unknown: bool = False


class Unknown(msgspec.Struct, frozen=True):
    """No one can say whether it was taken (connection cut, an answer that is none). It is sent again, same ids."""

    answer: str


Outcome: TypeAlias = Accepted | Transient | Throttled | Oversized | Refused | Unauthorised | Unknown


class DaySum(msgspec.Struct, frozen=True):
    """What a service holds of one machine, user and VO for one day (counted from 1970) of the jobs' ends.

    User and VO are empty where the service knows none. Seconds of wall time are those of all processors together.
    `within_s`: by how much each of the two sums may differ from what was sent, because the service rounds.
    """

    machine: str
    user: str
    vo: str
    day: int
    jobs: int
    wall_s: float
    cpu_s: float
    within_s: float = 0.0


class EvidenceUnavailable(msgspec.Struct, frozen=True):
    """A service does not report what it holds, and why. `unauthorised`: because of who we are."""

    reason: str
    unauthorised: bool = False


@runtime_checkable
class GivesSums(Protocol):
    """A target whose service reports sums of what it holds, by machine and day."""

    def usage(self, machine: str, first_day: int, until_day: int) -> list[DaySum] | EvidenceUnavailable:
        """What is held of a machine for the days from `first_day` until `until_day` (exclusive)."""
        ...

    def last_registration_s(self, machine: str) -> float | EvidenceUnavailable | None:
        """Seconds since the service last took records of a machine; None: it never did."""
        ...


class KeptMessage(msgspec.Struct, frozen=True):
    """A message that a target still has, as it travels: its name and its bytes, or why they cannot be read."""

    name: str
    content: bytes | str


@runtime_checkable
class KeepsMessages(Protocol):
    """A target that can show the messages which were sent to it.

    `taken_away`: another program takes messages out of it, so that one which is not there is not missing.
    """

    taken_away: bool

    def kept(self) -> Iterator[KeptMessage]:
        """The messages that are there, in the order in which they were written. Raises `TargetError`."""
        ...

    def keeps(self, name: str) -> bool:
        """Whether the message with this name, as its receipt has it, is there."""
        ...


class Target(Protocol):
    """A service under its name in the configuration. Used by one thread at a time; `close` frees its connection."""

    name: str
    kind: str

    def payload_limit_bytes(self) -> int | None:
        """The most bytes of payload whose message, as it travels (signed, base64), fits the configured size."""
        ...

    def post(self, message: Message) -> Outcome:
        """Sign if the kind of target asks for it, send, and judge the answer.

        Raises `CredentialError` and `SigningError` when nothing was sent because of our own credentials. Trouble with
        the network or the service is an `Outcome`, never an exception.
        """
        ...

    def check(self) -> list[Finding]:
        """Reached, trusted, authorised? Sends no records."""
        ...

    def close(self) -> None:
        """Close the connection. The target can be used again; it then opens a new one."""
        ...
