"""The cluster of nodes that were idle: two busy nodes of ten are not a full cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.publisher.report.slurm_site import slurm_site, view
from tests.publisher.report.torque_site import table

TEN = '[[nodes]]\nname = "n[1-10]"\ncores = 4\n'
OTHERS = '[[nodes]]\nname = "m[1-4]"\ncores = 4\n'
BUSY = [{"nodes": f"n{number}", "cores": 4, "waited_h": 2} for number in (1, 2)]
ASKED = "The cluster of {} is unknown: {}. Set `cluster` in the tables [[nodes]] that name them."


def test_with_one_cluster_idle_nodes_are_its_own(tmp_path: Path) -> None:
    """Two of ten nodes were full: 20 %. Without the idle ones they would be 100 %, and scarce."""
    with slurm_site(tmp_path, BUSY, TEN + OTHERS) as site:
        found = view(site, "occupation", by=("cluster",))
        assert table(found, "cluster", "nodes", "occupation", "share_of_all") == [
            ("alpha", 14, pytest.approx(2 / 14), pytest.approx(2 / 14))
        ]
        assert found.notes == ()
        (scarce,) = [row for row in view(site, "scarce").rows if row[2] == "cores"]
        assert scarce == ("alpha", "compute", "cores", 14, pytest.approx(2 / 14), 2, 7200, 7200, "")


def test_other_nodes_of_the_table_show_the_cluster_of_idle_ones(tmp_path: Path) -> None:
    """Jobs of another user show it too where the report is of one user."""
    jobs = [*BUSY, {"cluster": "beta", "nodes": "m1", "cores": 4, "user": "bob"}]
    with slurm_site(tmp_path, jobs, TEN + OTHERS) as site:
        found = view(site, "occupation", by=("cluster",))
        assert table(found, "cluster", "nodes", "occupation") == [("alpha", 10, 0.2), ("beta", 4, 0.25)]
        of_bob = view(site, "occupation", by=("cluster",), filters={"user": "bob"})
        assert table(of_bob, "cluster", "nodes", "occupation") == [("alpha", 10, 0.0), ("beta", 4, 0.25)]
        assert {row[:2] + row[3:5] for row in view(site, "scarce").rows if row[2] == "cores"} == {
            ("alpha", "compute", 10, 0.2), ("beta", "compute", 4, 0.25),
        }  # fmt: skip


def test_where_nothing_shows_the_cluster_it_is_asked_for(tmp_path: Path) -> None:
    """A table with nodes of two clusters, and one of which all nodes were idle."""
    jobs = [*BUSY, {"cluster": "beta", "nodes": "n3", "cores": 2}]
    with slurm_site(tmp_path, jobs, TEN.replace("10", "4") + OTHERS) as site:
        for name, asked in (("occupation", {"by": ("cluster",)}), ("occupation", {"by": ("cluster", "core")}),
                            ("scarce", {})):  # fmt: skip
            found = view(site, name, **asked)
            assert ASKED.format("5 idle nodes", "n4, m1, m2, m3, m4") in found.notes
        found = view(site, "occupation", by=("cluster",))
        assert table(found, "cluster", "nodes", "occupation") == [("", 5, 0.0), ("alpha", 2, 1.0), ("beta", 1, 0.5)]
        assert not any("cluster" in note for note in view(site, "occupation", by=("node",)).notes)


def test_the_only_cluster_of_a_day_is_not_the_only_one(tmp_path: Path) -> None:
    """The idle nodes of the other cluster are not its own: it had 10 nodes, not 14."""
    jobs = [*BUSY, {"cluster": "beta", "nodes": "m1", "cores": 4, "day": 20}]
    with slurm_site(tmp_path, jobs, TEN + OTHERS) as site:
        for name, asked in (("occupation", {"by": ("cluster",)}), ("scarce", {})):
            assert ASKED.format("4 idle nodes", "m1, m2, m3, m4") in view(site, name, **asked).notes
        found = view(site, "occupation", by=("cluster",))
        assert table(found, "cluster", "nodes", "occupation") == [("", 4, 0.0), ("alpha", 10, 0.2)]


def test_a_table_with_its_cluster_is_not_asked_for(tmp_path: Path) -> None:
    jobs = [*BUSY, {"cluster": "beta", "nodes": "x1"}]
    named = OTHERS + 'cluster = "beta"\n'
    with slurm_site(tmp_path, jobs, TEN + named) as site:
        found = view(site, "occupation", by=("cluster",))
        assert table(found, "cluster", "nodes") == [("alpha", 10), ("beta", 5)]


def test_waits_are_those_of_the_class_in_which_a_node_is_shown(tmp_path: Path) -> None:
    """A node on which two clusters ran jobs is shown in the first by name, and so are the waits of all its jobs."""
    jobs = [{"cluster": "beta", "nodes": "n1", "waited_h": 3}, {"cluster": "alpha", "nodes": "n1", "waited_h": 1}]
    with slurm_site(tmp_path, jobs, '[[nodes]]\nname = "n1"\ncores = 4\n') as site:
        (row,) = [row for row in view(site, "scarce").rows if row[2] == "cores"]
        assert row[:2] + row[5:8] == ("alpha", "compute", 2, 3600, 10800)


def test_gpus_are_divided_evenly_among_nodes(tmp_path: Path) -> None:
    """Two GPUs on three nodes: two thirds of one on each, for a day. Of a node without a table a whole GPU is known."""
    jobs: list[dict[str, object]] = [{"nodes": "n[1-3]", "count": 3, "cores": 3, "gpus": 2}]
    with slurm_site(tmp_path, jobs, '[[nodes]]\nname = "n[1-2]"\ncores = 4\ngpus = 4\n') as site:
        found = view(site, "occupation", by=("node",), resource="gpus")
        assert table(found, "node", "available", "in_use", "used_h", "occupation") == [
            ("n1", 4.0, 2 / 3, 16.0, 1 / 6), ("n2", 4.0, 2 / 3, 16.0, 1 / 6), ("n3", 1.0, 2 / 3, 16.0, 2 / 3),
        ]  # fmt: skip
        whole = view(site, "occupation", resource="gpus")
        assert table(whole, "in_use", "used_h") == [(2.0, 48.0)]


def test_gpus_that_nodes_hold_evenly_are_charged_as_a_whole(tmp_path: Path) -> None:
    """Two GPUs for 24 h at two prices by type of node: 16 h of each of the two nodes of one type, 16 h of the other."""
    prices = (
        '[[nodes]]\nname = "n3"\ncores = 4\ngpus = 4\ntype = "fat"\n'
        '[[charges.prices]]\nresource = "gpus"\nprice = "2"\ntype = "fat"\n'
        '[[charges.prices]]\nresource = "gpus"\nprice = "1"\n'
    )
    jobs: list[dict[str, object]] = [{"nodes": "n[1-3]", "count": 3, "cores": 3, "gpus": 2}]
    with slurm_site(tmp_path, jobs, '[[nodes]]\nname = "n[1-2]"\ncores = 4\ngpus = 4\n' + prices) as site:
        month = {"start": 1_772_323_200, "stop": 1_775_001_600}
        found = view(site, "charges", **month)
        amounts = {(row[3], str(row[8])) for row in found.rows if row[1] != "total"}
        assert amounts == {(16.0, "32.00"), (32.0, "32.00")}
