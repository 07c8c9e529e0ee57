"""The oracle of sums finds what it is there for: one field altered in one body of any format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from formats.apel.fold import Fold
from formats.calendar import period_of
from formats.job import Benchmark, Job
from formats.registry import record_format, report_format, totals_format
from formats.utilization.measure import Bins, Tally
from formats.utilization.report import UtilizationReport
from formats.view import View
from publisher.messages.entries import rans_of
from tests import oracle_of_sums as sums
from tests.publisher.site import NOVEMBER, make_job

BIN_S = 3600
OTHER = (Benchmark("HEPSPEC", 9.1),)
JOBS = [
    make_job(1, wall_s=100, cores=4, cpu_ms=99_500, cpu_user_ms=90_000, cpu_system_ms=9_500, slots=4),
    make_job(2, wall_ms=1_499, cpu_ms=1_500, cpu_user_ms=1_000, cpu_system_ms=500),
    make_job(
        3, wall_ms=1_499, cpu_ms=1_501, cpu_user_ms=1_000, cpu_system_ms=501, benchmarks=(Benchmark("HEPSPEC", 9.1),)
    ),
    make_job(
        4,
        user_dn="/DC=org/CN=Bo",
        vo="cms",
        end=NOVEMBER - 20 * 86_400,
        cpu_ms=40_000,
        cpu_user_ms=40_000,
        cpu_system_ms=0,
    ),
    make_job(5, user_dn=None, vo=None, nodes=None, cores=None, cpu_user_ms=50_000, cpu_system_ms=0),
]
RUNS = [sums.run_of(job) for job in JOBS]


def made(name: str, version: str) -> bytes:
    view = View(site="EXAMPLE-SITE", version=version)
    if name == "utilization":
        return report(JOBS)
    if "summary" in name:
        summaries = totals_format(name, view)
        fold = Fold(view, normalised=summaries.normalised)
        for job in JOBS:
            fold.add(job)
        return summaries.message([summaries.record(group).body for group in fold.groups()])
    records = record_format(name, view)
    return records.message([records.record(job, NOVEMBER + 86_400).body for job in JOBS])


def report(jobs: list[Job]) -> bytes:
    month = period_of("month", NOVEMBER)
    tally = Tally(Bins(month.start, month.stop, BIN_S))
    for job in jobs:
        for ran in rans_of(job):
            tally.add(ran)
    made = UtilizationReport(
        site="EXAMPLE-SITE", start=month.start, stop=month.stop, bin_s=BIN_S, measure="queue", bins=tally.measured()
    )
    return report_format("utilization", View(site="EXAMPLE-SITE")).message(made)


def assert_conserved(name: str, payload: bytes, runs: Sequence[sums.CountedRun] = RUNS) -> None:
    there = sums.kept(name, [payload])
    if name == "utilization":
        sums.assert_reports_conserved(runs, there, BIN_S)
    else:
        sums.assert_sums_conserved(name, runs, there)


FORMS = [
    ("ogf-ur", ""), ("emi-car", ""), ("apel-job", "0.3"), ("apel-job", "0.4"), ("apel-summary", "0.2"),
    ("apel-summary", "0.4"), ("apel-normalised-summary", "0.4"), ("utilization", ""),
]  # fmt: skip
XML = {
    "wall": (rb"<WallDuration>PT(\d+)S", 1), "cpu": (rb"<CpuDuration[^>]*>PT(\d+)S", 1),
    "cores": (rb"<Processors>(\d+)", 1), "month": (rb"<EndTime>2026-(\d\d)", 1), "user": (rb"CN=Ad(a)<", None),
}  # fmt: skip
ALTERED = {
    "ogf-ur": XML | {"vo": (rb"<vo:Name>atla(s)", None)},
    "emi-car": XML | {"vo": (rb"<Group>atla(s)", None)},
    "apel-job": {
        "wall": (rb"WallDuration: (\d+)", 1), "cpu": (rb"CpuDuration: (\d+)", 1), "cores": (rb"Processors: (\d+)", 1),
        "month": (rb"EndTime: (\d+)", 30 * 86_400), "user": (rb"CN=Ad(a)\n", None), "vo": (rb"VO: atla(s)", None),
    },
    "apel-summary": {
        "wall": (rb"\nWallDuration: (\d+)", 1), "cpu": (rb"\nCpuDuration: (\d+)", 1),
        "cores": (rb"Processors: (4)", 1), "month": (rb"Month: (\d+)", 1), "user": (rb"CN=Ad(a)\n", None),
        "vo": (rb"VO: atla(s)", None), "jobs": (rb"NumberOfJobs: (\d+)", 1),
    },
    "apel-normalised-summary": {
        "wall": (rb"NormalisedWallDuration: {\w+: (\d+)", 1), "cpu": (rb"NormalisedCpuDuration: {\w+: (\d+)", 1),
        "cores": (rb"Processors: (4)", 1), "month": (rb"Month: (\d+)", 1), "user": (rb"CN=Ad(a)\n", None),
        "vo": (rb"VO: atla(s)", None), "jobs": (rb"NumberOfJobs: (\d+)", 1),
    },
    "utilization": {
        "slots": (rb'"slots": 0\.0\d(\d)', 1), "cpu": (rb'"cpu_user": 0\.0\d(\d)', 1), "jobs": (rb'"jobs": ([1-9])', 1)
    },
}  # fmt: skip
"""By format what is altered: the first place that matches, by so much; None: a letter, to another."""


@pytest.mark.parametrize(("name", "version"), FORMS)
def test_what_is_rendered_is_conserved(name: str, version: str) -> None:
    assert_conserved(name, made(name, version))


@pytest.mark.parametrize(("name", "version", "field"), [(*form, field) for form in FORMS for field in ALTERED[form[0]]])
def test_one_altered_field_is_found(name: str, version: str, field: str) -> None:
    pattern, more = ALTERED[name][field]
    payload = made(name, version)
    found = re.search(pattern, payload)
    assert found is not None
    new = b"x" if more is None else b"%0*d" % (found.end(1) - found.start(1), (int(found[1]) + more) % 10**10)
    with pytest.raises(AssertionError, match="source, service"):
        assert_conserved(name, payload[: found.start(1)] + new + payload[found.end(1) :])


@pytest.mark.parametrize(("name", "version"), FORMS)
@pytest.mark.parametrize("change", [lambda runs: runs[1:], lambda runs: [*runs, runs[0]]], ids=["lost", "twice"])
def test_a_run_lost_or_counted_twice_is_found(
    name: str, version: str, change: Callable[[list[sums.CountedRun]], list[sums.CountedRun]]
) -> None:
    payload = made(name, version)
    with pytest.raises(AssertionError, match="source, service"):
        assert_conserved(name, payload, change(RUNS))
