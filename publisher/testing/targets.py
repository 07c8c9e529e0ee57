"""The suite of a kind of target: what its descriptor promises, run against the double of its service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from formats.job import Job
from publisher.config.targets import TargetSettings
from publisher.events import BatchAnswered, BatchInFlight, Event
from publisher.preview.render import Rendering
from publisher.reason import sentence
from publisher.sources.base import Window
from publisher.store.schema import State
from publisher.testing.delivery import ANSWERS, NAME, OTHER_VO, DeliverySite, RandomHistory
from publisher.testing.jobs import make_job, make_jobs
from publisher.testing.postgresql import DatabaseServer
from publisher.testing.services import Alters, Exports, Fails, KeepsTime, Refuses, Service

NOT_APPLICABLE: Final = "not applicable"
"""How the reason of a promise begins that a descriptor excludes; pytest shows it as a skipped test."""
_HOSTILE_USER: Final = "/DC=org/CN=Refused"


def excluded(settings: TargetSettings, service: Service, *, several_hosts: bool) -> dict[str, str]:
    """The promises that do not apply, by the name of their test, each with the reason."""
    version, form = settings.second_version, settings.format
    stated = f"second_version is {version.value}"
    evidence = settings.evidence_source
    reasons: dict[str, str] = {}

    def exclude(reason: str, *tests: str) -> None:
        reasons.update(dict.fromkeys(tests, reason))

    if version.sends_changed:
        exclude(stated, "test_a_changed_run_is_superseded")
    else:
        exclude(stated, "test_a_changed_run_is_sent_again")
    if version.sends_vanished:
        exclude(stated, "test_a_vanished_run_is_superseded")
    else:
        exclude(stated, "test_a_vanished_run_is_removed")
    if not isinstance(service, Fails):
        tests = ("test_the_power_fails_at_any_request", "test_an_answer_is_lost_and_the_next_is_a_refusal")
        exclude("its double has no requests that can fail", *tests)
    if not isinstance(service, Refuses):
        exclude("its double refuses nothing", "test_refused_records_stop_only_themselves")
    has_evidence = evidence != "none" and (evidence != "file" or isinstance(service, Exports))
    if not has_evidence or not isinstance(service, Alters):
        why = "its double cannot be altered" if has_evidence else f"evidence is {evidence}"
        exclude(why, "test_evidence_finds_what_differs_and_nothing_else", "test_evidence_finds_one_of_many")
    if not several_hosts:
        exclude("no server of PostgreSQL is given", "test_a_history_of_two_hosts", "test_two_hosts_share_a_backlog")
    if form.is_snapshot or settings.by_day:
        exclude("its backlog is not shared: it is sent whole periods", "test_two_hosts_share_a_backlog")
    return reasons


class TargetSuite:
    """Subclass it as `TestMine`, with a fixture `service` that gives a new double for each test.

    A promise that the descriptor or the double excludes is reported as not applicable, with the reason.
    """

    schedules: ClassVar[int] = 10
    """Random histories."""
    host_schedules: ClassVar[int] = 2
    """Random histories with two hosts, on PostgreSQL."""
    steps: ClassVar[int] = 14
    """Runs of the program in a history."""
    several_hosts: ClassVar[bool] = False
    """Whether a server of PostgreSQL is given, for the promises to several hosts."""
    many: ClassVar[int] = 300
    """Records among which an altered one is to be found."""

    @pytest.fixture
    def service(self) -> Iterator[Service]:
        """The double of the service."""
        raise NotImplementedError

    @pytest.fixture
    def database_server(self) -> DatabaseServer:
        """A server of PostgreSQL, if `several_hosts`."""
        raise NotImplementedError

    def value(self, body: bytes) -> Any:
        """A record or total as written, as the content of the double has it."""
        return body

    def complete(self, job: Job) -> Job:
        """A run of a test with the facts that the target needs besides the usual ones."""
        return job

    def settings(self) -> Mapping[str, Any]:
        """Settings of the target besides those that the double gives."""
        return {}

    # --- how it is run

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each history."""
        if "seed" in metafunc.fixturenames:
            hosts = metafunc.definition.originalname == "test_a_history_of_two_hosts"
            metafunc.parametrize("seed", range(self.host_schedules if hosts else self.schedules))

    @pytest.fixture
    def make_site(self, service: Service, tmp_path: Path) -> Iterator[Callable[..., DeliverySite]]:
        """Makes the site, with further settings of its target."""
        sites: list[DeliverySite] = []

        def make(server: DatabaseServer | None = None, **more: Any) -> DeliverySite:
            settings = {**self.settings(), **more}
            sites.append(DeliverySite(tmp_path, service, self.value, server, self.complete, **settings))
            return sites[-1]

        yield make
        for site in sites:
            site.reopen()

    @pytest.fixture(autouse=True)
    def _applies(
        self,
        request: pytest.FixtureRequest,
        service: Service,
        make_site: Callable[..., DeliverySite],
    ) -> None:
        reasons = excluded(make_site().target_settings, service, several_hosts=self.several_hosts)
        if (why := reasons.get(request.node.originalname)) is not None:
            pytest.skip(f"{NOT_APPLICABLE}: {why}")

    # --- every run once

    def test_the_power_fails_at_any_event(self, make_site: Callable[..., DeliverySite]) -> None:
        """Whatever event the power fails at, the next runs deliver what is due, once."""
        site = make_site()
        for step in range(100):
            site.add(*make_jobs(3, first=1 + 3 * step))
            if not site.killed_at(step, site.collect_and_publish):
                break
            site.settle()
            site.judge()
        else:
            raise AssertionError("a run of three jobs has a hundred events")
        assert step > 5, "it was not killed at the events of a delivery"

    @pytest.mark.parametrize("stored", [True, False])
    def test_the_power_fails_at_any_request(
        self, make_site: Callable[..., DeliverySite], service: Service, stored: bool
    ) -> None:
        """Whatever request is answered last, if it did its work or not, what is due is delivered once."""
        assert isinstance(service, Fails)
        site = make_site()

        def is_cut(event: Event) -> bool:
            return isinstance(event, BatchAnswered) and event.outcome != "Accepted"

        def run() -> None:
            site.collect_and_publish()

        for step in range(100):
            site.add(*make_jobs(3, first=1 + 3 * step))
            service.fail([""] * step + (["stored"] if stored else []) + ["cut"] * 50)
            was_cut = site.killed_when(is_cut, run)
            site.settle()
            site.judge()
            if not was_cut:
                break
        assert step > 0, "no request was cut"

    def test_a_process_is_killed(self, make_site: Callable[..., DeliverySite]) -> None:
        """A real process, with signal 9, after the service answered and before that is recorded."""
        site = make_site()
        site.add(*make_jobs(5))
        site.collect()
        site.reopen()
        table = site.folder / "table.json"
        table.write_text(json.dumps(site.table, default=str), encoding="utf-8")
        table.chmod(0o600)
        command = [sys.executable, "-m", "publisher.testing.killed", str(table), str(site.now), "2"]
        command += ["keeps-time"] * isinstance(site.service, KeepsTime)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.run(command, check=False, env=environment, cwd=site.folder, capture_output=True)  # noqa: S603
        assert process.returncode == -signal.SIGKILL, process.stderr.decode(errors="replace")
        assert site.in_state(NAME, State.IN_FLIGHT), "nothing was in flight"
        site.settle()
        site.judge()

    @pytest.mark.parametrize("fault", [*ANSWERS])
    def test_a_message_that_fails_is_sent_again(self, make_site: Callable[..., DeliverySite], fault: str) -> None:
        """Lost answers, outages, and limits: everything waits and is delivered once."""
        site = make_site()
        site.add(*make_jobs(5))
        site.collect()
        site.outcomes = ["", fault]
        site.publish()
        left = set(site.counted(NAME))
        assert left <= {State.ACCEPTED, State.WAITING, State.IN_FLIGHT}, left
        site.settle()
        site.judge()
        assert site.counted(NAME) == {State.ACCEPTED: 5}

    @pytest.mark.parametrize("refusal", ["400", "413", "429", "500"])
    def test_an_answer_is_lost_and_the_next_is_a_refusal(
        self, make_site: Callable[..., DeliverySite], service: Service, refusal: str
    ) -> None:
        """The refusal says nothing about the first request: what it may have left there is not forgotten."""
        assert isinstance(service, Fails)
        site = make_site()
        site.configure(NAME, batch_records=1)
        for number in range(1, 4):
            site.add(make_job(number, wall_s=100 * number))
        service.fail(["", "stored", refusal])
        site.collect_and_publish()
        for number in range(1, 4):
            end = make_job(number).end
            assert end is not None
            site.add(make_job(number, wall_s=100 * number, end=end + 7200))
        site.settle()
        site.judge()

    def test_a_history(self, make_site: Callable[..., DeliverySite], service: Service, seed: int) -> None:
        """Random changes, faults, and kills; then the service has what the ledger says, and evidence agrees."""
        site = make_site()
        history = RandomHistory(site, seed)
        for _ in range(self.steps):
            history.step()
        site.settle()
        site.judge()
        self._evidence_agrees(site, service)

    def _evidence_agrees(self, site: DeliverySite, service: Service) -> None:
        """It lists nothing; then what is altered at the service. Sums may not show that: after a fault, it may be
        unknown which version of a run is in them."""
        if "test_evidence_finds_what_differs_and_nothing_else" in excluded(
            site.target_settings, service, several_hosts=False
        ):
            return
        assert isinstance(service, Alters)
        assert site.differences() == []
        keys = site.keys()
        if keys and site.target_settings.evidence_source != "query":
            service.alter(keys[-1])
            assert site.differing(keys[-1]) == 1

    # --- several hosts

    def test_a_history_of_two_hosts(
        self, make_site: Callable[..., DeliverySite], database_server: DatabaseServer, seed: int
    ) -> None:
        """The same on PostgreSQL, with another host that publishes in the middle of it."""
        site = make_site(database_server)
        history = RandomHistory(site, seed)
        for _ in range(self.steps // 2):
            history.step_beside_another_host()
        site.settle()
        site.judge()

    @pytest.mark.parametrize("step", [2, 9])
    def test_two_hosts_share_a_backlog(
        self, make_site: Callable[..., DeliverySite], database_server: DatabaseServer, step: int
    ) -> None:
        """A second host takes a part of the backlog while the first sends; then the power fails for both."""
        site = make_site(database_server, batch_records=1, publishers=2)
        site.add(*make_jobs(24))
        site.collect()
        other = DeliverySite.beside(site)
        sent_by_other: list[int] = []
        answered = 0

        def is_time(event: Event) -> bool:
            nonlocal answered
            answered += isinstance(event, BatchAnswered)
            if isinstance(event, BatchInFlight) and not sent_by_other:
                sent_by_other.append(other.publish_to(NAME).sent.accepted)
                other.reopen()
            return answered > step

        assert site.killed_when(is_time, site.publish)
        assert sent_by_other[0] > 0, "the other host sent nothing"
        site.settle()
        site.judge()

    # --- changes

    def test_a_changed_run_is_sent_again(self, make_site: Callable[..., DeliverySite]) -> None:
        """The service has the last version; or, if it refuses repeats, the run is superseded with the reason."""
        site = make_site()
        self._delivered_and_changed(site, cpu_ms=7)
        site.judge()
        if site.target_settings.second_version.replaces:
            assert site.counted(NAME) == {State.ACCEPTED: 4}

    def test_a_changed_run_is_superseded(self, make_site: Callable[..., DeliverySite], service: Service) -> None:
        """The service keeps the first version, so the second one is not sent, and that is visible."""
        site = make_site()
        before = self._delivered_and_changed(site, cpu_ms=7)
        site.judge()
        assert site.counted(NAME) == {State.ACCEPTED: 3, State.SUPERSEDED: 1}
        assert dict(service.content()) == before

    def test_a_vanished_run_is_removed(self, make_site: Callable[..., DeliverySite], service: Service) -> None:
        """The period is sent again without a run that the target no longer selects, also without any run."""
        site = make_site()
        self._delivered_and_changed(site, vo=OTHER_VO)
        site.judge()
        site.add(*(make_job(number, vo=OTHER_VO) for number in range(1, 5)))
        site.settle()
        assert dict(service.content()) == {}

    def test_a_vanished_run_is_superseded(self, make_site: Callable[..., DeliverySite], service: Service) -> None:
        """What the service has of a run that the target no longer selects stays there, and that is visible."""
        site = make_site()
        before = self._delivered_and_changed(site, vo=OTHER_VO)
        site.judge()
        assert site.counted(NAME) == {State.ACCEPTED: 3, State.SUPERSEDED: 1}
        assert dict(service.content()) == before

    @staticmethod
    def _delivered_and_changed(site: DeliverySite, **facts: Any) -> dict[str, Any]:
        """Deliver four runs and a new version of one; what the service had before that."""
        site.add(*make_jobs(4))
        site.settle()
        site.judge()
        before = site.content()
        site.add(make_job(2, **facts))
        site.settle()
        return before

    # --- refusals, limits, preview

    def test_refused_records_stop_only_themselves(
        self, make_site: Callable[..., DeliverySite], service: Service
    ) -> None:
        """One record that the service refuses is rejected; the others arrive, and it too when it is accepted."""
        assert isinstance(service, Refuses)
        site = make_site(batch_records=3)
        site.add(*make_jobs(4), make_job(5, user_dn=_HOSTILE_USER), *make_jobs(4, first=6))
        site.collect()
        service.refuse([_HOSTILE_USER])
        site.publish()
        site.publish()
        assert site.in_state(NAME, State.REJECTED) == {make_job(5).record_id}
        assert site.counted(NAME) == {State.ACCEPTED: 8, State.REJECTED: 1}
        assert site.reasons(NAME)[make_job(5).record_id]
        site.heal()
        site.publisher.retry(State.REJECTED, NAME)
        site.settle()
        site.judge()
        assert site.counted(NAME) == {State.ACCEPTED: 9}

    def test_messages_keep_the_limits(self, make_site: Callable[..., DeliverySite]) -> None:
        """No message has more records or bytes than are configured, as the target measures its messages."""
        site = make_site(batch_records=100, batch_bytes=60_000)
        site.add(*(make_job(number, user_dn=f"/DC=org/CN={'x' * 60} {number}") for number in range(1, 121)))
        site.settle()
        site.judge()
        (limit,) = site.limits
        assert limit is None or max(len(message.payload) for message in site.messages) <= limit
        batch = site.target_settings.batch_records
        assert all(len(message.record_ids) <= batch for message in site.messages)

    def test_what_is_shown_is_sent(self, make_site: Callable[..., DeliverySite]) -> None:
        """`render` makes the messages that `publish` sends next, and names what it holds with the same reasons."""
        site = make_site(batch_records=3)
        for facts in ({}, {"cores": 8}, {"benchmarks": ()}, {"vo": OTHER_VO}):
            site.add(*make_jobs(5), make_job(6, **facts), make_job(7, user_dn=None, local_user=None))
            site.collect()
            site.now += 86_400
            shown = site.publisher.rendering(site.target_settings.records, NAME, Window())
            assert isinstance(shown, Rendering)
            messages = sorted((message.uid, message.payload) for message in shown.messages())
            site.messages.clear()
            site.publish()
            sent = [message for message in site.messages if message.format == site.target_settings.records]
            assert sorted((each.batch_id, each.payload) for each in sent) == messages
            held, reasons = site.in_state(NAME, State.HELD), site.reasons(NAME)
            named = {held_item.record_id: sentence(held_item.reason) for held_item in shown.held}
            assert {name: reasons[name] for name in held & named.keys()} == {
                name: named[name] for name in held & named.keys()
            }
            assert named.keys() <= held

    # --- evidence

    def test_evidence_finds_what_differs_and_nothing_else(
        self, make_site: Callable[..., DeliverySite], service: Service
    ) -> None:
        """Everything is confirmed; a record that is altered or missing at the service is listed, and only it."""
        self._finds_one(make_site(batch_records=7), service, 20)

    def test_evidence_finds_one_of_many(self, make_site: Callable[..., DeliverySite], service: Service) -> None:
        """The same among many."""
        self._finds_one(make_site(batch_records=100, workers=2), service, self.many)

    @staticmethod
    def _finds_one(site: DeliverySite, service: Service, count: int) -> None:
        assert isinstance(service, Alters)
        site.source.page = 2000
        users = max(40, count // 10)  # so that there are many totals too
        site.add(*(make_job(number, user_dn=f"/DC=org/CN=User {number % users}") for number in range(1, count + 1)))
        site.settle()
        assert site.differences() == []
        assert site.confirmed() == (count, count)
        keys = sorted(key for key, _ in service.content())
        for number, change in enumerate((service.alter, service.remove), 1):
            key = keys[number * len(keys) // 3]
            change(key)
            assert site.differing(key) == number, f"after {change.__name__}: {site.differences()[:5]}"
