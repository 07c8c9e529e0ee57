"""A site whose services are simulated on real sockets, with TLS: jobs in memory, the store and all between are real."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.cli import exit_code
from publisher.errors import PublisherError
from publisher.events import BatchAnswered, BatchSettled, Event
from publisher.simulator import Fault, Simulator
from publisher.store.schema import State
from tests import oracle
from tests.oracle import Balance
from tests.publisher.site import ListSource, Site, make_job, make_jobs

JOBS: Final = 100
BATCH: Final = 10


class Outcome(msgspec.Struct, frozen=True):
    """What a run did: its exit code, records accepted and rejected by it, those that wait after it, what it said."""

    code: int
    accepted: int
    rejected: int
    waiting: int
    said: str

    @property
    def words(self) -> str:
        """The result in words, for the table."""
        reported = [f"{self.accepted} accepted"]
        if self.rejected:
            reported.append(f"{self.rejected} rejected")
        if self.waiting:
            reported.append(f"{self.waiting} waiting")
        return f"{', '.join(reported)}, exit {self.code}"


class FaultySite(Site):
    """See the module. The service that faults befall is the target `neic`."""

    def __init__(
        self,
        folder: Path,
        simulator: Simulator,
        *,
        jobs: Sequence[Job] = (),
        kind: str = "sgas",
        credentials: Mapping[str, Path] | None = None,
        **settings: Any,
    ) -> None:
        self.simulator = simulator
        simulator.faults.replace([])
        simulator.sgas.reset()
        simulator.apel.reset()
        source = ListSource("ce1", page=BATCH)
        source.add(*(jobs or make_jobs(JOBS)))
        super().__init__(folder, [source], [])
        pki = simulator.pki
        self.table["credentials"] = {
            name: str(path)
            for name, path in (
                {"certificate": pki.client.certificate, "key": pki.client.key, "ca_directory": pki.ca_directory}
                | dict(credentials or {})
            ).items()
        }
        common: dict[str, Any] = {"attempts": 1, "workers": 1, "batch_records": BATCH}
        services: dict[str, dict[str, Any]] = {
            "sgas": {"type": "sgas", "url": simulator.sgas_url},
            "ams": {
                "type": "ams",
                "url": simulator.ams_url,
                "auth_url": simulator.token_url,
                "records": "emi-car",
                "sync": False,
            },
        }
        self.kind = kind
        self.table["targets"] = {"neic": services[kind] | common | settings}

    def befall(self, *faults: Fault) -> None:
        """Let these faults be in force, and no other."""
        self.simulator.faults.replace(faults)

    def run(self) -> Outcome:
        """`usage-publisher run`, as far as the target `neic` is concerned."""
        try:
            self.collect()
            done = self.publish()
        except PublisherError as error:
            self.reopen()
            return Outcome(error.exit_code, 0, 0, self.waiting(), said(str(error)))
        code = exit_code.of_run((), done, self.publisher.status())
        item = done["neic"]
        problem = str(item.error) if item.error is not None else item.sent.paused
        return Outcome(code, item.sent.accepted, item.sent.rejected, self.waiting(), said(problem or ""))

    def waiting(self) -> int:
        """How many records wait for `neic`, by the rows themselves."""
        return len(oracle.ledger(self.rows, "neic").of(State.WAITING))

    def arrived(self) -> dict[str, int]:
        """How often the service took each record."""
        if self.kind == "sgas":
            return {record_id: held.received for record_id, held in self.simulator.sgas.holdings().items()}
        return dict(self.simulator.apel.holdings().record_ids)

    def selected(self) -> set[str]:
        """The finished runs that the source has."""
        return {item.record_id for item in self.sources["ce1"].log if isinstance(item, Job) and item.finished}

    def balance(self) -> Balance:
        """The books, which must be right, against the source and the service."""
        selected = self.selected()
        books = oracle.ledger(self.rows, "neic")
        return oracle.balance(selected, books, self.arrived(), oracle.purged(self.rows, selected))

    def everything_arrived(self) -> bool:
        """Whether every selected run is at the service and accepted."""
        books = oracle.ledger(self.rows, "neic")
        return books.of(State.ACCEPTED) == self.selected() == set(self.arrived())

    @contextmanager
    def at_batch(self, number: int, action: Any) -> Iterator[None]:
        """Do something once, when this number of batches was answered and settled."""
        answered = 0

        def watch(event: Event) -> None:
            nonlocal answered
            if isinstance(event, BatchSettled):
                answered += 1
                if answered == number:
                    action()

        self.watch = watch
        try:
            yield
        finally:
            self.watch = lambda _event: None

    def posts(self) -> int:
        """How many messages were answered, or not, by the events."""
        return sum(isinstance(event, BatchAnswered) for event in self.events)


def said(text: str) -> str:
    """The first sentence of an answer, without what differs from run to run and from system to system."""
    text = re.sub(r"localhost:\d+", "localhost", text)
    text = re.sub(r"/\S*/(?=[^/\s]+\b)", "", text)
    text = re.sub(r" at \d{4}-\d\d-\d\dT[\d:]+Z", "", text).partition(". ")[0].rstrip(".")
    return re.sub(r"(does not resolve|handshake failed|is not trusted|cannot be written): .*", r"\1", text)


__all__ = ["BATCH", "JOBS", "FaultySite", "Outcome", "make_job", "make_jobs"]
