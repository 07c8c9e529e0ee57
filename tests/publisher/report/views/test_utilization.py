"""Utilization by a key adds up to that of all; each line of an act_file counts once, in whichever interval."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from publisher.api import Publisher
from publisher.report.archive_export import Written
from publisher.report.output import to_prometheus
from publisher.report.plot.style import MOST_SERIES, folded
from publisher.report.report import Report, is_others
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from tests.publisher.cli.program import BASE

SINCE, UNTIL = 1_792_800_000, 1_796_000_000


def asked(publisher: Publisher, view: str = "utilization", **given: object) -> Report:
    request = ReportRequest(**{"start": SINCE, "stop": UNTIL, "bins": 40, **given})  # type: ignore[arg-type]
    return make(view, ReportContext(publisher.store, publisher.config, UNTIL), request)


@pytest.mark.parametrize("key", ["user", "queue", "host", "status", "slots", "cluster"])
@pytest.mark.parametrize("measure", ["queue", "cpu"])
def test_the_values_of_a_key_add_up(every_source: Publisher, key: str, measure: str) -> None:
    whole = asked(every_source, measure=measure)
    apart = asked(every_source, measure=measure, by=(key,))
    names = [column.name for column in whole.columns]
    assert len({column.name for column in apart.columns}) == len(apart.columns)
    for name in ("queue", "cpu_user", "cpu_system", "slots", "jobs"):
        sums: dict[object, float] = {}
        place = [column.name for column in apart.columns].index(name)
        for row in apart.rows:
            sums[row[0]] = sums.get(row[0], 0) + float(str(row[place]))
        for row in whole.rows:
            assert sums.get(row[0], 0) == pytest.approx(float(str(row[names.index(name)])), rel=1e-12, abs=1e-12)
    all_of_it, plot = whole.plots[0], apart.plots[0]
    assert plot.x == all_of_it.x
    layers = [sum(filter(None, column)) for column in zip(*(series.values for series in plot.series), strict=True)]
    total = [sum(filter(None, column)) for column in zip(*(series.values for series in all_of_it.series), strict=True)]
    assert layers == pytest.approx(total)


def test_many_values_become_the_largest_and_others(every_source: Publisher) -> None:
    whole = asked(every_source, by=("host",)).plots[0]
    hosts = folded(whole).series
    assert len(hosts) == MOST_SERIES + 1
    assert hosts[-1].label == f"others ({len(whole.series) - MOST_SERIES})"
    assert sum(filter(None, hosts[0].values)) >= sum(filter(None, hosts[1].values))
    layers, total = (
        [sum(filter(None, column)) for column in zip(*(series.values for series in some), strict=True)]
        for some in (hosts, whole.series)
    )
    assert layers == pytest.approx(total)
    assert "(unknown)" in {one.label for one in asked(every_source, by=("account",)).plots[0].series}


@settings(max_examples=20)
@given(st.lists(st.integers(SINCE, UNTIL), min_size=1, max_size=3, unique=True), st.sampled_from(["ended", "started"]))
def test_totals_of_intervals_that_follow_one_another_add_up(
    every_source: Publisher, cuts: list[int], interval: str
) -> None:
    edges = [SINCE - 1, *sorted(cuts), UNTIL + 1]
    parts = [
        asked(every_source, "totals", start=start, stop=stop, interval=interval).rows[0]
        for start, stop in itertools.pairwise(edges)
    ]
    (whole,) = asked(every_source, "totals", start=edges[0], stop=edges[-1], interval=interval).rows
    assert whole[0] == sum(int(str(part[0])) for part in parts)
    for place in range(1, 6):
        assert float(str(whole[place])) == pytest.approx(sum(float(str(part[place])) for part in parts), rel=1e-12)
    by_day = asked(every_source, "totals", start=edges[0], stop=edges[-1], interval=interval, by=("day",)).rows
    assert whole[0] == sum(int(str(row[1])) for row in by_day)


ACT = "{q}:h:{master}:c:grp:own:par:id:7:90:{start}:{end}:0:0:10:1:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0\n"


def test_a_slave_that_ends_in_another_month_than_its_master_counts_once(tmp_path: Path) -> None:
    """The master ends before midnight of 1 December, its slave after it: each line counts where it ended.

    The part of the slave in December is in December's utilization.
    """
    midnight = 1_796_083_200
    lines = tmp_path / "act_file"
    lines.write_text(
        ACT.format(q="a", master=1, start=midnight - 100, end=midnight - 10)
        + ACT.format(q="b", master=0, start=midnight - 90, end=midnight + 50)
    )
    config = tmp_path / "publisher.toml"
    config.write_text(BASE + f'\n[sources.dqs]\ntype = "dqs"\npath = "{lines}"\n')
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        november = {"start": midnight - 86_400, "stop": midnight}
        december = {"start": midnight, "stop": midnight + 86_400}
        jobs = [asked(publisher, "totals", **month).facts["all"]["jobs"] for month in (november, december)]
        assert jobs == [1, 1]
        used = [asked(publisher, bins=1, **month).rows[0][2] for month in (november, december)]
        assert [round(float(str(queue)) * 86_400) for queue in used] == [90 + 90, 50]
        folder = tmp_path / "archive"
        assert publisher.archive(folder) == {"2026-11": Written(1), "2026-12": Written(1)}
        archived = [asked(publisher, bins=1, archive=folder, **month).rows[0][2] for month in (november, december)]
        assert archived == used


@pytest.mark.parametrize("key", ["queue", "slots"])
def test_a_measure_that_has_the_name_of_the_key_is_not_a_key(every_source: Publisher, key: str) -> None:
    whole, cut = asked(every_source, by=(key,)), asked(every_source, by=(key,), top=1)
    names = [column.name for column in whole.columns]
    of_key, measure = names.index(f"of_{key}"), names.index("queue")
    values = {row[of_key] for row in whole.rows}
    others = f"others ({len(values) - 1})"
    expected = (
        f"1 of {len(values)} values of of_{key} are shown, the largest by queue; {others} is the sum of the others."
    )
    assert cut.notes[0] == expected
    shown = {row[of_key] for row in cut.rows if not is_others(str(row[of_key]))}
    assert len(shown) == 1
    of_value = [row for row in whole.rows if row[of_key] in shown]
    assert [row for row in cut.rows if row[of_key] in shown] == of_value, "in every bin in which it ran"
    for report in (whole, cut):
        assert sum(float(str(row[measure])) for row in report.rows) == pytest.approx(
            sum(float(str(row[measure])) for row in whole.rows)
        )
    families = {family.name: family for family in text_string_to_metric_families(to_prometheus(whole))}
    assert f"usage_publisher_report_utilization_{key}" in families
    assert {label for family in families.values() for sample in family.samples for label in sample.labels} == {
        "start",
        f"of_{key}",
    }
