"""Models of receiving services in memory: what each keeps of the messages that it gets, with scripted faults.

They follow the facts on receivers: SGAS stores all of a message or nothing and keeps the first version of a record;
APEL replaces a record, and a summary, by the last one with the same key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final

from formats.apel.summary import read_group
from formats.apel.text import parse
from publisher.finding import Finding
from publisher.targets.base import Accepted, Message, Outcome, Refused
from tests.oracle_of_sums import FORMATS as SUMMED_FORMATS
from tests.oracle_of_sums import CountedBody, bodies

Fault = Callable[[Message], Outcome | None]
"""What a service answers instead of doing its work; None: it does its work."""

_RECORD: Final = re.compile(r'recordId="([^"]+)".*?<WallDuration>PT(\d+)S</WallDuration>', re.DOTALL)


_KEY: Final = re.compile(
    r'recordId="([^"]+)".*?<LocalJobId>([^<]*)</LocalJobId>.*?<EndTime>([^<]*)</EndTime>', re.DOTALL
)


def records_of(message: Message) -> dict[str, int]:
    """Wall seconds by record id of a message of usage records or compute records; the first of the same id counts."""
    found: dict[str, int] = {}
    for record_id, wall_s in _RECORD.findall(message.payload.decode()):
        found.setdefault(record_id, int(wall_s))
    return found


class RecordReceiver:
    """A target of the pipeline, and the service to which it sends. `held` is what the service keeps."""

    def __init__(self, name: str, kind: str = "sgas", limit_bytes: int | None = None) -> None:
        self.name = name
        self.kind = kind
        self.held: dict[str, int] = {}
        self.keys: dict[str, set[tuple[str, str]]] = {}
        """By record id the keys (local id, end) under which APEL counts it: of more than one, it counts twice."""
        self.bodies: dict[Hashable, CountedBody] = {}
        """What it keeps, by what it tells one from another by, for the oracle of sums."""
        self.messages: list[Message] = []
        self.poison: set[str] = set()
        """Record ids with which a message is refused, with the answer SGAS has for bad data and for outages alike."""
        self.fault: Fault = lambda _message: None
        self.answer: Callable[[Message, Accepted], Outcome] = lambda _message, accepted: accepted
        """What is answered after a message was stored."""
        self.closed = 0
        self._limit_bytes = limit_bytes

    def payload_limit_bytes(self) -> int | None:
        """As configured."""
        return self._limit_bytes

    def post(self, message: Message) -> Outcome:
        """Check and store a message."""
        self.messages.append(message)
        fault = self.fault(message)
        if fault is not None:
            return fault
        bad = self.poison.intersection(message.record_ids)
        if bad:
            return Refused(f"HTTP 500: Processing Failed ({len(bad)})", certain=False)
        return self.answer(message, self.store(message))

    def store(self, message: Message) -> Accepted:
        """Keep what is in the message."""
        records = records_of(message)
        assert set(records) == set(message.record_ids), "the message does not hold the records it names"
        self.keep_bodies(message, keeps_first=self.kind == "sgas")
        for record_id, wall_s in records.items():
            if self.kind != "sgas" or record_id not in self.held:
                self.held[record_id] = wall_s
        if self.kind != "sgas":
            for record_id, *key in _KEY.findall(message.payload.decode()):
                self.keys.setdefault(record_id, set()).add(tuple(key))
            return Accepted({"messageIds": str(len(self.messages))})
        return Accepted({record_id: str(index) for index, record_id in enumerate(records)})

    def keep_bodies(self, message: Message, *, keeps_first: bool) -> None:
        """Keep what the oracle of sums adds up: of two with one identity the first, or the last."""
        if message.format not in SUMMED_FORMATS:
            return
        for body in bodies(message.format, message.payload):
            if not (keeps_first and body.identity in self.bodies):
                self.bodies[body.identity] = body

    def bodies_of(self, record_ids: Collection[str]) -> list[CountedBody]:
        """What it keeps of these records."""
        return [body for identity, body in self.bodies.items() if identity in record_ids]

    def remove(self, record_id: str) -> None:
        """What its administrator does with a record."""
        for kept in (self.held, self.keys, self.bodies):
            kept.pop(record_id, None)

    def check(self) -> list[Finding]:
        """No findings."""
        return []

    def close(self) -> None:
        """Counted."""
        self.closed += 1

    @property
    def posts(self) -> int:
        """How many messages came."""
        return len(self.messages)

    def posted(self) -> list[str]:
        """All record ids that came, in order, again where they came again."""
        return [record_id for message in self.messages for record_id in message.record_ids]


class AnyReceiver(RecordReceiver):
    """Accepts messages of any format, and keeps nothing of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "directory")

    def store(self, message: Message) -> Accepted:
        """Keep nothing."""
        return Accepted({"file": message.batch_id})


class SummaryReceiver(RecordReceiver):
    """APEL's summaries: the last of a key counts. `sums` are (jobs, wall seconds, CPU seconds) by key."""

    def __init__(self, name: str, kind: str = "directory") -> None:
        super().__init__(name, kind)
        self.sums: dict[str, tuple[int, int, int]] = {}
        self.sync: dict[tuple[str, int], int] = {}
        """Jobs by submit host and month number."""
        self.times_sent: dict[str, int] = {}

    def store(self, message: Message) -> Accepted:
        """Replace the groups of the same keys."""
        self.keep_bodies(message, keeps_first=False)
        for record in parse(message.payload.decode()).records:
            if message.format == "apel-sync":
                month = int(record.get("Year") or 0) * 100 + int(record.get("Month") or 0)
                self.sync[record.get("SubmitHost") or "", month] = int(record.get("NumberOfJobs") or 0)
                continue
            group = read_group(record)
            self.sums[group.key.text] = (group.jobs, group.wall_ms // 1000, group.cpu_ms // 1000)
            self.times_sent[group.key.text] = self.times_sent.get(group.key.text, 0) + 1
        return Accepted({"file": message.batch_id})

    def bodies_of(self, record_ids: Collection[str]) -> list[CountedBody]:
        """All groups: they are of all records."""
        return list(self.bodies.values())

    def total(self) -> tuple[int, int, int]:
        """Sums over all groups."""
        jobs, wall_s, cpu_s = 0, 0, 0
        for one in self.sums.values():
            jobs, wall_s, cpu_s = jobs + one[0], wall_s + one[1], cpu_s + one[2]
        return jobs, wall_s, cpu_s

    def users(self) -> dict[str, int]:
        """Jobs by user name, for tests with one group a user."""
        return {key.split('"')[3]: sums[0] for key, sums in self.sums.items()}


def once(outcome: Outcome) -> Fault:
    """A fault of the next message only."""
    return script(outcome)


def script(*outcomes: Outcome | None) -> Fault:
    """Faults of the next messages, one after the other; then the service does its work."""
    left = list(outcomes)
    return lambda _message: left.pop(0) if left else None


def always(outcome: Outcome) -> Fault:
    """A service that answers this to everything."""
    return lambda _message: outcome


def refuses(text: bytes) -> Fault:
    """A service that refuses what contains this."""
    return lambda message: Refused("HTTP 400", certain=False) if text in message.payload else None


Receivers = Mapping[str, RecordReceiver]
