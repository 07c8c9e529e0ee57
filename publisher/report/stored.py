"""Runs of the store as frames: decoded in part, thousands at once, with what the configuration adds to their class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from formats.identity import ENCODING_VERSION
from formats.job import Host, Job
from publisher.config import Config
from publisher.enrich import Enrichers
from publisher.report.columns import ColumnMaker, Shared
from publisher.report.frame import Coding, Frame
from publisher.sources.dqs import act_lines
from publisher.sources.dqs_act import SEVERAL_LINES
from publisher.store.classes import classes_by_id
from publisher.store.columns import Rows, has_source_of, stored_runs, stored_runs_before
from publisher.store.database import Store
from publisher.store.stored import decode

_PAGE: Final = 4_000
_system: Final = attrgetter("system")
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
            maker = ColumnMaker(wanted, running=running_until is not None, systems=dqs)
            made = StoredFrames(maker, self._config, self._enrichers, dqs=dqs)
            self.codings = maker.codings
            pages = stored_runs(connection, start, stop, _PAGE, running=running_until is not None)
            earlier = _parallel_before(connection, start) if dqs and stop is None else iter(())
            with closing(pages):
                for page in chain(pages, earlier):
                    runs = made.decoded([blob for _, blob in page])
                    if unknown := made.unknown(runs, page):
                        with self._store.read() as other:  # the first has a cursor open
                            made.learn(other, unknown)
                    yield from made.of(runs, page, running_until)


def _parallel_before(connection: Connection, before: int) -> Iterator[Rows]:
    """Runs of DQS that ended, as accounted, before an instant, and have slaves, which may have ended after it.

    A run ends where its master's line does. A slave began before that, and nothing bounds how much later it ended: all
    earlier runs with slaves are looked at.
    """
    with closing(stored_runs_before(connection, "dqs", before, _PAGE)) as pages:
        for page in pages:
            if parallel := [(class_id, blob) for class_id, blob in page if SEVERAL_LINES in blob]:
                yield parallel


class StoredFrames:
    """Makes frames of stored runs, and learns what their classes share."""

    def __init__(self, maker: ColumnMaker, config: Config, enrichers: Enrichers, *, dqs: bool) -> None:
        self.maker = maker
        self._dqs = dqs
        self._prefixes = {name: source.local_id_prefix for name, source in config.sources.items()}
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
        """The slim runs of stored jobs. Raises the errors of `publisher.store.stored`.

        All are read at once, as one array: the version byte before each happens to be a small number in MessagePack.
        """
        joined = b"".join([_ARRAY, (2 * len(blobs)).to_bytes(4, "big"), *blobs])
        try:
            found = self._decoder.decode(joined)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return [self.maker.slim_of(decode(blob)) for blob in blobs]  # or says what is wrong
        if found[::2].count(ENCODING_VERSION) != len(blobs):
            for blob in blobs:
                decode(blob)  # says what is wrong
        return found[1::2]

    def of(
        self, runs: list[Any], page: Sequence[tuple[int, bytes]], now: int | None, ids: Sequence[int] | None = None
    ) -> Iterator[Frame]:
        """Frames of stored runs: of DQS, of the lines that they were made of. `ids` make a column `ROW`."""
        places = self._places
        frame = self.maker.frame
        at = [places.get(class_id, 0) for class_id, _ in page] if places else None
        if self._dqs and "dqs" in set(map(_system, runs)):
            dqs = [place for place, run in enumerate(runs) if run.system == "dqs"]
            lines = [(line, place) for place in dqs for line in _line_jobs(decode(page[place][1]))]
            slim = [self.maker.slim_of(line) for line, _ in lines]
            yield frame(slim, _chosen(at, [place for _, place in lines]), now, _chosen(ids, [one for _, one in lines]))
            others = [place for place, run in enumerate(runs) if run.system != "dqs"]
            runs, at, ids = [runs[place] for place in others], _chosen(at, others), _chosen(ids, others)
        if runs:
            yield frame(runs, at, now, ids)


def _chosen(column: Sequence[int] | None, places: list[int]) -> list[int] | None:
    return None if column is None else [column[place] for place in places]


def _line_jobs(job: Job) -> list[Job]:
    """A run of DQS as a run for each line of the act_file that it was made of. All end, as accounted, where it does."""
    return [
        msgspec.structs.replace(
            job,
            queue=line.queue or None,
            hosts=(Host(line.host, 1),),
            local_group=line.group or None,
            local_user=line.owner or None,
            slots=1,
            execution_start=line.start,
            execution_end=line.end,
            wall_ms=(line.end - line.start) * 1000,
            cpu_ms=(line.user_s + line.system_s) * 1000,
            cpu_user_ms=line.user_s * 1000,
            cpu_system_ms=line.system_s * 1000,
            memory_rss_kib=line.rusage[3],
            extras={"complex": line.complexes},
        )
        for line in act_lines(job)
    ] or [job]
