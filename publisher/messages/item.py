"""`Item`, what is sent as one; what is held instead; and items cut into messages by count and by bytes. Pure.

The view that a target has of the site's jobs, made from the configuration.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec

from formats.base import Note
from formats.rule_codes import Reason
from formats.view import View
from publisher.config.schema import Config, Target
from publisher.store.groups import GroupRow
from publisher.store.queries import SentVersion

UID_BYTES: Final = 12


class Members(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Runs with their revisions: how often each had changed when it was read. What did not change until it is marked as
    in flight is what was rendered.

    Ten bytes a run where they are packed (`packed`), for a summary may have a million of them.
    """

    run_ids: MutableSequence[int]
    revisions: MutableSequence[int]

    @staticmethod
    def packed() -> Members:
        """No runs yet; those that are added are kept in arrays."""
        return Members(array("q"), array("h"))

    def add(self, run_id: int, revision: int) -> None:
        """Add a run."""
        self.run_ids.append(run_id)
        self.revisions.append(revision)

    def extend(self, others: Members) -> None:
        """Add the runs of another group."""
        self.run_ids.extend(others.run_ids)
        self.revisions.extend(others.revisions)

    def __len__(self) -> int:
        return len(self.run_ids)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Each with its revision."""
        return zip(self.run_ids, self.revisions, strict=True)


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is sent and settled as one: the record of a run, a summary, a sync count, or a report.

    `key`: the id by which the receiver knows the record, or the receiver's key of the group. `members`: the run of the
    record, or the waiting runs that are settled with the group. `digest` is that of the run's version, or of what the
    group holds. `latest_end`: epoch seconds; None for a group without runs that wait. `group`: what the ledger keeps of
    a group; None for a record. `sent`: the version of the run that the service had, or may have had, before.
    `may_be_there`: that the service takes it does not show that it takes new records.
    """

    key: str
    members: Members
    body: bytes
    digest: bytes
    latest_end: int | None
    notes: tuple[Note, ...] = ()
    group: GroupRow | None = None
    sent: SentVersion | None = None
    may_be_there: bool = False


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Runs that cannot be sent, and why: `members` or, where there are `bounds`, all that ended within them (the second
    exclusive) and wait, or are held for the same.

    `key` and `latest_end` as in `Item`, for a single run.
    """

    reason: Reason
    members: Members
    key: str = ""
    latest_end: int | None = None
    bounds: tuple[int, int] | None = None


Place = tuple[int, int]
"""Where a page of runs ended: end time and id of its last run."""


class ItemPage(msgspec.Struct, frozen=True, array_like=True):
    """Items in the order in which they are sent, and what is held beside them.

    `place`: where the next page of records begins. `unchanged`: waiting runs of groups that the service has as they
    are; they are accepted without a message.
    """

    items: Sequence[Item]
    held: Sequence[Held]
    place: Place | None = None
    unchanged: Sequence[Members] = ()

    def until(self, place: Place) -> ItemPage:
        """What of a page of records lies up to there."""
        items = [each for each in self.items if _place_of(each) <= place]
        held = [each for each in self.held if _place_of(each) <= place]
        return ItemPage(items, held, place)


def _place_of(record: Item | Held) -> Place:
    assert record.latest_end is not None  # every run of a page has ended
    return record.latest_end, record.members.run_ids[0]


class Limits(msgspec.Struct, frozen=True):
    """How large a message may be. Overhead and separator are the format's, around and between records."""

    records: int
    payload_bytes: int | None
    overhead_bytes: int
    separator_bytes: int


def take(queue: deque[Item], limits: Limits) -> list[Item]:
    """The next batch within the limits, taken from the left; one item too large by itself is a batch of its own."""
    count = min(limits.records, len(queue))
    if limits.payload_bytes is not None:
        size = limits.overhead_bytes - limits.separator_bytes
        for place, item in enumerate(islice(queue, count)):
            size += len(item.body) + limits.separator_bytes
            if place and size > limits.payload_bytes:
                count = place
                break
    return [queue.popleft() for _ in range(count)]


def cut(items: Iterable[Item], limits: Limits) -> Iterator[list[Item]]:
    """All items, in order, in batches within the limits."""
    source = iter(items)
    queue: deque[Item] = deque()
    while True:
        queue.extend(islice(source, limits.records - len(queue)))
        if not queue:
            return
        yield take(queue, limits)


def uid_of(target: str, items: Sequence[Item], payload: bytes) -> str:
    """The id of a message, hexadecimal, which every service takes: the same when the same is sent again.

    Of records it is a function of the target and of the versions of the runs, however they are rendered; of groups one
    of the target and the payload.
    """
    mark = hashlib.blake2b(target.encode(), digest_size=UID_BYTES)
    if items[0].group is not None:
        mark.update(b"\0" + payload)
        return mark.hexdigest()
    for item in items:
        mark.update(item.key.encode("utf-8", "surrogateescape") + b"\0" + item.digest)
    return mark.hexdigest()


def halves(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """A batch of two or more in two."""
    middle = len(items) // 2
    return items[:middle], items[middle:]


def view_of(target: Target, config: Config) -> View:
    """How this target is to see the jobs.

    Raises `CredentialError` when the key for hashed names cannot be read.
    """
    dn_key = b""
    if target.dn_key is not None:
        from publisher.security.credentials import read_secret  # noqa: PLC0415 - much to load for what few have

        dn_key = read_secret(target.dn_key, "the key for hashed names")
    return View(
        site=config.site.name,
        version=target.version,
        record_id_prefix=target.record_id_prefix,
        local_id_prefix=target.local_id_prefix,
        submit_host=target.submit_host,
        vo_spelling=target.vo_spelling,
        vo_groups_for_sgas="stripped" if target.vo_spelling in {"plain", "apel-client"} else "arc",
        summary_counts=target.summary_counts,
        infrastructure_description=target.infrastructure_description,
        benchmark=target.benchmark_type,
        ur_extensions=target.ur_extensions,
        namespace_style=target.namespace_style,
        service_class_as_service_level=target.service_class_as_service_level,
        machine_name=target.machine_name,
        signed=target.is_signed,
        ascii_names=target.ascii_names,
        dn=target.dn,
        dn_key=dn_key,
    )


class MessageFormat(Protocol):
    """What a message of items needs from their format."""

    name: str
    content_type: str

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message."""
        ...

    @property
    def overhead_bytes(self) -> int:
        """Bytes of a message around its records."""
        ...

    @property
    def separator_bytes(self) -> int:
        """Bytes between two records."""
        ...
