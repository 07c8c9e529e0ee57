"""Columns that were brought up to date, whatever happened in between, are those that are made from nothing."""

from __future__ import annotations

import resource
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, event, func, select, update

from formats.calendar import Month
from formats.job import Host, Job
from publisher.api import Publisher
from publisher.config import file as config_file
from publisher.errors import StoreCorruptError, StoreError, UsageError
from publisher.report.column_files import ColumnFolder, ColumnManifest
from publisher.report.column_place import column_place
from publisher.report.column_update import up_to_date
from publisher.report.columns import SlimDecoder
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import ENTRIES, EntryReading, column_folder
from publisher.store import changes
from publisher.store.admin import erase
from publisher.store.report_queries import stored_runs
from publisher.store.schema import changes as table
from publisher.store.schema import runs
from tests.extent import short_or_whole
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs

NOW: Final = 1_795_000_000
REQUEST: Final = ReportRequest(start=0, stop=NOW)
BOB: Final = "/DC=org/CN=Bob Builder"
_NAMES: Final = ", ".join(map('"{}"'.format, ENTRIES))
_SELECT: Final = f"SELECT {_NAMES} FROM entries ORDER BY ALL"
_WRITES: Final = ("INSERT INTO runs ", "UPDATE runs ", "DELETE FROM runs ", "UPDATE classes ", "DELETE FROM classes ")


def _all(publisher: Publisher) -> list[tuple[Any, ...]]:
    with ReportContext(publisher.store, publisher.config, NOW).tables(
        REQUEST, EntryReading(running_until=NOW)
    ) as connection:
        return connection.execute(_SELECT).fetchall()


def of(site: Site) -> list[tuple[Any, ...]]:
    """All that reports can read."""
    return _all(site.publisher)


def of_another_process(table: dict[str, Any], folder: Path) -> list[tuple[Any, ...]]:
    """The same, called in another process."""
    with Publisher(config_file.parse(table, folder / "publisher.toml"), read_only=True) as publisher:
        return _all(publisher)


def folder(site: Site) -> ColumnFolder:
    found = column_folder(site.publisher.store, site.publisher.config)
    assert found is not None
    return found


def from_nothing(site: Site) -> list[tuple[Any, ...]]:
    """The same of columns that are made anew, in another place."""
    kept, aside = folder(site).path, folder(site).path.with_name("aside")
    there = kept.exists()
    if there:
        kept.rename(aside)
    try:
        return of(site)
    finally:
        shutil.rmtree(kept, ignore_errors=True)
        if there:
            aside.rename(kept)


def manifest(site: Site) -> ColumnManifest:
    found = folder(site).manifest()
    assert found is not None
    return found


def same(site: Site) -> None:
    assert of(site) == from_nothing(site)


def site_of(folder: Path, *jobs: Job) -> tuple[Site, ListSource]:
    source = ListSource("ce1")
    source.add(*jobs)
    site = Site(folder, [source], [])
    site.table["store"] = {**site.table.get("store", {}), "columns": "columns"}
    site.collect()
    return site, source


def read(site: Site, source: ListSource, *jobs: Job) -> None:
    source.add(*jobs)
    site.now += 1
    site.collect()


def running(number: int) -> Job:
    return make_job(number, status="running", end=None, wall_ms=None, cpu_ms=None, start=NOVEMBER)


@pytest.mark.either_store
def test_what_is_new_changed_gone_or_renamed_is_made_good(tmp_path: Path) -> None:
    jobs = [make_job(number, user_dn=BOB if number % 7 == 0 else f"/CN=user {number}") for number in range(1, 50)]
    site, source = site_of(tmp_path, *jobs, running(60), make_job(70, end=OCTOBER + 1))

    def changed(*some: Job) -> None:
        before = of(site)
        read(site, source, *some)
        assert of(site) != before
        same(site)

    changed(*make_jobs(55)[50:])
    changed(msgspec.structs.replace(jobs[3], local_user="somebody", wall_ms=77_000))
    changed(msgspec.structs.replace(jobs[3], local_user="somebody", wall_ms=78_000))
    changed(msgspec.structs.replace(running(60), status="completed", end=NOVEMBER + 500, wall_ms=500_000))
    changed(make_job(80, vo="another", hosts=(Host("n9", 4),)))
    site.publisher.maintenance.forget(BOB)
    same(site)
    assert not any("Bob" in str(row) for row in of(site))
    site.publisher.maintenance.purge(Month(2026, 11))
    assert {row[ENTRIES.index("end")] for row in of(site)} & {OCTOBER + 1} == set()
    same(site)
    read(site, source, make_job(90))
    same(site)


def test_a_change_of_the_configuration_rewrites_no_part(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *(make_job(number, vo=None, user_dn=None, local_user="ada") for number in range(5)))
    before = of(site)
    parts = manifest(site).parts
    site.reopen()
    site.table["map"] = [{"when": {"local_user": "*"}, "vo": "chemistry", "dn": "/CN=x"}]
    site.table["sources"]["ce1"]["local_id_prefix"] = "ce-"
    after = of(site)
    assert {row[ENTRIES.index("vo")] for row in after} == {"chemistry"} != {row[ENTRIES.index("vo")] for row in before}
    assert all(row[ENTRIES.index("local_id")].startswith("ce-") for row in after)
    assert manifest(site).parts == parts
    same(site)


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *make_jobs(5))
    found = of(site)
    files = {path.name: path.stat().st_mtime_ns for path in folder(site).path.iterdir()}
    assert of(site) == found
    assert {path.name: path.stat().st_mtime_ns for path in folder(site).path.iterdir()} == files
    assert folder(site).path.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder(site).path.iterdir())


@pytest.mark.parametrize("what", ["bit", "torn", "gone", "other", "manifest", "classes"])
def test_a_file_that_is_not_what_was_written_is_made_again(tmp_path: Path, what: str) -> None:
    site, source = site_of(tmp_path, *make_jobs(40))
    of(site)
    read(site, source, make_job(2, wall_ms=5_000))
    found = of(site)
    place, classes = folder(site).path, manifest(site).classes
    assert classes is not None
    part = place / manifest(site).parts[0].file
    file = {"manifest": place / "manifest", "classes": place / classes.file}.get(what, part)
    content = bytearray(file.read_bytes())
    if what == "gone":
        file.unlink()
    elif what == "torn":
        file.write_bytes(content[:-9])
    elif what == "other":
        file.write_bytes((place / manifest(site).parts[1].file).read_bytes())
    for byte in range(0, len(content), 97) if what in {"bit", "manifest", "classes"} else [0]:
        if what in {"bit", "manifest", "classes"}:
            content[byte] ^= 4
            file.write_bytes(content)
            content[byte] ^= 4
        assert of(site) == found
        if not file.exists():  # it was made again, under another name
            file.write_bytes(content)
            folder(site).replace(manifest(site))


@pytest.mark.parametrize("earlier", [True, False])
def test_columns_of_another_state_are_not_taken_for_those_of_the_store(tmp_path: Path, earlier: bool) -> None:
    """A store that was restored from a backup, and went on to as many changes."""
    site, source = site_of(tmp_path, *make_jobs(5))
    site.snapshot(tmp_path / "image")
    read(site, source, make_job(10), make_job(1, wall_ms=7_000))
    later = of(site)
    site.restore(tmp_path / "image")
    if earlier:
        source.log.remove(make_job(10))
    if not earlier:
        read(site, source, make_job(11))
    assert of(site) != later
    same(site)


def test_many_small_parts_become_one(tmp_path: Path) -> None:
    site, source = site_of(tmp_path, make_job(1))
    counts = []
    for number in range(2, 40):
        read(site, source, make_job(number), make_job(number - 1, wall_ms=number * 1000))
        of(site)
        counts.append(len(manifest(site).parts))
    assert max(counts) < 20
    assert len([path for path in folder(site).path.iterdir() if path.suffix == ".parquet"]) == counts[-1] + 1
    same(site)


def test_many_dead_rows_are_removed(tmp_path: Path) -> None:
    site, source = site_of(tmp_path, *make_jobs(2_500))
    of(site)
    for last in (900, 1_900):
        read(site, source, *(make_job(number, wall_ms=last) for number in range(1, last)))
        same(site)
    assert sum(part.rows for part in manifest(site).parts) < 2_500 + 1_000


def test_who_has_not_looked_for_long_begins_anew(tmp_path: Path) -> None:
    site, source = site_of(tmp_path, *make_jobs(5))
    of(site)
    for number in range(10, 14):
        read(site, source, make_job(number))
    with site.publisher.store.write() as connection:
        changed = changes.ChangedRuns()
        changed.run_ids.add(1)
        while changes.mark_of(connection).number < 512:
            changes.append(connection, changed, kept=100)
        assert [row[0] for row in connection.execute(select(func.min(table.c.number)))] == [413]
    same(site)


def test_a_damaged_run_stops_reports_of_its_time_alone(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *make_jobs(5), make_job(9, end=OCTOBER))
    with site.publisher.store.write() as connection:
        connection.execute(update(runs).where(runs.c.end_time == OCTOBER).values(job=b"\x01\xc1"))
    context = ReportContext(site.publisher.store, site.config, NOW)
    with pytest.raises(StoreCorruptError):
        of(site)
    with context.tables(REQUEST, EntryReading(("user",), NOVEMBER)) as connection:
        assert len(connection.execute("SELECT * FROM entries").fetchall()) == 5


def test_a_full_disk_is_an_error_of_the_store(tmp_path: Path) -> None:
    site, source = site_of(tmp_path, *make_jobs(5))
    found = of(site)
    read(site, source, make_job(10))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
        with pytest.raises(StoreError, match=r"the columns in .* cannot be written: File too large"):
            of(site)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(of(site)) == len(found) + 1
    same(site)


@contextmanager
def noted() -> Iterator[None]:
    """Fails where a transaction writes runs or classes, and no change. Marks are in no column."""
    written: dict[int, str] = {}

    def look(connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        said = " ".join(statement.split())
        if said.startswith(_WRITES) and not said.startswith("UPDATE runs SET mark="):
            written[id(connection)] = said
        elif said.startswith("INSERT INTO changes"):
            written.pop(id(connection), None)

    def commit(connection: Any) -> None:
        assert written.pop(id(connection), None) is None

    event.listen(Engine, "before_cursor_execute", look)
    event.listen(Engine, "commit", commit)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", look)
        event.remove(Engine, "commit", commit)


class _KilledUpdateError(BaseException):
    pass


class _UpdateKiller:
    """Ends what is done in a folder at a step, and everything after it: what was written is left as it is."""

    def __init__(self) -> None:
        self.folder = ""
        self.left = 0
        sys.addaudithook(self._look)

    def _look(self, what: str, given: tuple[Any, ...]) -> None:
        if self.folder and what in {"open", "os.rename", "os.remove"} and str(given[0]).startswith(self.folder):
            self.left -= 1
            if self.left <= 0:
                raise _KilledUpdateError

    @contextmanager
    def killing(self, folder: Path, step: int) -> Iterator[None]:
        """Within this, it ends at this step, if there are so many."""
        self.folder, self.left = str(folder), step
        try:
            with suppress(_KilledUpdateError):
                yield
        finally:
            self.folder = ""


_KILLER: Final = _UpdateKiller()


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Two, each started once for all schedules."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.either_store
@pytest.mark.parametrize("seed", range(short_or_whole(5, 100)))
def test_random_schedules(tmp_path: Path, processes: ProcessPoolExecutor, seed: int) -> None:
    random = Random(seed)
    number = 1

    def job(number: int) -> Job:
        if random.random() < 0.1:
            return running(number)
        return make_job(
            number,
            end=random.choice((NOVEMBER, OCTOBER, OCTOBER - 90 * 86_400)) + number,
            wall_ms=random.randrange(10**6),
            user_dn=random.choice((None, BOB, "/CN=a", "/CN=b")),
            local_user=random.choice(("", "ada", "bob")),
            vo=random.choice((None, "atlas", "cms")),
        )

    site, source = site_of(tmp_path)
    with noted():
        for _ in range(random.randrange(5, 20)):
            what = random.random()
            if what < 0.6:
                fresh = range(number, number + random.choice((1, 5, 300)))
                number = fresh.stop
                again = [random.randrange(1, number) for _ in range(random.randrange(4))]
                read(site, source, *map(job, [*fresh, *again]))
            elif what < 0.65:
                if any("Bob" in str(row) for row in of(site)):
                    site.publisher.maintenance.forget(BOB)
                    assert not any("Bob" in str(row) for row in of(site))
            elif what < 0.7:
                site.publisher.maintenance.purge(random.choice((Month(2026, 9), Month(2026, 10), Month(2026, 11))))
            elif what < 0.8:
                with _KILLER.killing(folder(site).path, random.randrange(1, 25)):
                    of(site)
            elif what < 0.9:
                before = from_nothing(site)
                readers = [processes.submit(of_another_process, site.table, tmp_path) for _ in range(2)]
                read(site, source, job(number))  # a report may have it or not
                number += 1
                after = of(site)
                assert all(reader.result() in (before, after) for reader in readers)
            else:
                of(site)
        same(site)


def kept(site: Site) -> str:
    """All that the files of the columns have."""
    place = column_place(site.publisher.store, site.publisher.config)
    assert place is not None
    return "".join(str(pq.read_table(file).to_pylist()) for file in sorted(place.rglob("*.parquet")))


@pytest.mark.parametrize("manifest_is_there", [True, False])
def test_a_person_who_is_forgotten_is_in_no_file(tmp_path: Path, manifest_is_there: bool) -> None:
    """Also in those that no manifest names, as after damage."""
    site, source = site_of(tmp_path, *(make_job(number, user_dn=BOB) for number in range(1, 5)), *make_jobs(9)[5:])
    of(site)
    read(site, source, make_job(2, user_dn=BOB, wall_s=77))
    of(site)
    assert "Bob" in kept(site)
    if not manifest_is_there:
        for file in folder(site).path.glob("manifest*"):
            file.write_bytes(b"damaged")
    site.publisher.maintenance.forget(BOB)
    assert "Bob" not in kept(site)
    same(site)


def test_what_a_killed_process_left_is_removed_by_the_next_report(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, make_job(1, user_dn=BOB))
    of(site)
    stale = folder(site).path / "00000099-abcdef01.parquet"
    shutil.copy(next(folder(site).path.glob("*.parquet")), stale)
    of(site)
    assert not stale.exists()


def test_a_person_whose_name_only_the_columns_have_is_taken_out(tmp_path: Path) -> None:
    """The command was killed after the store had forgotten the name: repeated, it finds no job, and ends its work."""
    site, _ = site_of(tmp_path, *(make_job(number, user_dn=BOB) for number in range(1, 5)))
    of(site)

    assert "Bob" in kept(site)
    with site.publisher.store.write() as connection:
        erase.forget(connection, BOB, "/CN=nobody", lambda _before, _after: None, {}, site.now)
    assert "Bob" in kept(site)
    with pytest.raises(UsageError, match="no jobs of a person"):
        site.publisher.maintenance.forget(BOB)
    assert "Bob" not in kept(site)


def test_little_at_a_time_gives_the_same_columns(tmp_path: Path) -> None:
    """Where runs are large, few are in memory."""
    site = Site(tmp_path, [source := ListSource("ce1")], [])
    source.add(*make_jobs(50), *(make_job(number, end=OCTOBER + number) for number in range(51, 99)))
    site.collect()
    usual = of(site)
    assert len(usual) == 98
    kept = folder(site)
    with kept.updating(), site.publisher.store.read() as connection:
        up_to_date(kept, connection, None, lambda _done, _total: None, buffered_bytes=1)
    assert of(site) == usual


def test_classes_that_are_forgotten_are_read_again(tmp_path: Path) -> None:
    """Where each run has a class of its own, no more are kept than those of a page."""
    site = Site(tmp_path, [source := ListSource("ce1")], [])
    source.add(*(make_job(number, queue=f"q{number}") for number in range(1, 41)))
    site.collect()
    decoded = {}
    for most_bytes in (0, 1 << 20):
        decoder = SlimDecoder(with_slaves=False, most_bytes=most_bytes)
        with site.publisher.store.read() as connection:
            for page in [*stored_runs(connection, 10)] * 2:
                decoder.learn(connection, page)
                decoded.setdefault(most_bytes, []).extend(decoder.decoded(page))
    assert decoded[0] == decoded[1 << 20]
    assert len({run.queue for run in decoded[0]}) == 40
