"""Grounds for the kill matrix: an ARC database, a store, and one target `spool` of each kind."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Final, Literal

import msgspec

from publisher.simulator import Simulator
from publisher.store.schema import BatchState, State
from publisher.targets.base import Message
from tests import oracle
from tests.crash.child import ChildTask, Command, ForkServer, ProcessEnding, Unit
from tests.generators.arc_database import create
from tests.oracle import LedgerRows
from tests.publisher.receivers import SummaryReceiver

JOBS: Final = 34
BATCH: Final = 10
Kind = Literal["files", "sgas", "cars", "queue", "summaries"]
KINDS: Final[tuple[Kind, ...]] = ("files", "sgas", "cars", "queue", "summaries")
SUMMARIES: Final = frozenset({"queue", "summaries"})
_RECORD_ID: Final = re.compile(r'recordId="([^"]+)"')
_BASE: Final = """
[site]
name = "EXAMPLE-SITE"
[store]
url = "sqlite:///store.db"
[sources.ce1]
type = "arc"
path = "accounting.db"
complete_since = "2026-01-01"
[targets.spool]
workers = {workers}
attempts = 1
timeout = 3600
"""


class Toll(msgspec.Struct, frozen=True):
    """How many jobs were lost, and how many records sent in vain; `flying`: messages that were on their way."""

    lost: int = 0
    twice: int = 0
    flying: int = 0

    def or_worse(self, other: Toll) -> Toll:
        """The most of each."""
        return Toll(max(self.lost, other.lost), max(self.twice, other.twice), max(self.flying, other.flying))


class CrashSite:
    """See the module. `kind`: plain files, SGAS, CARs by AMS, an outgoing queue of SSM, summaries by AMS.

    `workers`: messages on their way at a time.
    """

    def __init__(
        self, folder: Path, kind: Kind, fork_server: ForkServer, simulator: Simulator, workers: int = 1
    ) -> None:
        self.folder = folder
        self.kind = kind
        self.spool = folder / "spool"
        self.config = folder / "publisher.toml"
        self.simulator = simulator
        self.workers = workers
        self._fork_server = fork_server
        self.helpers = (fork_server, simulator, workers)
        if not folder.exists():
            folder.mkdir(parents=True)
            create(folder / "accounting.db", JOBS, seed=3)
            self.config.write_text(_BASE.format(workers=workers) + self._target() + self._credentials())

    def _target(self) -> str:
        ams = f'type = "ams"\nurl = "{self.simulator.ams_url}"\nauth_url = "{self.simulator.token_url}"\n'
        return {
            "files": 'type = "directory"\npath = "spool"\nlayout = "files"\nrecords = "ogf-ur"\nbatch_records = 10\n',
            "sgas": f'type = "sgas"\nurl = "{self.simulator.sgas_url}"\nbatch_records = 10\n',
            "cars": ams + 'records = "emi-car"\nbatch_records = 10\n',
            "queue": 'type = "directory"\npath = "spool"\nrecords = "apel-summary"\nbatch_records = 4\n',
            "summaries": ams + 'records = "apel-summary"\nbatch_records = 4\n',
        }[self.kind]

    def _credentials(self) -> str:
        pki = self.simulator.pki
        return (
            f'[credentials]\ncertificate = "{pki.client.certificate}"\nkey = "{pki.client.key}"\n'
            f'ca_file = "{pki.ca_file}"\n'
        )

    def copy(self, folder: Path) -> CrashSite:
        """A copy of the site in another folder, without the content of its services."""
        shutil.copytree(self.folder, folder)
        return CrashSite(folder, self.kind, *self.helpers)

    def forget(self) -> None:
        """Let the services hold nothing."""
        self.simulator.sgas.reset()
        self.simulator.apel.reset()
        self.simulator.ams.reset()

    def run(self, command: Command, step: int = -1, unit: Unit = "event", signal_name: str = "KILL") -> ProcessEnding:
        """A process; it may die."""
        return self._fork_server.run(ChildTask(str(self.config), command, step, unit, signal_name))

    def selected(self) -> dict[str, tuple[int, int]]:
        """The runs of the database that are to be published: wall and CPU seconds by record id."""
        return oracle.arc_runs(self.folder / "accounting.db")

    def ledger(self) -> LedgerRows:
        """What the store says."""
        return oracle.ledger(oracle.rows_of(self.folder / "store.db"), "spool")

    def arrived(self) -> dict[str, int]:
        """How often each record came: for files, how often it occurs in them."""
        if self.kind == "files":
            found: Counter[str] = Counter()
            for file in self.spool.glob("*.xml"):
                found.update(_RECORD_ID.findall(file.read_text()))
            return dict(found)
        if self.kind == "sgas":
            return {record_id: held.received for record_id, held in self.simulator.sgas.holdings().items()}
        return dict(self.simulator.apel.holdings().record_ids)

    def sums(self) -> tuple[int, int, int]:
        """Jobs, wall and CPU seconds in all groups at the service, of which the last of each key counts."""
        if self.kind == "summaries":
            holdings = self.simulator.apel.holdings()
            assert holdings.rejected == ()
            rows = [dict(row.fields) for row in holdings.summaries.values()]
            names = ("NumberOfJobs", "WallDuration", "CpuDuration")
            jobs, wall_s, cpu_s = (sum(int(row[name]) for row in rows) for name in names)
            return jobs, wall_s, cpu_s
        receiver = SummaryReceiver("queue")
        for file in sorted(self.spool.glob("[0-9a-f]*/*")):
            text = file.read_text()
            kind = "apel-sync" if "sync" in text.partition("\n")[0] else "apel-summary"
            receiver.store(Message(file.name, kind, "text/plain", text.encode()))
        return receiver.total()

    def assert_sound(self) -> None:
        """Nothing is lost: the ledger has every job that was read from the source."""
        rows = oracle.rows_of(self.folder / "store.db")
        if not rows("SELECT name FROM sqlite_master WHERE name = 'deliveries'"):
            return  # it died before there was a store
        books = self.ledger()
        if self.kind in SUMMARIES:
            assert books.counters == Counter(books.states.values())
        else:
            oracle.assert_conserved(books.states, books, self.arrived())

    def flying(self) -> int:
        """Messages whose outcome the store does not have."""
        rows = oracle.rows_of(self.folder / "store.db")
        if not rows("SELECT name FROM sqlite_master WHERE name = 'batches'"):
            return 0
        return len(rows(f"SELECT id FROM batches WHERE state = {int(BatchState.IN_FLIGHT)}"))

    def toll(self, times: int = 1) -> Toll:
        """What is lost, and what came more often than allowed, counted from what the service has."""
        selected = self.selected()
        if self.kind in SUMMARIES:
            return Toll(max(0, len(selected) - self.sums()[0]), 0)
        arrived = self.arrived()
        return Toll(len(selected.keys() - arrived.keys()), sum(came > times for came in arrived.values()))

    def assert_delivered(self, times: int = 1) -> int:
        """Everything is at the service and accepted; return how many records came more often than allowed."""
        selected = self.selected()
        books = self.ledger()
        assert books.counters == {State.ACCEPTED: len(selected)}
        if self.kind in SUMMARIES:
            sums = len(selected), sum(wall for wall, _ in selected.values()), sum(cpu for _, cpu in selected.values())
            assert self.sums() == sums, "the sums at the service are not those of the runs"
        else:
            oracle.assert_conserved(selected, books, self.arrived())
        return self.toll(times).twice
