"""Accept suspect runs: store them as if they had just been read.

They become due to their targets, and the months in which they ended are summarised again, as for any run that is read
late. A run that is stored in another version by now, or is suspect in two versions, stays undecided: a user may have
forged one of the two. Memory does not grow with the runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec
from sqlalchemy import Connection, select

from publisher.collect.collect import TargetPlan, enqueue_runs, store_runs
from publisher.collect.grid_join import GridJoin
from publisher.config.schema import SourceSettings
from publisher.encoded_run import EncodedRun, encode_run
from publisher.errors import UsageError
from publisher.store import paging, registry, suspects, unreadable_input
from publisher.store.admin import erase
from publisher.store.classes import Interner
from publisher.store.database import Store
from publisher.store.schema import runs as runs_table
from publisher.store.suspects import PieceFilter
from publisher.text import counted


class AcceptedSuspects(msgspec.Struct, frozen=True):
    """How many suspect runs were stored; and of how many another version is stored, or suspect too, which stay
    undecided, as do those that are `damaged` in the store."""

    stored: int
    left: int
    damaged: int


def accept(
    store: Store,
    settings: Mapping[str, SourceSettings],
    plans: Sequence[TargetPlan],
    names: Sequence[str],
    chosen: PieceFilter,
    reason: str,
    now: int,
) -> dict[str, AcceptedSuspects]:
    """Accept the chosen suspect runs of these sources, or of all. By source.

    The caller holds the lock of collecting. Raises `UsageError` without a reason, and for an unknown piece.
    """
    if not reason.strip():
        raise UsageError("accepting needs a reason", hint="Give --reason: how you know that no user made these jobs")
    versions: dict[bytes, bytes | None] = {}
    of_sources: dict[str, None] = {}
    known: set[int] = set()
    with store.read() as connection:
        for page in suspects.listed(connection, names, chosen):
            for each in page:
                of_sources.setdefault(each.source)
                known.update([each.piece] if chosen.pieces else [])
                if each.job is not None:
                    run = encode_run(each.job, classed=False)
                    same = versions.setdefault(run.key, run.digest) == run.digest
                    versions[run.key] = run.digest if same else None
    unreadable_input.require_pieces(chosen.pieces, known)
    ambiguous = frozenset(key for key, digest in versions.items() if digest is None)
    del versions
    return {
        name: _accept(store, name, settings.get(name), plans, chosen, ambiguous, reason, now) for name in of_sources
    }


def _accept(
    store: Store,
    name: str,
    settings: SourceSettings | None,
    plans: Sequence[TargetPlan],
    chosen: PieceFilter,
    ambiguous: Collection[bytes],
    reason: str,
    now: int,
) -> AcceptedSuspects:
    done = AcceptedSuspects(0, 0, 0)
    with store.write() as connection:
        row = registry.get_source(connection, name)
        assert row is not None  # its input was kept
        grid_log = settings.grid_log if settings is not None else None
        follow = partial(enqueue_runs, plans=plans, now=now, identity_only=True)
        join = GridJoin(store, row, grid_log, now, follow) if grid_log is not None else None
        interner = join.interner if join is not None else Interner(row.id, row.name)
        pseudonyms = erase.pseudonyms(connection)
        for page in suspects.listed(connection, [name], chosen):
            runs = {
                each.piece: (encode_run(each.job, classed=False), each.first_read)
                for each in page
                if each.job is not None
            }
            left = _stored_otherwise(connection, {piece: run for piece, (run, _) in runs.items()})
            # Of two versions of one run a user wrote at least one: taking either would be a guess.
            left |= {piece for piece, (run, _) in runs.items() if run.key in ambiguous}
            accepted = {piece: each for piece, each in runs.items() if piece not in left}
            for first_read in (True, False):
                encoded = [run for run, met_first in accepted.values() if met_first == first_read]
                first = row.name if first_read else None
                stored = store_runs(connection, interner, pseudonyms, join, encoded, plans, now, first_read_of=first)
                registry.count_window(connection, row.id, stored.new, 0, 0, None)
            unreadable_input.drop_pieces(connection, name, list(accepted))
            done = AcceptedSuspects(
                done.stored + len(accepted), done.left + len(left), done.damaged + len(page) - len(runs)
            )
        detail = f"{counted(done.stored, 'suspect job')}: {reason}"
        registry.record_action(connection, "accept suspects", name, detail, now)
    return done


def _stored_otherwise(connection: Connection, encoded: Mapping[int, EncodedRun]) -> set[int]:
    """The pieces whose run is stored in another version."""
    query = select(runs_table.c.record_key, runs_table.c.digest)
    keys = list({run.key for run in encoded.values()})
    rows = paging.rows_in(connection, query, runs_table.c.record_key, keys)
    versions = {bytes(key): bytes(digest) for key, digest in rows}
    return {piece for piece, run in encoded.items() if versions.get(run.key, run.digest) != run.digest}
