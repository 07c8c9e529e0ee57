"""Conservation: whatever happens, every finished run is where the ledger says, and counted once where it must be.

Jobs arrive late, change, are wanted no longer; three services (one keeps first versions, one last versions, one takes
summaries) fail in every way; the power goes at any event. The oracle:

    finished runs = unwanted + accepted at the receiver, each once + those in the listed states, which are disjoint;
    counters are what counting gives; what is accepted is at the service, in the version that the service must have;
    and once all services are well, the sums of the receiver's summaries are the sums of the runs.
"""

from __future__ import annotations

import random
import shutil
import tempfile
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
from publisher.pipeline.wish import ARC_STATUSES
from publisher.store.states import State
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
from tests.publisher.receivers import Receiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

STATUSES = ("completed", "failed", "aborted", "running")
NAMES = ("first", "last", "sums")
MAY_BE_THERE = {State.ACCEPTED, State.SUPERSEDED, State.WAITING, State.IN_FLIGHT, State.HELD, State.REJECTED}

faults = st.sampled_from(
    (
        "well", "well", "transient", "throttled", "unknown before", "unknown after", "unauthorised", "down",
        "flapping", "oversized", "poison", "forgetful",
    )
)  # fmt: skip
numbers = st.integers(1, 12)


class Faulty:
    """What a service answers while it has a certain trouble."""

    def __init__(self, kind: str, receiver: Receiver, poison: set[str]) -> None:
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


class Conservation(RuleBasedStateMachine):
    """See the module."""

    @initialize(seed=st.integers(0, 1000))
    def set_up(self, seed: int) -> None:
        random.seed(seed)
        self.folder = Path(tempfile.mkdtemp())
        self.receivers = {
            "first": Receiver("first", "sgas"),
            "last": Receiver("last", "ams"),
            "sums": SummaryReceiver("sums"),
        }
        self.site = Site(
            self.folder, [ListSource("ce1", page=3), ListSource("ce2", page=3)], list(self.receivers.values())
        )
        for name in NAMES:
            self.site.configure(name, batch_records=4)
        self.jobs: dict[str, Job] = {}
        """The last finished version of every run that the sources have told of."""
        self.collected: dict[str, Job] = {}
        self.was_wanted: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "site"):
            self.all_is_well_in_the_end()
            self.site.reopen()
            shutil.rmtree(self.folder)

    # --- what happens

    @rule(
        source=st.sampled_from(("ce1", "ce2")),
        number=numbers,
        wall_s=st.integers(1, 5),
        status=st.sampled_from(STATUSES),
        october=st.booleans(),
        user=st.sampled_from(("Ada", "Bo")),
    )
    def a_job_turns_up(self, source: str, number: int, wall_s: int, status: str, october: bool, user: str) -> None:
        end = (OCTOBER if october else NOVEMBER) + 3600 + number
        job = make_job(number, wall_s=wall_s, status=status, end=end, user_dn=f"/DC=org/CN={user}")
        if status == "running":
            job = make_job(number, status="running", end=None, wall_ms=None, cpu_ms=None)
        self.site.sources[source].add(job)
        if job.finished:
            self.jobs[job.record_id] = job

    @rule(source=st.sampled_from(("ce1", "ce2")))
    def collect(self, source: str) -> None:
        self.site.collect(source)

    @rule(source=st.sampled_from(("ce1", "ce2")), step=st.integers(0, 3))
    def collect_and_die(self, source: str, step: int) -> None:
        self.site.killed_at(step, lambda: self.site.collect(source))

    @rule(name=st.sampled_from(NAMES), kind=faults, poisoned=st.sets(numbers, max_size=2))
    def trouble(self, name: str, kind: str, poisoned: set[int]) -> None:
        if name == "sums" and kind in {"flapping", "down", "oversized", "poison", "forgetful"}:
            kind = "transient"  # a broker does not judge content
        Faulty(kind, self.receivers[name], {make_job(number).record_id for number in poisoned})

    @rule(name=st.sampled_from(NAMES))
    def publish(self, name: str) -> None:
        self.site.publish(name)

    @rule(name=st.sampled_from(NAMES), step=st.integers(0, 12))
    def publish_and_die(self, name: str, step: int) -> None:
        self.site.killed_at(step, lambda: self.site.publish(name))

    @rule(name=st.sampled_from(NAMES), step=st.integers(0, 6), source=st.sampled_from(("ce1", "ce2")))
    def collect_in_the_middle_of_publishing(self, name: str, step: int, source: str) -> None:
        count = 0

        def watch(_event: object) -> None:
            nonlocal count
            count += 1
            if count == step + 1:
                other = Site(self.folder, list(self.site.sources.values()), list(self.receivers.values()))
                other.table = self.site.table
                other.collect(source)
                other.reopen()

        self.site.watch = watch
        try:
            self.site.publish(name)
        finally:
            self.site.watch = lambda _event: None

    @rule(name=st.sampled_from(NAMES))
    def republish(self, name: str) -> None:
        self.site.republish(name, OCTOBER, NOVEMBER + 30 * 86400)

    @rule(name=st.sampled_from(NAMES[:2]))
    def retry_rejected(self, name: str) -> None:
        self.site.publisher.retry(State.REJECTED, name)

    @rule(seconds=st.integers(-86400, 86400))
    def time_jumps(self, seconds: int) -> None:
        self.site.now += seconds

    @precondition(lambda self: len(self.jobs) > 6)
    @rule()
    def all_is_well_for_a_while(self) -> None:
        self.all_is_well_in_the_end()

    # --- the oracle

    @invariant()
    def the_ledger_is_right(self) -> None:
        if not hasattr(self, "site"):
            return
        self.site.assert_counters_right()
        stored = {
            record_id: bool(finished) for record_id, finished in self.site.rows("SELECT record_id, finished FROM runs")
        }
        for name in NAMES:
            states = self.site.states(name)
            assert all(stored[record_id] for record_id in states), "a delivery of a run that is not finished"
        wanted = self._wanted_in_store()
        for name in NAMES:
            listed = set(self.site.states(name))
            assert wanted <= listed, "a wanted run that the ledger does not know"
            left_over = {self.site.states(name)[record_id] for record_id in listed - wanted}
            assert left_over <= {State.SUPERSEDED, State.WAIVED, State.IN_FLIGHT}, left_over
        for name in ("first", "last"):
            there = set(self.receivers[name].held)
            states = self.site.states(name)
            accepted = {record_id for record_id, state in states.items() if state is State.ACCEPTED}
            assert accepted <= there, "called accepted, but the service has it not"
            assert all(states[record_id] in MAY_BE_THERE for record_id in there & set(states))
            assert there <= set(states) | self._unwanted_in_store(), "the service has what the ledger does not know"
            self._versions_agree(name, accepted)

    def _wanted_in_store(self) -> set[str]:
        return {record_id for record_id, job in self._stored().items() if job.finished and job.status in ARC_STATUSES}

    def _unwanted_in_store(self) -> set[str]:
        return {record_id for record_id, job in self._stored().items() if job.status not in ARC_STATUSES}

    def _stored(self) -> dict[str, Job]:
        from formats.identity import decode

        return {record_id: decode(bytes(blob)) for record_id, blob in self.site.rows("SELECT record_id, job FROM runs")}

    def _versions_agree(self, name: str, accepted: set[str]) -> None:
        stored = self._stored()
        for record_id in accepted:
            wall_ms = stored[record_id].wall_ms
            assert wall_ms is not None
            assert self.receivers[name].held[record_id] == wall_ms // 1000, "another version than the ledger says"

    def all_is_well_in_the_end(self) -> None:
        for name in NAMES:
            Faulty("well", self.receivers[name], set())
        self.site.collect()
        for name in NAMES:
            for _ in range(3):
                self.site.publish(name)
            if self.site.in_state(name, State.REJECTED):
                self.site.publisher.retry(State.REJECTED, name)
                self.site.publish(name)
        self.the_ledger_is_right()
        for name in NAMES:
            assert set(self.site.counted(name)) <= {State.ACCEPTED, State.SUPERSEDED}, name
        stored = self._stored()
        wanted = {
            record_id
            for record_id in self._wanted_in_store()
            if self.site.states("sums").get(record_id) is State.ACCEPTED
        }
        assert wanted == self._wanted_in_store() - self.site.in_state("sums", State.SUPERSEDED)
        sums = (
            len(wanted),
            sum((stored[record_id].wall_ms or 0) // 1000 for record_id in wanted),
            sum((stored[record_id].cpu_ms or 0) for record_id in wanted) // 1000,
        )
        receiver = self.receivers["sums"]
        assert isinstance(receiver, SummaryReceiver)
        jobs, wall_s, _cpu_s = receiver.total()
        assert (jobs, wall_s) == sums[:2], "the sums at the receiver are not those of the runs"
        assert sum(receiver.sync.values()) == len(wanted)


def test_conservation_under_faults_and_kills() -> None:
    run_state_machine_as_test(
        Conservation, settings=settings(max_examples=12, stateful_step_count=30, phases=(Phase.generate,))
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_conservation_under_faults_and_kills_for_long() -> None:
    run_state_machine_as_test(
        Conservation,
        settings=settings(max_examples=100, stateful_step_count=50, phases=(Phase.generate,), derandomize=False),
    )
