"""A run without a number of cores, of a source whose records say nothing that could stand for one, is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_job


def site(tmp_path: Path, **settings: Any) -> Site:
    found = Site(tmp_path, [ListSource("k8s")], [RecordReceiver("neic")])
    found.table["sources"]["k8s"] = settings
    return found


def test_it_is_held_until_it_is_read_with_cores(tmp_path: Path) -> None:
    pods = site(tmp_path, type="auditor", auditor={"url": "http://127.0.0.1:8000"})
    pods.sources["k8s"].add(make_job(1, cores=None), make_job(2))
    pods.collect()
    pods.publish()
    assert set(pods.receivers["neic"].held) == {make_job(2).record_id}
    assert pods.in_state("neic", State.HELD) == {make_job(1).record_id}
    assert "Name the component" in (pods.reasons("neic")[make_job(1).record_id] or "")
    pods.sources["k8s"].add(make_job(1))
    pods.collect()
    pods.publish()
    assert len(pods.receivers["neic"].held) == 2


def test_other_sources_may_lack_it(tmp_path: Path) -> None:
    grid = site(tmp_path, type="arc", path="x")
    grid.sources["k8s"].add(make_job(1, cores=None))
    grid.collect()
    grid.publish()
    assert len(grid.receivers["neic"].held) == 1
