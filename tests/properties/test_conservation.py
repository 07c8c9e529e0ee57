"""Conservation: whatever happens, every finished run is where the ledger says, and is counted once where it must be.

Jobs arrive late, change, vanish, are no longer selected, lack a benchmark until one is configured; three services (one
keeps first versions, one last versions, one accepts summaries) fail in every way; runs overlap; time jumps; the power
fails at any event. The oracle `tests.oracle` is used after every step; and whenever all services work, everything that
the sources ever had is there, and the sums of the receiver's summaries are the sums of the runs.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from formats.job import Job
from publisher.collect.target_filter import GRID_STATUSES
from publisher.errors import UsageError
from publisher.sources.base import Unreadable
from publisher.store.schema import State
from publisher.targets.base import (
    Accepted,
    Message,
    Outcome,
    Oversized,
    Refused,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)
from tests import oracle, oracle_of_sums
from tests.extent import short_or_whole
from tests.properties.dry_run import assert_publishes_what_is_shown
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, SCORE, ListSource, Site, make_job, stores_on

STATUSES = ("completed", "failed", "aborted", "running")
NAMES = ("first", "last", "sums")
SOURCES = ("ce1", "ce2")
BENCHMARK = {"type": "HEPscore23", "value": 14.2}
GONE = Unreadable("log", None, None, "gone from the source", b"")

faults = st.sampled_from(
    (
        "well", "well", "transient", "throttled", "unknown before", "unknown after", "unauthorised", "down",
        "flapping", "oversized", "poison", "forgetful",
    )
)  # fmt: skip
numbers = st.integers(1, 12)


class InTurn(RecordReceiver):
    """A service that several couriers may call at a time."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(name, kind)
        self._lock = threading.Lock()

    def post(self, message: Message) -> Outcome:
        """Messages are handled one after the other."""
        with self._lock:
            return super().post(message)


class Faulty:
    """A service with a fault, and its answers."""

    def __init__(self, kind: str, receiver: RecordReceiver, poison: set[str]) -> None:
        self.kind = kind
        self.receiver = receiver
        receiver.fault = self.before
        receiver.answer = self.after
        receiver.poison = poison if kind == "poison" else set()

    def before(self, message: Message) -> Outcome | None:
        if self.kind == "flapping":
            return Refused("HTTP 500", certain=False) if self.receiver.posts % 3 == 0 else None
        if self.kind == "oversized":
            return Oversized("HTTP 413") if len(message.record_ids) > 2 else None
        if self.kind == "refuses":
            return Refused("HTTP 400", certain=False) if b"CN=Bo" in message.payload else None
        answers: dict[str, Outcome] = {
            "transient": Transient("HTTP 503"),
            "throttled": Throttled("HTTP 429", None),
            "unknown before": Unknown("cut"),
            "unauthorised": Unauthorised("HTTP 403"),
            "down": Refused("HTTP 500", certain=False),
        }
        return answers.get(self.kind)

    def after(self, message: Message, accepted: Accepted) -> Outcome:
        if self.kind == "unknown after":
            return Unknown("the answer was cut off")
        if self.kind == "forgetful" and len(message.record_ids) > 1:
            return Accepted(accepted.receipt, missing=message.record_ids[:1])
        return accepted


class ConservationMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(seed=st.integers(0, 1000), workers=st.integers(1, 3))
    def set_up(self, seed: int, workers: int) -> None:
        random.seed(seed)
        self.folder = Path(tempfile.mkdtemp())
        self.receivers = {
            "first": InTurn("first", "sgas"),
            "last": InTurn("last", "ams"),
            "sums": SummaryReceiver("sums"),
        }
        self.site = Site(
            self.folder, [ListSource("ce1", page=3), ListSource("ce2", page=3)], list(self.receivers.values())
        )
        for name in NAMES:
            self.site.configure(name, batch_records=4, workers=workers)
        self.site.configure("sums", records="apel-normalised-summary" if seed % 2 else "apel-summary")
        self.vanished: set[str] = set()
        """Runs of which a version went from its source; whether it was read before depends."""

    def teardown(self) -> None:
        if hasattr(self, "site"):
            self.all_is_well_in_the_end()
            self.site.reopen()
            shutil.rmtree(self.folder)

    # --- what happens

    @rule(
        source=st.sampled_from(SOURCES),
        number=numbers,
        wall_s=st.integers(1, 5),
        status=st.sampled_from(STATUSES),
        october=st.booleans(),
        user=st.sampled_from(("Ada", "Bo")),
        scored=st.booleans(),
    )
    def a_job_turns_up(
        self, source: str, number: int, wall_s: int, status: str, october: bool, user: str, scored: bool
    ) -> None:
        end = (OCTOBER if october else NOVEMBER) + 3600 + number
        facts = {"user_dn": f"/DC=org/CN={user}", "benchmarks": SCORE if scored else ()}
        job = make_job(number, wall_s=wall_s, status=status, end=end, **facts)
        if status == "running":
            job = make_job(number, status="running", end=None, wall_ms=None, cpu_ms=None)
        self.site.sources[source].add(job)

    @rule(source=st.sampled_from(SOURCES), place=st.integers(0, 30))
    def a_job_vanishes(self, source: str, place: int) -> None:
        log = self.site.sources[source].log
        job = log[place] if place < len(log) else None
        if isinstance(job, Job):
            log[place] = GONE
            self.vanished.add(job.record_id)

    @rule()
    def a_benchmark_is_configured(self) -> None:
        if "benchmark" not in self.site.table["sources"]["ce1"]:
            for name in SOURCES:
                self.site.table["sources"][name]["benchmark"] = BENCHMARK
            self.site.reopen()

    @rule(source=st.sampled_from(SOURCES))
    def collect(self, source: str) -> None:
        self.site.collect(source)

    @rule(source=st.sampled_from(SOURCES), step=st.integers(0, 3))
    def collect_and_die(self, source: str, step: int) -> None:
        self.site.killed_at(step, lambda: self.site.collect(source))

    @rule(name=st.sampled_from(NAMES), kind=faults, poisoned=st.sets(numbers, max_size=2))
    def fails(self, name: str, kind: str, poisoned: set[int]) -> None:
        if name == "sums" and kind in {"flapping", "down", "oversized", "poison", "forgetful"}:
            kind = "refuses" if kind == "poison" else "transient"  # its messages name no records
        Faulty(kind, self.receivers[name], {make_job(number).record_id for number in poisoned})

    @rule(name=st.sampled_from(NAMES))
    def publish(self, name: str) -> None:
        self.site.publish(name)

    @rule(name=st.sampled_from(NAMES), step=st.integers(0, 12))
    def publish_and_die(self, name: str, step: int) -> None:
        self.site.killed_at(step, lambda: self.site.publish(name))

    @rule(name=st.sampled_from(NAMES), step=st.integers(1, 3), days=st.integers(0, 1), wall_s=st.integers(1, 5))
    def what_was_in_flight_changes_when_a_run_died(self, name: str, step: int, days: int, wall_s: int) -> None:
        self.site.killed_at(step, lambda: self.site.publish(name))
        for record_id in sorted(self.site.in_state(name, State.IN_FLIGHT))[:1]:
            end = NOVEMBER + 3600 + days * 86400
            self.site.sources["ce1"].add(make_job(int(record_id[-4:]), wall_s=wall_s, end=end))
            self.site.collect("ce1")
            self.site.publish(name)

    @rule(name=st.sampled_from(NAMES), step=st.integers(0, 6), source=st.sampled_from(SOURCES))
    def collect_in_the_middle_of_publishing(self, name: str, step: int, source: str) -> None:
        with self._beside(step, lambda other: other.collect(source)):
            self.site.publish(name)

    @rule(name=st.sampled_from(NAMES), step=st.integers(1, 6), other=st.sampled_from(NAMES))
    def two_runs_overlap(self, name: str, step: int, other: str) -> None:
        def publish(beside: Site) -> None:
            done = beside.publish(other)[other]
            assert done.busy == (other == name), "both send to one target"
            if other == name:
                with pytest.raises(UsageError, match="another run is sending"):
                    beside.republish(other, OCTOBER, NOVEMBER)

        with self._beside(step, publish):
            self.site.publish(name)

    @contextmanager
    def _beside(self, step: int, action: Callable[[Site], object]) -> Iterator[None]:
        """Let another process do something at the given event (from 0)."""
        count = 0

        def watch(_event: object) -> None:
            nonlocal count
            count += 1
            if count == step + 1:
                other = Site.beside(self.site)
                action(other)
                other.reopen()

        self.site.watch = watch
        try:
            yield
        finally:
            self.site.watch = lambda _event: None

    @rule(name=st.sampled_from(NAMES))
    def republish(self, name: str) -> None:
        self.site.republish(name, OCTOBER, NOVEMBER + 30 * 86400)

    @rule(name=st.sampled_from(NAMES[:2]))
    def retry_rejected(self, name: str) -> None:
        self.site.publisher.retry(State.REJECTED, name)

    @rule(name=st.sampled_from(NAMES[:2]))
    def waive_rejected(self, name: str) -> None:
        rejected = sorted(self.site.in_state(name, State.REJECTED))[:1]
        if rejected:
            self.site.publisher.waive(State.REJECTED, name, rejected, "not worth the effort")

    @rule(name=st.sampled_from(NAMES[:2]))
    def first_versions_are_removed_there(self, name: str) -> None:
        for record_id in sorted(self.site.in_state(name, State.SUPERSEDED)):
            try:
                self.site.publisher.retry(State.SUPERSEDED, name, [record_id])
            except UsageError:
                continue  # no longer selected: it must not be sent
            self.receivers[name].remove(record_id)

    @rule(name=st.sampled_from(NAMES))
    def a_dry_run_is_what_publishing_does(self, name: str) -> None:
        if not self.site.in_state(name, State.IN_FLIGHT):
            Faulty("well", self.receivers[name], set())
            assert_publishes_what_is_shown(self.site, self.receivers[name])

    @rule(seconds=st.integers(-86400, 86400))
    def time_jumps(self, seconds: int) -> None:
        self.site.now += seconds

    @precondition(lambda self: sum(len(source.log) for source in self.site.sources.values()) > 6)
    @rule()
    def all_is_well_for_a_while(self) -> None:
        self.all_is_well_in_the_end()

    # --- the oracle

    @invariant()
    def the_ledger_is_right(self) -> None:
        if not hasattr(self, "site"):
            return
        jobs = oracle.stored(self.site.rows)
        selected = {record_id for record_id, job in jobs.items() if job.finished and job.status in GRID_STATUSES}
        for name, receiver in self.receivers.items():
            books = oracle.ledger(self.site.rows, name)
            assert all(jobs[record_id].finished for record_id in books.states), "a delivery of a run that has not ended"
            if name == "sums":
                assert books.counters == Counter(books.states.values())
                assert selected <= books.states.keys()
                continue
            oracle.assert_conserved(selected, books, dict.fromkeys(receiver.held, 1), jobs.keys() - selected)
            oracle.assert_versions_agree(books, jobs, receiver.held)
            oracle.assert_counted_once(name, receiver.keys)

    def all_is_well_in_the_end(self) -> None:
        """Everything is put right, and then everything must be where it belongs."""
        for name in NAMES:
            Faulty("well", self.receivers[name], set())
        self.a_benchmark_is_configured()
        self.site.collect()
        for name in NAMES:
            for _ in range(3):
                self.site.publish(name)
            if self.site.in_state(name, State.REJECTED):
                self.site.publisher.retry(State.REJECTED, name)
                self.site.publish(name)
        key_changed = sorted(self.site.in_state("last", State.HELD))
        if key_changed:  # their first versions are removed by hand
            for record_id in key_changed:
                self.receivers["last"].remove(record_id)
            self.site.publisher.retry(State.HELD, "last", key_changed)
            self.site.publish("last")
        self.the_ledger_is_right()
        self._the_sources_are_stored()
        for name in NAMES:
            assert set(self.site.counted(name)) <= {State.ACCEPTED, State.SUPERSEDED, State.WAIVED}, name
        jobs = oracle.stored(self.site.rows)
        counted = [jobs[record_id] for record_id in self.site.in_state("sums", State.ACCEPTED)]
        receiver = self.receivers["sums"]
        assert isinstance(receiver, SummaryReceiver)
        total = receiver.total()
        oracle.assert_sums_agree(counted, total[:2], sum(receiver.sync.values()))
        for name, each in self.receivers.items():
            accepted = self.site.in_state(name, State.ACCEPTED)
            sent = [oracle_of_sums.run_of(jobs[record_id], SCORE) for record_id in accepted]
            form = self.site.config.targets[name].records
            oracle_of_sums.assert_sums_conserved(form, sent, each.bodies_of(accepted))

    def _the_sources_are_stored(self) -> None:
        """Every finished run that a source still has is in the store, in a version that the source had."""
        jobs = oracle.stored(self.site.rows)
        reported: dict[str, list[Job]] = {}
        for source in self.site.sources.values():
            for item in source.log:
                if isinstance(item, Job) and item.finished:
                    reported.setdefault(item.record_id, []).append(item)
        for record_id, versions in reported.items():
            assert jobs[record_id].finished
            if record_id not in self.vanished:
                assert jobs[record_id] in versions


@contextmanager
def stores(request: pytest.FixtureRequest, store: str) -> Iterator[None]:
    """Within this, sites have their stores there."""
    if store == "sqlite":
        yield
        return
    with stores_on(request.getfixturevalue("postgresql")):
        yield


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_conservation_under_faults_and_kills(request: pytest.FixtureRequest, store: str) -> None:
    with stores(request, store):
        run_state_machine_as_test(
            ConservationMachine,
            settings=settings(max_examples=short_or_whole(3, 7), stateful_step_count=30, phases=(Phase.generate,)),
        )


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("store", "examples"), [("sqlite", 100), ("postgresql", 50)])
def test_conservation_under_faults_and_kills_for_long(
    request: pytest.FixtureRequest, store: str, examples: int
) -> None:
    with stores(request, store):
        run_state_machine_as_test(
            ConservationMachine,
            settings=settings(
                max_examples=examples, stateful_step_count=50, phases=(Phase.generate,), derandomize=False
            ),
        )
