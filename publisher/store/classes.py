"""Classes: the facts that many runs share, interned.

Who, where, and with which benchmark decides what a run is worth to a target and into which summary it folds; the run
itself only adds its times. Runs therefore point to their class, wishes are decided once a class, and a month is folded
from sums by class. A class is stored as a `Job` that has only these facts (`formats.identity` encodes it).

Jobs as stored, read back: what a later program stored, or what is damaged, is an error of the store.

Keeps the promise that nothing is guessed: a record that this program cannot read whole is not read in part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select, update

from formats import identity
from formats.identity import DIGEST_BYTES, encode
from formats.job import Job
from publisher.encoded_run import LOCAL, SHARED, EncodedRun, class_key, class_needs_hosts, class_needs_local_user
from publisher.errors import StoreCorruptError, StoreNewerError
from publisher.store import dialect
from publisher.store.schema import classes, runs, sources


def decode(stored: bytes) -> Job:
    """The job of its stored form. Raises `StoreNewerError` and `StoreCorruptError`."""
    try:
        return identity.decode(stored)
    except identity.UnknownEncodingError as error:
        raise StoreNewerError(
            f"the store holds records of a later version of this program: {error}",
            hint="Install that version again; nothing was changed",
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorruptError(
            f"the store holds a record that cannot be read: {error}",
            hint="Restore the store from a backup; keep the damaged file for study",
        ) from error


class Names(msgspec.Struct, frozen=True, gc=False):
    """What a job is called."""

    local_id: str | None = None
    name: str | None = None
    global_id: str | None = None


_VERSION: Final = bytes([identity.ENCODING_VERSION])
_NAMES: Final = msgspec.msgpack.Decoder(Names)


def names(stored: bytes) -> Names:
    """What a job is called, of its stored form: the rest of it is not looked at. Raises as `decode`."""
    if stored[:1] == _VERSION:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):  # `decode` says what is wrong
            return _NAMES.decode(memoryview(stored)[1:])
    job = decode(stored)
    return Names(job.local_id, job.name, job.global_id)


_shared: Final = attrgetter(*SHARED)
_local: Final = attrgetter(*LOCAL)
_MOST_REMEMBERED: Final = 100_000
"""Class ids of one collect, at some 150 bytes each. A large cluster has more than a user and a size of job: where no
benchmark is known, each of its hosts makes classes of its own, and to look up one costs as much as to store a run."""

_PAGE: Final = 1_000
"""Runs read at a time."""
_MOST_ASKED: Final = 20_000
"""Ids in one query; databases take some 32,000."""

GRID_LOG: Final = "grid_log"
"""The extra of a class that says what the grid log of its source told: `JOINED`, or `AWAITED`: nothing yet."""
JOINED: Final = "joined"
AWAITED: Final = "awaited"

Marked = tuple[Job, str | None]
"""A run with what its grid log told, and `JOINED`, `AWAITED` or None."""
Join = Callable[[Connection, Sequence[Job]], Sequence[Marked]]


class JobClass(msgspec.Struct, frozen=True):
    """A class as stored: its id, the name of its source, and its facts as a `Job` (with an empty record id)."""

    id: int
    source: str
    facts: Job


def awaits_grid_log(facts: Job) -> bool:
    """Whether it is not known yet whose the runs of a class are."""
    return facts.extras.get(GRID_LOG) == AWAITED


class Interner:
    """Finds or makes the class of a run, for one source and within one collect.

    It remembers ids that its transactions have made: after an error it is thrown away with the run it served.
    """

    def __init__(self, source_id: int, source: str, join: Join | None = None) -> None:
        """`source` is its name; `join` gives runs what the grid log of the source tells; None: it has none."""
        self._source_id = source_id
        self._source = source
        self._join = join
        self._ids: dict[bytes, int] = {}
        self._classes: dict[int, Job] = {}

    def ids_of(self, connection: Connection, jobs: Sequence[Job]) -> list[int]:
        """The class id of each job, in order."""
        marked = self._join(connection, jobs) if self._join is not None else [(job, None) for job in jobs]
        return self._ids_by_key(connection, [class_key(job, mark) for job, mark in marked], marked.__getitem__)

    def ids_of_sealed(self, connection: Connection, found: Sequence[EncodedRun]) -> list[int]:
        """The class id of each run, in order. Only those that are met for the first time are opened, without a join."""
        if self._join is not None:
            return self.ids_of(connection, [run.job() for run in found])
        keys = [run.class_key or class_key(run.job()) for run in found]
        return self._ids_by_key(connection, keys, lambda place: (found[place].job(), None))

    def _ids_by_key(self, connection: Connection, keys: list[bytes], marked: Callable[[int], Marked]) -> list[int]:
        """The id of each key; `marked` gives the run of a place."""
        if len(self._ids) > _MOST_REMEMBERED:
            self._ids.clear()
        places = {key: place for place, key in enumerate(keys) if key not in self._ids}
        unknown = {key: marked(place) for key, place in places.items()}
        self._classes = self._learn(connection, unknown) if unknown else {}
        return [self._ids[key] for key in keys]

    def id_with_hosts(self, connection: Connection, facts: Job) -> int:
        """The class id for the facts of another class and hosts beside them."""
        joined = facts.extras.get(GRID_LOG)
        mark = joined if isinstance(joined, str) else None
        return self._ids_by_key(connection, [class_key(facts, mark)], lambda _place: (facts, mark))[0]

    def classes(self, connection: Connection, ids: Sequence[int]) -> Iterator[JobClass]:
        """These classes; those that this interner met with the last jobs are not read again."""
        asked = set(ids)
        met = asked & self._classes.keys()
        for class_id in sorted(met):
            yield JobClass(class_id, self._source, self._classes[class_id])
        yield from classes_by_id(connection, sorted(asked - met))

    def _learn(self, connection: Connection, unknown: dict[bytes, Marked]) -> dict[int, Job]:
        """Ids for these; the facts of each by its id."""
        facts = {key: _facts_of(job, mark) for key, (job, mark) in unknown.items()}
        blobs = {key: encode(each) for key, each in facts.items()}
        found = self._found(connection, list(blobs.values()))
        missing = [blob for blob in blobs.values() if blob not in found]
        if missing:
            ids = dialect.allocate_run_ids(connection, classes, len(missing))
            new = [
                (class_id, self._source_id, blob, facts_digest(blob))
                for class_id, blob in zip(ids, missing, strict=True)
            ]
            if dialect.insert_missing_rows(connection, classes, new) == len(missing):
                found.update(zip(missing, ids, strict=True))
            else:  # another publisher made some of them meanwhile
                found.update(self._found(connection, missing))
        self._ids.update({key: found[blob] for key, blob in blobs.items()})
        return {self._ids[key]: each for key, each in facts.items()}

    def _found(self, connection: Connection, blobs: Sequence[bytes]) -> dict[bytes, int]:
        by_digest = {facts_digest(blob): blob for blob in blobs}
        digests = list(by_digest)
        found: dict[bytes, int] = {}
        for start in range(0, len(digests), 500):
            query = select(classes.c.digest, classes.c.id).where(
                classes.c.source_id == self._source_id, classes.c.digest.in_(digests[start : start + 500])
            )
            found.update({by_digest[bytes(digest)]: class_id for digest, class_id in connection.execute(query)})
        return found


def facts_digest(facts: bytes) -> bytes:
    """Of the facts of a class as stored: what they are found by."""
    return hashlib.blake2b(facts, digest_size=DIGEST_BYTES).digest()


def _facts_of(job: Job, mark: str | None) -> Job:
    facts: dict[str, Any] = dict(zip(SHARED, _shared(job), strict=True))
    if mark is not None:
        facts["extras"] = {GRID_LOG: mark}
    if class_needs_local_user(job):
        facts.update(zip(LOCAL, _local(job), strict=True))
    if class_needs_hosts(job):
        facts["hosts"] = job.hosts
    return Job(record_id="", **facts)


def add_hosts(connection: Connection) -> None:
    """Give the runs of classes without hosts, where a benchmark rule may go by them, a class that has them.

    Earlier versions kept hosts only for runs without any benchmark; now a benchmark that is not usable is none.
    """
    stale = {
        each.id: each
        for each in all_classes(connection)
        if each.facts.benchmarks and not each.facts.hosts and class_needs_hosts(each.facts)
    }
    interners = {name: Interner(source_id, name) for source_id, name in _source_names(connection).items()}
    ids = list(stale)
    for start in range(0, len(ids), _MOST_ASKED):
        query = select(runs.c.id, runs.c.class_id, runs.c.job).order_by(runs.c.id).limit(_PAGE)
        query = query.where(runs.c.class_id.in_(ids[start : start + _MOST_ASKED]))
        after = 0
        while page := connection.execute(query.where(runs.c.id > after)).all():
            for run_id, class_id, blob in page:
                if hosts := decode(blob).hosts:
                    before = stale[class_id]
                    whole = msgspec.structs.replace(before.facts, hosts=hosts)
                    changed = interners[before.source].id_with_hosts(connection, whole)
                    connection.execute(update(runs).where(runs.c.id == run_id).values(class_id=changed))
            after = page[-1].id


def classes_by_id(connection: Connection, ids: Sequence[int]) -> Iterator[JobClass]:
    """These classes with their sources' names.

    Sources are read apart: for a join the planner may walk through all classes of a source to find some.
    """
    if not ids:
        return
    names = _source_names(connection)
    for start in range(0, len(ids), 1000):
        query = _STORED.where(classes.c.id.in_(ids[start : start + 1000]))
        for class_id, source_id, facts in connection.execute(query):
            yield JobClass(class_id, names[source_id], decode(facts))


def all_classes(connection: Connection) -> Iterator[JobClass]:
    """Every class with its source's name, by id."""
    names = _source_names(connection)
    for class_id, source_id, facts in connection.execute(_STORED.order_by(classes.c.id)):
        yield JobClass(class_id, names[source_id], decode(facts))


_STORED: Final = select(classes.c.id, classes.c.source_id, classes.c.facts)


def _source_names(connection: Connection) -> dict[int, str]:
    return {row.id: row.name for row in connection.execute(select(sources.c.id, sources.c.name))}


def classes_ended_in(connection: Connection, first: int | None, behind: int | None) -> frozenset[int]:
    """The classes of runs that ended from `first` until `behind` (exclusive), by their ids; None is open."""
    query = select(runs.c.class_id).where(runs.c.end_time.is_not(None)).distinct()
    if first is not None:
        query = query.where(runs.c.end_time >= first)
    if behind is not None:
        query = query.where(runs.c.end_time < behind)
    return frozenset(connection.execute(query).scalars())
