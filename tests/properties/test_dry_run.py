"""The dry run is publishing: after any history, `render` makes the very messages that the next `publish` sends to a
service that accepts everything, under the same ids, and names the runs that it holds, with the reasons.

Jobs turn up late and change, persons are erased, records are held, tried again and waived, a source cannot be read to
its end, windows are sent again; nothing is in flight, and the settings are those with which the targets were planned.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from publisher.errors import UsageError
from publisher.store.schema import State
from tests.properties.dry_run import assert_publishes_what_is_shown, assert_republishes_what_is_announced
from tests.properties.test_conservation import stores
from tests.publisher.receivers import AnyReceiver, Receiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

NAMES = ("sgas", "car", "text", "sums", "days")
USERS = ("Ada", "Bo", "Cy")
WINDOWS = ((NOVEMBER, NOVEMBER + 86400), (OCTOBER + 3 * 86400, NOVEMBER + 86400), (OCTOBER, NOVEMBER + 30 * 86400))
Step = tuple[Any, ...]


class Services:
    """A site with a target of each kind, all of which take everything."""

    def __init__(self, folder: Path, *, unread: bool = False) -> None:
        """`unread`: its source cannot be read to the end at first, so that no month is known whole."""
        self.source = ListSource("ce1", page=4)
        self.source.fails = "cut off" if unread else None
        receivers = [Receiver("sgas"), Receiver("car", "ams"), AnyReceiver("text"), SummaryReceiver("sums")]
        receivers.append(AnyReceiver("days"))
        self.receivers = {receiver.name: receiver for receiver in receivers}
        self.site = Site(folder, [self.source], receivers)
        self.site.configure("car", sync=True, batch_records=3)
        self.site.configure("text", records="apel-job", sync=False)
        self.site.configure("days", records="utilization", period="day", bin="6h")
        self.site.collect()

    def job(self, number: int, wall_s: int, user: str, day: int, facts: dict[str, Any]) -> None:
        month = OCTOBER if day < 0 else NOVEMBER
        self.source.add(
            make_job(number, wall_s=wall_s, user_dn=f"/CN={user}", end=month + 9000 + 86400 * abs(day), **facts)
        )
        self.site.collect()

    def read_fails(self, why: str | None) -> None:
        self.source.fails = why
        self.site.collect()

    def erase(self, user: str) -> None:
        with suppress(UsageError):  # nobody of that name is known, or not any more
            self.site.publisher.maintenance.forget(f"/CN={user}", f"/CN=erased {USERS.index(user)}")

    def retry(self, name: str, state: State) -> None:
        with suppress(UsageError):  # no longer wanted
            self.site.publisher.retry(state, name, sorted(self.site.in_state(name, state))[:2])

    def waive(self, name: str) -> None:
        held = sorted(self.site.in_state(name, State.HELD))[:1]
        if held:
            self.site.publisher.waive(State.HELD, name, held, "let it be")

    def republish(self, name: str, window: tuple[int, int], only_missing: bool) -> None:
        assert_republishes_what_is_announced(self.site, self.receivers[name], window, only_missing=only_missing)

    def publish(self, name: str) -> None:
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
            {"local_id": "other"},
            {"status": "aborted"},
            {"cluster": None, "endpoint_url": None},
        )
    ),
)
names = st.sampled_from(NAMES)
steps = st.one_of(
    jobs,
    jobs,
    st.tuples(st.just("publish"), names),
    st.tuples(st.just("publish"), names),
    st.tuples(st.just("erase"), st.sampled_from(USERS)),
    st.tuples(st.just("retry"), names, st.sampled_from((State.HELD, State.SUPERSEDED))),
    st.tuples(st.just("waive"), names),
    st.tuples(st.just("republish"), names, st.sampled_from(WINDOWS), st.booleans()),
    st.tuples(st.just("read_fails"), st.sampled_from((None, "cut off"))),
)

JOB: Step = ("job", 1, 1, "Ada", 0, {})
SCORELESS: Step = ("job", 2, 1, "Ada", 0, {"benchmarks": ()})


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_what_is_shown_is_what_is_sent(request: pytest.FixtureRequest, store: str) -> None:
    @settings(max_examples=15 if store == "sqlite" else 4)
    @given(st.lists(steps, max_size=14), st.booleans())
    @example([JOB, ("publish", "car"), ("job", 1, 1, "Ada", 1, {})], False)  # its key at APEL changed
    @example([JOB, ("publish", "sums"), ("erase", "Ada"), ("job", 2, 1, "Ada", 0, {})], False)
    @example([JOB, ("publish", "sums"), ("read_fails", None)], True)
    @example([JOB, ("publish", "sums"), SCORELESS, ("publish", "sums"), ("waive", "sums")], False)
    @example([JOB, ("publish", "days"), ("read_fails", None)], True)
    @example([JOB, ("publish", "days"), SCORELESS, ("republish", "days", WINDOWS[0], False)], False)
    def shown_is_sent(history: list[Step], unread: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            services = Services(Path(folder), unread=unread)
            try:
                for action, *arguments in [*history, *(("publish", name) for name in NAMES)]:
                    act: Callable[..., None] = getattr(services, action)
                    act(*arguments)
            finally:
                services.site.reopen()

    with stores(request, store):
        shown_is_sent()
