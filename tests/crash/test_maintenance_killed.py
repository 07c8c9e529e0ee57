"""Maintenance of the store, killed at every step: it has all of its effect or none, or that of whole months; what is
incomplete is not used.

A step is a statement that changes a store, a commit, or a file created, renamed, or removed. What SQLite writes itself,
such as the pages of a backup, is cut off by the system when a file would become larger than a limit.
"""

from __future__ import annotations

import signal
from typing import get_args

import pytest

from publisher.api import Publisher
from publisher.store.schema import State
from tests import oracle
from tests.crash.child import ForkServer, Keeping, ProcessEnding
from tests.crash.conftest import Make
from tests.crash.maintained_store import BEFORE, MaintainedStore
from tests.faults.guarantees import Guarantees
from tests.oracle import Balance
from tests.store_contents import Contents

COMMANDS: tuple[Keeping, ...] = get_args(Keeping)
WORDS: dict[Keeping, str] = {
    "purge": "each month is whole or gone; the next purge continues",
    "forget": "the name is everywhere or nowhere",
    "export": "incomplete, refused by `store import`",
    "import": "the new store is empty or complete",
    "copy": "the new store is empty or complete",
    "backup": "no file of that name, or a complete one",
}


class Deaths:
    """One command, run once to its end, and then killed repeatedly, each time on a new site."""

    def __init__(self, make: Make, fork_server: ForkServer, command: Keeping, form: str = "json-lines") -> None:
        self.command = command
        self.form = form
        self.first = MaintainedStore.prepared(make("files"), fork_server, command)
        self.before = self.first.contents(command)
        self.months = self.first.months()
        whole = self.first.copy("undisturbed")
        done = whole.run(command, form=form)
        assert done.code == 0, done.said
        self.steps = done.steps
        self.largest = max(file.stat().st_size for file in whole.folder.rglob("*") if file.is_file())
        self.after = whole.contents(command)
        assert command == "export" or self.after != self.before
        self._check_the_next_run(whole)
        self.found: list[Balance] = []

    def at_step(self, step: int) -> None:
        """Killed before this number of steps is done."""
        kept = self.first.copy(f"step-{step}")
        ending = kept.run(self.command, step, self.form)
        self._mends(kept, ending, signal.SIGKILL)

    def at_size(self, most_bytes: int) -> bool:
        """Ended by the system in the middle of a write; False where no file becomes so large."""
        kept = self.first.copy(f"bytes-{most_bytes}")
        ending = kept.run(self.command, form=self.form, most_bytes=most_bytes)
        if ending.code == 0:
            kept.remove()
            return False
        self._mends(kept, ending, signal.SIGXFSZ)
        return True

    @property
    def lost(self) -> int:
        """The most jobs that were lost by any death."""
        return max(len(found.lost) for found in self.found)

    @property
    def twice(self) -> int:
        """The most records that a service has twice."""
        return max(len(found.twice) for found in self.found)

    def _mends(self, kept: MaintainedStore, ending: ProcessEnding, by: signal.Signals) -> None:
        assert ending.code == -by, ending.said
        left = kept.contents(self.command)
        getattr(self, f"_after_{self.command}")(kept, left)
        assert kept.contents(self.command) == self.after, "not as if nothing had happened"
        self.found.append(kept.balance(self.command))
        kept.remove()

    def _check_the_next_run(self, kept: MaintainedStore) -> None:
        """The store is consistent, and the next run from it sends nothing, since everything was delivered. Whatever a
        kill leaves, at the end the store is the same as this one.
        """
        kept.assert_sound(self.command)
        waiting = oracle.ledger(oracle.rows_of(kept.store(self.command)), "other")
        assert set(waiting.states.values()) == {State.WAITING}
        there = kept.site.arrived()
        files = sorted(kept.site.spool.iterdir())
        if self.command == "import":
            config = kept.folder / "publisher.toml"
            config.write_text((kept.folder / "new.toml").read_text())
            assert "accept-restored" in kept.site.run("run").said, "another store may not be the latest"
            with Publisher.from_file(config) as publisher:
                assert publisher.maintenance.accept_restored() is not None
        assert kept.site.run("run").code == 0
        assert (kept.site.arrived(), sorted(kept.site.spool.iterdir())) == (there, files)

    def _again(self, kept: MaintainedStore) -> None:
        done = kept.run(self.command, form=self.form)
        assert done.code == 0, done.said

    def _all_or_nothing(self, kept: MaintainedStore, left: Contents) -> None:
        assert left in (self.before, self.after), "half of it"
        if left == self.before:
            self._again(kept)

    _after_forget = _after_import = _after_copy = _all_or_nothing

    def _after_purge(self, kept: MaintainedStore, _left: Contents) -> None:
        left = kept.months()
        for month, runs in self.months.items():
            gone = month.number in kept.purged_months()
            assert left[month] == (0 if gone else runs), f"half of {month}"
            assert not gone or month < BEFORE
        kept.assert_sound("purge")
        self._again(kept)

    def _after_backup(self, kept: MaintainedStore, left: Contents) -> None:
        if kept.store("backup").exists():
            assert left == self.after, "half of it under its name"
        else:
            self._again(kept)

    def _after_export(self, kept: MaintainedStore, left: Contents) -> None:
        assert left == self.before, "exporting changes nothing"
        if not kept.is_whole_export():
            refused = kept.run("import")
            assert refused.code == 1
            assert "does not contain a complete export" in refused.said or "there is no" in refused.said, refused.said
            assert not kept.contents("import")
            again = kept.run("export", form=self.form)
            if again.code:
                assert "is not an empty folder" in again.said
                (kept.folder / "export").rename(kept.folder / "torn")
                self._again(kept)
        imported = kept.run("import")
        assert imported.code == 0, imported.said
        assert len(kept.contents("import")["runs"]) == len(self.before["runs"])


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_while_the_store_is_looked_after(
    make: Make, fork_server: ForkServer, guarantees: Guarantees, command: Keeping
) -> None:
    deaths = Deaths(make, fork_server, command)
    count = len(deaths.steps)
    for step in sorted({*range(count // 12, count, max(2, count // 6)), count - 2, count - 1}):
        deaths.at_step(step)
    assert deaths.at_size(4096 * (1 if command == "export" else deaths.largest // 8192))
    guarantees.row(f"kill {command}", WORDS[command], deaths.lost, deaths.twice)
    assert (deaths.lost, deaths.twice) == (0, 0)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_every_step_and_size_while_the_store_is_looked_after(
    make: Make, fork_server: ForkServer, command: Keeping
) -> None:
    deaths = Deaths(make, fork_server, command)
    for step in range(len(deaths.steps)):
        deaths.at_step(step)
    assert sum(deaths.at_size(size) for size in range(4096, deaths.largest, 8192)) > 0
    assert (deaths.lost, deaths.twice) == (0, 0)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", ["classic", "delimited", "xml"])
def test_killed_at_every_step_of_an_export_in_other_formats(make: Make, fork_server: ForkServer, form: str) -> None:
    deaths = Deaths(make, fork_server, "export", form)
    for step in range(0, len(deaths.steps), 1 + len(deaths.steps) // 60):
        deaths.at_step(step)
    assert (deaths.lost, deaths.twice) == (0, 0)
