"""Invalid input is reported, with what is valid; unusual input is counted by a documented rule."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest

from publisher.api import Publisher
from publisher.errors import UsageError
from publisher.page.html import table
from publisher.report.output import json_object, text_rows, to_csv, to_markdown
from publisher.report.report import Column, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import VIEW_KINDS
from publisher.report.views import make
from tests.publisher.cli.program import BASE, Program

NOW = 1_800_000_000


def asked(publisher: Publisher, view: str, **given: object) -> Report:
    request = ReportRequest(**{"start": NOW - 10**7, "stop": NOW, **given})  # type: ignore[arg-type]
    return make(view, ReportContext(publisher.store, publisher.config, NOW), request)


@pytest.mark.parametrize("view", sorted(VIEW_KINDS.keys() - {"allocations", "job", "load", "charges", "sql"}))
def test_an_interval_that_ends_before_it_begins(every_source: Publisher, view: str) -> None:
    with pytest.raises(UsageError, match="--until must be after --since"):
        asked(every_source, view, start=NOW, stop=NOW - 1)


@pytest.mark.parametrize("view", sorted(VIEW_KINDS.keys() - {"allocations", "job", "load", "charges", "late", "sql"}))
def test_unknown_keys_are_reported_with_those_there_are(every_source: Publisher, view: str) -> None:
    with pytest.raises(UsageError, match=r"choose one of: queue|choose one of: cluster|cannot be grouped"):
        asked(every_source, view, by=("colour",))
    with pytest.raises(UsageError, match=r"jobs cannot be selected by 'colour'; choose one of: queue"):
        asked(every_source, view, filters={"colour": "*"})


@pytest.mark.parametrize("view", ["utilization", "totals", "efficiency", "waiting", "occupation", "paths"])
def test_years_before_1970_and_the_ends_of_time(every_source: Publisher, view: str) -> None:
    given = {"bin_s": 86_400 * 3_000} if view == "utilization" else {"period": "year"}
    old = asked(every_source, view, start=-(10**10), stop=-(10**9), **given)
    assert old.nothing is not None
    assert old.nothing.startswith("no job is in the interval; jobs ended from 2001-09-09T01:46:56Z to 20")
    with pytest.raises(UsageError, match="years 1 to 9999"):
        asked(every_source, view, start=-(10**12))


def test_nothing_that_matches_says_what_there_is(every_source: Publisher) -> None:
    found = asked(every_source, "totals", filters={"queue": "none", "user": "*"})
    assert found.nothing is not None
    assert found.nothing.startswith("none of the ")
    assert "user alice" in found.nothing
    assert "queue all.q" in found.nothing


@pytest.mark.parametrize("view", sorted(VIEW_KINDS.keys() - {"allocations", "charges", "late", "load", "sql"}))
def test_where_nothing_matches_no_form_shows_zeros(every_source: Publisher, view: str) -> None:
    """Only JSON keeps the bins of an interval, for programs, with the reason beside them."""
    found = asked(every_source, view, filters={"job": "nothing-of-the-kind"})
    assert found.nothing is not None
    assert len(to_csv(found).splitlines()) == 1
    assert to_markdown(found).splitlines()[0] == found.nothing
    assert json_object(found)["nothing"] == found.nothing
    assert not text_rows(found)


@pytest.mark.parametrize("tasks", ["5-1", "1-5:0"])
def test_ranges_of_tasks_that_are_none(every_source: Publisher, tasks: str) -> None:
    with pytest.raises(UsageError, match="not a range of tasks such as"):
        asked(every_source, "totals", filters={"task": tasks})


def test_ranges_of_tasks(every_source: Publisher) -> None:
    def tasks(pattern: str) -> list[object]:
        return [row[0] for row in asked(every_source, "totals", by=("task",), filters={"task": pattern}).rows]

    assert set(tasks("1-5:2")) <= {"1", "3", "5"}
    assert tasks("1-5:2") == tasks("[135]")
    assert tasks("1-5:2")


def test_more_cells_than_fit(every_source: Publisher) -> None:
    with pytest.raises(UsageError, match="more than 1,000,000 cells"):
        asked(every_source, "utilization", start=1_792_800_000, stop=1_793_800_000, bin_s=1, by=("host",))


ODD = Report(
    view="totals", title="T", site="S", start=0, stop=10,
    columns=(Column("user", "text"), Column("n", "number"), Column("cost", "money"), Column("at", "instant")),
    rows=(("=1+1", 1.0, Decimal("0.10"), 0), ("a|b\n\x1b[31m\\", None, None, None)), notes=("a | note",),
)  # fmt: skip


def test_forms_of_hostile_words() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(ODD))))
    assert rows[1] == ["'=1+1", "1.0000", "0.10", "1970-01-01T00:00:00Z"]
    assert rows[2][0] == "a|b\\x0a\\x1b[31m\\"
    lines = to_markdown(ODD).splitlines()
    assert lines[3] == "| a\\|b  [31m\\\\ |  |  |  |"
    assert lines[-1] == "a \\| note"
    assert json_object(ODD)["rows"][0] == {"user": "=1+1", "n": 1.0, "cost": "0.10", "at": "1970-01-01T00:00:00Z"}


def test_people_read_what_is_unknown_and_programs_get_nothing(every_source: Publisher) -> None:
    found = asked(every_source, "totals", start=0, by=("vo",))
    csv_rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    named = [row["vo"] for row in csv_rows if row["vo"]]
    assert [row[0] for row in text_rows(found)] == ["(unknown)", *named, "total"]
    assert [row[0] for row in table(found).rows] == [row[0] for row in text_rows(found)]
    assert csv_rows[0]["vo"] == ""
    assert json_object(found)["totals"][0]["vo"] == ""
    assert csv_rows[0].keys() == {column.name for column in found.columns}
    assert len(text_rows(found)[0]) < len(found.columns)
    (plot,) = asked(every_source, "totals", start=0, by=("queue", "vo")).plots
    assert "(unknown)" in {series.label for series in plot.series}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program(tmp_path_factory.mktemp("empty"), BASE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("utilization", "--days", "0"), "at least 1"),
        (("utilization", "--days", "3", "--since", "2026-01-01"), "cannot be combined"),
        (("utilization", "--month", "2026-11", "--until", "2026-12"), "cannot be combined"),
        (("utilization", "--month", "2026-13"), "is not a month"),
        (("totals",), "nothing was collected yet"),
        (("colour",), "colour"),
        (("utilization", "--archive", "nowhere"), "is not an archive"),
    ],
)
def test_commands_that_make_no_sense(empty: Program, arguments: tuple[str, ...], said: str) -> None:
    done = empty("report", *arguments)
    assert done.code == 2
    assert said in done.err
