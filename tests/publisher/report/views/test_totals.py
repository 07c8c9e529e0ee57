"""Totals: what nobody knows is empty, and each run is in one row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from formats.job import Host
from publisher.api import Publisher
from publisher.errors import UsageError
from publisher.report.calendar import compared_with, zone_of
from publisher.report.output import heading, text_rows, to_csv
from publisher.report.report import Column, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import VIEW_KINDS
from publisher.report.views import make
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

SINCE, UNTIL = 0, 1_796_083_200
OF_GRID_ENGINE = ("memory_gb_s", "io_gb", "io_wait_s")


def totals(site: Publisher, archive: Path | None = None, **asked: object) -> Report:
    request = ReportRequest(start=SINCE, stop=UNTIL, archive=archive, **asked)  # type: ignore[arg-type]
    return make("totals", ReportContext(site.store, site.config, UNTIL), request)


def test_what_only_grid_engine_has_is_empty_elsewhere(every_source: Publisher, tmp_path: Path) -> None:
    """In the store and in an archive: 0.0 would say that the jobs of TORQUE read nothing."""
    every_source.archive(tmp_path / "archive")
    for archive in (None, tmp_path / "archive"):
        found = totals(every_source, archive, by=("cluster",))
        names = [column.name for column in found.columns]
        by_cluster = {row[0]: dict(zip(names, row, strict=True)) for row in found.rows}
        torque, both = by_cluster["batch.example.org"], by_cluster["default"]
        assert [torque[name] for name in OF_GRID_ENGINE] == [None, None, None]
        assert torque["io_unknown_jobs"] == torque["io_wait_unknown_jobs"] == torque["jobs"]
        assert all(both[name] is not None for name in OF_GRID_ENGINE)  # Grid Engine's jobs, and DQS' without
        assert 0 < both["memory_gb_s_unknown_jobs"] < both["jobs"]  # type: ignore[operator]


def test_a_key_that_no_job_has_a_value_for_is_named(tmp_path: Path) -> None:
    """Slurm has accounts and no projects: one row `(unknown)` says nothing."""
    source = ListSource("ce1")
    source.add(make_job(1, account="physics"), make_job(2, account="chemistry"))
    site = Site(tmp_path, [source], [])
    site.collect()
    site.reopen()
    alone, both = totals(site.publisher, by=("project",)), totals(site.publisher, by=("account", "project"))
    assert "No job has a value for project: group by another key, such as user, vo, account." in alone.notes
    assert "No job has a value for project: group by another key, such as user, vo." in both.notes
    assert not any("No job has" in note for note in totals(site.publisher, by=("account",)).notes)
    assert not any(
        "No job has" in note for note in totals(site.publisher, by=("project",), filters={"user": "no"}).notes
    )


def test_which_keys_have_no_value_is_said_of_all_rows(tmp_path: Path) -> None:
    """Not of those that `--top` shows, nor of a measure that has the name of the key."""
    source = ListSource("ce1")
    source.add(
        make_job(1, local_user="ada", queue=None, slots=9),
        *(make_job(number, local_user=f"u{number}", project="fusion", queue=None) for number in range(2, 32)),
    )
    site = Site(tmp_path, [source], [])
    site.collect()
    site.reopen()

    context = ReportContext(site.publisher.store, site.config, UNTIL)

    def made(name: str, *by: str, **asked: Any) -> tuple[Report, list[str]]:
        request = ReportRequest(start=SINCE, stop=UNTIL, bins=9, by=by, **asked)
        report = make(name, context, request)
        return report, [note.partition(":")[0] for note in report.notes if "No job has" in note]

    of_queue = ["No job has a value for queue"]
    report, notes = made("totals", "user", "project", top=1)
    assert (report.rows[0][:2], notes) == (("ada", ""), [])
    assert [made("totals", "queue", "user", top=top)[1] for top in (None, 1)] == [of_queue, of_queue]
    assert made("utilization", "queue")[1] == of_queue
    report, notes = made("efficiency", "job", "project", sort="-core_h", top=1)
    assert (report.rows[0][1], notes) == ("", [])


def test_a_reservation_with_an_id_and_a_name_is_found_by_both_and_counts_under_its_id(tmp_path: Path) -> None:
    """PBS records both: `R12.head` and what its owner called it."""
    source = ListSource("ce1")
    named = {"resvID": "R12.head", "resvname": "night"}
    source.add(make_job(1, extras=named), make_job(2, extras=named), make_job(3, extras={"resvID": "R13.head"}))
    source.add(make_job(4))
    site = Site(tmp_path, [source], [])
    site.collect()
    site.reopen()
    assert [row[:2] for row in totals(site.publisher, by=("reservation",)).rows] == [
        ("", 1), ("R12.head", 2), ("R13.head", 1)
    ]  # fmt: skip
    for pattern, jobs in (("R12.head", 2), ("night", 2), ("R1?.head", 3)):
        assert [row[0] for row in totals(site.publisher, filters={"reservation": pattern}).rows] == [jobs]
    nothing = totals(site.publisher, filters={"reservation": "day"}).nothing
    assert nothing is not None
    assert nothing.endswith("reservation R12.head, R13.head, night")


def test_headings_name_a_unit_once() -> None:
    headings = {heading(column) for kind in VIEW_KINDS.values() for column in kind.columns}
    assert {"pace h per day", "core h", "GPU h", "kWh per core h"} <= headings
    assert heading(Column("gpu_h_before", "number", "GPU h")) == "GPU h before"
    assert not [
        each
        for each in headings
        if "(" in each and each.partition(" (")[2].rstrip(")").lower() in each.split(" (")[0].split()
    ]


def test_a_run_counts_under_all_its_resources_together(every_source: Publisher) -> None:
    """By the first alone, the runs with s_rt would not be seen. The rows add up to all runs."""
    found = totals(every_source, by=("complex",))
    jobs = {row[0]: row[1] for row in found.rows}
    assert jobs["h_rt=60,s_rt=3"] == 1
    assert jobs["aix,memory=64"] == 9
    assert sum(jobs.values()) == found.facts["all"]["jobs"]  # type: ignore[arg-type]
    chosen = totals(every_source, filters={"complex": "s_rt=*"})
    assert chosen.facts["all"]["jobs"] == 1


def test_sums_of_more_than_127_bits_are_exact(tmp_path: Path) -> None:
    """What nobody has, but a forged line may say: DuckDB's largest integers cannot hold these products and sums."""
    most = (1 << 63) - 1
    source = ListSource("ce1")
    for number in range(4):
        source.add(make_job(number, slots=most, wall_ms=most, local_user="ada" if number else "bob"))
    source.add(make_job(5, slots=most, wall_ms=-3, local_user="bob"))
    site = Site(tmp_path, [source], [])
    site.collect()
    found = totals(site.publisher, by=("user",))
    place = [column.name for column in found.columns].index("core_h")
    assert [(row[0], row[place]) for row in found.rows] == [
        ("ada", 3 * most * most / 3_600_000), ("bob", (most * most - 3 * most) / 3_600_000),
    ]  # fmt: skip


def test_a_run_counts_under_its_first_host_with_a_name(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(make_job(1, hosts=(Host(""), Host('a"\x01b', 2), Host("c"))), make_job(2, hosts=(Host(""),)))
    site = Site(tmp_path, [source], [])
    site.collect()
    assert [row[:2] for row in totals(site.publisher, by=("host",)).rows] == [("", 1), ('a"\x01b', 1)]


def test_what_ended_before_counts_nowhere(tmp_path: Path) -> None:
    """Its payload ran on after the job's end, or started later, if its record is believed."""
    source = ListSource("ce1")
    source.add(make_job(1, end=NOVEMBER - 1, execution_start=NOVEMBER + 5, execution_end=NOVEMBER + 9))
    site = Site(tmp_path, [source], [])
    site.collect()
    for counted in ("ended", "started", "overlapping"):
        request = ReportRequest(start=NOVEMBER, stop=NOVEMBER + 100, interval=counted)  # type: ignore[arg-type]
        made = make("totals", ReportContext(site.publisher.store, site.config, site.now), request)
        assert made.nothing is not None
        assert made.nothing.startswith("no job is in the interval; jobs ended from ")


def test_its_sql_is_shown(every_source: Publisher) -> None:
    assert "GROUP BY key0" in totals(every_source, by=("vo",)).sql


def test_a_row_of_the_total_and_shares(every_source: Publisher) -> None:
    found = totals(every_source, by=("user",))
    names = [column.name for column in found.columns]
    share, core_h = names.index("share"), names.index("core_h")
    assert found.footer[0] == "total"
    assert found.footer[core_h] == found.facts["all"]["core_h"]
    assert sum(row[share] for row in found.rows if isinstance(row[share], float)) == pytest.approx(1)
    table = text_rows(found)
    assert len(table) == len(found.rows) + 1
    assert table[-1][0] == "total"
    assert "100.0 %" in table[-1]
    assert "total" not in to_csv(found)  # programs would count it twice
    assert not totals(every_source).footer
    assert [row[1] for row in text_rows(totals(every_source, by=("user", "vo")))][-1] == ""


def compared(site: Site, how: str, start: int, stop: int, **asked: object) -> Report:
    request = ReportRequest(start=start, stop=stop, compare=how, **asked)  # type: ignore[arg-type]
    return make("totals", ReportContext(site.publisher.store, site.config, site.now), request)


def test_another_interval_beside(tmp_path: Path) -> None:
    """Who had nothing then, and who has nothing now, both have a row; a month is compared with the month before."""
    source = ListSource("ce1")
    source.add(
        make_job(1, local_user="ada", gpus=2, wall_s=3600, slots=1),
        make_job(2, local_user="bob", wall_s=3600, slots=4),
        make_job(3, local_user="ada", wall_s=1800, slots=1, end=OCTOBER),
        make_job(4, local_user="eve", gpus=1, wall_s=7200, slots=1, end=OCTOBER + 5),
    )
    site = Site(tmp_path, [source], [])
    site.collect()
    found = compared(site, "previous", NOVEMBER, NOVEMBER + 30 * 86_400, by=("user",))
    amounts = ("jobs", "jobs_before", "jobs_change", "core_h_before", "core_h_change", "gpu_h_before", "gpu_h_change")
    names = [column.name for column in found.columns]
    places = [0, *map(names.index, amounts)]
    assert [tuple(row[place] for place in places) for row in (*found.rows, found.footer)] == [
        ("ada", 1, 1, 0, 0.5, 0.5, None, 2.0),
        ("bob", 1, 0, 1, 0.0, 4.0, None, None),
        ("eve", 0, 1, -1, 2.0, -2.0, 2.0, -2.0),
        ("total", 2, 2, 0, 2.5, 2.5, 2.0, 0.0),
    ]
    assert found.facts["compared_with"] == {"since": "2026-10-01T00:00:00Z", "until": "2026-11-01T00:00:00Z"}
    undivided, note = found.notes[:2]
    assert undivided == "No system time is known: CPU time that its source does not divide counts as user time."
    assert note.startswith("Compared with 2026-10-01")
    assert found.notes.count(undivided) == 1, "it is true of both intervals"
    (plot,) = found.plots
    assert (plot.x, plot.stacked) == (("ada", "bob", "eve"), False)
    assert [(one.label, one.values, one.before) for one in plot.series] == [
        ("core hours", (1.0, 4.0, 0.0), False), ("the period before", (0.5, 0.0, 2.0), True)
    ]  # fmt: skip
    year = compared(site, "year", NOVEMBER, NOVEMBER + 30 * 86_400, by=("user",))
    assert year.facts["compared_with"] == {"since": "2025-11-01T00:00:00Z", "until": "2025-12-01T00:00:00Z"}
    assert any("no job is in the interval" in note for note in year.notes)
    assert [one.label for one in year.plots[0].series] == ["core hours", "a year before"]
    layered = compared(site, "previous", NOVEMBER, NOVEMBER + 30 * 86_400, by=("user", "queue")).plots[0]
    assert layered.stacked
    assert layered.series[-1] == plot.series[-1], "one bar of all layers"
    lost = compared(site, "previous", NOVEMBER + 30 * 86_400, NOVEMBER + 61 * 86_400, by=("user",)).plots[0]
    assert [one.values for one in lost.series] == [(1.0, 4.0)]
    days = compared(site, "previous", NOVEMBER + 86_400, NOVEMBER + 3 * 86_400)
    assert days.facts["compared_with"] == {"since": "2026-10-31T00:00:00Z", "until": "2026-11-02T00:00:00Z"}
    with pytest.raises(UsageError, match="--compare cannot be combined with groups by periods"):
        compared(site, "year", NOVEMBER, NOVEMBER + 86_400, by=("month",))


def test_a_year_before_a_leap_day() -> None:
    day = 1_709_164_800  # 2024-02-29
    utc = zone_of("UTC")
    assert compared_with(day, day + 86_400, "year", utc) == (1_677_542_400, 1_677_628_800)  # 28 February 2023, 1 March
    with pytest.raises(UsageError, match="before the year 1"):
        compared_with(-62_135_596_800, day, "year", utc)
