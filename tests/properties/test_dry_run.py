"""The dry run is publishing: after any history, `render` makes the very messages that the next `publish` sends to a
service that accepts everything, under the same ids, and names the runs that it holds, with the reasons.

Jobs turn up late and change, persons are erased, records are held, refused, tried again and waived, a source cannot be
read to its end, windows are sent again, some of them only in part at first; nothing is in flight, and the settings are
those with which the targets were planned. The targets have deliveries or not; some have several workers, some are
shadows for a while.

Not here: publishers that share a backlog, which cut other batches of the same records
(`tests/publisher/publish/test_shards.py`); a backlog that is rendered in a worker process
(`tests/publisher/messages/test_background.py`); and signatures, which differ each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.job import Benchmark
from formats.utilization.report import read_report
from publisher.errors import UsageError
from publisher.store.schema import State
from publisher.targets.base import Message, Refused, Transient
from tests.extent import short_or_whole
from tests.properties.dry_run import (
    assert_publishes_what_is_shown,
    assert_rehearses_what_is_shown,
    assert_republishes_what_is_announced,
)
from tests.properties.test_conservation import InTurn, stores
from tests.publisher.receivers import AnyReceiver, RecordReceiver, SummaryReceiver, script
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

NAMES = ("sgas", "car", "text", "sums", "normal", "days")
NEW = ("new sgas", "new car", "new text", "new sums", "new normal", "new days")
"""The same targets once more, each of them without deliveries until it is published to."""
SIGNED = ("car", "new car")
USERS = ("Ada", "Bo", "Cy")
WINDOWS = ((NOVEMBER, NOVEMBER + 86400), (OCTOBER + 3 * 86400, NOVEMBER + 86400), (OCTOBER, NOVEMBER + 30 * 86400))
OTHER_SCORE = {"benchmarks": (Benchmark("HEPscore23", 7.1),)}
ENDLESS = {"end": 253_402_300_800 + 50_000, "start": NOVEMBER + 1800}
"""It ended after the year 9999, which no report can be of, and ran in periods that are reported."""
Step = tuple[Any, ...]


class DryRunServices:
    """A site with a target of each kind, all of which take everything."""

    def __init__(self, folder: Path, *, unread: bool = False) -> None:
        """`unread`: at first its source cannot be read to the end, so that no month is complete."""
        self.source, self.other_source = ListSource("ce1", page=4), ListSource("ce2", page=4)
        self.source.fails = "cut off" if unread else None
        receivers: list[RecordReceiver] = []
        for new in ("", "new "):
            receivers += [InTurn(f"{new}sgas", "sgas"), InTurn(f"{new}car", "ams"), AnyReceiver(f"{new}text")]
            receivers += [SummaryReceiver(f"{new}sums"), AnyReceiver(f"{new}normal"), AnyReceiver(f"{new}days")]
        self.receivers = {receiver.name: receiver for receiver in receivers}
        self.site = Site(folder, [self.source, self.other_source], receivers)
        for new in ("", "new "):
            self.site.configure(f"{new}sgas", workers=2, batch_records=2)
            self.site.configure(f"{new}car", sync=True, batch_records=3, workers=2)
            self.site.configure(f"{new}text", records="apel-job", sync=False)
            self.site.configure(f"{new}normal", records="apel-normalised-summary")
            self.site.configure(
                f"{new}days", records="utilization", period="day", bin="6h", unknown_vo="hold", local_jobs="send"
            )
        self.unplanned = {name: self.site.table["targets"].pop(name) for name in NEW}
        self.site.reopen()
        self.site.collect()

    def job(self, number: int, wall_s: int, user: str, day: int, facts: dict[str, Any]) -> None:
        month = OCTOBER if day < 0 else NOVEMBER
        usual = {"wall_s": wall_s, "user_dn": f"/CN={user}", "end": month + 9000 + 86400 * abs(day)}
        self.source.add(make_job(number, **(usual | facts)))
        self.site.collect()

    def twin(self, number: int) -> None:
        """A job of another source with the key of that number's first one at APEL."""
        self.other_source.add(make_job(number, record_id=f"ur-ce2.example.org-{number:04}", end=NOVEMBER + 9000))
        self.site.collect()

    def read_fails(self, why: str | None) -> None:
        self.source.fails = why
        self.site.collect()

    def erase(self, user: str) -> None:
        for name, target in self.site.config.targets.items():
            if target.format.shape == "totals":  # otherwise it is refused
                self.publish(name)
        with suppress(UsageError):  # nobody of that name is known, or no longer
            self.site.publisher.maintenance.forget(f"/CN={user}", f"/CN=erased {USERS.index(user)}")

    def wait(self, seconds: int) -> None:
        self.site.now += seconds

    def retry(self, name: str, state: State) -> None:
        with suppress(UsageError):  # no longer selected
            self.site.publisher.retry(state, name, sorted(self.site.in_state(name, state))[:2])

    def waive(self, name: str) -> None:
        held = sorted(self.site.in_state(name, State.HELD))[:1]
        if held:
            self.site.publisher.waive(State.HELD, name, held, "let it be")

    def republish(self, name: str, window: tuple[int, int], only_missing: bool) -> None:
        assert_republishes_what_is_announced(self.site, self.receivers[name], window, only_missing=only_missing)

    def republish_fails(self, name: str, window: tuple[int, int], only_missing: bool, taken: int) -> None:
        """After that many messages; the rest waits, and the request is unfinished."""
        self.receivers[name].fault = script(*[None] * taken, *[Transient("HTTP 503")] * 9)
        self.site.republish(name, *window, only_missing=only_missing)
        self.receivers[name].fault = script()

    def publish_refused(self, name: str, user: str) -> None:
        """Publish to a service that refuses this user's records and summaries, and the reports of a day."""

        def is_refused(message: Message) -> bool:
            if message.format == "utilization":
                return read_report(message.payload).start == NOVEMBER
            return f"/CN={user}".encode() in message.payload

        answer = Refused("HTTP 500", certain=False)
        self.receivers[name].fault = lambda message: answer if is_refused(message) else None
        self.site.publish(name)
        self.receivers[name].fault = script()

    def shadow(self, name: str) -> None:
        assert_rehearses_what_is_shown(self.site, self.receivers[name])

    def publish(self, name: str) -> None:
        if name in self.unplanned:
            self.site.table["targets"][name] = self.unplanned.pop(name)
            self.site.reopen()
        assert_publishes_what_is_shown(self.site, self.receivers[name])


jobs = st.tuples(
    st.just("job"),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from(USERS),
    st.sampled_from((-2, 0, 1, 19)),  # the last of them is today, which is not over
    st.sampled_from(
        (
            {},
            {},
            {},
            {"benchmarks": ()},
            OTHER_SCORE,
            {"local_id": "other"},
            {"status": "aborted"},
            {"cluster": None, "endpoint_url": None},
            {"vo": None},
            {"wall_s": 2 * 86400},
            {"wall_s": 2 * 86400, "vo": None},
            ENDLESS,
        )
    ),
)
names = st.sampled_from(NAMES)
steps = st.one_of(
    jobs,
    jobs,
    st.tuples(st.just("publish"), names),
    st.tuples(st.just("publish"), names),
    st.tuples(st.just("publish"), st.sampled_from(NEW)),
    st.tuples(st.just("shadow"), st.sampled_from([name for name in NAMES if name not in SIGNED])),
    st.tuples(st.just("erase"), st.sampled_from(USERS)),
    st.tuples(st.just("retry"), names, st.sampled_from((State.HELD, State.SUPERSEDED))),
    st.tuples(st.just("wait"), st.just(60)),
    st.tuples(st.just("waive"), names),
    st.tuples(st.just("republish"), names, st.sampled_from(WINDOWS), st.booleans()),
    st.tuples(st.just("twin"), st.integers(1, 6)),
    st.tuples(st.just("publish_refused"), names, st.sampled_from(USERS)),
    st.tuples(st.just("republish_fails"), names, st.sampled_from(WINDOWS), st.booleans(), st.integers(0, 3)),
    st.tuples(st.just("read_fails"), st.sampled_from((None, "cut off"))),
)

JOB: Step = ("job", 1, 1, "Ada", 0, {})
BOS: Step = ("job", 3, 1, "Bo", -2, {})
UNFINISHED: tuple[Step, ...] = (("republish_fails", 1), ("republish",))
REFUSED: tuple[Step, ...] = (
    ("publish_refused", "Ada"),
    ("republish_fails", WINDOWS[2], False, 1),
    ("republish", WINDOWS[2], False),
)
SCORELESS: Step = ("job", 2, 1, "Ada", 0, {"benchmarks": ()})


def follow(history: list[Step], *, unread: bool, ends: Sequence[str] = NAMES) -> None:
    """Do all that, then publish to each of `ends`."""
    with tempfile.TemporaryDirectory() as folder:
        services = DryRunServices(Path(folder), unread=unread)
        try:
            for action, *arguments in [*history, *(("publish", name) for name in ends)]:
                act: Callable[..., None] = getattr(services, action)
                act(*arguments)
        finally:
            services.site.reopen()


KNOWN: Final[tuple[tuple[list[Step], bool], ...]] = (
    ([JOB, ("publish", "car"), ("job", 1, 1, "Ada", 1, {})], False),  # its key at APEL changed
    ([JOB, ("publish", "sums"), ("erase", "Ada"), ("job", 2, 1, "Ada", 0, {})], False),
    ([JOB, ("publish", "sums"), ("erase", "Ada"), ("wait", 60), ("republish", "sums", WINDOWS[0], False)], False),
    ([JOB, ("publish", "sums"), ("read_fails", None)], True),
    ([JOB, ("publish", "sums"), SCORELESS, ("publish", "sums"), ("waive", "sums")], False),
    ([JOB, ("publish", "sums"), ("read_fails", None), ("republish", "sums", WINDOWS[0], False)], True),
    ([JOB, ("publish", "days"), ("read_fails", None), ("republish", "days", WINDOWS[0], False)], True),
    ([JOB, ("publish", "days"), ("read_fails", None)], True),
    ([JOB, ("publish", "days"), SCORELESS, ("republish", "days", WINDOWS[0], False)], False),
    ([JOB, ("publish", "days"), ("job", 3, 1, "Bo", 2, {"wall_s": 2 * 86400, "vo": None})], False),
    ([JOB, ("publish", "days"), ("job", 3, 1, "Bo", 0, ENDLESS), ("job", 4, 1, "Bo", 0, {})], False),
    ([JOB, ("job", 3, 1, "Ada", 0, OTHER_SCORE), SCORELESS, *(("publish", name) for name in NEW)], False),
    ([JOB, BOS, *(("republish", name, WINDOWS[0], False) for name in NAMES)], False),
    ([JOB, ("publish", "sums"), ("job", 3, 1, "Bo", 0, {}), ("republish", "sums", WINDOWS[0], True)], False),
    ([JOB, BOS, *((action, name, WINDOWS[2], False, *n) for name in NAMES for action, *n in UNFINISHED)], False),
    ([JOB, BOS, *((action, name, *more) for name in NAMES for action, *more in REFUSED)], False),
    ([JOB, ("twin", 1), *(("publish", name) for name in (*NAMES, *NEW))], False),
    ([JOB, SCORELESS, *(("publish", name) for name in NEW)], True),
    ([JOB, SCORELESS, *(("shadow", name) for name in NAMES if name not in SIGNED)], False),
)
"""Histories that failed once, and whether a source was not read whole."""


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_what_is_shown_is_what_is_sent(request: pytest.FixtureRequest, store: str) -> None:
    @settings(max_examples=short_or_whole(2, 15) if store == "sqlite" else short_or_whole(1, 4))
    @given(st.lists(steps, max_size=14), st.booleans())
    def shown_is_sent(history: list[Step], unread: bool) -> None:
        follow(history, unread=unread)

    with stores(request, store):
        shown_is_sent()


@pytest.mark.usefixtures("tmp_path")
@pytest.mark.parametrize(("history", "unread"), KNOWN, ids=range(len(KNOWN)))
def test_what_is_shown_in_a_known_history_is_what_is_sent(history: list[Step], unread: bool) -> None:
    follow(history, unread=unread)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("store", "examples"), [("sqlite", 400), ("postgresql", 100)])
def test_what_is_shown_is_what_is_sent_for_long(request: pytest.FixtureRequest, store: str, examples: int) -> None:
    @settings(max_examples=examples, derandomize=False)
    @given(st.lists(steps, max_size=30), st.booleans())
    def shown_is_sent(history: list[Step], unread: bool) -> None:
        follow(history, unread=unread, ends=(*NAMES, *NEW))

    with stores(request, store):
        shown_is_sent()
