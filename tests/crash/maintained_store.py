"""A store to look after: most of it delivered, some of it waiting; and what a command leaves and makes of it."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

from formats.calendar import Month, month_of
from publisher.errors import UsageError
from publisher.spool.exchange import read_manifest
from publisher.store.admin import integrity
from publisher.store.database import open_store
from tests import oracle
from tests.crash.child import ChildTask, ForkServer, Keeping, ProcessEnding
from tests.crash.crash_site import CrashSite
from tests.oracle import Balance
from tests.store_contents import Contents, contents_of

BEFORE: Final = Month(2026, 11)
_RESULT: Final = {"import": "new.db", "copy": "copy.db", "backup": "backup.db", "export": "export"}


class MaintainedStore:
    """A site (plain files, all delivered) and what is done to its store. A second target cannot be reached: what
    ended since November waits for it."""

    def __init__(self, site: CrashSite, fork_server: ForkServer) -> None:
        self.site = site
        self.folder = site.folder
        self._fork_server = fork_server

    @classmethod
    def prepared(cls, site: CrashSite, fork_server: ForkServer, command: Keeping) -> MaintainedStore:
        """Delivered and, where it is to be imported, exported."""
        text = site.config.read_text()
        text += (
            '[targets.other]\ntype = "directory"\npath = "nowhere/other"\nlayout = "files"\nrecords = "ogf-ur"\n'
            'since = "2026-11-01"\n'
        )
        site.config.write_text(text)
        (site.folder / "new.toml").write_text(text.replace("store.db", "new.db"))
        kept = cls(site, fork_server)
        assert site.run("run").code == 0
        if command == "import":
            assert kept.run("export").code == 0
        return kept

    def copy(self, name: str) -> MaintainedStore:
        """A copy in another folder next to it."""
        return MaintainedStore(self.site.copy(self.folder.parent / name), self._fork_server)

    def remove(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.folder)

    # --- what is done

    def run(
        self, command: Keeping, step: int = -1, form: str = "json-lines", most_bytes: int = 0, dies: bool = True
    ) -> ProcessEnding:
        """A process that does it; it may die."""
        task = ChildTask(
            str(self.config(command)), command, step, "write", what=self._what(command), form=form,
            most_bytes=most_bytes, dies=dies,
        )  # fmt: skip
        return self._fork_server.run(task)

    def config(self, command: Keeping) -> Path:
        """The configuration of the store on which a command works."""
        return self.folder / ("new.toml" if command == "import" else "publisher.toml")

    def _what(self, command: Keeping) -> str:
        if command == "purge":
            return str(BEFORE.number)
        if command == "forget":
            return self.person()
        if command == "import":
            return str(self.folder / "export")
        place = self.folder / _RESULT[command]
        return f"sqlite:///{place}" if command == "copy" else str(place)

    def person(self) -> str:
        """The person with most jobs, as in the first store."""
        with closing(sqlite3.connect(self.folder / "accounting.db")) as connection:
            query = "SELECT Users.Name FROM AAR JOIN Users ON Users.ID = UserID GROUP BY 1 ORDER BY count(*) DESC, 1"
            return str(connection.execute(query).fetchone()[0])

    # --- what is there

    def store(self, command: Keeping) -> Path:
        """The store that a command makes or changes."""
        return self.folder / ("store.db" if command in {"purge", "forget", "export"} else _RESULT[command])

    def contents(self, command: Keeping) -> Contents:
        """Every row of the store that a command makes or changes, and its indexes; nothing, where there is none."""
        return contents_of(self.store(command))

    def assert_sound(self, command: Keeping) -> None:
        """Assert that the store is consistent."""
        store = open_store(f"sqlite:///{self.store(command)}")
        try:
            with store.read() as connection:
                wrong = [str(found) for found in integrity.check(connection) if found.level == "red"]
        finally:
            store.close()
        assert not wrong

    def months(self) -> Counter[Month]:
        """How many runs the store has of each month."""
        rows = oracle.rows_of(self.folder / "store.db")("SELECT end_time FROM runs WHERE finished = 1")
        return Counter(month_of(row[0]) for row in rows)

    def purged_months(self) -> set[int]:
        """The months that are said to be purged, by number."""
        return {row[0] for row in oracle.rows_of(self.folder / "store.db")("SELECT month FROM purged_months")}

    def is_whole_export(self) -> bool:
        """Whether the folder is taken for an export."""
        try:
            read_manifest(self.folder / "export")
        except UsageError:
            return False
        return True

    def balance(self, command: Keeping) -> Balance:
        """The jobs of the source against the ledger of the store at hand and the files that are there."""
        rows = oracle.rows_of(self.store(command))
        selected = self.site.selected()
        return oracle.balance(
            selected, oracle.ledger(rows, "spool"), self.site.arrived(), oracle.purged(rows, selected)
        )
