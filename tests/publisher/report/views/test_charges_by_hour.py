"""Charges by the hours of a time zone: months and days of a site that is not in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from formats.calendar import Month, month_bounds
from publisher.api import Publisher
from publisher.config.reports import Price
from publisher.page.html import heading
from publisher.report.plot.style import Look
from publisher.report.plot.terminal import TextPlot
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.files import document
from publisher.report.statements.statement import notes_on
from publisher.report.views import make
from publisher.report.views.charges import statements
from tests.publisher.cli.program import BASE
from tests.publisher.report.torque_site import NODES, NOW

OSLO = """
[charges]
timezone = "Europe/Oslo"
[[charges.prices]]
resource = "cores"
price = "0.5"
hours = "22-06"
[[charges.prices]]
resource = "cores"
price = "1"
"""
_OSLO = ZoneInfo("Europe/Oslo")


def local(*when: int) -> int:
    return int(datetime(2026, *when, tzinfo=_OSLO).timestamp())


@pytest.fixture(scope="module")
def in_oslo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    """Jobs of one core: over the night in which clocks go forward, over that in which they go back, and one that ends
    half an hour after the local midnight of 1 November, which is 31 October in UTC."""
    times = [
        (local(3, 28, 20), local(3, 29, 8)),
        (local(10, 24, 20), local(10, 25, 8)),
        (local(10, 31, 23), local(11, 1, 0, 30)),
    ]
    folder = tmp_path_factory.mktemp("oslo")
    lines = [
        f"{datetime.fromtimestamp(end, UTC):%m/%d/%Y %H:%M:%S};E;{number}.srv;user=ada group=chem jobname=j "
        f"queue=batch ctime={start} qtime={start} etime={start} start={start} exec_host=n1/0 end={end} Exit_status=0 "
        "resources_used.cput=00:10:00\n"
        for number, (start, end) in enumerate(times, 1)
    ]
    (folder / "accounting").write_text("".join(lines))
    config = folder / "publisher.toml"
    config.write_text(BASE + f'\n[sources.torque]\ntype = "torque"\npath = "{folder / "accounting"}"\n{NODES}{OSLO}')
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        yield publisher


def charged(publisher: Publisher, number: int) -> list[tuple[str, float, str]]:
    start, stop = month_bounds(Month(2026, number))
    made = statements(ReportContext(publisher.store, publisher.config, 2 * NOW), ReportRequest(start=start, stop=stop))
    assert made.shown_month == f"2026-{number:02} (Europe/Oslo)"
    assert all(f"Statement for {made.shown_month}" in document(made, one, "text").decode() for one in made.all)
    return [(item.name, float(item.quantity), str(item.amount)) for one in made.all for item in one.items]


def test_hours_and_months_of_a_time_zone(in_oslo: Publisher) -> None:
    """From 22:00 to 06:00 are 7 hours in the night to 29 March and 9 in that to 25 October; 12 hours on the clock are
    11 and 13."""
    assert charged(in_oslo, 3) == [("cores (22-06)", 7.0, "3.50"), ("cores", 4.0, "4.00")]
    assert charged(in_oslo, 10) == [("cores (22-06)", 9.0, "4.50"), ("cores", 4.0, "4.00")]
    assert charged(in_oslo, 11) == [("cores (22-06)", 1.5, "0.75")]


def test_months_begin_at_local_midnight(in_oslo: Publisher) -> None:
    """The same in UTC: the last job ended in October."""
    charges = in_oslo.config.charges.model_copy(update={"timezone": "UTC", "prices": in_oslo.config.charges.prices[1:]})
    config = in_oslo.config.model_copy(update={"charges": charges})
    start, stop = month_bounds(Month(2026, 10))
    made = statements(ReportContext(in_oslo.store, config, 2 * NOW), ReportRequest(start=start, stop=stop))
    assert [float(item.quantity) for one in made.all for item in one.items] == [14.5]
    found = make(
        "charges", ReportContext(in_oslo.store, in_oslo.config, 2 * NOW), ReportRequest(start=start, stop=stop)
    )
    assert (found.start, found.stop, found.facts["timezone"]) == (local(10, 1), local(11, 1), "Europe/Oslo")
    assert (found.stop - found.start) == 31 * 86_400 + 3600
    interval = "2026-10-01 until 2026-11-01, Europe/Oslo"
    assert interval in heading(found)
    look = Look(note=found.site, timezone=found.timezone)
    plain = [
        str(line)
        for line in TextPlot(100, unicode=True, coloured=False).lines(found.plots[0], found.start, found.stop, look)
    ]
    assert plain[1] == f"{found.site}, {interval}"


@pytest.mark.parametrize("hours", ["22", "6-22", "22-22", "22-25", "22:60-23", "24-06", "22-24:30", "night"])
def test_hours_that_are_none(hours: str) -> None:
    with pytest.raises(ValueError, match="not a part of the day"):
        Price(resource="cores", price="1", hours=hours)


def test_prices_of_a_type_do_not_apply_to_nodes_without_a_table(in_oslo: Publisher) -> None:
    prices = [price.model_copy(update={"type": ("compute",)}) for price in in_oslo.config.charges.prices]
    charges = in_oslo.config.charges.model_copy(update={"prices": prices})
    config = in_oslo.config.model_copy(update={"charges": charges, "nodes": []})
    start, stop = month_bounds(Month(2026, 3))
    made = statements(ReportContext(in_oslo.store, config, 2 * NOW), ReportRequest(start=start, stop=stop))
    assert notes_on(made) == (
        "11.000 core h on nodes of type (inferred) in queue batch have no price and are not charged.",
        "Nodes of type (inferred) have no table [[nodes]]: write one with their `type`, or a price without `type`.",
    )
