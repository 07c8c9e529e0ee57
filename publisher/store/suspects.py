"""Suspect runs: those of lines that a user may have written. They are pieces of unreadable input that have a run.

They are in no table that anything counts: not in the ledger, in no summary, sync count, or report. Once accepted they
are stored like any run that is read late; once settled they are gone, like any unreadable input.

As kept, a digest of the stored bytes precedes them: a damaged suspect run is not accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, func, select, update

from formats.job import Job
from formats.rule_codes import Reason
from publisher.encoded_run import encode_run, encode_whole, run_key
from publisher.errors import StoreCorruptError
from publisher.reason import ReasonCode
from publisher.sources.base import Unreadable
from publisher.store import deliveries, paging
from publisher.store.classes import decode
from publisher.store.schema import State, runs, sources, targets, unreadable

_DIGEST_BYTES: Final = 16
_PAGE: Final = 500


class SuspectRun(msgspec.Struct, frozen=True):
    """A suspect run as kept: its piece of input, its source, and whether it was met in the first reading of that.

    `job` None: it is damaged in the store.
    """

    piece: int
    source: str
    job: Job | None
    first_read: bool


class PieceFilter(msgspec.Struct, frozen=True):
    """Which pieces of input are decided on: those of all that is set.

    `pieces`: these; empty: all. `user`: those with a suspect run of this local user. `lines`: the first and the last
    line of a file, both inclusive. `with_suspects` False: none with a suspect run.
    """

    pieces: Collection[int] = ()
    user: str | None = None
    lines: tuple[int, int] | None = None
    with_suspects: bool = True

    @property
    def takes_all(self) -> bool:
        """Whether nothing was chosen."""
        return not self.pieces and self.user is None and self.lines is None

    def conditions(self) -> list[ColumnElement[bool]]:
        """What the store can decide without a run."""
        conditions: list[ColumnElement[bool]] = [] if self.lines is None else [unreadable.c.line.between(*self.lines)]
        return conditions if self.with_suspects else [*conditions, unreadable.c.run.is_(None)]

    def takes(self, job: Job | None) -> bool:
        """Whether it takes a piece with this suspect run."""
        return self.user is None or (job is not None and job.local_user == self.user)


ALL_PIECES: Final = PieceFilter()


def stored_form(item: Unreadable) -> bytes | None:
    """The suspect run of a piece as it is kept; None: it has none."""
    return None if item.suspect is None else _stored(item.suspect)


def _stored(job: Job) -> bytes:
    whole = encode_whole(job)
    return _digest(whole) + whole


def _digest(whole: bytes) -> bytes:
    return blake2b(whole, digest_size=_DIGEST_BYTES).digest()


def _job(piece: int, stored: object) -> Job:
    """The suspect run of a piece. Raises `StoreNewerError`, and `StoreCorruptError` for a damaged one."""
    if isinstance(stored, bytes | memoryview):  # in a damaged SQLite store a value may be of any type
        mark, whole = bytes(stored[:_DIGEST_BYTES]), bytes(stored[_DIGEST_BYTES:])
        if _digest(whole) == mark:
            return decode(whole, b"", f"of piece {piece}")
    raise StoreCorruptError(f"the store is damaged: the suspect job of piece {piece} is not what was read")


def _job_or_none(piece: int, stored: object) -> Job | None:
    try:
        return _job(piece, stored)
    except StoreCorruptError:
        return None


def undecided(connection: Connection, items: Sequence[Unreadable]) -> list[Unreadable]:
    """The pieces without those whose suspect run is stored as it is: it was accepted, or is read again."""
    digests = {
        run.key: run.digest
        for item in items
        if item.suspect is not None
        for run in (encode_run(item.suspect, classed=False),)
    }
    if not digests:
        return list(items)
    query = select(runs.c.record_key, runs.c.digest)
    same = {
        bytes(key)
        for key, digest in paging.rows_in(connection, query, runs.c.record_key, list(digests))
        if bytes(digest) == digests[bytes(key)]
    }
    return [item for item in items if item.suspect is None or run_key(item.suspect.record_id) not in same]


def doubt_given(
    connection: Connection, items: Sequence[Unreadable], target_ids: Sequence[int], now: int
) -> list[Unreadable]:
    """The pieces, those of runs that an earlier reading gave with what became of them, or without these if they are not
    stored. Their deliveries that wait are held: a summary is made without them, and only a person releases them.
    """
    keys = {run_key(item.given.record_id): item for item in items if item.given is not None}
    if not keys:
        return list(items)
    query = select(runs.c.record_key, runs.c.id)
    stored = {bytes(key): int(run_id) for key, run_id in paging.rows_in(connection, query, runs.c.record_key, keys)}
    became: dict[int, list[str]] = {run_id: [] for run_id in stored.values()}
    names = {key: str(name) for key, name in connection.execute(select(targets.c.id, targets.c.name))}
    for target_id in target_ids:
        known = deliveries.deliveries_of(connection, target_id, list(became))
        held: list[deliveries.Move] = []
        for key, run_id in stored.items():
            state = known[run_id].state if run_id in known else None
            if state is State.WAITING:
                reason = Reason.of(ReasonCode.MAY_BE_FORGED, file=keys[key].file, line=str(keys[key].line))
                held.append((run_id, State.WAITING, State.HELD, reason))
                became[run_id].append(f"held for {names[target_id]}")
            elif state in {State.ACCEPTED, State.IN_FLIGHT}:
                became[run_id].append(f"sent to {names[target_id]}")
        deliveries.move(connection, target_id, held, now)
    kept: list[Unreadable] = []
    for item in items:
        if item.given is None:
            kept.append(item)
        elif (given := stored.get(run_key(item.given.record_id))) is not None:
            what = ", ".join(became[given]) or "sent nowhere"
            job = f"job {item.given.local_id} of {item.given.local_user} is stored, and {what}"
            kept.append(msgspec.structs.replace(item, reason=f"{item.reason}; {job}"))
    return kept


def count(connection: Connection, names: Sequence[str] = ()) -> int:
    """How many suspect runs the named sources have, or all."""
    query = select(func.count()).select_from(unreadable.join(sources)).where(_ARE_SUSPECT)
    return int(connection.execute(query.where(sources.c.name.in_(names)) if names else query).scalar_one())


def listed(connection: Connection, names: Sequence[str], chosen: PieceFilter) -> Iterator[list[SuspectRun]]:
    """The suspect runs of the named sources, or of all, in pages by their pieces; they may be removed meanwhile."""
    query = (
        select(unreadable.c.id, sources.c.name, unreadable.c.run, unreadable.c.first_read)
        .join(sources)
        .where(_ARE_SUSPECT, *chosen.conditions())
    )
    if names:
        query = query.where(sources.c.name.in_(names))
    for page in paging.pages_by_id(connection, query, unreadable.c.id, _PAGE):
        suspects = [
            SuspectRun(piece, source, _job_or_none(piece, stored), bool(first_read))
            for piece, source, stored, first_read in page
            if not chosen.pieces or piece in chosen.pieces
        ]
        yield [suspect for suspect in suspects if chosen.takes(suspect.job)]


def rename(connection: Connection, renamed: Callable[[Job], Job]) -> int:
    """Change the stored suspect runs; return how many changed. Damaged ones stay."""
    count = 0
    query = select(unreadable.c.id, unreadable.c.run).where(_ARE_SUSPECT)
    for page in paging.pages_by_id(connection, query, unreadable.c.id, _PAGE):
        for piece, stored in page:
            job = _job_or_none(piece, stored)
            if job is not None and (changed := renamed(job)) != job:
                row = update(unreadable).where(unreadable.c.id == piece)
                connection.execute(row.values(run=_stored(changed)))
                count += 1
    return count


def of_pieces(connection: Connection, pieces: Sequence[int]) -> dict[int, Job]:
    """The suspect runs of these pieces, by the piece, without damaged ones."""
    query = select(unreadable.c.id, unreadable.c.run).where(_ARE_SUSPECT)
    rows = paging.rows_in(connection, query, unreadable.c.id, pieces)
    return {piece: job for piece, stored in rows if (job := _job_or_none(piece, stored)) is not None}


def damaged(connection: Connection) -> Iterator[str]:
    """What is wrong with the suspect runs that are damaged."""
    for piece, stored in connection.execute(select(unreadable.c.id, unreadable.c.run).where(_ARE_SUSPECT)):
        try:
            _job(piece, stored)
        except StoreCorruptError as error:
            yield error.message


_ARE_SUSPECT: ColumnElement[bool] = unreadable.c.run.is_not(None)
