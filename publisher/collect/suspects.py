"""Accept suspect runs: store them as if they had just been read.

They become due to their targets, and the months in which they ended are summarised again, as for any run that is read
late. A run that is stored in another version by now stays undecided: a user may have forged one of the two.
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
from publisher.store import paging, registry, suspects
from publisher.store.admin import erase
from publisher.store.classes import Interner
from publisher.store.database import Store
from publisher.store.schema import runs as runs_table
from publisher.store.suspects import SuspectRun
from publisher.text import counted


class AcceptedSuspects(msgspec.Struct, frozen=True):
    """How many suspect runs were stored; and of how many another version is stored, which stay undecided, as do those
    that are `damaged` in the store."""

    stored: int
    left: int
    damaged: int


def accept(
    store: Store,
    settings: Mapping[str, SourceSettings],
    plans: Sequence[TargetPlan],
    names: Sequence[str],
    pieces: Collection[int],
    reason: str,
    now: int,
) -> dict[str, AcceptedSuspects]:
    """Accept the suspect runs of these sources, or of all; `pieces`: only these, if there are any. By source.

    The caller holds the lock of collecting. Raises `UsageError` without a reason, and for an unknown piece.
    """
    if not reason.strip():
        raise UsageError("accepting needs a reason", hint="Give --reason: how you know that no user made these jobs")
    with store.read() as connection:
        found = suspects.listed(connection, names, pieces)
    registry.require_pieces(pieces, [each.piece for each in found])
    by_source: dict[str, list[SuspectRun]] = {}
    for each in found:
        by_source.setdefault(each.source, []).append(each)
    return {
        name: _accept(store, name, settings.get(name), plans, of_source, reason, now)
        for name, of_source in by_source.items()
    }


def _accept(
    store: Store,
    name: str,
    settings: SourceSettings | None,
    plans: Sequence[TargetPlan],
    found: Sequence[SuspectRun],
    reason: str,
    now: int,
) -> AcceptedSuspects:
    runs = {
        each.piece: (encode_run(each.job, classed=False), each.first_read) for each in found if each.job is not None
    }
    with store.write() as connection:
        row = registry.get_source(connection, name)
        assert row is not None  # its input was kept
        grid_log = settings.grid_log if settings is not None else None
        follow = partial(enqueue_runs, plans=plans, now=now, identity_only=True)
        join = GridJoin(store, row, grid_log, now, follow) if grid_log is not None else None
        interner = join.interner if join is not None else Interner(row.id, row.name)
        pseudonyms = erase.pseudonyms(connection)
        known = _stored_otherwise(connection, {piece: run for piece, (run, _) in runs.items()})
        accepted = {piece: each for piece, each in runs.items() if piece not in known}
        for first_read in (True, False):
            encoded = [run for run, met_first in accepted.values() if met_first == first_read]
            first = row.name if first_read else None
            done = store_runs(connection, interner, pseudonyms, join, encoded, plans, now, first_read_of=first)
            registry.count_window(connection, row.id, done.new, 0, 0, None)
        registry.drop_pieces(connection, name, list(accepted))
        detail = f"{counted(len(accepted), 'suspect job')}: {reason}"
        registry.record_action(connection, "accept suspects", name, detail, now)
    return AcceptedSuspects(len(accepted), len(known), len(found) - len(runs))


def _stored_otherwise(connection: Connection, encoded: Mapping[int, EncodedRun]) -> set[int]:
    """The pieces whose run is stored in another version, or differs from an earlier one of these pieces."""
    versions: dict[bytes, bytes] = {}
    query = select(runs_table.c.record_key, runs_table.c.digest)
    keys = list({run.key for run in encoded.values()})
    for key, digest in paging.rows_in(connection, query, runs_table.c.record_key, keys):
        versions[bytes(key)] = bytes(digest)
    return {piece for piece, run in encoded.items() if versions.setdefault(run.key, run.digest) != run.digest}
