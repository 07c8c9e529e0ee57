"""What an ARC database adds up to is at every service, in every format: by month, VO, and user, to the last unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import oracle_of_sums as sums
from tests.endtoend.rehearsal import Rehearsal
from tests.endtoend.test_main_path import one_late_one_changed, seconds
from tests.extent import short_or_whole
from tests.generators import arc_database

JOBS = short_or_whole(500, 1_500)
BIN_S = 3600
FORMS = [
    ("ogf-ur", ""),
    ("emi-car", ""),
    ("apel-job", "0.3"),
    ("apel-job", "0.4"),
    ("apel-summary", "0.2"),
    ("apel-summary", "0.4"),
    ("apel-normalised-summary", "0.4"),
    ("utilization", "json"),
]


def name_of(form: tuple[str, str]) -> str:
    return "-".join(part.replace(".", "") for part in form if part)


def targets() -> str:
    """The services, and a folder for each format and version."""
    tables = ['[targets.neic]\n{sgas}\n[targets.cars]\n{ams}records = "emi-car"\n']
    for form in FORMS:
        version = f'version = "{form[1]}"\n' if form[1] else ""
        tables.append(
            f'[targets.{name_of(form)}]\ntype = "directory"\nlayout = "files"\npath = "{name_of(form)}"\n'
            f'records = "{form[0]}"\n{version}'
        )
    return "".join(tables)


def payloads(folder: Path) -> Iterator[bytes]:
    """The messages in a folder, in the order of their writing; sync counts have no sums."""
    for file in sorted(folder.rglob("*"), key=lambda file: file.stat().st_mtime_ns):
        if file.is_file() and b"APEL-sync" not in (body := file.read_bytes()):
            yield body


def at_sgas(site: Rehearsal) -> list[sums.CountedBody]:
    """The rows that SGAS has."""
    return [
        sums.CountedBody(
            row.record_id,
            sums.Key((row.end or "")[:7], row.vo or "", row.user or ""),
            sums.Sum(1, seconds(row.wall) * (row.processors or 1), sum(map(seconds, row.cpu))),
        )
        for row in site.simulator.sgas.records()
    ]


def at_apel(rows: Mapping[object, Mapping[str, str]]) -> list[sums.CountedBody]:
    """The rows of APEL's table of job records."""
    return [
        sums.CountedBody(
            key,
            sums.Key(sums.month_of(int(row["EndTime"])), sums.name_in(row, "VO"), sums.name_in(row, "GlobalUserName")),
            sums.Sum(1, int(row["WallDuration"]) * int(row["Processors"]), int(row["CpuDuration"])),
        )
        for key, row in rows.items()
    ]


@pytest.fixture
def reported(site: Rehearsal) -> Rehearsal:
    """A site that has sent what it has."""
    arc_database.create(site.database, JOBS, 11)
    site.configure(targets())
    site.json("run")
    return site


def assert_conserved(site: Rehearsal, *, late: bool = False) -> None:
    runs = sums.arc_runs(site.database)
    for form in FORMS:
        # a folder keeps every version that was written; a service the last
        there = sums.kept(form[0], payloads(site.folder / name_of(form)))
        if form[0] == "utilization":
            assert {body.key.month[:7] for body in there} == {"2026-09", "2026-10"}
            sums.assert_reports_conserved(sums.arc_runs(site.database, sums.RAN), there, BIN_S)
        else:
            sums.assert_sums_conserved(form[0], runs, there)
    apel = {key: row.fields for key, row in site.simulator.apel.holdings().jobs.items()}
    sums.assert_sums_conserved("emi-car", runs, at_apel(apel))
    if not late:
        sums.assert_sums_conserved("ogf-ur", runs, at_sgas(site))


def test_every_format_is_among_them() -> None:
    assert {name for name, _ in FORMS} == sums.FORMATS


def test_sums_are_those_of_the_database(reported: Rehearsal) -> None:
    assert_conserved(reported)


def test_sums_follow_late_and_changed_jobs(reported: Rehearsal) -> None:
    one_late_one_changed(reported.database)
    reported.json("run")
    assert_conserved(reported, late=True)
