"""`Item`, what is sent as one unit; what is held instead; and cutting items into messages by count and by bytes.
Pure."""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import islice, repeat, takewhile
from typing import Final

import msgspec

from formats.base import Note
from formats.calendar import SECONDS_A_DAY
from formats.rule_codes import Reason
from formats.view import View
from publisher.config.schema import Config, Target
from publisher.store.groups import GroupRow
from publisher.store.paging import Place
from publisher.store.queries import SentVersion

UID_BYTES: Final = 12


class Members(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Runs with their revisions: how often each had changed when it was read. A run with the same revision when it is
    marked as in flight is the run that was rendered.

    Ten bytes a run when packed (`packed`), since a summary may have a million runs.
    """

    run_ids: MutableSequence[int]
    revisions: MutableSequence[int]

    @staticmethod
    def packed() -> Members:
        """Return empty members; runs that are added are kept in arrays."""
        return Members(array("q"), array("h"))

    def add(self, run_id: int, revision: int) -> None:
        """Add a run."""
        self.run_ids.append(run_id)
        self.revisions.append(revision)

    def add_all(self, run_ids: Iterable[int], revision: int) -> None:
        """Add runs that have the same revision."""
        before = len(self.run_ids)
        self.run_ids.extend(run_ids)
        self.revisions.extend(repeat(revision, len(self.run_ids) - before))

    def extend(self, others: Members) -> None:
        """Add the runs of another group."""
        self.run_ids.extend(others.run_ids)
        self.revisions.extend(others.revisions)

    def __len__(self) -> int:
        return len(self.run_ids)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Each run with its revision."""
        return zip(self.run_ids, self.revisions, strict=True)


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is sent and settled as one unit: the record of a run, a summary, a sync count, or a report.

    `key`: the id by which the receiver knows the record, or the receiver's key of the group. `members`: the run of the
    record, or the waiting runs that are settled with the group. `digest`: of the version of the run, or of the contents
    of the group. `latest_end`: epoch seconds; None for a group without waiting runs. `group`: what the ledger keeps of
    a group; None for a record. `sent`: the version of the run that the service had, or may have had, before.
    `may_be_there`: acceptance does not show that the service takes new records. `is_first`: no version of the group was
    sent before, nor may have been.
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
    is_first: bool = False

    @property
    def was_sent(self) -> bool:
        """Whether a version of it was, or may have been, sent before."""
        return self.sent is not None if self.group is None else not self.is_first


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Runs that cannot be sent, and why: `members` or, if there are `bounds`, all that ended within them (the second
    exclusive) and wait or are held for the same reason.

    `key` and `latest_end` as in `Item`, for a single run.
    """

    reason: Reason
    members: Members
    key: str = ""
    latest_end: int | None = None
    bounds: tuple[int, int] | None = None


class ItemPage(msgspec.Struct, frozen=True, array_like=True):
    """Items in the order in which they are sent, and the runs that are held.

    `place`: where the next page of records begins. `unchanged`: waiting runs of groups that the service has in the same
    form; they are accepted without a message.
    """

    items: Sequence[Item]
    held: Sequence[Held]
    place: Place | None = None
    unchanged: Sequence[Members] = ()

    def until(self, place: Place) -> ItemPage:
        """The part of a page of records up to there."""
        items = [item for item in self.items if _place_of(item) <= place]
        held = [held_item for held_item in self.held if _place_of(held_item) <= place]
        return ItemPage(items, held, place)


def _place_of(record: Item | Held) -> Place:
    assert record.latest_end is not None  # all runs of a page have ended
    return record.latest_end, record.members.run_ids[0]


class Limits(msgspec.Struct, frozen=True):
    """The maximum size of a message. `overhead` and `separator` are the format's bytes around and between records.
    `by_day`: all records of a message ended on the same UTC day."""

    records: int
    payload_bytes: int | None
    overhead_bytes: int
    separator_bytes: int
    by_day: bool = False


def take(queue: deque[Item], limits: Limits) -> list[Item]:
    """Take the next batch within the limits from the left; a single item that is too large is its own batch."""
    count = min(limits.records, len(queue))
    if limits.by_day:
        day = _day_of(queue[0])
        count = sum(1 for _ in takewhile(lambda item: _day_of(item) == day, islice(queue, count)))
    if limits.payload_bytes is not None:
        size = limits.overhead_bytes - limits.separator_bytes
        for place, item in enumerate(islice(queue, count)):
            size += len(item.body) + limits.separator_bytes
            if place and size > limits.payload_bytes:
                count = place
                break
    return [queue.popleft() for _ in range(count)]


def _day_of(item: Item) -> int:
    return (item.latest_end or 0) // SECONDS_A_DAY


def cut(items: Iterable[Item], limits: Limits) -> Iterator[list[Item]]:
    """Cut all items, in order, into batches within the limits."""
    source = iter(items)
    queue: deque[Item] = deque()
    while True:
        queue.extend(islice(source, limits.records - len(queue)))
        if not queue:
            return
        yield take(queue, limits)


def uid_of(target: str, items: Sequence[Item], payload: bytes) -> str:
    """Return the id of a message, hexadecimal, valid for every service: the same contents get the same id.

    For records it depends on the target and the versions of the runs, not on their rendering; for groups on the target
    and the payload.
    """
    # With the target: two targets of one service would give different messages one id, and the second may be ignored.
    mark = hashlib.blake2b(target.encode(), digest_size=UID_BYTES)
    if items[0].group is not None:
        mark.update(b"\0" + payload)
        return mark.hexdigest()
    mark.update(b"".join([item.key.encode("utf-8", "surrogateescape") + b"\0" + item.digest for item in items]))
    return mark.hexdigest()


def halves(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """Split a batch of two or more in two."""
    middle = len(items) // 2
    return items[:middle], items[middle:]


def view_of(target: Target, config: Config) -> View:
    """Return the view that this target has of the jobs.

    Raises `CredentialError` if the key for hashed names cannot be read.
    """
    dn_key = b""
    if target.dn_key is not None:
        from publisher.security.credentials import read_secret  # noqa: PLC0415 - a slow import for what few sites use

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
        summary_description=target.summary_description,
        benchmark=target.benchmark_type,
        ur_extensions=target.ur_extensions,
        namespace_style=target.namespace_style,
        service_class_as_service_level=target.service_class_as_service_level,
        machine_name=target.machine_name,
        start_from=target.start_from,
        signed=target.is_signed,
        ascii_names=target.ascii_names,
        options=target.format_options,
        dn=target.dn,
        dn_key=dn_key,
    )
