"""A store with something to send, and what is sent from it once a bit of its file has changed."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from formats.job import Benchmark, Job
from publisher.cli import exit_code
from publisher.errors import PublisherError
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import ListSource, Site, make_job

_RECORD: Final = re.compile(rb"<(?:\w+:)?(?:Job)?UsageRecord[ >].*?</(?:\w+:)?(?:Job)?UsageRecord>", re.DOTALL)
_FILES: Final = ("store.db", "store.db.sent")
SUMS: Final = "sums"


class Flip(msgspec.Struct, frozen=True):
    """A bit of a file."""

    offset: int
    bit: int


class SentBodies(msgspec.Struct, frozen=True):
    """What a run sent, by target, with its exit code; `error`: of the run as a whole. `found`: the check of the store
    finds damage, done where the bit is of the ledger and the run did not say so."""

    code: int
    bodies: dict[str, Counter[bytes]]
    error: str = ""
    found: bool = False


class FlippedStore:
    """See the module. `folder` holds the store; what is sent from it is kept by services in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        whole = folder / "whole"
        whole.mkdir()
        site = self._site(whole)
        source = site.sources["ce1"]
        source.add(*(make_job(number, vo=f"vo{number % 3}", wall_s=100 + number) for number in range(1, 9)))
        site.collect()
        site.publish()
        self.earlier = _bodies(site)
        source.add(
            *(make_job(number, vo=f"vo{number % 3}", cores=number, name=f"job {number}") for number in range(11, 16))
        )
        source.add(make_job(16, benchmarks=(Benchmark("HEPSPEC", 10.5),)))
        self._jobs = [job for job in source.log if isinstance(job, Job)]
        site.collect()
        site.reopen()
        self._files = {name: (whole / name).read_bytes() for name in _FILES}
        with closing(sqlite3.connect(whole / "store.db")) as connection:
            query = "SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'deliveries'"
            ledger = {page - 1 for (page,) in connection.execute(query)}
            (size,) = connection.execute("PRAGMA page_size").fetchone()
        self._ledger = [range(page * size, (page + 1) * size) for page in ledger]
        self.expected = self.sent()

    def _site(self, folder: Path) -> Site:
        services = [RecordReceiver("sgas"), RecordReceiver("apel", "ams"), SummaryReceiver(SUMS)]
        return Site(folder, [ListSource("ce1")], services)

    def flips(self, number: int, seed: int) -> Iterator[Flip]:
        """Bits of the bytes that are used, at random."""
        chance = random.Random(seed)
        content = self._files["store.db"]
        used = [offset for offset, byte in enumerate(content) if byte]
        for offset in sorted(chance.sample(used, min(number, len(used)))):
            yield Flip(offset, chance.randrange(8))

    def sent(self, flip: Flip | None = None, *, read_again: bool = False) -> SentBodies:
        """What `publish` sends once this bit has changed. `read_again`: after a collect that reads all jobs again, as
        one does whose window overlaps the one before."""
        folder = self._folder / "flipped"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        site = self._site(folder)
        for name, content in self._files.items():
            changed = bytearray(content)
            if flip is not None and name == "store.db":
                changed[flip.offset] ^= 1 << flip.bit
            (folder / name).write_bytes(changed)
        error, found = "", False
        try:
            if flip is not None and any(flip.offset in page for page in self._ledger):
                found = "red" in {finding.level for finding in site.publisher.maintenance.check()}
            if read_again:
                site.sources["ce1"].add(*self._jobs)
                site.collect()
            done = site.publish()
            code = exit_code.of_run((), done, site.publisher.status())
        except PublisherError as problem:
            code, error = problem.exit_code, str(problem)
        finally:
            site.reopen()
        return SentBodies(code, _bodies(site), error, found)

    def why_wrong(self, sent: SentBodies) -> str | None:
        """Why this must not have been sent with this exit code; None: it may.

        A record that was sent before may come again, as it was. Sums may lack what is held if the exit code says so,
        and what has lost its delivery to them, by a changed key, if the check finds it: a run checks it in its turn.
        """
        for name, bodies in sent.bodies.items():
            known = self.expected.bodies[name] + self.earlier[name]
            altered = [body for body in bodies if body not in known]
            if altered and ((sent.code == 0 and not sent.found) or name != SUMS):
                return f"{name}: altered, exit code {sent.code}: {altered[0].decode()}"
            missing = [body for body in self.expected.bodies[name] if body not in bodies]
            if missing and sent.code == 0 and not sent.found:
                return f"{name}: {len(missing)} missing, exit code 0"
        return None


def _bodies(site: Site) -> dict[str, Counter[bytes]]:
    """The records, groups, and sync counts that each service got."""
    found: dict[str, Counter[bytes]] = {}
    for name, receiver in site.receivers.items():
        bodies: Counter[bytes] = Counter()
        for message in receiver.messages:
            xml = _RECORD.findall(message.payload)
            _head, _, groups = message.payload.partition(b"\n")
            bodies.update(xml or [group.strip() for group in groups.split(b"%%") if group.strip()])
        found[name] = bodies
    return found
