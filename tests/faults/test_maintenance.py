"""The disk is full while the store is looked after: all or nothing, or a month; with room, the same command does it."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Literal, get_args

import pytest

from formats.calendar import Month
from publisher.errors import StoreError, UsageError
from publisher.maintenance import copy_store
from publisher.simulator import Fault, Simulator
from publisher.spool.base import SpoolError
from tests.faults.full_disk import SmallDisk, every_connection, files_no_larger_than, may_mount, pages_of
from tests.faults.guarantees import Guarantees
from tests.faults.simulated_site import BATCH, JOBS, FaultySite, Outcome
from tests.publisher.site import NOVEMBER, OCTOBER, make_job, make_jobs
from tests.store_contents import Contents, contents_of

Command = Literal["purge", "forget", "export", "import", "copy", "backup"]
COMMANDS: Final[tuple[Command, ...]] = get_args(Command)
WORDS: Final[dict[Command, str]] = {
    "purge": "each month is whole or gone",
    "forget": "the name is unchanged",
    "export": "incomplete, refused by `store import`",
    "import": "nothing is imported",
    "copy": "nothing is copied",
    "backup": "no file of that name",
}


class Kept:
    """A site whose store is looked after: half of its jobs are of October and delivered, some of November wait."""

    def __init__(self, folder: Path, simulator: Simulator, command: Command) -> None:
        jobs = [make_job(number, end=OCTOBER + 3600 + number) for number in range(1, JOBS // 2 + 1)]
        self.site = FaultySite(folder, simulator, jobs=[*jobs, *make_jobs(JOBS // 2, first=JOBS // 2 + 1)])
        self.site.befall(Fault("status", code=503, skip=7))
        assert self.site.run().waiting == JOBS - 7 * BATCH
        self.folder = folder
        self.command = command
        self.place = folder / {"export": "export", "backup": "backup.db"}.get(command, "new.db")
        self.site.publisher.maintenance.export(folder / "before", "json-lines")
        self.site.reopen()

    def do(self) -> None:
        """The command, as if in a separate process."""
        site, maintenance = self.site, self.site.publisher.maintenance
        try:
            if self.command == "purge":
                maintenance.purge(Month(2026, 11))
            elif self.command == "forget":
                maintenance.forget("/DC=org/CN=Ada", f"/CN={'erased' * 200}")  # takes more room than the name
            elif self.command == "export":
                maintenance.export(self.place, "json-lines")
            elif self.command == "import":
                self._import(self.folder / "before")
            elif self.command == "copy":
                copy_store(site.config.store.url, f"sqlite:///{self.place}", 1, lambda _table: None)
            else:
                maintenance.backup(self.place)
        finally:
            site.reopen()

    def _import(self, exported: Path) -> None:
        self.site.table["store"]["url"] = "sqlite:///new.db"
        try:
            self.site.reopen()
            self.site.publisher.import_store(exported)
        finally:
            self.site.table["store"]["url"] = "sqlite:///store.db"
            self.site.reopen()

    def fails_in(self, tight: Iterable[AbstractContextManager[None]]) -> int:
        """Done with ever more room, until there is enough; gives the exit code of the first failure."""
        before = contents_of(self.site.store_file)
        code = 0
        for room in tight:
            try:
                with room:
                    self.do()
            except (StoreError, SpoolError) as error:
                code = code or error.exit_code
                left = contents_of(self.site.store_file)
                # Where there was no room to take it away again: the next purge does.
                left["indexes"] = [row for row in left["indexes"] if row != ("deliveries_by_run",)]
                assert left == before or (self.command == "purge" and self._is_gone(left)), "half of it was done"
                self._assert_nothing_is_there()
            else:
                assert code, "it never failed"
                return code
        self.do()
        return code

    def _is_gone(self, left: Contents) -> bool:
        """Whether nothing is left of October, all of November is, and that is known."""
        ends = [row[0] for row in self.site.rows("SELECT end_time FROM runs")]
        months = [row[0] for row in left["purged_months"]]
        return len(ends) == JOBS // 2 and min(ends) >= NOVEMBER and months == [202610]

    def _assert_nothing_is_there(self) -> None:
        if self.command == "backup":
            assert not self.place.exists()
        elif self.command == "export":
            with pytest.raises(UsageError, match="does not contain a complete export"):
                self._import(self.place)
            shutil.rmtree(self.place, ignore_errors=True)
        assert contents_of(self.folder / "new.db") == {}

    def deliver(self) -> Outcome:
        """The store that was made in place of the one that was; the service is well again."""
        made = self.place
        if self.command == "export":
            made = self.folder / "new.db"
            self._import(self.place)
        if self.command not in {"purge", "forget"}:
            gc.collect()  # a connection that an error still holds would go on with the files of the one before
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.site.store_file}{suffix}").unlink(missing_ok=True)
            made.rename(self.site.store_file)
        self.site.befall()
        return self.site.run()


def tight_store(kept: Kept) -> Iterator[AbstractContextManager[None]]:
    """SQLite's own limit; for what it does not hold for, a bound on the size of files."""
    if kept.command in {"export", "backup"}:
        yield from (files_no_larger_than(most_bytes) for most_bytes in (1 << 15, 1 << 16))
        return
    pages = pages_of(kept.site.store_file)
    first = pages if kept.command in {"purge", "forget"} else 1
    for most in range(first, first + pages, 1 if first > 1 else 9):
        yield every_connection(f"PRAGMA max_page_count = {most}")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_disk_is_full_while_the_store_is_looked_after(
    tmp_path: Path, simulator: Simulator, guarantees: Guarantees, command: Command
) -> None:
    kept = Kept(tmp_path, simulator, command)
    code = kept.fails_in(tight_store(kept))
    again = kept.deliver()
    found = kept.site.balance()
    words = f"exit {code}: {WORDS[command]}; then {again.words}"
    guarantees.row(f"disk full at {command}", words, len(found.lost), len(found.twice))
    assert set(kept.site.arrived()) == kept.site.selected()
    assert (code, again.code, found.twice) == (1 if command == "export" else 5, 0, frozenset())


if may_mount():

    @pytest.mark.parametrize("command", COMMANDS)
    def test_a_small_disk_is_full_while_the_store_is_looked_after(
        simulator: Simulator, small_disk: SmallDisk, command: Command
    ) -> None:
        kept = Kept(small_disk.path, simulator, command)

        @contextmanager
        def but(room_bytes: int) -> Iterator[None]:
            small_disk.fill(room_bytes)
            try:
                yield
            finally:
                small_disk.make_room()

        kept.fails_in(but(room_bytes) for room_bytes in (0, 1 << 13, 1 << 15, 1 << 16, 1 << 17, 1 << 18))
        again = kept.deliver()
        found = kept.site.balance()
        assert set(kept.site.arrived()) == kept.site.selected()
        assert (again.code, found.lost, found.twice) == (0, frozenset(), frozenset())
        kept.site.reopen()
