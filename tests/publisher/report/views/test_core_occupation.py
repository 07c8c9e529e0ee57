"""Occupation by core, checked by hand (see `torque_site` for the four jobs), and against the occupation of nodes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.cores import compact
from formats.job import Host, Job
from publisher.api import Publisher
from publisher.config import file as config_file
from publisher.errors import UsageError
from publisher.report import placing
from publisher.report.columns import batch_of, slim_of
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import core_occupation, make
from tests.publisher.cli.program import BASE
from tests.publisher.report.older_archive import make_older
from tests.publisher.report.torque_site import NODES, at, table, torque_site, view

HOUR = 3600


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with torque_site(tmp_path_factory.mktemp("cores")) as collected:
        yield collected


def test_core_occupation_by_day(site: Publisher) -> None:
    """By hand, in hours of the 24 of a day.

    1 March: job 1 holds cores 0 and 1 of n1 from 18:00: 6 h each, 0.25. Nothing else runs.
    2 March: job 1 until 06:00 (cores 0, 1: 6 h), job 2 from 12:00 to 18:00 (cores 0 to 3: 6 h), job 3 from 18:00 (core
    0 of n1, cores 0 and 1 of n2: 6 h). Core 0 of n1: 18 h, 0.75; core 1: 12 h, 0.5; cores 2 and 3: 6 h, 0.25; both of
    n2: 6 h, 0.25. The mean of n1 is (0.75 + 0.5 + 0.25 + 0.25) / 4 = 0.4375, as in `test_occupation`.
    3 March, of which 18 hours have passed: job 3 until 06:00 (core 0 of n1, both of n2: 6 h), job 4 since 12:00 (core 0
    of n2: 6 h). Core 0 of n1: 6 of 18, 1/3; of n2 core 0: 12 of 18, 2/3, core 1: 1/3.
    """
    found = view(site, "occupation", by=("core",))
    assert table(found, "period", "core", "used_h", "inferred_h", "occupation") == [
        ("2026-03-01", "n1/0", 6.0, 0.0, 0.25),
        ("2026-03-01", "n1/1", 6.0, 0.0, 0.25),
        ("2026-03-01", "n1/2", 0.0, 0.0, 0.0),
        ("2026-03-01", "n1/3", 0.0, 0.0, 0.0),
        ("2026-03-01", "n2/0", 0.0, 0.0, 0.0),
        ("2026-03-01", "n2/1", 0.0, 0.0, 0.0),
        ("2026-03-02", "n1/0", 18.0, 0.0, 0.75),
        ("2026-03-02", "n1/1", 12.0, 0.0, 0.5),
        ("2026-03-02", "n1/2", 6.0, 0.0, 0.25),
        ("2026-03-02", "n1/3", 6.0, 0.0, 0.25),
        ("2026-03-02", "n2/0", 6.0, 0.0, 0.25),
        ("2026-03-02", "n2/1", 6.0, 0.0, 0.25),
        ("2026-03-03", "n1/0", 6.0, 0.0, pytest.approx(1 / 3)),
        ("2026-03-03", "n1/1", 0.0, 0.0, 0.0),
        ("2026-03-03", "n1/2", 0.0, 0.0, 0.0),
        ("2026-03-03", "n1/3", 0.0, 0.0, 0.0),
        ("2026-03-03", "n2/0", 12.0, 0.0, pytest.approx(2 / 3)),
        ("2026-03-03", "n2/1", 6.0, 0.0, pytest.approx(1 / 3)),
    ]
    assert found.notes == ()
    (plot,) = found.plots
    assert plot.style == "heat"
    assert [row.label for row in plot.series] == ["n1/0", "n1/1", "n1/2", "n1/3", "n2/0", "n2/1"]


@pytest.mark.parametrize(
    ("period", "names", "used_h"),
    [("week", ["2026-W09", "2026-W10"], [6.0, 24.0]), ("month", ["2026-03"], [30.0]), ("year", ["2026"], [30.0])],
)
def test_other_periods_have_the_same_hours(site: Publisher, period: str, names: list[str], used_h: list[float]) -> None:
    """Core 0 of n1: 6 h on Sunday 1 March, the last day of a week; 18 and 6 h on the next two days."""
    found = view(site, "occupation", by=("node", "core"), period=period)
    of_core = [row[2:] for row in found.rows if row[2:4] == ("n1", "0")]
    assert [row[0] for row in found.rows if row[2:4] == ("n1", "0")] == names
    assert [row[4] for row in of_core] == used_h


def test_one_node_alone(site: Publisher) -> None:
    """Job 3, which also ran on n1, counts on n2 alone."""
    found = view(site, "occupation", by=("core",), period="month", filters={"host": "n2"})
    assert table(found, "core", "used_h") == [("n2/0", 18.0), ("n2/1", 12.0)]


def test_other_keys_beside(site: Publisher) -> None:
    found = view(site, "occupation", by=("type", "core"), period="month")
    assert table(found, "type", "core")[3:5] == [("compute", "n1/3"), ("small", "n2/0")]
    assert found.plots[0].series[0].label == "compute n1/0"


def test_a_job_shows_its_cores(site: Publisher) -> None:
    """Users see which cores of which nodes each of their jobs had."""
    found = view(site, "job", filters={"job": "3"})
    assert ("core_numbers", "0, 0-1") in table(found, "field", "value")


class _Given(ReportContext):
    """Jobs in the columns of a store."""

    def __init__(self, jobs: Sequence[Job], nodes: str) -> None:
        super().__init__(None, config_file.parse(tomllib.loads(BASE + nodes), Path("/x/publisher.toml")), at(9))
        self._jobs = jobs

    @contextmanager
    def tables(self, *_asked: Any, **_columns: Any) -> Iterator[duckdb.DuckDBPyConnection]:
        batch = batch_of([slim_of(job) for job in self._jobs], [(0, 0)] * len(self._jobs))
        with duckdb.connect(":memory:") as connection:
            connection.register("columns", pa.Table.from_batches([batch]))
            connection.execute("CREATE VIEW entries AS SELECT * FROM columns")
            yield connection


def occupation(jobs: Sequence[Job], *by: str, nodes: str = NODES, stop: int = at(2)) -> Report:
    """The occupation by jobs, by default on 1 March."""
    return make("occupation", _Given(jobs, nodes), ReportRequest(start=at(1), stop=stop, period="day", by=by))


def ran(start: int, stop: int, hosts: tuple[Host, ...], core_numbers: tuple[str, ...] = ()) -> Job:
    """A job of some hours of March."""
    slots = sum(host.slots or 0 for host in hosts)
    begin, end = at(1) + start * HOUR, at(1) + stop * HOUR
    return Job(f"r{start}", "torque", "completed", hosts=hosts, slots=slots, start=begin, end=end,
               core_numbers=core_numbers)  # fmt: skip


@pytest.mark.parametrize("resource", ["cores", "memory", "vmem", "gpus"])
def test_impossible_amounts_are_counted_as_large_as_can_be(resource: str) -> None:
    """As of a source that says what no machine has: the report is made, and the other nodes are as they were."""
    hosts = (Host("n1", -3, gpus=1 << 62), Host("n2", 300, gpus=1))
    huge = {"memory_rss_kib": 1 << 62, "memory_virtual_kib": 1 << 62, "gpus": 1 << 62}
    jobs = [
        msgspec.structs.replace(ran(0, 12, hosts), **huge),
        msgspec.structs.replace(ran(0, 12, (Host("n3", 1 << 62),)), slots=1 << 62, **huge),
        msgspec.structs.replace(ran(0, 12, (Host("n3", 1 << 62),)), slots=1 << 62, **huge),
        msgspec.structs.replace(ran(0, 12, ()), **huge),
    ]
    request = ReportRequest(start=at(1), stop=at(2), period="day", by=("node",), resource=resource)  # type: ignore[arg-type]
    assert make("occupation", _Given(jobs, NODES), request).rows


def test_what_names_no_cores_is_spread_evenly_and_said_so() -> None:
    """A job holds two of the four cores of n1 for 12 hours, and it is not known which: 6 h of each core."""
    found = occupation([ran(0, 12, (Host("n1", 2),))], "core")
    assert table(found, "core", "used_h", "inferred_h", "occupation") == [
        *((f"n1/{core}", 6.0, 6.0, 0.25) for core in range(4)),
        *((f"n2/{core}", 0.0, 0.0, 0.0) for core in range(2)),
    ]
    assert any("their use is inferred" in note for note in found.notes)


def test_named_and_unnamed_ones_together() -> None:
    """Also a job that names core 3 of n1 for 6 hours; for its second host only a number of slots is known."""
    two = ran(6, 12, (Host("n1", 1), Host("n2", 2)), ("3", ""))
    found = occupation([ran(0, 12, (Host("n1", 2),)), two], "core")
    assert table(found, "core", "used_h", "inferred_h") == [
        ("n1/0", 6.0, 6.0), ("n1/1", 6.0, 6.0), ("n1/2", 6.0, 6.0), ("n1/3", 12.0, 6.0),
        ("n2/0", 6.0, 6.0), ("n2/1", 6.0, 6.0),
    ]  # fmt: skip
    assert any(note.startswith("For 2 jobs the source has the number of cores") for note in found.notes)


def test_the_same_core_twice_is_more_than_all_of_it_and_said_so() -> None:
    """Two jobs on core 1 of n2, one all day and one for six hours: 30 of 24 hours."""
    jobs = [ran(0, 24, (Host("n2", 1),), ("1",)), ran(0, 6, (Host("n2", 1),), ("1",))]
    found = occupation(jobs, "core")
    assert table(found, "core", "occupation")[4:] == [("n2/0", 0.0), ("n2/1", 1.25)]
    assert "More than 100 %: several jobs held n2/1 at once; each of them counts." in found.notes
    assert table(occupation(jobs, "node"), "node", "occupation")[1] == ("n2", 0.625)


def test_cores_beyond_those_of_the_table_are_shown_and_said_so() -> None:
    found = occupation([ran(0, 24, (Host("n2", 2),), ("0,7",))], "core")
    assert table(found, "core", "occupation")[4:] == [("n2/0", 1.0), ("n2/1", 0.0), ("n2/7", 1.0)]
    assert any("[[nodes]] does not have: n2/7" in note for note in found.notes)


def test_a_node_without_a_table_has_the_cores_that_were_named() -> None:
    """Only one core was held at a time, but one of them was number 3, so there are four; the node is their mean."""
    jobs = [ran(0, 12, (Host("n9", 1),), ("3",)), ran(12, 24, (Host("n9", 1),), ("0",))]
    assert table(occupation(jobs, "core", nodes=""), "core", "occupation") == [
        ("n9/0", 0.5), ("n9/1", 0.0), ("n9/2", 0.0), ("n9/3", 0.5),
    ]  # fmt: skip
    assert table(occupation(jobs, "node", nodes=""), "node", "available", "occupation") == [("n9", 4.0, 0.25)]


def test_runs_without_hosts_are_not_lost() -> None:
    found = occupation([ran(0, 24, ())], "core", nodes="")
    assert table(found, "core", "used_h", "inferred_h", "occupation") == [("(unknown)", 24.0, 24.0, None)]


def test_a_run_that_ends_before_it_starts_holds_nothing_and_is_said() -> None:
    jobs = [ran(6, 3, (Host("n2", 1),), ("0",)), ran(0, 12, (Host("n2", 1),), ("1",))]
    for by in ("core", "node"):
        found = occupation(jobs, by)
        assert table(found, "used_h")[-1] == (12.0,)
        assert "Jobs that end before they start count with no duration: 1." in found.notes


def test_numbers_that_are_not_as_many_as_the_slots_name_no_cores() -> None:
    found = occupation([ran(0, 24, (Host("n2", 2),), ("0-7",))], "core")
    assert table(found, "core", "inferred_h")[4:] == [("n2/0", 24.0), ("n2/1", 24.0)]


@st.composite
def _jobs(draw: st.DrawFn) -> Job:
    hosts, named = [], []
    for name, cores in draw(st.lists(st.sampled_from((("n1", 4), ("n2", 2))), min_size=1, unique=True)):
        held = draw(st.lists(st.integers(0, cores - 1), min_size=1, max_size=cores + 1))
        hosts.append(Host(name, len(held)))
        named.append(compact(held) if draw(st.booleans()) else "")
    start = draw(st.integers(-30, 60))
    numbers = tuple(named) if draw(st.integers(0, 3)) else ()
    return ran(start, start + draw(st.integers(0, 40)), tuple(hosts), numbers)


@given(st.lists(_jobs(), max_size=8), st.sampled_from((NODES, "")))
def test_the_mean_of_its_cores_is_the_occupation_of_a_node(jobs: list[Job], nodes: str) -> None:
    jobs = [ran(0, 1, (Host("n1", 1),), ("0",)), *jobs]
    of_nodes = {
        row[:2]: row[2:]
        for row in table(
            occupation(jobs, "node", nodes=nodes, stop=at(3)), "period", "node", "occupation", "used_h", "available"
        )
    }
    by_core: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    found = occupation(jobs, "node", "core", nodes=nodes, stop=at(3))
    for period, node, share, used_h in table(found, "period", "node", "occupation", "used_h"):
        assert isinstance(share, float)
        assert isinstance(used_h, float)
        by_core.setdefault((period, node), []).append((share, used_h))
    assert by_core.keys() == of_nodes.keys()
    for key, cores in by_core.items():
        occupied, used_h, available = of_nodes[key]
        assert sum(share for share, _ in cores) / len(cores) == pytest.approx(occupied)
        assert sum(hours for _, hours in cores) == pytest.approx(used_h)
        assert len(cores) == available


def test_runs_of_many_cores_are_taken_by_portions() -> None:
    hosts = tuple(Host(f"m{number:03}", 1000) for number in range(60))
    jobs = [ran(place, place + 1, hosts, ("0-999",) * len(hosts)) for place in range(10)]
    assert len(jobs) * len(hosts) * 1000 > placing._AT_ONCE
    nodes = "\n".join(f'[[nodes]]\nname = "{host.name}"\ncores = 1000' for host in hosts)
    assert table(occupation(jobs, "core", nodes=nodes), "used_h") == [(10.0,)] * 60_000


def test_too_many_cells_are_refused() -> None:
    nodes = "\n".join(f'[[nodes]]\nname = "m{number}"\ncores = 1000' for number in range(126))
    assert core_occupation.MOST_CELLS < 2 * 126_000
    with pytest.raises(UsageError, match="in 2 periods are more than a report by core can have"):
        occupation([ran(0, 48, (Host("m0", 4),), ("0-3",))], "core", nodes=nodes, stop=at(3))


def test_other_resources_have_no_cores(site: Publisher) -> None:
    with pytest.raises(UsageError, match="memory cannot be grouped by core"):
        view(site, "occupation", by=("core",), resource="memory")


def test_an_archive_has_cores_too(site: Publisher, tmp_path: Path) -> None:
    """An archive of an older program has no column for them: then they are inferred."""
    site.archive(tmp_path)
    stored = view(site, "occupation", by=("core",), filters={"status": "completed"})
    archived = view(site, "occupation", by=("core",), archive=tmp_path, filters={"status": "completed"})
    assert archived.rows == stored.rows
    make_older(tmp_path, "core_numbers")
    inferred = view(site, "occupation", by=("core",), archive=tmp_path, filters={"status": "completed"})
    assert sum(row[5] for row in inferred.rows) == sum(row[5] for row in stored.rows)  # type: ignore[misc]
    assert any("their use is inferred" in note for note in inferred.notes)


def test_a_node_with_impossibly_many_cores_is_refused_before_they_are_numbered() -> None:
    """A source that says 2**40 slots must not fill the memory."""
    with pytest.raises(UsageError, match="more than a report by core can have"):
        occupation([ran(0, 1, (Host("m1", 1 << 40),), ())], "core")


def test_a_cluster_does_not_compute_cores(site: Publisher, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a cluster does not compute the occupation of cores"):
        view(site, "occupation", by=("core",), archive=tmp_path, dask="tcp://127.0.0.1:1")
