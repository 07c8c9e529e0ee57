"""Runs of the store as frames: decoded in part, thousands at once, with what the configuration adds to their class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from formats.identity import ENCODING_VERSION
from publisher.config import Config
from publisher.enrich import Enrichers
from publisher.report.columns import ColumnMaker, Shared
from publisher.report.frame import Coding, Frame
from publisher.sources.dqs_act import SEVERAL_LINES, without_slaves
from publisher.store.classes import classes_by_id
from publisher.store.columns import has_source_of, stored_runs
from publisher.store.database import Store
from publisher.store.stored import decode

_PAGE: Final = 4_000
_ARRAY: Final = b"\xdd"
"""MessagePack: an array follows, its length in four bytes."""


class StoreRuns:
    """The runs of a store: `publisher.report.frame.Runs`."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._config = config
        self._enrichers = Enrichers(config)
        self.codings: dict[str, Coding] = {}

    def frames(
        self, start: int, stop: int | None, wanted: frozenset[str], *, running_until: int | None
    ) -> Iterator[Frame]:
        """See `Runs`. All frames are of one state of the store. Memory does not grow with the number of runs."""
        with self._store.read() as connection:
            dqs = has_source_of(connection, "dqs")
            maker = ColumnMaker(wanted, running=running_until is not None)
            made = StoredFrames(maker, self._config, self._enrichers, dqs=dqs)
            self.codings = maker.codings
            pages = stored_runs(connection, start, stop, _PAGE, running=running_until is not None)
            with closing(pages):
                for page in pages:
                    runs = made.decoded([blob for _, blob in page])
                    if unknown := made.unknown(runs, page):
                        with self._store.read() as other:  # the first has a cursor open
                            made.learn(other, unknown)
                    yield from made.of(runs, page, running_until)


class StoredFrames:
    """Makes frames of stored runs, and learns what their classes share."""

    def __init__(self, maker: ColumnMaker, config: Config, enrichers: Enrichers, *, dqs: bool) -> None:
        self.maker = maker
        self._dqs = dqs
        self._prefixes = config.local_id_prefixes
        self._enrichers = enrichers
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[int | maker.slim])  # type: ignore[name-defined]
        self._places: dict[int, int] = {}
        self._all_classes = bool(maker.wanted & {"vo", "source"}) or (
            "job" in maker.wanted and any(self._prefixes.values())
        )

    def unknown(self, runs: list[Any], page: Sequence[tuple[int, bytes]]) -> set[int]:
        """The classes that something must be known of, and is not."""
        if self._all_classes:
            needed = {class_id for class_id, _ in page}
        elif "owner" in self.maker.wanted:
            needed = {class_id for run, (class_id, _) in zip(runs, page, strict=True) if not run.local_user}
        else:
            return set()
        return needed - self._places.keys()

    def learn(self, connection: Connection, class_ids: set[int]) -> None:
        """Take what runs of these classes share."""
        for known in classes_by_id(connection, sorted(class_ids)):
            facts = self._enrichers.apply(known.source, known.facts)
            shared = Shared(known.source, facts.vo, facts.user_dn, self._prefixes.get(known.source, ""))
            self._places[known.id] = self.maker.learn(shared)

    def decoded(self, blobs: list[bytes]) -> list[Any]:
        """The slim runs of stored jobs; of DQS without their slaves. Raises the errors of `publisher.store.stored`.

        All are read at once, as one array: the version byte before each happens to be a small number in MessagePack.
        """
        joined = b"".join([_ARRAY, (2 * len(blobs)).to_bytes(4, "big"), *blobs])
        try:
            found = self._decoder.decode(joined)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return [self.maker.slim_of(without_slaves(decode(blob))) for blob in blobs]  # or says what is wrong
        if found[::2].count(ENCODING_VERSION) != len(blobs):
            for blob in blobs:
                decode(blob)  # says what is wrong
        runs = found[1::2]
        if self._dqs:
            for place, blob in enumerate(blobs):
                if SEVERAL_LINES in blob:
                    runs[place] = self.maker.slim_of(without_slaves(decode(blob)))
        return runs

    def of(
        self, runs: list[Any], page: Sequence[tuple[int, bytes]], now: int | None, ids: Sequence[int] | None = None
    ) -> Iterator[Frame]:
        """A frame of stored runs, if there are any. `ids` make a column `ROW`."""
        places = self._places
        at = [places.get(class_id, 0) for class_id, _ in page] if places else None
        if runs:
            yield self.maker.frame(runs, at, now, ids)
