"""Occupation of nodes, checked by hand: see `torque_site` for the four jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.api import Publisher
from publisher.errors import UsageError
from publisher.report.calendar import periods, zone_of
from publisher.report.matching import computed
from publisher.report.placing import REQUIRED
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading
from publisher.report.views import make
from publisher.report.views.nodes import NodeUse
from tests.publisher.report.torque_site import NOW, at, table, torque_site, view


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with torque_site(tmp_path_factory.mktemp("occupation")) as collected:
        yield collected


def test_node_occupation_by_day(site: Publisher) -> None:
    """By hand, in core hours.

    1 March: n1 has job 1 from 18:00, 2 cores for 6 h: 12 of 4 x 24 = 96, 0.125. n2 is idle.
    2 March: n1 has job 1 until 06:00 (2 x 6 = 12), job 2 (4 x 6 = 24) and job 3 from 18:00 (1 x 6 = 6): 42 of 96,
    0.4375. n2 has job 3 (2 x 6 = 12) of 2 x 24 = 48: 0.25.
    3 March, of which 18 hours have passed: n1 has job 3 until 06:00 (6) of 4 x 18 = 72, 1/12. n2 has job 3 (12) and
    job 4, which still runs, for 6 h (6): 18 of 2 x 18 = 36, 0.5.
    """
    found = view(site, "occupation", by=("node",))
    assert table(found, "period", "node", "nodes", "used_h", "occupation") == [
        ("2026-03-01", "n1", 1, 12.0, 0.125),
        ("2026-03-01", "n2", 1, 0.0, 0.0),
        ("2026-03-02", "n1", 1, 42.0, 0.4375),
        ("2026-03-02", "n2", 1, 12.0, 0.25),
        ("2026-03-03", "n1", 1, 6.0, pytest.approx(1 / 12)),
        ("2026-03-03", "n2", 1, 18.0, 0.5),
    ]
    assert found.notes == ()
    assert found.plots[0].style == "heat"


def test_the_cluster_is_the_mean_of_its_nodes_and_beside_it_is_the_share_of_all(site: Publisher) -> None:
    """2 March: (0.4375 + 0.25) / 2 = 0.34375 as the mean; (42 + 12) of (96 + 48) core hours = 0.375 of all."""
    found = table(view(site, "occupation"), "period", "nodes", "available", "occupation", "share_of_all")
    assert found[1] == ("2026-03-02", 2, 6.0, 0.34375, 0.375)


@pytest.mark.parametrize(
    ("period", "names", "used_h"),
    [
        ("week", ["2026-W09", "2026-W10"], [12.0, 78.0]),
        ("month", ["2026-03"], [90.0]),
        ("quarter", ["2026-Q1"], [90.0]),
        ("year", ["2026"], [90.0]),
        ("all", ["all"], [90.0]),
    ],
)
def test_other_periods_have_the_same_hours(site: Publisher, period: str, names: list[str], used_h: list[float]) -> None:
    found = view(site, "occupation", period=period)
    assert table(found, "period", "used_h") == list(zip(names, used_h, strict=True))


def test_by_type_and_filters(site: Publisher) -> None:
    found = table(view(site, "occupation", by=("type",), period="month"), "type", "nodes", "used_h")
    assert found == [("compute", 1, 60.0), ("small", 1, 30.0)]
    alone = table(view(site, "occupation", period="month", filters={"user": "b*"}), "used_h")
    assert alone == [(12.0 * 3 + 6.0,)]


def test_a_host_alone(site: Publisher) -> None:
    """Jobs on n2, of which job 3 used a core of n1 too: this is not enough for n1, which is omitted."""
    asked = {"period": "month", "filters": {"host": "n2"}}
    found = table(view(site, "occupation", by=("node",), **asked), "node", "used_h")
    assert found == [("n2", 30.0)]
    assert table(view(site, "occupation", **asked), "nodes", "used_h", "occupation") == [(1, 30.0, 30 / (2 * 66))]


@pytest.mark.parametrize("by", [("node",), ("core",), ()])
def test_where_nothing_matches_no_table_of_zeros_is_shown(site: Publisher, by: tuple[str, ...]) -> None:
    """But a node of the table that was idle while others had runs has one."""
    other = view(site, "occupation", by=by, filters={"user": "nobody"})
    assert other.rows == ()
    assert other.nothing == "none of the 4 jobs in the interval matches; existing values: user ada, bob"
    before = view(site, "occupation", by=by, start=at(1) - 9 * 86_400, stop=at(1) - 86_400)
    assert before.rows == ()
    assert str(before.nothing).startswith("no job is in the interval; jobs ended from 2026-03-02T06:00:00Z")
    idle = view(site, "occupation", by=by, stop=at(2), filters={"host": "n2"})
    assert idle.nothing is None
    assert {row[-1] for row in idle.rows} == {0.0}
    assert view(site, "scarce", filters={"user": "nobody"}).rows == ()


def test_memory_is_estimated_and_said_so(site: Publisher) -> None:
    """2 March: job 2 held 4 of n1's 16 GiB for 6 of 24 h: 0.0625, beside a few KiB of job 1 and 3."""
    found = view(site, "occupation", by=("node",), resource="memory")
    ((share,),) = [row for row in table(found, "occupation") if row[0] and row[0] > 0.01]  # type: ignore[operator]
    assert share == pytest.approx(0.0625, rel=1e-3)
    assert any("an estimate" in note for note in found.notes)
    assert any("no table [[nodes]] has their memory" in note for note in found.notes)  # n2 has none in its table


def test_without_an_inventory_cores_are_inferred_and_said_so(tmp_path: Path) -> None:
    """n1 had four cores taken at once, n2 two: the same occupation as with the inventory."""
    with torque_site(tmp_path, nodes="") as inferred:
        found = view(inferred, "occupation", by=("node",))
        assert table(found, "period", "node", "occupation")[2:4] == [
            ("2026-03-02", "n1", 0.4375),
            ("2026-03-02", "n2", 0.25),
        ]
        assert any(note.startswith("2 nodes without a table [[nodes]]: the number of cores") for note in found.notes)


def test_a_running_job_that_is_forgotten_is_noted(site: Publisher) -> None:
    """Job 4 runs since 2 March; no batch system has it in July."""
    start = ReportRequest(start=at(1), stop=at(4), period="month")
    fresh, old = (
        make("occupation", ReportContext(site.store, site.config, now), start) for now in (NOW, NOW + 120 * 86_400)
    )
    assert not any("has been running" in note for note in fresh.notes)
    assert any(note.startswith("1 job has been running for more than 90 days.") for note in old.notes)


def test_nodes_in_service_for_a_part_of_a_period(tmp_path: Path) -> None:
    """n1 goes out of service on 2 March at 18:00: 12 + 24 core hours of 4 x 18; job 3 there does not count."""
    nodes = '[[nodes]]\nname = "n[1-2]"\ncores = 4\nuntil = "2026-03-02T18:00:00"\n'
    with torque_site(tmp_path, nodes=nodes) as site:
        found = table(view(site, "occupation", by=("node",)), "period", "node", "used_h", "occupation")
        assert found == [
            ("2026-03-01", "n1", 12.0, 0.125),
            ("2026-03-01", "n2", 0.0, 0.0),
            ("2026-03-02", "n1", 36.0, 0.5),
            ("2026-03-02", "n2", 0.0, 0.0),
        ]


def test_more_held_than_there_is_is_said(tmp_path: Path) -> None:
    with torque_site(tmp_path, nodes='[[nodes]]\nname = "n1"\ncores = 1\n') as site:
        found = view(site, "occupation", start=at(2, 12), stop=at(2, 18))
        assert "Jobs held more cores than [[nodes]] has on n1." in found.notes


def test_the_future_does_not_count(site: Publisher) -> None:
    found = view(site, "occupation", stop=at(10), by=("node",))
    assert table(found, "period")[-1] == ("2026-03-03",)


@pytest.mark.parametrize(("asked", "said"), [({"by": ("user",)}, "choose one of: cluster, type, node"),
                                             ({"timezone": "Mars/Base"}, "unknown time zone")])  # fmt: skip
def test_what_makes_no_sense(site: Publisher, asked: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        view(site, "occupation", **asked)


def test_nodes_of_two_clusters_with_one_name_are_two_nodes(tmp_path: Path) -> None:
    """n1 of the cluster `other` is idle; by name alone they would be one node that is half as much in use."""
    twins = '[[nodes]]\nname = "n1"\ncores = 4\ncluster = "{}"\n'
    with torque_site(tmp_path, nodes=twins.format("srv") + twins.format("other")) as site:
        found = table(view(site, "occupation", by=("node",), stop=at(2)), "node", "nodes", "used_h")
        assert ("other/n1", 1, 0.0) in found
        assert ("srv/n1", 1, 12.0) in found
        both = table(view(site, "occupation", by=("cluster", "node"), stop=at(2)), "cluster", "node")
        assert {("other", "n1"), ("srv", "n1")} <= set(both)


def test_what_must_be_inferred_is_no_sum_of_months(tmp_path: Path) -> None:
    """The number of cores in use at the same time cannot be computed from those of two parts of the runs on the same
    node."""
    with torque_site(tmp_path, nodes="") as site:
        context = ReportContext(site.store, site.config, NOW)
        request = ReportRequest(start=at(1), stop=at(4))
        cut = periods(request.start, request.stop, "month", zone_of("UTC"))

        def part() -> NodeUse:
            reading = EntryReading(REQUIRED["cores"] | {"end"})
            return computed(context, request, reading, "overlapping", NodeUse((), "cores", cut, NOW).read).made

        nothing = NodeUse((), "cores", cut, NOW)
        nothing.add(part())
        assert [nothing.of(*each) for each in enumerate(nothing.inventory.nodes)] == [
            part().of(*each) for each in enumerate(part().inventory.nodes)
        ]
        with pytest.raises(UsageError, match=r"no table \[\[nodes\]\] has the cores of n\d.*omit --dask"):
            nothing.add(part())
