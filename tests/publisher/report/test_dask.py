"""A cluster of real processes makes the report of an archive that one machine makes, to the last digit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from distributed import LocalCluster

from formats.calendar import Month
from publisher.api import Publisher
from publisher.config.reports import Charges, Node
from publisher.config.schema import Config
from publisher.errors import UsageError
from publisher.report.dask import Task, gather, program, work
from publisher.report.report import UNKNOWN_NAME
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from publisher.report.views.totals import UsageSums
from tests.extent import every
from tests.publisher.report.torque_site import table

NOVEMBER, DECEMBER = 1_793_491_200, 1_796_083_200
SINCE, UNTIL = 1_577_836_800, 1_798_761_600
"""2020 to 2026."""
pytestmark = pytest.mark.filterwarnings("ignore:Creating scratch directories is taking:UserWarning")  # a busy host
ON_ANY_PORT: Final[dict[str, Any]] = {
    "host": "127.0.0.1",
    "dashboard_address": "127.0.0.1:0",
    "worker_dashboard_address": "127.0.0.1:0",
}


@pytest.fixture(scope="module")
def archive(every_source: Publisher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "archive"
    assert len(every_source.archive(folder)) > 2
    return folder


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a cluster of two workers."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **ON_ANY_PORT) as cluster:
        yield cluster.scheduler_address


REPORTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("utilization", {"bins": 50}),
    ("utilization", {"bins": 7, "by": ("user",), "filters": {"queue": "*q*"}}),
    ("utilization", {"bins": 3, "filters": {"user": "nobody-of-this-name"}}),
    ("totals", {}),
    ("totals", {"by": ("host", "month"), "interval": "started"}),
    ("totals", {"by": ("project",), "filters": {"complex": "*=*"}}),
    ("occupation", {"by": ("cluster", "node"), "period": "year"}),
    ("occupation", {"resource": "memory", "period": "year"}),
    ("occupation", {"resource": "gpus", "period": "year", "filters": {"queue": "*q*"}}),
    ("charges", {"by": ("user",), "start": NOVEMBER, "stop": DECEMBER}),
    ("charges", {"by": ("vo",), "start": NOVEMBER, "stop": DECEMBER, "filters": {"queue": "*a*"}}),
)
ZONED: Final = {
    "timezone": "Europe/Stockholm",  # a month of it has runs of two months of the archive
    "prices": [
        {"resource": "cores", "price": "0.013", "hours": "08-18"},
        {"resource": "cores", "price": "0.007"},
        {"resource": "memory", "price": "0.0001"},
    ],
}


def with_tables(site: Publisher) -> Config:
    """The configuration of a site with a price list, and a table for the nodes that its runs were on."""
    request = ReportRequest(start=SINCE, stop=UNTIL, by=("cluster", "node"), period="year")
    found = make("occupation", ReportContext(site.store, site.config, UNTIL), request)
    names = sorted({name.rpartition("/")[2] for _, name in table(found, "cluster", "node") if name != UNKNOWN_NAME})
    nodes = tuple(Node(name=name, cores=64, memory_gib=256, gpus=4, type="big") for name in names)
    return site.config.model_copy(update={"nodes": nodes, "charges": Charges.model_validate(ZONED)})


def refused(_request: ReportRequest, _month: Month | None) -> UsageSums:
    """What no worker is asked for."""
    raise AssertionError


def test_the_same_reports(every_source: Publisher, archive: Path, scheduler: str) -> None:
    """All in one test: to start the cluster is what takes its time."""
    context = ReportContext(None, with_tables(every_source), UNTIL)
    for view, asked in every(2, REPORTS):
        request = ReportRequest(**{"start": SINCE, "stop": UNTIL, "archive": archive, **asked})
        alone = make(view, context, request)
        assert make(view, context, msgspec.structs.replace(request, dask=scheduler)) == alone
        assert alone.rows
        assert (alone.nothing is None) == ("user" not in asked.get("filters", {}))


def test_an_interval_after_all_runs(every_source: Publisher, archive: Path) -> None:
    """No month is read, and no cluster is used."""
    request = ReportRequest(start=UNTIL + 10**8, stop=UNTIL + 2 * 10**8, archive=archive, dask="tcp://127.0.0.1:1")
    made = make("totals", ReportContext(None, every_source.config, UNTIL), request)
    assert made.nothing == "no job is in the interval"
    assert made.facts["all"]["jobs"] == 0


def test_workers_that_see_no_archive(every_source: Publisher, archive: Path, scheduler: str, tmp_path: Path) -> None:
    """A path that only this process can follow, as where a file system is not mounted on the workers."""
    month = tmp_path / "not-there" / "month=2026-11"
    month.mkdir(parents=True)
    with (archive / "month=2026-11" / "runs.parquet").open("rb") as file:
        (month / "runs.parquet").symlink_to(f"/proc/self/fd/{os.dup2(file.fileno(), 999)}")
        request = ReportRequest(start=SINCE, stop=UNTIL, archive=month.parent, dask=scheduler)
        with pytest.raises(UsageError, match=r"a worker on \S+ cannot read .*not-there.*No such file.*same path"):
            make("totals", ReportContext(None, every_source.config, UNTIL), request)
        os.close(999)


@pytest.mark.parametrize(
    ("change", "reported"),
    [({"file_bytes": 5}, r"bytes for a worker on \S+, and 5 here"), ({"program": "0.0.9"}, "this machine has 0.0.9")],
)
def test_a_worker_that_has_something_else(archive: Path, change: dict[str, object], reported: str) -> None:
    request = ReportRequest(start=SINCE, stop=UNTIL, archive=archive, dask="tcp://127.0.0.1:1")
    file = archive / "month=2026-11" / "runs.parquet"
    task = Task(request, Month(2026, 11), file.stat().st_size, program())
    with pytest.raises(UsageError, match=reported):
        work(refused, msgspec.structs.replace(task, **change))


def test_no_cluster(every_source: Publisher, archive: Path) -> None:
    request = ReportRequest(start=SINCE, stop=UNTIL, archive=archive, dask="tcp://127.0.0.1:1")

    def asked(dask: str = "tcp://127.0.0.1:1") -> None:
        again = msgspec.structs.replace(request, dask=dask)
        gather(again, refused, connect_s=0.1)

    with pytest.raises(UsageError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1"):
        asked()
    with pytest.raises(UsageError, match="no Dask scheduler answers at somewhere:else"):
        asked(dask="somewhere:else")
    with pytest.raises(UsageError, match="a cluster computes only utilization, totals, occupation and charges"):
        make("waiting", ReportContext(None, every_source.config, UNTIL), request)
    with pytest.raises(UsageError, match="--dask needs an archive"):
        ReportRequest(start=SINCE, stop=UNTIL, dask="tcp://127.0.0.1:1")


def test_a_cluster_without_workers(every_source: Publisher, archive: Path) -> None:
    with LocalCluster(n_workers=0, **ON_ANY_PORT) as empty:
        request = ReportRequest(start=SINCE, stop=UNTIL, archive=archive, dask=empty.scheduler_address)
        with pytest.raises(UsageError, match="has no workers"):
            make("totals", ReportContext(None, every_source.config, UNTIL), request)
