"""Utilization as a message: both forms read back as they were, and each rule is broken once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.check.grammar import validate
from formats.check.message import inspect_message
from formats.registry import UnknownFormatError, report_format
from formats.utilization.measure import Bins, Ran, Tally
from formats.utilization.report import NotAReportError, UtilizationReport, check_report, read_report
from formats.view import View
from tests.formats.utilization.test_measure import EXAMPLE, INTERVAL, intervals, jobs, tally

BOTH = pytest.mark.parametrize("version", ["json", "csv"])


def report_of(found: Tally, site: str = "EXAMPLE-SITE") -> UtilizationReport:
    bins = found.bins
    return UtilizationReport(
        site=site, start=bins.start, stop=bins.stop, bin_s=bins.size_s, measure="queue", bins=found.measured()
    )


def message(version: str, report: UtilizationReport) -> bytes:
    return report_format("utilization", View(site="S", version=version)).message(report)


EXAMPLE_REPORT = report_of(tally(list(EXAMPLE.values()), INTERVAL))


@BOTH
@given(jobs, intervals, st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_it_reads_back_as_it_was(version: str, some: list[Ran], bins: Bins, site: str) -> None:
    report = report_of(tally(some, bins), site)
    payload = message(version, report)
    assert read_report(payload) == report
    assert validate("utilization", payload) == []


@BOTH
def test_inspect_recognises_it(version: str) -> None:
    inspection = inspect_message(message(version, EXAMPLE_REPORT))
    assert (inspection.format, inspection.valid, len(inspection.records)) == ("utilization", True, 8)
    assert inspection.records[5].fields["queue"] == str(17 / 6)
    assert inspection.records[5].id == "1970-01-01T00:00:40Z"


def test_the_json_form_has_the_promised_keys() -> None:
    found = json.loads(message("json", EXAMPLE_REPORT))
    assert found.keys() == {"site", "start", "stop", "bin_s", "measure", "bins"}
    assert (found["start"], found["stop"], found["bin_s"]) == ("1970-01-01T00:00:10Z", "1970-01-01T00:00:57Z", 6)
    assert found["bins"][0].keys() >= {"start", "queue", "cpu_user", "cpu_system", "jobs"}


def test_unknown_names_and_versions() -> None:
    with pytest.raises(ValueError, match="no version 'xml'; there are json, csv"):
        report_format("utilization", View(site="S", version="xml"))
    with pytest.raises(UnknownFormatError):
        report_format("occupation", View(site="S"))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"start": 11}, "start"),
        ({"inside_s": 5}, "inside_s"),
        ({"jobs": -1}, "jobs"),
        ({"queue": -1.0}, "queue"),
        ({"cpu_user": float("inf")}, "cpu_user"),
        ({"slots_mean": 3.0}, "slots_mean"),
        ({"queue": 2.0, "queue_mean": 2.0}, "queue"),
    ],
)
def test_each_rule_of_a_bin(change: dict[str, Any], field: str) -> None:
    first, *others = EXAMPLE_REPORT.bins
    report = msgspec.structs.replace(EXAMPLE_REPORT, bins=(msgspec.structs.replace(first, **change), *others))
    assert field in [broken.field for broken in check_report(report) if broken.record == 1]
    assert check_report(EXAMPLE_REPORT) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [({"stop": 10}, "bins"), ({"bin_s": 0}, "bins"), ({"bins": ()}, "bins"), ({"site": ""}, "site")],
)
def test_each_rule_of_a_report(change: dict[str, Any], field: str) -> None:
    report = msgspec.structs.replace(EXAMPLE_REPORT, **change)
    assert [broken.field for broken in check_report(report)] == [field]


JSON = message("json", EXAMPLE_REPORT)
CSV = message("csv", EXAMPLE_REPORT)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{}", b"[]", b"{" * 5000, JSON[:-20], JSON.replace(b'"queue": 1.0', b'"queue": "one"', 1),
        JSON.replace(b"1970-01-01T00:00:10Z", b"1970-13-01T00:00:10Z"), CSV.split(b"\n")[0] + b"\n", CSV[:-9],
        CSV.replace(b"EXAMPLE-SITE", b"OTHER", 1), CSV.replace(b"EXAMPLE-SITE", b'"EXAMPLE', 1), CSV + b"\xff",
    ],
)  # fmt: skip
def test_what_is_not_a_report_is_reported(payload: bytes) -> None:
    with pytest.raises(NotAReportError, match="not a utilization report"):
        read_report(payload)
    assert validate("utilization", payload)
    assert not inspect_message(payload).taken
