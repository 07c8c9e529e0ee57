"""A month folded from sums of classes is the month folded run by run: groups, members, what is held, sync counts."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, insert, select, update

from formats.apel.fold import Fold
from formats.calendar import Month, month_bounds
from formats.job import Benchmark, Host, Job
from formats.registry import FORMATS
from formats.rule_codes import CannotRenderError
from formats.totals import LATEST_END, LONGEST_MS
from publisher.collect.run_preparer import RunPreparer
from publisher.config.file import parse
from publisher.config.schema import Config
from publisher.encoded_run import encode_run, run_key
from publisher.grid_identity import GridLogEntry
from publisher.messages.due import NOT_DUE, ended_in
from publisher.messages.item import Members, view_of
from publisher.messages.month_fold import MonthFolder
from publisher.reason import sentence
from publisher.store import sums
from publisher.store.classes import AWAITED, JOINED, Interner, Marked
from publisher.store.database import Store, open_store
from publisher.store.row_checks import of_class
from publisher.store.runs import upsert
from publisher.store.schema import State, class_users, classes, runs, sources, targets
from publisher.store.schema import deliveries as ledger
from tests.publisher.store.server import PostgresqlServer

TARGET: Final = 1
SUMMARIES: Final = FORMATS["apel-summary"].required_totals
MONTHS: Final = (Month(2026, 11), Month(2038, 1), Month(1969, 12))
"""An ordinary one, the one in which the instants of APEL end, and one before they begin."""
PAGE: Final = 3
ENTRY: Final = GridLogEntry(
    0, "1", "/DC=org/CN=Bo", ("/cms/Role=pilot",), "ce9.example.org", token_subject="t1", token_issuer="https://i"
)


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    yield from _opened(f"sqlite:///{tmp_path_factory.mktemp('fold')}/state/store.db")


@pytest.fixture(scope="module")
def on_postgresql(postgresql: PostgresqlServer) -> Iterator[Store]:
    yield from _opened(postgresql.url(postgresql.new_database()))


def _opened(url: str) -> Iterator[Store]:
    store = open_store(url)
    with store.write() as connection:
        for number, name in enumerate(("ce1", "ce2"), 1):
            connection.execute(insert(sources).values(id=number, name=name, kind="torque"))
        connection.execute(insert(targets).values(id=TARGET, name="apel", kind="directory", filter_settings="{}"))
    yield store
    store.close()


# --- any runs, rules and states

texts = st.sampled_from((None, "", "ada", "Ada ", "ADA", "bio", "x" * 300, "\u00e5", "None"))
amounts = st.sampled_from((None, 0, 1, 499, 500, 86_400_000, -1, LONGEST_MS, LONGEST_MS + 1, 10**15))
counts = st.sampled_from((None, 0, 1, 8, -1, 10**9, 10**12))
benchmarks = st.lists(
    st.sampled_from(
        (Benchmark("HEPscore23", 14.2), Benchmark("hepspec", 10.2564), Benchmark("Si2k", 2500.0), Benchmark("x", 1.0))
    ),
    max_size=2,
    unique_by=lambda one: one.type,
).map(tuple)
grid_logs = st.sampled_from((None, None, JOINED, AWAITED))


@st.composite
def ends(draw: st.DrawFn, month: Month) -> int:
    first, behind = month_bounds(month)
    edges = (
        first - 1,
        first,
        first + 7,
        first + 86_400,
        first + 86_399,
        behind - 1,
        behind,
        LATEST_END,
        LATEST_END + 1,
    )
    return draw(st.sampled_from(edges) | st.integers(first, behind - 1))


class Known(msgspec.Struct, frozen=True):
    """A run, its source, its entry in the grid log, and the state of its delivery."""

    job: Job
    source: str
    grid_log: str | None
    state: State | None
    revision: int


@st.composite
def known_runs(draw: st.DrawFn, month: Month) -> list[Known]:
    made = []
    for number in range(draw(st.integers(0, 12))):
        job = Job(
            record_id=f"ur-{number}",
            system=draw(st.sampled_from(("torque", "arc"))),
            status=draw(st.sampled_from(("completed", "completed", "failed", "running"))),
            local_id=str(number),
            user_dn=draw(st.sampled_from((None, "/DC=org/CN=Ada", "/dc=org/cn=ada ", "CN=Ada,DC=org"))),
            token_subject=draw(st.sampled_from((None, None, "t1", "t2"))),
            local_user=draw(texts),
            local_group=draw(texts),
            project=draw(texts),
            vo=draw(st.sampled_from((None, "atlas", "ATLAS", "cms", "None"))),
            fqans=draw(st.sampled_from(((), ("/atlas/Role=production",), ("/atlas/no", "/cms"), ("/",)))),
            cluster=draw(st.sampled_from((None, "lrms1", "lrms2", "None"))),
            queue=draw(st.sampled_from((None, "main", "gpu"))),
            endpoint_url=draw(st.sampled_from((None, "https://ce1.example.org:443/arex", "ce1.example.org"))),
            endpoint_type=draw(st.sampled_from((None, "org.nordugrid.arcrest", "org.nordugrid.internal"))),
            hosts=draw(st.sampled_from(((), (Host("wn1"),), (Host("wn2"),), (Host("wn1"), Host("wn2"))))),
            nodes=draw(counts),
            cores=draw(counts),
            slots=draw(counts),
            infrastructure=draw(st.sampled_from((None, "grid", "local"))),
            end=draw(ends(month)),
            wall_ms=draw(amounts),
            cpu_ms=draw(amounts),
            cpu_user_ms=draw(amounts),
            cpu_system_ms=draw(amounts),
            benchmarks=draw(benchmarks),
        )
        state = draw(st.sampled_from((None, *State)))
        source = draw(st.sampled_from(("ce1", "ce2", "gone")))
        made.append(Known(job, source, draw(grid_logs), state, draw(st.integers(0, 2))))
    return made


def rules(month: Month) -> dict[str, Any]:
    """Rules that look at whatever rules may look at, and count from instants within the month on."""
    first, _ = month_bounds(month)
    at = [datetime.fromtimestamp(first + after, UTC).isoformat() for after in (7, 86_400)]
    return {
        "map": [
            {"when": {"token_subject": "t1"}, "vo": "tokens", "dn": "/DC=org/CN=Token"},
            {"when": {"local_user": "ada*", "queue": "gpu"}, "vo": "atlas", "fqans": ["/atlas/Role=gpu"]},
            {"when": {"local_group": "bio"}, "vo": "biomed", "submit_host": "ce2.example.org"},
            {"when": {"dn": "*Ada"}, "fqans": ["/cms/no"], "vo": "cms"},
        ],
        "benchmarks": [
            {"type": "HEPSPEC", "value": 9.5, "host": "wn1", "since": at[0]},
            {"type": "Si2k", "value": 2000, "queue": "gpu", "until": at[1]},
            {"type": "HEPscore23", "value": 12.3456, "since": at[1]},
        ],
    }


settings_of = st.fixed_dictionaries(
    {},
    optional={
        "unknown_vo": st.sampled_from(("hold", "send")),
        "vo_spelling": st.sampled_from(("plain", "arc", "arc-6.17")),
        "submit_host": st.sampled_from(("arc", "url", "host")),
        "benchmark_type": st.sampled_from(("HEPSPEC", "Si2k")),
    },
)


@st.composite
def sites(draw: st.DrawFn) -> tuple[Month, Config, list[Known]]:
    month = draw(st.sampled_from(MONTHS))
    table = {
        "site": {"name": "EXAMPLE-SITE"},
        "sources": {
            "ce1": {"type": "torque", "path": "x", **draw(st.sampled_from(({}, rules(month))))},
            "ce2": {
                "type": "torque", "path": "y", "benchmark": {"type": "HEPSPEC", "value": 11.1},
                **draw(st.sampled_from(({}, {"site": "OTHER", "infrastructure": "grid", "submit_host": "ce3"}))),
            },
        },
        "targets": {
            "apel": {
                "type": "directory", "path": "out", **draw(settings_of),
                "records": draw(st.sampled_from(("apel-summary", "apel-normalised-summary"))),
            }
        },
    }  # fmt: skip
    return month, parse(table, Path("publisher.toml")), draw(known_runs(month))


def fill(store: Store, known: Sequence[Known]) -> None:
    """Put these runs and their deliveries in place of those that were there."""
    with store.write() as connection:
        for table in (ledger, runs, class_users, classes):
            connection.execute(delete(table))
        connection.execute(delete(sources).where(sources.c.name == "gone"))
        connection.execute(insert(sources).values(id=3, name="gone", kind="torque"))
        for number, name in enumerate(("ce1", "ce2", "gone"), 1):
            mine = {one.job.record_id: one for one in known if one.source == name}

            def join(_connection: Connection, jobs: Sequence[Job], mine: dict[str, Known] = mine) -> list[Marked]:
                marks = [mine[job.record_id].grid_log for job in jobs]
                return [
                    (ENTRY.given_to(job) if mark == JOINED else job, mark)
                    for job, mark in zip(jobs, marks, strict=True)
                ]

            upsert(connection, Interner(number, name, join), [encode_run(one.job) for one in mine.values()], 0)
        ids = {row[0]: row[1] for row in connection.execute(select(runs.c.record_id, runs.c.id))}
        rows = [
            {
                "target_id": TARGET, "run_id": ids[one.job.record_id], "state": int(one.state),
                "end_time": one.job.end, "changed_at": 0, "revision": one.revision,
            }
            for one in known if one.state is not None
        ]  # fmt: skip
        if rows:
            connection.execute(insert(ledger), rows)


def folded_one_by_one(
    store: Store, demand: RunPreparer, month: Month, fold: Fold
) -> tuple[dict[str, Members], dict[str, Members], int]:
    """The month folded from the record of each run, and how many of its runs are due."""
    members: dict[str, Members] = {}
    held: dict[str, Members] = {}
    due = 0
    for state, delivery in ended_in(store, TARGET, month_bounds(month)):
        assert state not in NOT_DUE
        due += 1
        if state is State.HELD:
            continue
        run = delivery.run
        try:
            name = fold.add(demand.prepare(run)).text
        except CannotRenderError as error:
            some = held.setdefault(sentence(error.reason), Members.packed())
        else:
            some = members.setdefault(name, Members.packed())
        if state is State.WAITING:
            some.add(run.run_id, delivery.revision)
    return members, held, due


def sorted_members(members: dict[str, Members]) -> dict[str, list[tuple[int, int]]]:
    return {name: sorted(some) for name, some in members.items() if len(some)}


def assert_folds_alike(store: Store, site: tuple[Month, Config, list[Known]]) -> None:
    month, config, known = site
    fill(store, known)
    settings = config.targets["apel"]
    view, demand = view_of(settings, config), RunPreparer(config, settings)
    normalised = settings.records == "apel-normalised-summary"
    totals = FORMATS[settings.records].required_totals
    plain = Fold(view, normalised=normalised)
    members, held, due = folded_one_by_one(store, demand, month, plain)
    for how in (totals, msgspec.structs.replace(totals, from_columns=False)):
        quick = MonthFolder(store, TARGET, demand, how, view, page=PAGE).fold(month)
        assert list(quick.fold.groups()) == list(plain.groups())
        assert sorted_members(quick.members) == sorted_members(members)
        assert sorted_members({sentence(why): some for why, some in quick.held.items()}) == sorted_members(held)
    with store.read() as connection:
        by_class = sums.due_by_class(connection, TARGET, month_bounds(month), PAGE)
        of_runs = {row[0]: row[1] for row in connection.execute(select(runs.c.id, runs.c.class_id))}
    assert sum(by_class.values()) == due
    counted = Counter(of_runs[delivery.run.run_id] for _, delivery in ended_in(store, TARGET, month_bounds(month)))
    assert by_class == counted


@given(sites())
def test_any_month_folds_as_its_runs_do(on_sqlite: Store, site: tuple[Month, Config, list[Known]]) -> None:
    assert_folds_alike(on_sqlite, site)


@given(sites())
def test_any_month_folds_as_its_runs_do_on_a_server(
    on_postgresql: Store, site: tuple[Month, Config, list[Known]]
) -> None:
    assert_folds_alike(on_postgresql, site)


# --- memory


def _many(store: Store, number: int, first: int) -> None:
    """Delivered runs of one class, seconds apart."""
    job = Job(
        record_id="ur-0", system="torque", status="completed", user_dn="/DC=org/CN=Ada", vo="atlas", cluster="lrms1",
        end=first, wall_ms=1000, cpu_ms=900, benchmarks=(Benchmark("HEPSPEC", 10.0),),
    )  # fmt: skip
    fill(store, [Known(job, "ce1", None, State.ACCEPTED, 0)])
    with store.write() as connection:
        row = dict(connection.execute(select(runs)).mappings().one())
        copies = range(row["id"] + 1, row["id"] + number)
        copied = [
            row | {"id": at, "record_id": f"ur-{at}", "record_key": run_key(f"ur-{at}"), "end_time": first + at % 9999}
            for at in copies
        ]
        connection.execute(insert(runs), copied)
        connection.execute(update(runs).values(of_class(runs.c.class_id)))
        delivered = dict(connection.execute(select(ledger)).mappings().one())
        connection.execute(insert(ledger), [delivered | {"run_id": at, "end_time": first + at % 9999} for at in copies])


def test_memory_does_not_grow_with_the_runs(on_sqlite: Store) -> None:
    table = {
        "site": {"name": "EXAMPLE-SITE"},
        "sources": {"ce1": {"type": "torque", "path": "x"}},
        "targets": {"apel": {"type": "directory", "path": "out", "records": "apel-summary"}},
    }
    config = parse(table, Path("publisher.toml"))
    settings = config.targets["apel"]
    month = MONTHS[0]
    peaks = []
    for number in (200, 200, 8_000):  # the first fills caches
        _many(on_sqlite, number, month_bounds(month)[0])
        folder = MonthFolder(
            on_sqlite, TARGET, RunPreparer(config, settings), SUMMARIES, view_of(settings, config), page=100
        )
        tracemalloc.start()
        folded = folder.fold(month)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert [group.jobs for group in folded.fold.groups()] == [number]
    assert peaks[2] < peaks[1] + 50_000


def test_records_are_not_looked_at(on_sqlite: Store) -> None:
    _many(on_sqlite, 50, month_bounds(MONTHS[0])[0])
    with on_sqlite.write() as connection:
        connection.execute(update(runs).values(job=b"no record"))
    config = parse({"site": {"name": "S"}, "targets": {"a": {"type": "directory", "path": "o"}}}, Path("p.toml"))
    view = view_of(config.targets["a"], config)
    folded = MonthFolder(on_sqlite, TARGET, RunPreparer(config, None), SUMMARIES, view).fold(MONTHS[0])
    assert [group.jobs for group in folded.fold.groups()] == [50]
