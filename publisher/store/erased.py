"""Persons who were erased: the pseudonym their jobs are kept under, and how their name is known when it is read again.

A source goes on telling the name of a person who was erased, for every job that is read again. Such a job gets the
pseudonym before anything is made of it, so that it is the same run with the same digest, and is neither stored nor sent
anew. Kept of the name is a hash of it under a random salt, one for each person: enough to recognise it, not to read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select

from formats.dn import to_rfc2253, to_slash
from formats.job import Job
from publisher.grid_identity import Entry
from publisher.sealed import SealedRun, seal
from publisher.store.tables import erased
from publisher.told import local_tells

_HASH_BYTES: Final = 32
_CACHED: Final = 50_000


class ErasedRow(msgspec.Struct, frozen=True):
    """A person who was erased, then: epoch seconds."""

    pseudonym: str
    salt: bytes
    person: bytes
    erased_at: int


def person_hash(name: str, salt: bytes) -> bytes:
    """What is kept of a name: the same for all spellings of a distinguished name."""
    canonical = to_slash(name).casefold().encode("utf-8", "surrogatepass")
    return hashlib.blake2b(canonical, key=salt, digest_size=_HASH_BYTES).digest()


def is_person(name: str | None, wanted: str) -> bool:
    """Whether two names are spellings of one."""
    return bool(name) and to_slash(name or "").casefold() == to_slash(wanted).casefold()


def rows(connection: Connection) -> list[ErasedRow]:
    """Everybody who was erased."""
    query = select(erased.c.pseudonym, erased.c.salt, erased.c.person, erased.c.erased_at).order_by(erased.c.pseudonym)
    return [ErasedRow(row[0], bytes(row[1]), bytes(row[2]), row[3]) for row in connection.execute(query)]


def veiled(job: Job, names: Iterable[str], pseudonym: str) -> Job:
    """A job with a pseudonym in place of these names wherever they stand, and of the local user where it tells nothing.

    Local users stay where mapping rules may look at them: who is paid for a job does not change with its user's name.
    """
    told = {spelling: pseudonym for name in names for spelling in (name, to_slash(name), to_rfc2253(name))}
    if job.local_user and not local_tells(job):
        job = msgspec.structs.replace(job, local_user=pseudonym)
    changes = {
        field: changed
        for field in job.__struct_fields__
        if field != "record_id" and (changed := _replaced(value := getattr(job, field), told)) != value
    }
    return msgspec.structs.replace(job, **changes) if changes else job


def _replaced(value: Any, told: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, other in told.items():
            value = value.replace(name, other)
        return value
    if isinstance(value, tuple):
        return tuple(_replaced(each, told) for each in value)
    if isinstance(value, dict):
        return {_replaced(key, told): _replaced(each, told) for key, each in value.items()}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(
            value, **{field: _replaced(getattr(value, field), told) for field in value.__struct_fields__}
        )
    return value


class Veil:
    """Puts pseudonyms in place of the names of erased persons, in what is read of the time before they were erased."""

    def __init__(self, found: Sequence[ErasedRow]) -> None:
        self._rows = found
        self._known: dict[str, list[ErasedRow]] = {}

    def over(self, found: Sequence[SealedRun]) -> Sequence[SealedRun]:
        """The runs as they are stored."""
        return [self.sealed(run) for run in found] if self._rows else found

    def sealed(self, run: SealedRun) -> SealedRun:
        """The run as it is stored."""
        if not self._rows:
            return run
        job = run.job()
        as_stored = self(job)
        return run if as_stored is job else seal(as_stored)

    def __call__(self, job: Job) -> Job:
        """The job as it is stored."""
        if job.end is None:
            return job
        for name in (job.user_dn, job.token_subject):
            row = self._row_of(name, job.end)
            if row is not None and name is not None:
                job = veiled(job, [name], row.pseudonym)
        return job

    def entry(self, entry: Entry) -> Entry:
        """An entry of a grid log as it is stored."""
        if not self._rows:
            return entry
        if row := self._row_of(entry.user_dn, entry.at):
            entry = msgspec.structs.replace(entry, user_dn=row.pseudonym)
        if row := self._row_of(entry.token_subject, entry.at):
            entry = msgspec.structs.replace(entry, token_subject=row.pseudonym)
        return entry

    def _row_of(self, name: str | None, at: int) -> ErasedRow | None:
        """The first erasure of a person after an instant."""
        if not name:
            return None
        if name not in self._known:
            if len(self._known) >= _CACHED:
                self._known.clear()
            mine = [row for row in self._rows if person_hash(name, row.salt) == row.person]
            self._known[name] = sorted(mine, key=lambda row: row.erased_at)
        return next((row for row in self._known[name] if at <= row.erased_at), None)


def veil(connection: Connection) -> Veil:
    """Of everybody who was erased until now."""
    return Veil(rows(connection))
