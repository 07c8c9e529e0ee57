"""Classes: the facts that many runs share, interned.

Who, where, and with which benchmark decides what a run is worth to a target and into which summary it folds; the run
itself only adds its times. Runs therefore point to their class, wishes are decided once a class, and a month is folded
from sums by class. A class is stored as a `Job` that has only these facts (`formats.identity` encodes it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select

from formats.identity import encode
from formats.job import Job
from publisher.store import dialect
from publisher.store.stored import decode
from publisher.store.tables import classes, runs, sources
from publisher.told import LOCAL, hosts_tell, local_tells

_SHARED: Final = (
    "system",
    "status",
    "user_dn",
    "token_subject",
    "token_issuer",
    "vo",
    "vo_issuer",
    "fqans",
    "cluster",
    "queue",
    "endpoint_url",
    "endpoint_type",
    "nodes",
    "cores",
    "slots",
    "infrastructure",
    "lrms",
    "middleware",
    "middleware_version",
    "benchmarks",
)
_encode: Final = msgspec.msgpack.Encoder().encode
_shared: Final = attrgetter(*_SHARED)
_local: Final = attrgetter(*LOCAL)
_MOST_REMEMBERED: Final = 100_000
"""Class ids of one collect, at some 150 bytes each. A large cluster has more than a user and a size of job: where no
benchmark is known, each of its hosts makes classes of its own, and to look up one costs as much as to store a run."""
_KEY_BYTES: Final = 16


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
        if len(self._ids) > _MOST_REMEMBERED:
            self._ids.clear()
        marked = self._join(connection, jobs) if self._join is not None else [(job, None) for job in jobs]
        keys = [_key_of(job, mark) for job, mark in marked]
        unknown = {key: each for key, each in zip(keys, marked, strict=True) if key not in self._ids}
        self._classes = self._learn(connection, unknown) if unknown else {}
        return [self._ids[key] for key in keys]

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
            new = [(class_id, self._source_id, blob) for class_id, blob in zip(ids, missing, strict=True)]
            if dialect.insert_missing_rows(connection, classes, new) == len(missing):
                found.update(zip(missing, ids, strict=True))
            else:  # another publisher made some of them meanwhile
                found.update(self._found(connection, missing))
        self._ids.update({key: found[blob] for key, blob in blobs.items()})
        return {self._ids[key]: each for key, each in facts.items()}

    def _found(self, connection: Connection, blobs: Sequence[bytes]) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for start in range(0, len(blobs), 500):
            query = select(classes.c.facts, classes.c.id).where(
                classes.c.source_id == self._source_id, classes.c.facts.in_(blobs[start : start + 500])
            )
            found.update({bytes(blob): class_id for blob, class_id in connection.execute(query)})
        return found


def _key_of(job: Job, mark: str | None) -> bytes:
    """A digest of what makes a run's class: small enough to remember very many."""
    local, hosts = _local(job) if local_tells(job) else None, job.hosts if hosts_tell(job) else None
    return blake2b(_encode((_shared(job), local, hosts, mark)), digest_size=_KEY_BYTES).digest()


def _facts_of(job: Job, mark: str | None) -> Job:
    facts: dict[str, Any] = dict(zip(_SHARED, _shared(job), strict=True))
    if mark is not None:
        facts["extras"] = {GRID_LOG: mark}
    if local_tells(job):
        facts.update(zip(LOCAL, _local(job), strict=True))
    if hosts_tell(job):
        facts["hosts"] = job.hosts
    return Job(record_id="", **facts)


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
