"""Classes: facts that many runs share, stored once.

Owner, place, and benchmark decide what a run is worth to a target and into which summary it folds; the run itself only
adds its times. So runs point to their class, filters decide once a class, and a month is folded from sums by class. A
class is stored as a `Job` that has only these facts (`formats.identity` encodes it).

Stored jobs are read back here. A job that a later program stored, or that is damaged, is an error of the store: a
record that this program cannot read completely is not read in part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select

from formats import identity
from formats.identity import encode, encoded_digest
from formats.job import Job
from publisher import encoded_run
from publisher.encoded_run import (
    UNREADABLE,
    EncodedRun,
    class_facts,
    class_key,
    class_needs_local_user,
    local_user_of,
    pack_whole,
)
from publisher.errors import StoreCorruptError, StoreError, StoreNewerError
from publisher.store import class_users, dialect, paging
from publisher.store.class_users import ClassUser
from publisher.store.schema import classes, runs, sources
from publisher.store.stored_values import bytes_of

_UNREADABLE: Final = (*UNREADABLE, TypeError)
"""Also of values of another type, which a damaged SQLite store may have."""


def decode(stored: bytes, facts: bytes, run: str, digest: bytes | None = None) -> Job:
    """Decode a run from its stored form and the facts of its class. `run`: its record id, or another name for messages.

    `digest`: compared with that of the run. Raises `StoreNewerError` and `StoreCorruptError`, which name it.
    """
    try:
        return encoded_run.decode_run(stored, facts, digest)
    except _UNREADABLE as error:
        what = f"the record of job {run}"
        if isinstance(error, identity.UnknownEncodingError) and _has_known_form(stored, facts, digest):
            raise StoreCorruptError(f"the store is damaged: {what} cannot be read: {error}") from error
        raise _unreadable(what, error) from error


def _has_known_form(stored: Any, facts: bytes, digest: bytes | None) -> bool:
    """Whether a run in an unknown form is no run of a later program: only the byte of its form is damaged, or it is a
    text."""
    if not isinstance(stored, bytes | memoryview):  # in a damaged SQLite store a value may be of any type
        return True
    for form in encoded_run.FORMS if digest is not None else ():
        with suppress(*_UNREADABLE):
            encoded_run.decode_run(bytes((form,)) + stored[1:], facts, digest)
            return True
    return False


def decode_facts(facts: bytes, class_id: int | None = None, digest: bytes | None = None) -> Job:
    """Decode the facts of a class. `digest`: compared with theirs. Raises as `decode`."""
    try:
        if digest is not None and encoded_digest(facts) != digest:
            raise msgspec.DecodeError("their digest is another one")
        return identity.decode(facts)
    except _UNREADABLE as error:
        what = "the facts of a class of jobs" if class_id is None else f"the facts of class {class_id}"
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: Exception) -> StoreError:
    if isinstance(error, identity.UnknownEncodingError):
        return StoreNewerError(
            f"the store was written by a later version of this program: {what}: {error}",
            hint="Install that version again; nothing was changed",
        )
    return StoreCorruptError(f"the store is damaged: {what} cannot be read: {error}")


_MOST_REMEMBERED: Final = 100_000
"""Class ids that one collect remembers, about 150 bytes each. On a large cluster without a known benchmark, each host
makes separate classes, and a look-up of one costs as much as storing a run."""

GRID_LOG: Final = "grid_log"
"""The extra of a class that says whether the grid log of its source has its entry: `JOINED`, or `AWAITED`: not yet."""
JOINED: Final = "joined"
AWAITED: Final = "awaited"

Marked = tuple[Job, str | None]
"""A run with the values of its grid log, and `JOINED`, `AWAITED` or None."""
Join = Callable[[Connection, Sequence[Job]], Sequence[Marked]]


class JobClass(msgspec.Struct, frozen=True):
    """A class as stored: its id, the name of its source, and its facts as a `Job` (with an empty record id)."""

    id: int
    source: str
    facts: Job


def awaits_grid_log(facts: Job) -> bool:
    """Whether the owner of the runs of a class is not known yet."""
    return facts.extras.get(GRID_LOG) == AWAITED


class Interner:
    """Finds or makes the class of a run, for one source and within one collect.

    It remembers ids that its transactions have made: after an error it is discarded with the collect.
    """

    def __init__(self, source_id: int, source: str, join: Join | None = None) -> None:
        """`source`: its name; `join`: adds the values of the source's grid log to runs; None: it has no grid log."""
        self.source_id = source_id
        self._source = source
        self._join = join
        self._ids: dict[bytes, int] = {}
        self._classes: dict[int, Job] = {}
        self._users: set[ClassUser] = set()

    def ids_of(self, connection: Connection, jobs: Sequence[Job]) -> list[int]:
        """The class id of each job, in order."""
        marked = self._join(connection, jobs) if self._join is not None else [(job, None) for job in jobs]
        return self._ids_of_marked(connection, marked)

    def _ids_of_marked(self, connection: Connection, marked: Sequence[Marked]) -> list[int]:
        keys = [class_key(job, mark) for job, mark in marked]
        ids = self._ids_by_key(connection, keys, lambda place: encode(_facts_of(*marked[place])))
        users = [None if class_needs_local_user(job) else local_user_of(job) for job, _ in marked]
        self._record_users(connection, ids, users)
        return ids

    def _record_users(self, connection: Connection, ids: Sequence[int], users: Sequence[bytes | None]) -> None:
        """Record the local users of runs whose class does not have them, unless they were met before."""
        new = {(class_id, user) for class_id, user in zip(ids, users, strict=True) if user is not None} - self._users
        class_users.record(connection, new)
        if len(self._users) > _MOST_REMEMBERED:
            self._users.clear()
        self._users |= new

    def classed(self, connection: Connection, found: Sequence[EncodedRun]) -> tuple[list[EncodedRun], list[int]]:
        """The runs as they are stored in their class, and the id of the class of each, in order.

        If a grid log gave a class facts that differ from those read, its runs store all of theirs.
        """
        classed = [run.classed() for run in found]
        if self._join is None:
            keys = [run.class_key or b"" for run in classed]
            ids = self._ids_by_key(connection, keys, lambda place: classed[place].facts)
            self._record_users(connection, ids, [run.local_user for run in classed])
            return classed, ids
        jobs = [run.job() for run in found]
        marked = self._join(connection, jobs)
        stored = [
            msgspec.structs.replace(run, packed=pack_whole(job)) if mark == JOINED else run
            for run, job, (_, mark) in zip(classed, jobs, marked, strict=True)
        ]
        return stored, self._ids_of_marked(connection, marked)

    def _ids_by_key(self, connection: Connection, keys: list[bytes], facts_at: Callable[[int], bytes]) -> list[int]:
        """The id of each key; `facts_at` returns the encoded facts of a place."""
        if len(self._ids) > _MOST_REMEMBERED:
            self._ids.clear()
        places = {key: place for place, key in enumerate(keys) if key not in self._ids}
        unknown = {key: facts_at(place) for key, place in places.items()}
        self._classes = self._learn(connection, unknown) if unknown else {}
        return [self._ids[key] for key in keys]

    def classes(self, connection: Connection, ids: Sequence[int]) -> Iterator[JobClass]:
        """These classes; those of the last jobs are not read again."""
        asked = set(ids)
        met = asked & self._classes.keys()
        for class_id in sorted(met):
            yield JobClass(class_id, self._source, self._classes[class_id])
        yield from classes_by_id(connection, sorted(asked - met))

    def _learn(self, connection: Connection, unknown: dict[bytes, bytes]) -> dict[int, Job]:
        """Ids for these facts by their keys; the facts of each by its id."""
        learned = self._found(connection, list(unknown.values()))
        missing = [facts for facts in dict.fromkeys(unknown.values()) if facts not in learned]
        if missing:
            ids = dialect.allocate_run_ids(connection, classes, len(missing))
            new = [
                (class_id, self.source_id, facts, encoded_digest(facts))
                for class_id, facts in zip(ids, missing, strict=True)
            ]
            if dialect.insert_missing_rows(connection, classes, new) == len(missing):
                learned.update(zip(missing, ids, strict=True))
            else:  # another publisher made some of them in the meantime
                learned.update(self._found(connection, missing))
        self._ids.update({key: learned[facts] for key, facts in unknown.items()})
        return {learned[facts]: decode_facts(facts) for facts in unknown.values()}

    def _found(self, connection: Connection, blobs: Sequence[bytes]) -> dict[bytes, int]:
        by_digest = {encoded_digest(blob): blob for blob in blobs}
        query = select(classes.c.digest, classes.c.id).where(classes.c.source_id == self.source_id)
        rows = paging.rows_in(connection, query, classes.c.digest, by_digest)
        return {by_digest[bytes_of(digest, "the digest of a class")]: class_id for digest, class_id in rows}


def _facts_of(job: Job, mark: str | None) -> Job:
    return class_facts(job) if mark is None else class_facts(job, extras={GRID_LOG: mark})


def classes_by_id(connection: Connection, ids: Collection[int]) -> Iterator[JobClass]:
    """These classes with their sources' names. Raises `StoreCorruptError` if one of them is not stored.

    Sources are read separately: for a join the planner may read all classes of a source to find a few.
    """
    if not ids:
        return
    names = source_names(connection)
    missing = set(ids)
    for class_id, source_id, facts, digest in paging.rows_in(connection, _STORED, classes.c.id, ids):
        missing.discard(class_id)
        yield _job_class(names, class_id, source_id, facts, digest)
    if missing:  # its runs would be in no sum, and nothing else would show it
        raise StoreCorruptError(f"the store is damaged: class {min(missing)} is not stored")


def all_classes(connection: Connection) -> Iterator[JobClass]:
    """Every class with its source's name, by id."""
    return classes_after(connection, 0)


def classes_after(connection: Connection, last_id: int) -> Iterator[JobClass]:
    """Every class with a greater id, by id."""
    names = source_names(connection)
    for class_id, source_id, facts, digest in connection.execute(
        _STORED.where(classes.c.id > last_id).order_by(classes.c.id)
    ):
        yield _job_class(names, class_id, source_id, facts, digest)


_STORED: Final = select(classes.c.id, classes.c.source_id, classes.c.facts, classes.c.digest)


def _job_class(names: Mapping[int, str], class_id: int, source_id: int, facts: Any, digest: Any) -> JobClass:
    what = f"class {class_id}"
    decoded = decode_facts(bytes_of(facts, what), class_id, bytes_of(digest, f"the digest of {what}"))
    if source_id not in names:
        raise StoreCorruptError(f"the store is damaged: {what} is of source {source_id}, which is not stored")
    return JobClass(class_id, names[source_id], decoded)


def source_names(connection: Connection) -> dict[int, str]:
    """The names of the sources by their ids."""
    return {row.id: row.name for row in connection.execute(select(sources.c.id, sources.c.name))}


def classes_ended_in(connection: Connection, first: int | None, stop: int | None) -> frozenset[int]:
    """The classes of runs that ended from `first` until `stop` (exclusive), by their ids; None is open."""
    query = select(runs.c.class_id).where(paging.ended_between(runs.c.end_time, first, stop)).distinct()
    return frozenset(connection.execute(query).scalars())
