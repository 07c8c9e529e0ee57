"""Row: the CPU time of an ARC job until it is sent to AMS as a signed CAR, stage by stage, with the floor of each
stage: the least that any program with this store and this service must do.

Each stage is called with the prepared result of the previous one, in one process and with the batches of a real run; so
the program itself has no code for measuring. The service, worker processes, and starting are not counted.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import zstandard
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from publisher.collect import plan
from publisher.collect.collect import enqueue_runs
from publisher.config import file
from publisher.encoded_run import DICTIONARY
from publisher.messages.item import Item
from publisher.messages.recipient import Recipient
from publisher.messages.records import PageRenderer
from publisher.plugins import record_format
from publisher.security.credentials import load_credentials
from publisher.security.sign import Signer
from publisher.sources import make_source
from publisher.sources.base import encode_page
from publisher.store import batches, in_flight, paging, queries, registry, runs
from publisher.store.classes import Interner
from publisher.store.database import open_store
from publisher.store.schema import BatchState, State
from publisher.targets import make_target
from publisher.targets.base import Accepted, Message
from publisher.targets.identity import TargetContext
from tests.bench import inputs
from tests.bench.delivering import CAR_RECORDS
from tests.bench.floor import sink
from tests.bench.measure import Bench, Measured, peak_mib
from tests.bench.parsing import floor_rows
from tests.bench.rows import Sizes, row
from tests.bench.services import services
from tests.bench.site import make_site, prepare

STAGES: Final = ("read", "encode", "store", "enqueue", "read back", "render", "sign", "send", "settle")
_PAGE: Final = 1_000
_READ_BACK: Final = 250
_NOW: Final = inputs.FIRST + 2 * inputs.MONTH_S
_MICRO: Final = 1e6


class _StageClock:
    """CPU seconds of this process, by stage, and wall seconds of all stages."""

    def __init__(self) -> None:
        self._cpu_s: Counter[str] = Counter()
        self._wall_s = 0.0

    @contextmanager
    def stage(self, name: str, *, not_in: str | None = None) -> Iterator[None]:
        """What is done inside belongs to this stage, and not to another one in which it is, or will be, done too."""
        begun, wall = time.process_time(), time.perf_counter()
        yield
        used = time.process_time() - begun
        self._cpu_s[name] += used
        if not_in is None:
            self._wall_s += time.perf_counter() - wall
        else:
            self._cpu_s[not_in] -= used

    def note(self, bench: Bench) -> None:
        """Record the run, with the CPU time of a job in each stage."""
        figures = {f"{name} µs": self._cpu_s[name] / bench.size * _MICRO for name in STAGES}
        bench.runs.append(Measured(bench.size, self._wall_s, self._cpu_s.total(), peak_mib(), figures=figures))


def floors(bench: Bench) -> None:
    """Bare sqlite3, msgpack, zstd, RSA, and TLS on what the stages read and write."""
    with tempfile.TemporaryDirectory() as folder, services(Path(folder)) as running:
        config = make_site(bench, running.target("ams", records="emi-car", batch_records=CAR_RECORDS))
        prepare(bench, "collect")
        settings = file.load(config)
        made = load_credentials(Path(running.ready["certificate"]), Path(running.ready["key"]), now_s=time.time())
    clock = _StageClock()
    with clock.stage("read"):
        floor_rows(bench.folder / "accounting.db")
    jobs = [job for page in make_source("ce1", settings.sources["ce1"]).pages({}) for job in page.jobs]
    dictionary = zstandard.ZstdCompressionDict(DICTIONARY.read_bytes())
    dictionary.precompute_compress(level=3)
    compress, encode = zstandard.ZstdCompressor(3, dict_data=dictionary).compress, msgspec.msgpack.Encoder().encode
    for some in paging.chunks(jobs, _PAGE):
        with clock.stage("encode"):
            encoded = [encode(job) for job in some]
        with clock.stage("store"):
            for run in encoded:
                compress(run)
    with closing(sqlite3.connect(bench.folder / "store.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        _insert_floor(clock, connection, "store", "runs")
        _insert_floor(clock, connection, "enqueue", "deliveries")
        with clock.stage("read back"):
            waiting = connection.execute(_READ).fetchall()
        with clock.stage("settle"):
            for number, some in enumerate(paging.chunks([run_id for _, run_id, *_ in waiting], CAR_RECORDS), 1):
                connection.execute("BEGIN")
                connection.executemany(_LEAVE, [(number, bytes(16), run_id) for run_id in some])
                connection.execute("COMMIT")
                connection.execute("BEGIN")
                connection.executemany(_ARRIVE, [(run_id,) for run_id in some])
                connection.execute("COMMIT")
    bodies = [bytes(_RECORD_BYTES)] * len(waiting)
    with clock.stage("render"):
        messages = [b"\n".join(some) for some in paging.chunks(bodies, CAR_RECORDS)]
    assert isinstance(made.key, rsa.RSAPrivateKey)
    with clock.stage("sign"):
        for message in messages:
            made.key.sign(message, padding.PKCS1v15(), hashes.SHA256())
    with sink(bench.folder / "pki") as tls, clock.stage("send"):
        for message in messages:
            tls.sendall(message)
    clock.note(bench)


_RECORD_BYTES: Final = 2_600
_READ: Final = f"""
    SELECT deliveries.end_time, run_id, revision, sent_digest, record_id, runs.digest, stored_at, job, facts
    FROM deliveries JOIN runs ON run_id = runs.id JOIN classes ON class_id = classes.id
    WHERE deliveries.state = {int(State.WAITING)} ORDER BY 1, 2
"""
_LEAVE: Final = f"""
    UPDATE deliveries SET state = {int(State.IN_FLIGHT)}, batch_id = ?, sent_digest = ?
    WHERE target_id = 1 AND run_id = ?
"""
_ARRIVE: Final = f"UPDATE deliveries SET state = {int(State.ACCEPTED)} WHERE target_id = 1 AND run_id = ?"


def _insert_floor(clock: _StageClock, connection: sqlite3.Connection, stage: str, table: str) -> None:
    """The rows of a table with its indexes, inserted into an empty one."""
    rows = connection.execute(f"SELECT * FROM {table}").fetchall()
    connection.execute(f"DELETE FROM {table}")
    insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"
    with clock.stage(stage):
        for some in paging.chunks(rows, _PAGE):
            connection.execute("BEGIN")
            connection.executemany(insert, some)
            connection.execute("COMMIT")


@row("an ARC job to CAR, by stage", Sizes(2_000, 20_000, 100_000), beside=("floors", floors))
def stages(bench: Bench) -> None:
    """CPU time of each stage of a job, and the floor of the stage; below the table."""
    clock = _StageClock()
    with tempfile.TemporaryDirectory() as folder, services(Path(folder)) as running:
        ams = running.target("ams", records="emi-car", batch_records=CAR_RECORDS, batch_bytes=10_000_000)
        _Journey(bench, clock, make_site(bench, ams)).go()
    clock.note(bench)


class _Journey:
    """The jobs of a site on their way, a stage after the other."""

    def __init__(self, bench: Bench, clock: _StageClock, config: Path) -> None:
        self._bench = bench
        self._clock = clock
        self._config = file.load(config)
        self._store = open_store(self._config.store.url)

    def go(self) -> None:
        """Go through all stages."""
        with closing(self._store):
            plans = plan.prepare(self._store, self._config, _NOW)
            self._collect(list(plans.values()))
            self._publish(plans["ams"].target_id)

    def _collect(self, plans: list[plan.TargetPlan]) -> None:
        stage, source = self._clock.stage, make_source("ce1", self._config.sources["ce1"])
        with self._store.write() as connection:
            interner = Interner(registry.source(connection, "ce1", "arc").id, "ce1")
        pages = source.pages({})
        while True:
            with stage("read"):
                page = next(pages, None)
            if page is None:
                return
            with stage("encode"):
                encoded = encode_page(page, again=False)
            with stage("store"), self._store.write() as connection:
                put = runs.upsert(connection, interner, encoded.runs, _NOW).put
                with stage("enqueue", not_in="store"):
                    enqueue_runs(connection, put, plans, _NOW, read=interner.classes)

    def _publish(self, target_id: int) -> None:
        stage, config = self._clock.stage, self._config
        recipient = Recipient(self._store, config, "ams")
        form = record_format(recipient.format_name, recipient.view)
        renderer, place = PageRenderer(recipient, form), None
        items: list[Item] = []
        while True:
            with stage("read back"), self._store.read() as connection:
                found = list(queries.waiting(connection, target_id, place, _READ_BACK))
            if not found:
                break
            place = (found[-1].end_time, found[-1].run.run_id)
            with stage("render"):
                items += renderer.rendered(found).items
        credentials = config.credentials
        assert credentials.certificate is not None
        assert credentials.key is not None
        signer = Signer(load_credentials(credentials.certificate, credentials.key, now_s=time.time()))
        with closing(make_target("ams", config.targets["ams"], TargetContext(credentials))) as target:
            target.check()  # it loads what sends, connects, and fetches a token
            for number, some in enumerate(paging.chunks(items, CAR_RECORDS)):
                with stage("render"):
                    payload = form.message([item.body for item in some])
                with stage("settle"), self._store.write() as connection:
                    batch_id = batches.open_batch(
                        connection, target_id, f"{number}", form.name, len(some), len(payload), None, _NOW
                    )
                    leaving = [run for each in some for run in each.members]
                    in_flight.mark_in_flight(connection, target_id, batch_id, leaving, _NOW, keeps_first=False)
                with stage("sign", not_in="send"):
                    signer.sign_in_parts(payload)
                message = Message(f"{number}", form.name, form.content_type, payload)
                with stage("send"):
                    outcome = target.post(message)
                assert isinstance(outcome, Accepted), outcome
                with stage("settle"), self._store.write() as connection:
                    in_flight.mark_accepted(
                        connection, target_id, batch_id, _NOW, keeps_first=False, expected=len(some)
                    )
                    batches.close(connection, batch_id, BatchState.ACCEPTED, _NOW, receipt=outcome.receipt)
