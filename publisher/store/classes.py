"""Classes: the facts that many runs share, interned.

Who, where, and with which benchmark decides what a run is worth to a target and into which summary it folds; the run
itself only adds its times. Runs therefore point to their class, filters decide once a class, and a month is folded
from sums by class. A class is stored as a `Job` that has only these facts (`formats.identity` encodes it).

Jobs as stored, read back: what a later program stored, or what is damaged, is an error of the store.

Keeps the promise that nothing is guessed: a record that this program cannot read whole is not read in part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from formats import identity
from formats.identity import DIGEST_BYTES, encode
from formats.job import Job
from publisher import encoded_run
from publisher.encoded_run import EncodedRun, class_facts, class_key, encode_whole
from publisher.errors import StoreCorruptError, StoreError, StoreNewerError
from publisher.store import dialect
from publisher.store.schema import classes, runs, sources


def decode(stored: bytes, facts: bytes, run: str) -> Job:
    """A run of its stored form and the facts of its class. `run`: its record id, or what else it is found by.

    Raises `StoreNewerError` and `StoreCorruptError`, which name it.
    """
    try:
        return encoded_run.decode_run(stored, facts)
    except _UNREADABLE as error:
        raise _unreadable(f"the record of run {run}", error) from error


def decode_facts(facts: bytes, class_id: int | None = None) -> Job:
    """The facts of a class. Raises as `decode`."""
    try:
        return identity.decode(facts)
    except _UNREADABLE as error:
        what = "the facts of a class of runs" if class_id is None else f"the facts of class {class_id}"
        raise _unreadable(what, error) from error


_UNREADABLE: Final = (identity.UnknownEncodingError, msgspec.DecodeError, UnicodeDecodeError)


def _unreadable(what: str, error: Exception) -> StoreError:
    if isinstance(error, identity.UnknownEncodingError):
        return StoreNewerError(
            f"the store was written by a later version of this program: {what}: {error}",
            hint="Install that version again; nothing was changed",
        )
    return StoreCorruptError(
        f"the store is damaged: {what} cannot be read: {error}",
        hint="Restore the store from a backup; keep the damaged file for study",
    )


_MOST_REMEMBERED: Final = 100_000
"""Class ids of one collect, at some 150 bytes each. A large cluster has more than a user and a size of job: where no
benchmark is known, each of its hosts makes classes of its own, and to look up one costs as much as to store a run."""

GRID_LOG: Final = "grid_log"
"""The extra of a class that says what the grid log of its source has of it: `JOINED`, or `AWAITED`: nothing yet."""
JOINED: Final = "joined"
AWAITED: Final = "awaited"

Marked = tuple[Job, str | None]
"""A run with what its grid log has of it, and `JOINED`, `AWAITED` or None."""
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
        return self._ids_of_marked(connection, marked)

    def _ids_of_marked(self, connection: Connection, marked: Sequence[Marked]) -> list[int]:
        keys = [class_key(job, mark) for job, mark in marked]
        return self._ids_by_key(connection, keys, lambda place: encode(_facts_of(*marked[place])))

    def classed(self, connection: Connection, found: Sequence[EncodedRun]) -> tuple[list[EncodedRun], list[int]]:
        """The runs as they are stored in their class, and the id of the class of each, in order.

        Where a grid log gave a class other facts than were read, its runs keep all of theirs.
        """
        classed = [run.classed() for run in found]
        if self._join is None:
            keys = [run.class_key or b"" for run in classed]
            return classed, self._ids_by_key(connection, keys, lambda place: classed[place].facts)
        jobs = [run.job() for run in found]
        marked = self._join(connection, jobs)
        stored = [
            msgspec.structs.replace(run, stored=encode_whole(job)) if mark == JOINED else run
            for run, job, (_, mark) in zip(classed, jobs, marked, strict=True)
        ]
        return stored, self._ids_of_marked(connection, marked)

    def _ids_by_key(self, connection: Connection, keys: list[bytes], facts_at: Callable[[int], bytes]) -> list[int]:
        """The id of each key; `facts_at` gives the facts of a place, encoded."""
        if len(self._ids) > _MOST_REMEMBERED:
            self._ids.clear()
        places = {key: place for place, key in enumerate(keys) if key not in self._ids}
        unknown = {key: facts_at(place) for key, place in places.items()}
        self._classes = self._learn(connection, unknown) if unknown else {}
        return [self._ids[key] for key in keys]

    def classes(self, connection: Connection, ids: Sequence[int]) -> Iterator[JobClass]:
        """These classes; those that this interner met with the last jobs are not read again."""
        asked = set(ids)
        met = asked & self._classes.keys()
        for class_id in sorted(met):
            yield JobClass(class_id, self._source, self._classes[class_id])
        yield from classes_by_id(connection, sorted(asked - met))

    def _learn(self, connection: Connection, unknown: dict[bytes, bytes]) -> dict[int, Job]:
        """Ids for these facts by their keys; the facts of each by its id."""
        found = self._found(connection, list(unknown.values()))
        missing = [facts for facts in dict.fromkeys(unknown.values()) if facts not in found]
        if missing:
            ids = dialect.allocate_run_ids(connection, classes, len(missing))
            new = [
                (class_id, self._source_id, facts, facts_digest(facts))
                for class_id, facts in zip(ids, missing, strict=True)
            ]
            if dialect.insert_missing_rows(connection, classes, new) == len(missing):
                found.update(zip(missing, ids, strict=True))
            else:  # another publisher made some of them meanwhile
                found.update(self._found(connection, missing))
        self._ids.update({key: found[facts] for key, facts in unknown.items()})
        return {found[facts]: decode_facts(facts) for facts in unknown.values()}

    def _found(self, connection: Connection, blobs: Sequence[bytes]) -> dict[bytes, int]:
        by_digest = {facts_digest(blob): blob for blob in blobs}
        query = select(classes.c.digest, classes.c.id).where(classes.c.source_id == self._source_id)
        rows = dialect.rows_in(connection, query, classes.c.digest, by_digest)
        return {by_digest[bytes(digest)]: class_id for digest, class_id in rows}


def facts_digest(facts: bytes) -> bytes:
    """Of the facts of a class as stored: what they are found by."""
    return hashlib.blake2b(facts, digest_size=DIGEST_BYTES).digest()


def _facts_of(job: Job, mark: str | None) -> Job:
    return class_facts(job) if mark is None else class_facts(job, extras={GRID_LOG: mark})


def classes_by_id(connection: Connection, ids: Sequence[int]) -> Iterator[JobClass]:
    """These classes with their sources' names.

    Sources are read apart: for a join the planner may walk through all classes of a source to find some.
    """
    if not ids:
        return
    names = _source_names(connection)
    for class_id, source_id, facts in dialect.rows_in(connection, _STORED, classes.c.id, ids):
        yield JobClass(class_id, names[source_id], decode_facts(facts, class_id))


def all_classes(connection: Connection) -> Iterator[JobClass]:
    """Every class with its source's name, by id."""
    names = _source_names(connection)
    for class_id, source_id, facts in connection.execute(_STORED.order_by(classes.c.id)):
        yield JobClass(class_id, names[source_id], decode_facts(facts, class_id))


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
