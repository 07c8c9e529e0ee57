"""One picture of each kind with the data of an invented site, for the documents: `PICTURES=DIR` keeps them."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.report.calendar import ReportPeriod, period_axis, periods, zone_of
from publisher.report.plot.draw import draw
from publisher.report.plot.style import Look, Style, is_labelled, limited
from publisher.report.report import Plot, Series


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


NOW, COLLECTED = at("2026-11-24T17:00"), at("2026-11-23T05:30")
START, STOP, YEAR = at("2026-11-01"), at("2026-12-01"), at("2025-12-15")
HOURS: Final = tuple(range(START, STOP, 3600))
DAYS: Final = tuple(range(START, STOP, 86_400))
NOTES: Final = (
    "40 nodes without a table [[nodes]]: the number of cores of each is assumed to be the largest that jobs used.",
    "Jobs held more cores than [[nodes]] has on wn007, wn012.",
)
USERS: Final = tuple(f"user{number:02}" for number in range(1, 24))
QUEUES: Final = ("atlas", "cms", "long", "short", "gpu", "debug", "express", "test", "mpi")


def running(hour: int, chance: random.Random) -> float:
    """Jobs at an hour of a month: more by day than by night, and fewer at weekends."""
    weekend = 80 if hour // 24 % 7 in {0, 6} else 0
    return max(0.0, 300 + 120 * math.sin((hour - 8) / 24 * 2 * math.pi) - weekend + chance.gauss(0, 20))


def around(level: float, count: int, chance: random.Random, spread: float) -> tuple[float, ...]:
    return tuple(max(0.0, level + chance.gauss(0, spread)) for _ in range(count))


def over_hours(title: str, by: str, series: tuple[Series, ...]) -> Plot:
    return Plot(
        title=title, style="line", x=HOURS, step_s=3600, unit="running jobs", by=by, stacked=bool(by), series=series
    )


def kinds(chance: random.Random) -> dict[str, tuple[Plot, dict[str, Any]]]:
    """The plots and what is chosen for each."""
    months: list[ReportPeriod] = periods(YEAR, NOW, "month", zone_of("Europe/Oslo"))
    days = periods(START, NOW, "day", zone_of("UTC"))
    of_month = {"start": YEAR, "zone": "Europe/Oslo", "notes": NOTES}
    types = (("compute", 82), ("gpu", 60), ("large memory", 30))
    by_queue = tuple(
        Series(queue, tuple(running(hour + 7 * place, chance) / (place + 2) for hour in range(len(HOURS))))
        for place, queue in enumerate(QUEUES)
    )
    nodes = tuple(
        Series(f"wn{number:03}", tuple(min(100.0, value) for value in around(70, len(days), chance, 25)))
        for number in range(30)
    )
    hours = tuple(running(hour, chance) for hour in range(len(HOURS)))
    core_h = tuple(1e5 / (place + 1) ** 1.2 for place in range(len(USERS)))
    occupation: dict[str, Any] = {"unit": "occupation (%)", "top": 100.0}
    return {
        "queue-line": (over_hours("Running jobs", "", (Series("running jobs", hours),)), {}),
        "stacked-line": (over_hours("Running jobs by queue", "queue", by_queue), {"zone": "Europe/Oslo"}),
        "cpu-bar": (
            Plot(
                title="CPU utilization", style="line", x=DAYS, step_s=86_400, unit="CPUs in use", stacked=True,
                series=(
                    Series("CPU, user", around(250, len(DAYS), chance, 40)),
                    Series("CPU, system", around(30, len(DAYS), chance, 5)),
                ),
            ),
            {"style": "bar"},
        ),
        "months": (
            Plot(
                title="Occupation of cores by type", style="line", by="type", **occupation, **period_axis(months),
                series=tuple(Series(name, around(level, len(months), chance, 7)) for name, level in types),
            ),
            of_month,
        ),
        "occupation": (
            Plot(
                title="Occupation of cores by node", style="heat", by="node", series=nodes, **occupation,
                **period_axis(days),
            ),
            {"notes": NOTES},
        ),
        "totals": (
            Plot(
                title="Core hours by user", style="bar", x=USERS, unit="core h", names_add_up=True,
                series=(Series("core hours", core_h),),
            ),
            {},
        ),
        "stacked": (
            Plot(
                title="Core hours by queue and VO", style="bar", x=QUEUES, unit="core h", by="VO", stacked=True,
                names_add_up=True,
                series=tuple(Series(vo, around(5e3, len(QUEUES), chance, 3e3)) for vo in ("atlas", "cms", "alice")),
            ),
            {},
        ),
        "load": (
            Plot(
                title="Queues", style="line", x=HOURS[:500], step_s=3600, unit="queues",
                series=(
                    Series("active queues", around(40, 500, chance, 2)),
                    Series("all queues", (64.0,) * 200 + (None,) * 30 + (64.0,) * 270),
                    Series("queue utilization of the jobs", around(38, 500, chance, 2)),
                ),
            ),
            {},
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", kinds(random.Random(3)))
def test_a_picture_of_each_kind(pictures: Path, kind: str) -> None:
    plot, chosen = kinds(random.Random(3))[kind]
    plot = limited(plot, STOP, NOW, COLLECTED)
    style: Style | None = chosen.get("style")
    look = Look(
        note="EXAMPLE-SITE", notes=chosen.get("notes", ()), timezone=chosen.get("zone", "UTC"), style=style,
        legend=is_labelled(plot),
    )  # fmt: skip
    made = draw(plot, STOP, look, "png", start=chosen.get("start", START))
    (pictures / f"{kind}.png").write_bytes(made)
    assert made.startswith(b"\x89PNG")
