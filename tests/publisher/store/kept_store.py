"""A store of an earlier version from `fixtures/stores`, with its configuration, sources, and spooling contexts."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from string import Template
from typing import Any, Final

from publisher.api import Publisher
from publisher.events import BatchAnswered, Event
from publisher.publish.context import Tools, make_source
from publisher.simulator import Simulator
from publisher.sources.auditor.source import AuditorSource
from publisher.sources.base import Reader
from tests.generators import arc_database
from tests.publisher.store.kept_services import KeptServices
from tests.publisher.store.server import PostgresqlServer

NOW: Final = 1_795_200_000
"""2026-11-20T18:40:00Z, when the stores were made."""
COUNTS: Final = (
    "accepted", "assumed", "confirmed", "waiting", "in_flight", "rejected", "held", "waived", "superseded",
)  # fmt: skip
_RECORDS: Final = "auditor.json"


class KeptSite:
    """The site of such a store in a folder; its services are simulated or doubles. `fixture`: a folder of a version.

    `server`: the one that has its store; None: its store is a file. `new`: the store is not unpacked.
    """

    def __init__(
        self,
        folder: Path,
        fixture: Path,
        simulator: Simulator,
        services: KeptServices,
        server: PostgresqlServer | None = None,
        *,
        new: bool = False,
    ) -> None:
        self.folder = folder
        self.simulator = simulator
        self.services = services
        self.now = NOW
        services.waldur.now = lambda: self.now
        self.answers: list[BatchAnswered] = []
        self._server = server
        self._database = server.new_database() if server is not None and new else ""
        simulator.faults.replace([])
        simulator.sgas.reset()
        simulator.apel.reset()
        simulator.ams.reset()
        (folder / "waldur.token").write_text("staff", "ascii")
        (folder / "waldur.token").chmod(0o600)
        if not new:
            self._unpack(fixture)
        pki = simulator.pki
        text = Template((fixture / "publisher.toml").read_text("utf-8")).substitute(
            store_url="sqlite:///store.db" if server is None else server.url(self._database),
            certificate=pki.client.certificate,
            key=pki.client.key,
            ca_file=pki.ca_file,
            sgas_url=simulator.sgas_url,
            ams_url=simulator.ams_url,
            token_url=simulator.token_url,
            **services.places,
        )
        (folder / "publisher.toml").write_text(text, "utf-8")

    def _unpack(self, fixture: Path) -> None:
        name = "sqlite" if self._server is None else "postgresql"
        unpack(fixture / f"{name}.tar.xz", self.folder)
        arc_database.load(self.folder / "accounting.sql", self.folder / "accounting.db")
        if (self.folder / _RECORDS).exists():
            self.services.read.add(*json.loads((self.folder / _RECORDS).read_text("utf-8")))
        if self._server is not None:
            self._database = self._server.loaded((self.folder / "store.sql").read_text("utf-8"))

    def pack(self, fixture: Path) -> None:
        """Write the store, and what is beside it, into the fixture."""
        if self._server is not None:
            (self.folder / "store.sql").write_text(self._server.dumped(self._database), "utf-8")
        (self.folder / "accounting.sql").write_text(arc_database.dump(self.folder / "accounting.db"), "utf-8")
        records = [*self.services.read.records.values()]
        (self.folder / _RECORDS).write_text(json.dumps(records, indent=1) + "\n", "utf-8")
        kind = ("sqlite", "store.db") if self._server is None else ("postgresql", "store.sql")
        with tarfile.open(fixture / f"{kind[0]}.tar.xz", "w:xz") as archive:
            for name in (
                kind[1],
                "store.db.sent",
                "accounting.sql",
                "torque",
                _RECORDS,
                "energy.csv",
                "spool",
                "objects",
            ):
                archive.add(self.folder / name, name, filter=_of_nobody)

    def publisher(self) -> Publisher:
        """A new process."""
        return Publisher.from_file(
            self.folder / "publisher.toml",
            Tools(
                clock=lambda: self.now,
                observer=self._observe,
                sleep=lambda _seconds: None,
                make_source=self._source,
            ),
        )

    def _source(self, name: str, settings: Any) -> Reader:
        """AUDITOR is read with the site's clock: it asks for what ended before now."""
        return (
            AuditorSource(name, settings, lambda: self.now)
            if settings.type == "auditor"
            else make_source(name, settings)
        )

    def _observe(self, event: Event) -> None:
        if isinstance(event, BatchAnswered):
            self.answers.append(event)

    def counts(self) -> dict[str, dict[str, int]]:
        """What `status` counts, by target."""
        with self.publisher() as publisher:
            targets = publisher.status().targets
        return {name: {count: getattr(target, count) for count in COUNTS} for name, target in targets.items()}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, read past the program."""
        if self._server is not None:
            return self._server.rows(self._database, query)
        with closing(sqlite3.connect(self.folder / "store.db")) as connection:
            return connection.execute(query).fetchall()


def unpack(packed: Path, folder: Path) -> None:
    """Unpack a store that was kept."""
    with tarfile.open(packed) as archive:
        # Python 3.11 has no filter before its release 3.11.4; without one, 3.12 and 3.13 warn.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        archive.extractall(folder)


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = NOW
    return entry
