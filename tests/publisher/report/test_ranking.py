"""`--sort` and `--top`: the largest rows, and the others as one row that keeps the sums."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.api import Publisher
from publisher.errors import UsageError
from publisher.report.output import json_object
from publisher.report.plot.style import folded, named_first
from publisher.report.ranking import ranked
from publisher.report.report import Column, Plot, Report, Series
from publisher.report.request import ReportRequest
from tests.publisher.cli.program import BASE, Inside
from tests.publisher.report.torque_site import at, table, torque_site, view
from tests.publisher.report.views.test_charges import APRIL, MARCH, PRICES

USERS = (("ann", 3, 1.5, 7), ("bob", 5, 0.5, 9), ("", 1, 9.0, None), ("dan", 5, 2.0, 8), ("eve", 2, None, 1))


def report(rows: tuple[tuple[Any, ...], ...] = USERS, **facts: Any) -> Report:
    columns = (
        Column("user", "text", key="user"), Column("jobs", "count", adds="sum"), Column("mean_s", "number", "s"),
        Column("longest_s", "count", "s", adds="max"),
    )  # fmt: skip
    names = tuple(str(row[0] or "(unknown)") for row in rows)
    bars = Plot(
        title="Jobs",
        style="bar",
        x=names,
        names_add_up=True,
        series=(Series("jobs", tuple(float(r[1]) for r in rows)),),
    )
    return Report(
        view="waiting", title="T", site="S", start=0, stop=9, columns=columns, rows=rows, sorted_by="jobs",
        plots=(bars,), facts={"by": ["user"]}, **facts,
    )  # fmt: skip


def asked(sort: str | None = None, top: int | None = None) -> ReportRequest:
    return ReportRequest(start=0, stop=9, sort=sort, top=top)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("jobs", ["bob", "dan", "ann", "eve", ""]),
        ("-jobs", ["bob", "dan", "ann", "eve", ""]),
        ("+jobs", ["", "eve", "ann", "bob", "dan"]),
        ("user", ["", "ann", "bob", "dan", "eve"]),
        ("-user", ["eve", "dan", "bob", "ann", ""]),
        ("mean", ["", "dan", "ann", "bob", "eve"]),
        ("+mean_s", ["bob", "ann", "dan", "", "eve"]),
        ("longest-s", ["bob", "dan", "ann", "eve", ""]),
    ],
)
def test_rows_are_sorted_and_what_is_unknown_is_last(sort: str, order: list[str]) -> None:
    found = ranked(report(), asked(sort))
    assert [row[0] for row in found.rows] == order
    assert [str(name) for name in named_first(found.plots[0]).x] == [name or "(unknown)" for name in order]
    assert found.notes == ()


def test_the_others_are_one_row_with_the_sums() -> None:
    found = ranked(report(notes=("A note.",)), asked(top=2))
    assert found.rows == (USERS[1], USERS[3], ("others (3)", 6, None, 7))
    assert found.notes == (
        "2 of 5 values of user are shown, the largest by jobs; others (3) is the sum of the others.", "A note.",
    )  # fmt: skip
    made = json_object(found)
    assert (made["total"], made["shown"], len(made["rows"])) == (5, 2, 3)
    assert list(named_first(found.plots[0]).x) == ["bob", "dan", "others (3)"]
    whole = ranked(report(), asked(top=5))
    assert (sorted(map(str, whole.rows)), whole.notes) == (sorted(map(str, USERS)), ())
    assert json_object(report())["total"] == json_object(report())["shown"] == 5


def test_a_column_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="waiting has no column 'colour'") as error:
        ranked(report(), asked("+colour"))
    assert error.value.hint == "Choose one of: user, jobs, mean_s, longest_s"
    with pytest.raises(UsageError, match="--top must be at least 1"):
        asked(top=0)


def in_bins() -> Report:
    columns = (Column("start", "instant"), Column("user", "text", key="user"), Column("queue", "number", adds="sum"))
    amounts = {"ann": (1.0, 5.0), "bob": (4.0, None), "cai": (2.0, 0.5), "dan": (0.0, 1.0)}
    rows = tuple(
        (start, name, values[place])
        for place, start in enumerate((0, 3600))
        for name, values in amounts.items()
        if values[place] is not None
    )
    plot = Plot(
        title="T", style="line", x=(0, 3600), step_s=3600, stacked=True, by="user",
        series=tuple(Series(name, values) for name, values in amounts.items()),
    )  # fmt: skip
    return Report(
        view="utilization", title="T", site="S", start=0, stop=7200, columns=columns, rows=rows, sorted_by="queue",
        plots=(plot,), facts={"by": ["user"]},
    )  # fmt: skip


def test_values_in_bins_are_ranked_over_all_bins() -> None:
    found = ranked(in_bins(), asked(top=2))
    assert found.rows == (
        (0, "ann", 1.0), (0, "bob", 4.0), (0, "others (2)", 2.0), (3600, "ann", 5.0), (3600, "others (2)", 1.5),
    )  # fmt: skip
    assert [one.label for one in folded(found.plots[0]).series] == ["ann", "bob", "others (2)"]
    least = ranked(in_bins(), asked("+queue", 1))
    assert [one.label for one in folded(least.plots[0]).series] == ["dan", "others (3)"]


def test_rows_without_a_key_are_not_summed_up() -> None:
    bins = Report(
        view="utilization", title="T", site="S", start=0, stop=9, rows=((0, 1.0), (3600, 3.0), (7200, 2.0)),
        columns=(Column("start", "instant"), Column("queue", "number", adds="sum")), sorted_by="queue",
        rows_named="bins",
    )  # fmt: skip
    found = ranked(bins, asked(top=1))
    assert found.rows == ((3600, 3.0),)
    assert found.notes == ("1 of 3 bins are shown, the largest by queue.",)


_rows = st.dictionaries(
    st.sampled_from(["", *(f"u{number}" for number in range(30))]), st.tuples(st.integers(0, 99), st.integers(0, 9)),
    min_size=1,
)  # fmt: skip


@given(_rows, st.integers(1, 35), st.sampled_from([None, "jobs", "+jobs", "user", "longest_s", "+longest"]))
def test_sums_are_those_of_all(given_rows: dict[str, tuple[int, int]], top: int, sort: str | None) -> None:
    rows = tuple((name, jobs, None, longest) for name, (jobs, longest) in given_rows.items())
    found = ranked(report(rows), asked(sort, top))
    assert sum(int(str(row[1])) for row in found.rows) == sum(row[1] for row in rows)
    assert max(int(str(row[3])) for row in found.rows) == max(row[3] for row in rows)
    named = [row for row in found.rows if not str(row[0]).startswith("others")]
    assert len(named) == min(top, len(rows))
    assert set(named) <= set(rows)
    assert json_object(found)["shown"] == len(named)
    drawn = named_first(found.plots[0]).series[0].values
    assert sum(value or 0 for value in drawn) == sum(row[1] for row in rows)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with torque_site(tmp_path_factory.mktemp("ranking"), PRICES) as collected:
        yield collected


def test_charges_keep_their_total(site: Publisher) -> None:
    month: dict[str, Any] = {"start": MARCH, "stop": APRIL}
    found = view(site, "charges", **month, top=1)
    assert table(found, "user", "item", "amount")[-3:] == [
        ("carol", "total", Decimal("5.00")), ("others (2)", "total", Decimal("2.72")),
        ("(all)", "total", Decimal("7.72")),
    ]  # fmt: skip
    assert found.facts["all"] == "7.72"
    assert found.notes[0].startswith("1 of 3 statements are shown, the largest by amount; others (2) is the sum")
    by_name = view(site, "charges", **month, sort="-user")
    assert [row[0] for row in by_name.rows if row[1] == "total"] == ["carol", "bob", "ada", "(all)"]
    with pytest.raises(UsageError, match="sorted by user or amount"):
        view(site, "charges", **month, sort="price")


@pytest.mark.parametrize("name", ["totals", "occupation", "waiting", "utilization"])
def test_every_view_by_a_key_can_be_cut(site: Publisher, name: str) -> None:
    key = "node" if name == "occupation" else "user"
    whole = view(site, name, by=(key,))
    found = view(site, name, by=(key,), top=1)
    assert len({row for row in table(found, key) if row != ("others (1)",)}) == 1
    for column in whole.columns:
        if column.adds == "sum":
            sums = [
                sum(cell for (cell,) in table(one, column.name) if isinstance(cell, int | float))
                for one in (whole, found)
            ]
            assert sums[0] == pytest.approx(sums[1]), column.name


def test_two_keys_with_a_month_are_ranked_by_the_other(site: Publisher) -> None:
    found = view(site, "totals", by=("user", "day"), top=1, start=at(1), stop=at(4))
    assert set(table(found, "user")) == {("ada",), ("others (1)",)}
    assert [day for (day,) in table(found, "day")] == sorted(day for (day,) in table(found, "day"))
    assert found.plots[0].labels == ("2026-03-01", "2026-03-02", "2026-03-03")
    assert msgspec.structs.asdict(found.plots[0])["by"] == "user"


SOURCES = '\n[sources.ge]\ntype = "gridengine"\npath = "{ge}"\n'
MONTH = ("--since", "2026-11", "--until", "2026-12")


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Inside:
    paths = {"ge": fixtures / "gridengine" / "real" / "accounting"}
    made = Inside(tmp_path_factory.mktemp("sorted"), BASE + SOURCES.format(**paths))
    made("collect").ok()
    return made


def test_the_command(commands: Inside) -> None:
    whole = commands("report", "totals", *MONTH, "--by", "user", "--json").ok().object
    cut = commands("report", "totals", *MONTH, "--by", "user", "--sort", "-jobs", "--top", "1", "--json").ok().object
    assert (cut["total"], cut["shown"]) == (len(whole["totals"]), 1)
    assert sum(row["jobs"] for row in cut["totals"]) == whole["all"]["jobs"]
    assert cut["totals"][0]["jobs"] == max(row["jobs"] for row in whole["totals"])
    printed = commands("report", "totals", *MONTH, "--by", "user", "--top", "1", "--format", "csv").ok()
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert rows[-1]["user"] == f"others ({len(whole['totals']) - 1})"
    assert "is the sum of the others" in printed.err
    refused = commands("report", "totals", *MONTH, "--sort", "colour")
    assert refused.code == 2
    assert "Choose one of: jobs, wall_s" in refused.err


def test_a_month_is_that_of_the_time_zone(commands: Inside) -> None:
    zone = ("--timezone", "Europe/Oslo")
    month = commands("report", "totals", "--month", "2026-11", *zone, "--json").ok().object
    assert (month["since"], month["until"]) == ("2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z")
    by_month = commands("report", "totals", "--month", "2026-11", *zone, "--by", "month", "--json").ok().object
    assert [row["month"] for row in by_month["totals"]] == ["2026-11"]
    assert "unknown time zone" in commands("report", "totals", "--month", "2026-11", "--timezone", "Oslo").err


def test_numbers_of_tables_have_units_and_few_digits(commands: Inside) -> None:
    out = commands("report", "totals", *MONTH, "--by", "user").ok().out
    head = next(line for line in out.splitlines() if "jobs" in line)
    assert "core h" in head
    assert "wall_s" not in head
    assert " min" in out or " h" in out
    assert "MiB" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--output", "x.pngg"), "unknown ending .pngg"),
        (("--format", "term", "--grid"), "--grid is for pictures"),
        (("--format", "csv", "--style", "bar"), "--style is for pictures"),
        (("--top", "0"), "--top must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_reported(commands: Inside, arguments: tuple[str, ...], said: str) -> None:
    done = commands("report", "utilization", *MONTH, *arguments)
    assert done.code == 2
    assert said in done.err


def test_formats_of_files(commands: Inside) -> None:
    known = commands("report", "utilization", *MONTH, "--output", "x.pngg").err
    assert ".txt, .csv, .json, .md, .prom, .png, .svg, .pdf, .ps, .html; or give --format" in known
    for ending, begins in (
        ("png", b"\x89PNG"),
        ("PDF", b"%PDF"),
        ("csv", b"start,"),
        ("json", b"{"),
        ("txt", b"start"),
    ):
        commands("report", "utilization", *MONTH, "--output", f"x.{ending}").ok()
        assert (commands.folder / f"x.{ending}").read_bytes().startswith(begins)
    commands("report", "utilization", *MONTH, "--format", "csv", "--output", "x.pngg").ok()
    assert (commands.folder / "x.pngg").read_bytes().startswith(b"start,")
    both = commands("report", "utilization", *MONTH, "--json", "--format", "csv", "--style", "bar").ok()
    assert both.object["view"] == "utilization"
