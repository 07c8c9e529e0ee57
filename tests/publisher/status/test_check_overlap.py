"""check: sources that have the same jobs, by their settings and by what they gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from publisher.config.file import parse
from publisher.config.schema import Config
from publisher.status.check_overlap import forwarded_twice, jobs_of_two_sources, overlapping_sources
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_job, make_jobs

AUDITOR = "http://127.0.0.1:8000"
SLURM = {"type": "slurm", "path": "/usr/bin/sacct"}
TARGET = {"type": "sgas", "url": "https://sgas.example.org:6143/sgas"}


def configured(tables: dict[str, Any], **target: Any) -> Config:
    return parse({"site": {"name": "A"}, "sources": tables, "targets": {"t": TARGET | target}}, Path("/x.toml"))


def auditor(url: str = AUDITOR, cluster: str | None = None, site: str | None = None, **more: Any) -> dict[str, Any]:
    own = {key: value for key, value in (("cluster", cluster), ("site", site)) if value is not None}
    return {"type": "auditor", "auditor": {"url": url, **more}, **own}


def levels(config: Config) -> list[tuple[str, str]]:
    return [(each.subject, each.level) for each in overlapping_sources(config)]


SETTINGS: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "other prefixes": ({"a": auditor(record_prefix="k8s"), "b": auditor(record_prefix="slurm")}, []),
    "other sites in meta": ({"a": auditor(where={"site_id": "A"}), "b": auditor(where={"site_id": "B"})}, []),
    "all and some": ({"a": auditor(), "b": auditor(where={"site_id": "B"})}, [("source b", "yellow")]),
    "under two clusters": ({"a": auditor(cluster="x"), "b": auditor(cluster="y")}, [("source b", "red")]),
    "table and REST": ({"a": auditor(), "b": auditor("postgresql:///auditor")}, [("source b", "red")]),
    "two AUDITORs": ({"a": auditor(), "b": auditor("http://127.0.0.1:8001")}, []),
    "Slurm twice": ({"a": SLURM, "b": auditor(collector="slurm")}, [("source b", "red")]),
    "Slurm of two clusters": ({"a": SLURM | {"cluster": "x"}, "b": auditor(collector="slurm", cluster="y")}, []),
    "Slurm and pods": ({"a": SLURM, "b": auditor(collector="kubernetes")}, []),
    "drones and jobs": ({"a": SLURM, "b": auditor(collector="tardis")}, [("source b", "red")]),
    "drones of another site": ({"a": SLURM, "b": auditor(collector="tardis", site="B")}, []),
    "drones of two AUDITORs": (
        {"a": auditor(collector="tardis"), "b": auditor("http://[::1]:80", collector="tardis")},
        [],
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name: str) -> None:
    sources, expected = SETTINGS[name]
    assert levels(configured(sources)) == expected
    assert levels(configured(sources, sources=["a"])) == []


def test_what_a_service_may_send_on(tmp_path: Path) -> None:
    apel = {"type": "directory", "path": str(tmp_path), "records": "apel-summary"}
    sources = {"a": SLURM, "b": SLURM | {"path": "/opt/b/sacct"}}

    def found(**tables: dict[str, Any]) -> list[tuple[str, str]]:
        given = {"site": {"name": "A"}, "sources": sources, "targets": tables}
        return [(each.subject, each.level) for each in forwarded_twice(parse(given, Path("/x.toml")))]

    to_auditor = {"type": "auditor", "url": AUDITOR}
    assert found(t=to_auditor, other=apel) == [("target t", "yellow")]
    assert found(t=to_auditor | {"sources": ["a"]}, other=apel | {"sources": ["b"]}) == []
    assert found(t=to_auditor, other=apel | {"records": "ogf-ur"}) == []
    assert found(other=apel) == []


def both(tmp_path: Path, types: tuple[str, str] = ("arc", "slurm"), **target: Any) -> Site:
    site = Site(tmp_path, [ListSource("one"), ListSource("other")], [RecordReceiver("t")])
    for name, kind in zip(("one", "other"), types, strict=True):
        site.table["sources"][name]["type"] = kind
    if target:
        site.table["targets"]["t"].update(target)
    return site


def found(site: Site) -> list[tuple[str, str]]:
    site.collect()
    return [(each.level, each.message) for each in jobs_of_two_sources(site.config, site.publisher.store)]


def batch(number: int, **facts: Any) -> Any:
    """The same job in the batch system: it began later and ended earlier than at the computing element.

    It has another account there, so it is not recognised, and counts twice.
    """
    usual = {
        "record_id": f"ur-slurm/c/{number}", "system": "slurm", "endpoint_url": None, "cluster": "c",
        "local_user": "pool7",
    }  # fmt: skip
    job = make_job(number)
    assert job.end is not None
    return make_job(number, wall_s=50, **{**usual, "end": job.end - 20, **facts})


def test_a_job_of_a_computing_element_and_of_its_batch_system(tmp_path: Path) -> None:
    site = both(tmp_path)
    site.sources["one"].add(*make_jobs(20, local_user="ada"))
    site.sources["other"].add(*[batch(number) for number in range(1, 21)], batch(900))
    ((level, message),) = found(site)
    assert level == "red"
    assert message.startswith("20 of the last 20 jobs of source one are also jobs of source other, and both are sent")
    site.configure("t", sources=["one"])
    assert list(jobs_of_two_sources(site.config, site.publisher.store)) == []


def test_jobs_that_count_once(tmp_path: Path) -> None:
    site = both(tmp_path)
    site.sources["one"].add(*make_jobs(20, local_user="pool7"))
    site.sources["other"].add(*[batch(number) for number in range(1, 21)])
    assert found(site) == []


def test_local_jobs_that_are_skipped_count_once(tmp_path: Path) -> None:
    site = both(tmp_path, local_jobs="skip")
    site.sources["one"].add(*make_jobs(5))
    site.sources["other"].add(*[batch(number, user_dn=None, vo=None) for number in range(1, 6)])
    assert found(site) == []


def test_ids_that_are_equal_by_chance(tmp_path: Path) -> None:
    site = both(tmp_path)
    site.sources["one"].add(*make_jobs(100, local_user="ada"))
    site.sources["other"].add(*[batch(number, end=batch(number).end + 90_000) for number in range(1, 101)], batch(500))
    assert found(site) == []
    site.sources["other"].add(batch(7, record_id="again"))
    assert [level for level, _ in found(site)] == ["yellow"]


def test_auditor_beside_its_batch_system(tmp_path: Path) -> None:
    site = both(tmp_path, ("slurm", "slurm"))
    site.sources["one"].add(*[batch(number, end=1_793_500_000 + number) for number in range(10)])
    copy = [
        batch(
            number,
            end=1_793_500_000 + number,
            record_id=f"ur-auditor//{number}",
            system="auditor",
            cluster=None,
            local_user="ada",
        )
        for number in range(10)
    ]
    site.sources["other"].add(*copy)
    assert [level for level, _ in found(site)] == ["red"]


def test_two_clusters_that_count_alike(tmp_path: Path) -> None:
    site = both(tmp_path, ("slurm", "slurm"))
    site.sources["one"].add(*[batch(number) for number in range(10)])
    site.sources["other"].add(*[batch(number, cluster="d", record_id=f"ur-slurm/d/{number}") for number in range(10)])
    assert found(site) == []


def test_a_routed_job(tmp_path: Path) -> None:
    site = both(tmp_path, ("htcondor", "htcondor"))
    element = {"system": "htcondor", "endpoint_url": None, "local_user": "ada"}
    site.sources["one"].add(*make_jobs(5, **element, extras={"RoutedToJobId": "77.0"}))
    site.sources["other"].add(batch(9, local_id="77.0", end=1_793_491_200 + 3600))
    assert [level for level, _ in found(site)] == ["red"]
