"""Reports from the real command over a real act_file and a real accounting file of Grid Engine."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from formats.utilization.report import read_report
from tests.publisher.cli.program import BASE, Program

SOURCES = '\n[sources.dqs]\ntype = "dqs"\npath = "{dqs}"\n[sources.ge]\ntype = "gridengine"\npath = "{ge}"\n'
FIGURE = ("--since", "@1000000010", "--until", "@1000000057", "--bin", "6s")
GRID_ENGINE = ("--since", "2026-11", "--until", "2026-12")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Program:
    paths = {"dqs": fixtures / "dqs" / "act_file", "ge": fixtures / "gridengine" / "real" / "accounting"}
    made = Program(tmp_path_factory.mktemp("reports"), BASE + SOURCES.format(**paths))
    made("collect").ok()
    return made


def test_the_manuals_figure(site: Program) -> None:
    found = site("report", "utilization", *FIGURE, "--json").ok().object
    assert (found["since"], found["until"], found["bin_s"]) == ("2001-09-09T01:46:50Z", "2001-09-09T01:47:37Z", 6)
    assert (found["measure"], found["jobs"], found["jobs_of_no_length"]) == ("queue", 5, 0)
    assert [round(one["queue"], 2) for one in found["bins"]] == [1, 0.5, 1, 1.67, 2.33, 2.83, 1, 0.83]
    assert [round(one["cpu_user"], 2) for one in found["bins"]][1] == 0.17
    assert [round(one["cpu_system"], 2) for one in found["bins"]][5] == 2.20
    assert site("report", "utilization", *FIGURE[:4], "--bins", "8", "--json").ok().object["bins"] == found["bins"]


def test_every_line_of_the_act_file_counts(site: Program) -> None:
    interval = ("--since", "@1000000071", "--until", "@1000000099", "--bins", "1", "--json")
    (whole,) = site("report", "utilization", *interval, "--job", "job6").ok().object["bins"]
    assert (whole["jobs"], whole["queue"]) == (3, 3.0)
    (slow,) = (
        site("report", "utilization", *interval, "--job", "6", "--queue", "slow*", "--complex", "aix")
        .ok()
        .object["bins"]
    )
    assert (slow["jobs"], slow["queue"]) == (1, 1.0)


@pytest.mark.parametrize(("key", "file"), [("user", "qacct-o.txt"), ("department", "qacct-D.txt")])
def test_cpu_times_are_those_of_qacct(site: Program, fixtures: Path, key: str, file: str) -> None:
    lines = (fixtures / "gridengine" / "real" / file).read_text().splitlines()[2:]
    reported = {line.split()[0]: tuple(map(float, line.split()[2:5])) for line in lines}
    rows = site("report", "totals", "--by", key, *GRID_ENGINE, "--json").ok().object["totals"]
    found = {row[key]: (row["cpu_user_s"], row["cpu_system_s"], row["cpu_s"]) for row in rows}
    assert found.keys() == reported.keys()
    for name, times in found.items():
        assert times == pytest.approx(reported[name], abs=0.015)  # a record keeps milliseconds, qacct sums microseconds


def test_totals_by_two_keys_add_up(site: Program) -> None:
    found = site("report", "totals", "--by", "user,month", *GRID_ENGINE, "--json").ok().object
    assert {row["month"] for row in found["totals"]} == {"2026-11"}
    for name in ("jobs", "wall_s", "cpu_s"):
        assert sum(row[name] for row in found["totals"]) == pytest.approx(found["all"][name])
    alone = site("report", "totals", *GRID_ENGINE, "--user", "bob", "--json").ok().object["all"]
    assert alone["jobs"] == sum(row["jobs"] for row in found["totals"] if row["user"] == "bob")


def test_forms(site: Program) -> None:
    rows = list(csv.DictReader(io.StringIO(site("report", "utilization", *FIGURE, "--format", "csv").ok().out)))
    assert [row["queue"] for row in rows][5] == "2.8333"
    site("report", "utilization", *FIGURE, "--measure", "cpu", "--format", "md", "--output", "report.md").ok()
    text = (site.folder / "report.md").read_text()
    assert text.startswith("| start | cpu user (CPUs) | cpu system (CPUs) |")
    assert "| 2.20 |" in text
    assert " 2.83 " in site("report", "utilization", *FIGURE).ok().out
    assert site("report", "utilization", *FIGURE, "--output", "nowhere/at/all").code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("utilization", "--since", "2026-11-02", "--until", "2026-11-01"), "--until must be after --since"),
        (("utilization", "--bins", "0"), "at least one bin"),
        (("utilization", "--bin", "0"), "at least 1"),
        (("utilization", "--bin", "500ms"), "whole number of seconds"),
        (("utilization", "--since", "@0", "--until", "@5", "--bins", "6"), "finer than a second"),
        (("utilization", "--bin", "1h", "--bins", "6"), "cannot be combined"),
        (("utilization", "--since", "@0", "--bin", "1"), "too many"),
        (("totals", "--by", "colour"), "choose one of: queue, host"),
        (("totals", "--by", "host,queue,vo"), "one key or two different keys"),
        (("utilization", "--by", "queue,host"), "is grouped by one key"),
        (("utilization", "--by", "job"), "cannot be grouped by 'job'"),
    ],
)
def test_what_makes_no_sense_is_reported(site: Program, arguments: tuple[str, ...], said: str) -> None:
    done = site("report", *arguments)
    assert done.code == 2
    assert said in done.err


def test_where_nothing_matches_it_says_what_there_is(site: Program) -> None:
    done = site("report", "utilization", *FIGURE, "--queue", "none*").ok()
    assert "none of the 5 jobs in the interval matches; existing values: queue fast.q, slow.q" in done.err
    assert not done.out
    site("report", "utilization", *FIGURE, "--queue", "none*", "--output", "nothing.txt").ok()
    assert (site.folder / "nothing.txt").read_text().startswith("none of the 5 jobs")
    assert (
        "no job is in the interval"
        in site("report", "utilization", "--since", "1969-01", "--until", "1969-02").ok().err
    )


def test_render_gives_the_message(site: Program) -> None:
    interval = ("--since", "2001-09-09", "--until", "2001-09-10")
    site("render", "utilization", *interval, "--validate", "--output", "messages").ok()
    (file,) = (site.folder / "messages").iterdir()
    assert file.suffix == ".json"
    report = read_report(file.read_bytes())
    assert (report.site, report.bin_s, len(report.bins)) == ("EXAMPLE-SITE", 3600, 24)
    inspected = site("inspect", file).ok().out
    assert "utilization report" in inspected
    shown = site("report", "utilization", *interval, "--json").ok().object
    assert [one.queue for one in report.bins] == [one["queue"] for one in shown["bins"]]
