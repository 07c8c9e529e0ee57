"""Our own kinds of target keep the promises of `publisher.testing`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from formats.job import Job
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from publisher.testing import Service, TargetSuite
from publisher.testing.delivery import DeliverySite
from publisher.testing.targets import excluded
from tests.extent import RUN_LONG, short_or_whole
from tests.publisher.auditor import AuditorDouble
from tests.publisher.store.server import PostgresqlServer
from tests.publisher.targets.doubles import (
    ApelDouble,
    ApelJobsDouble,
    DailyDouble,
    ExportingDouble,
    FolderDouble,
    HttpsDouble,
    QueueDouble,
    SgasDouble,
    TroubledWaldur,
    WaldurService,
    amounts,
    apel_job,
    sgas_row,
    summary,
    undated,
)


class OwnSuite(TargetSuite):
    """The extent of our tests."""

    schedules = short_or_whole(10, 200)
    host_schedules = short_or_whole(1, 20)
    steps = short_or_whole(5, 14)
    many = 100_000 if RUN_LONG else 300
    several_hosts = True

    @pytest.fixture
    def database_server(self, postgresql: PostgresqlServer) -> PostgresqlServer:
        """The server of our tests."""
        return postgresql

    not_applicable: ClassVar[frozenset[str]]
    """The promises that the descriptor excludes: a change of a descriptor must not drop a test in silence."""

    def test_what_does_not_apply(self, make_site: Callable[..., DeliverySite], service: Service) -> None:
        settings = make_site().target_settings
        excluded_tests = excluded(settings, service, several_hosts=True).keys()
        assert {name.removeprefix("test_") for name in excluded_tests} == self.not_applicable


SENT_AGAIN = frozenset({"a_changed_run_is_superseded", "a_vanished_run_is_removed"})
KEEPS_FIRST = frozenset({"a_changed_run_is_sent_again", "a_vanished_run_is_removed"})
NO_EVIDENCE = frozenset({"evidence_finds_what_differs_and_nothing_else", "evidence_finds_one_of_many"})
FILES = frozenset(
    {
        "the_power_fails_at_any_request",
        "an_answer_is_lost_and_the_next_is_a_refusal",
        "refused_records_stop_only_themselves",
    }
)


class TestAuditor(OwnSuite):
    not_applicable = SENT_AGAIN

    @pytest.fixture
    def service(self, request: pytest.FixtureRequest) -> Iterator[AuditorDouble]:
        """In histories its streams may end early, and some ignore repeats (an option of AUDITOR)."""
        with AuditorDouble().running() as double:
            if "seed" in request.fixturenames:
                chance = random.Random(request.getfixturevalue("seed"))
                double.ignores_repeats = chance.random() < 0.3
                double.shortened = lambda stream: (
                    stream[: chance.randint(0, len(stream))] if double.is_failing and chance.random() < 0.3 else stream
                )
            yield double

    def value(self, body: bytes) -> Any:
        return json.loads(body)


class TestSgas(OwnSuite):
    not_applicable = KEEPS_FIRST

    @pytest.fixture
    def service(self, module_simulator: Simulator) -> SgasDouble:
        return SgasDouble(module_simulator)

    def value(self, body: bytes) -> Any:
        return sgas_row(body)


class TestApel(OwnSuite):
    not_applicable = frozenset(
        {"a_changed_run_is_superseded", "a_vanished_run_is_superseded", "two_hosts_share_a_backlog"}
    )

    @pytest.fixture
    def service(self, module_simulator: Simulator, tmp_path: Path) -> ApelDouble:
        return ApelDouble(module_simulator, tmp_path)

    def value(self, body: bytes) -> Any:
        return summary(body)


class TestApelJobs(OwnSuite):
    """APEL's key of a job is site, local id, and end: it keeps the last record with them."""

    not_applicable = SENT_AGAIN
    records: ClassVar = "apel-job"

    @pytest.fixture
    def service(self, module_simulator: Simulator, tmp_path: Path) -> ApelJobsDouble:
        return ApelJobsDouble(module_simulator, tmp_path, self.records)

    def value(self, body: bytes) -> Any:
        return apel_job(body, self.records)


class TestCar(TestApelJobs):
    records = "emi-car"


class TestHttps(OwnSuite):
    not_applicable = SENT_AGAIN | NO_EVIDENCE

    @pytest.fixture
    def service(self) -> Iterator[HttpsDouble]:
        with HttpsDouble().running() as double:
            yield double

    def value(self, body: bytes) -> Any:
        return undated(body)


class TestEvidenceOfAFile(OwnSuite):
    not_applicable = SENT_AGAIN

    @pytest.fixture
    def service(self, tmp_path: Path) -> Iterator[ExportingDouble]:
        with ExportingDouble(tmp_path).running() as double:
            yield double

    def value(self, body: bytes) -> Any:
        return undated(body)


class TestQueue(OwnSuite):
    """What SSM took out of it is no evidence of what the service has."""

    not_applicable = SENT_AGAIN | FILES | NO_EVIDENCE

    @pytest.fixture
    def service(self, tmp_path: Path) -> QueueDouble:
        return QueueDouble(tmp_path / "outgoing", layout="dirq", records="ogf-ur")

    def value(self, body: bytes) -> Any:
        return undated(body)


class TestDirectory(OwnSuite):
    not_applicable = SENT_AGAIN | FILES

    @pytest.fixture
    def service(self, tmp_path: Path) -> FolderDouble:
        return FolderDouble(tmp_path / "spool", layout="files", records="ogf-ur")

    def value(self, body: bytes) -> Any:
        return undated(body)


class TestXdmod(OwnSuite):
    not_applicable = KEEPS_FIRST | FILES | {"two_hosts_share_a_backlog"}

    @pytest.fixture
    def service(self, tmp_path: Path) -> DailyDouble:
        return DailyDouble(tmp_path / "xdmod", records="xdmod-slurm")


class TestWaldur(OwnSuite):
    not_applicable = frozenset(
        {
            "a_changed_run_is_superseded",
            "a_vanished_run_is_superseded",
            "refused_records_stop_only_themselves",
            "two_hosts_share_a_backlog",
        }
    )

    @pytest.fixture
    def service(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WaldurService]:
        """It refuses no records: what it refuses depends on the state of an account, which is held."""
        has_history = "seed" in request.fixturenames
        service = TroubledWaldur(tmp_path, request.getfixturevalue("seed")) if has_history else WaldurService(tmp_path)
        with service.running() as double:
            yield double

    def complete(self, job: Job) -> Job:
        """Accounts of several users. Runs whose cores change move to another account, or another user of one."""
        number = int(job.local_id or 0) + (job.cores or 0) // 8
        user = f"{job.user_dn} {number % 4}" if job.user_dn is not None else None
        return msgspec.structs.replace(job, account="physics" if number % 3 else "bio&x", local_user=user)

    def value(self, body: bytes) -> Any:
        return amounts(body)


@pytest.fixture(scope="module")
def module_simulator(pki: Pki) -> Iterator[Simulator]:
    """Emptied for each test."""
    with Simulator(pki, check_depth=0) as running:
        yield running
