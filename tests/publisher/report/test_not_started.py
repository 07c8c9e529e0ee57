"""A job of ARC holds cores from LRMSSTART on: while it is only accepted, and while it waited, it holds none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from publisher.api import Publisher
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_option import Interval
from publisher.report.views import make
from tests.generators.arc_database import ArcWriter
from tests.generators.arc_jobs import ArcJob, instant
from tests.publisher.cli.program import BASE
from tests.publisher.report.torque_site import HOUR, NOW, at, table

CORES = 8
SOURCE = '[sources.ce1]\ntype = "arc"\npath = "accounting.db"\n'
EVENTS = {
    "accepted": {"ACCEPTED": at(1)},
    "queued": {"ACCEPTED": at(1), "PREPARING": at(1), "SUBMIT": at(1), "INLRMS": at(1)},
    "running": {"ACCEPTED": at(1), "LRMSSTART": at(3, 12)},
    "staging out": {"ACCEPTED": at(1), "LRMSSTART": at(3, 6), "LRMSEND": at(3, 8), "FINISHING": at(3, 8)},
}
"""Of jobs in progress, all submitted at the beginning of 1 March. It is 18 o'clock of 3 March."""
ENDED = {
    "ran": ({"LRMSSTART": at(2), "LRMSEND": at(2, 4)}, 4 * HOUR),
    "ran, without events": ({}, 3 * HOUR),
    "never ran": ({"ACCEPTED": at(1)}, 0),
}
"""Of jobs that ended at 4 o'clock of 2 March: their events, and their wall time."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    folder = tmp_path_factory.mktemp("not-started")
    with ArcWriter(folder / "accounting.db", new=True) as writer:
        for name, events in EVENTS.items():
            writer.add(job(name, events, status="in-progress"))
        for name, (events, wall_s) in ENDED.items():
            writer.add(job(name, events, end=at(2, 4), wall=wall_s, cpu_user=wall_s))
    config = folder / "publisher.toml"
    config.write_text(BASE + SOURCE)
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        yield publisher


def job(name: str, events: dict[str, int], **facts: object) -> ArcJob:
    extra: list[tuple[str, str | bytes]] = [("jobname", name), ("nodename", "n1")]
    written = [(kind, instant(when)) for kind, when in events.items()]
    job_id = name.replace(" ", "").replace(",", "")
    return ArcJob(job_id, at(1), local_id=job_id, cores=CORES, events=written, extra=extra, **facts)  # type: ignore[arg-type]


def view(site: Publisher, name: str, **more: object) -> Report:
    asked: dict[str, object] = {"start": at(1), "stop": at(4), "period": "day", **more}
    context = ReportContext(site.store, site.config, NOW)
    return make(name, context, ReportRequest(**asked))  # type: ignore[arg-type]


USED_H = [(0.0,), (CORES * (4 + 3.0),), (CORES * (6 + 2.0),)]
"""By hand: on 2 March 4 and 3 hours, on 3 March 6 hours that still run and 2 before stage-out."""


@pytest.mark.parametrize("by", [("node",), ("cluster",), ()])
def test_occupation(site: Publisher, by: tuple[str, ...]) -> None:
    assert table(view(site, "occupation", by=by), "used_h") == USED_H


def test_occupation_by_core(site: Publisher) -> None:
    rows = table(view(site, "occupation", by=("core",)), "period", "used_h")
    sums = {period: sum(used for day, used in rows if day == period) for period, _ in rows}
    assert list(sums.values()) == [pytest.approx(used) for (used,) in USED_H]


def test_scarce(site: Publisher) -> None:
    (row,) = table(view(site, "scarce", period="year"), "occupation")
    assert row == (pytest.approx(sum(used for (used,) in USED_H) / (CORES * 2 * 66)),)


def test_waiting(site: Publisher) -> None:
    """Waiting jobs are not in it; those that ran waited until they started."""
    found = view(site, "waiting").facts["all"]
    assert found["jobs"] == 5
    assert found["longest_s"] == at(3, 12) - at(1)


@pytest.mark.parametrize("interval", ["overlapping", "ended"])
def test_utilization(site: Publisher, interval: Interval) -> None:
    """Only runs that ended count."""
    found = view(site, "utilization", interval=interval, bin_s=24 * HOUR)
    assert table(found, "slots")[:2] == [(0.0,), (pytest.approx((CORES * (4 + 3)) / 24),)]


def test_paths(site: Publisher) -> None:
    examples = {row[0] for row in table(view(site, "paths"), "example")}
    assert not examples & {"accepted", "queued"}
