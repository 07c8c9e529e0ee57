"""Cutting records into messages: by count and by the bytes of the finished message. Pure.

The view that a target has of the site's jobs, made from the configuration.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec

from formats.base import Note
from formats.view import View
from publisher.config.schema import Config, Target
from publisher.store.groups import GroupRow

UID_BYTES: Final = 12


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run as it will stand in a message: rendered, with what the ledger needs to know of it.

    `seen`: how often the run had changed when it was read for this (`publisher.store.deliveries`). `sent`: the digest
    of the version that the service had then, or may have had. `may_be_there`: the service's taking it does not show
    that new records are taken.
    """

    run_id: int
    end_time: int
    record_id: str
    digest: bytes
    body: bytes
    seen: int = 0
    sent: bytes | None = None
    may_be_there: bool = False


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


def uid_of(target: str, items: Sequence[Item]) -> str:
    """The id of a batch: a function of the target and of the versions of the runs in it, so that the same batch sent
    again has the same id. Hexadecimal, which every service takes."""
    mark = hashlib.blake2b(target.encode(), digest_size=UID_BYTES)
    for item in items:
        mark.update(item.record_id.encode("utf-8", "surrogateescape") + b"\0" + item.digest)
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
        vo_groups_for_sgas="stripped" if target.vo_spelling == "plain" else "arc",
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


class GroupFormat(Protocol):
    """What a message of groups needs from its format."""

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


class Members:
    """The waiting runs of a group, each with how often it had changed when it was folded: ten bytes, for there may be a
    million. Their versions are read when they leave: what did not change since is what was folded."""

    def __init__(self) -> None:
        self._run_ids = array("q")
        self._seen = array("h")

    def add(self, run_id: int, seen: int) -> None:
        """Add a run; `seen`: how often it had changed."""
        self._run_ids.append(run_id)
        self._seen.append(seen)

    def extend(self, others: Members) -> None:
        """Add the runs of another group."""
        self._run_ids.extend(others._run_ids)
        self._seen.extend(others._seen)

    def __len__(self) -> int:
        return len(self._run_ids)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Each with how often it had changed."""
        return zip(self._run_ids, self._seen, strict=True)

    @property
    def run_ids(self) -> Sequence[int]:
        """The runs."""
        return self._run_ids


class Mail(msgspec.Struct, frozen=True):
    """A group as it will stand in a message, with the waiting runs it brings along, and what was altered in it."""

    row: GroupRow
    body: bytes
    latest_end: int | None
    members: Members
    notes: Sequence[Note] = ()
