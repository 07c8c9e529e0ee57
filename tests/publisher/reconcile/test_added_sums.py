"""A service of an add-on that gives sums: by the columns, period, amounts, and spelling that its descriptor states."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from formats.calendar import SECONDS_A_DAY
from formats.columns import RecordColumns
from formats.registry import FORMATS
from publisher import plugins
from publisher.config.target_kind import SumsKind, TargetKind
from publisher.config.targets import AddOnSettings
from publisher.finding import Finding
from publisher.targets.base import Accepted, Message, PeriodSum
from tests.publisher.add_on import install
from tests.publisher.reconcile.reconciled_site import NOV, kinds, month, reconciled
from tests.publisher.site import ListSource, Site, make_job


class Adding:
    """A service that adds up its records."""

    kind = "mine"
    sums: ClassVar[SumsKind]
    kept: ClassVar[dict[str, RecordColumns]] = {}
    asked: ClassVar[list[str]] = []

    def __init__(self, name: str, _settings: object, _context: object) -> None:
        self.name = name

    def payload_limit_bytes(self) -> None:
        """It has none."""

    def post(self, message: Message) -> Accepted:
        """Keep the last version of each record."""
        read = FORMATS[message.format].columns
        assert read is not None
        self.kept.update({record.record_id: record for record in read(message.payload)})
        return Accepted({})

    def usage(self, of: str, first_day: int, until_day: int) -> list[PeriodSum]:
        """The sums, made here as its documents say."""
        self.asked.append(of)
        sums: defaultdict[tuple[tuple[str, ...], int], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        for record in self.kept.values():
            values = tuple(str(record.columns[name]).upper() for name in self.sums.key)
            day = (record.end or 0) // SECONDS_A_DAY
            if first_day <= day < until_day and values[:1] in {(), (of,)}:
                cores = int(record.columns["processors"]) if self.sums.per_core else 1
                period = first_day if self.sums.period == "month" else day
                amounts = (1, (record.wall_ms or 0) / 1000 * cores, (record.cpu_ms or 0) / 1000)
                sums[values, period] = [a + b for a, b in zip(sums[values, period], amounts, strict=True)]
        return [PeriodSum(values, day, int(jobs), wall, cpu) for (values, day), (jobs, wall, cpu) in sums.items()]

    def last_registration_s(self, _of: str) -> None:
        """It does not say."""

    def check(self) -> list[Finding]:
        """Nothing."""
        return []

    def close(self) -> None:
        """Nothing."""


def upper(_column: str, value: str) -> str:
    return value.upper()


def described(sums: SumsKind) -> TargetKind:
    made = type("AddingSo", (Adding,), {"sums": sums, "kept": {}, "asked": []})
    return TargetKind(name="mine", settings=AddOnSettings, factory=made, evidence="query", sums=sums)


BY_QUEUE = described(SumsKind(key=("queue",), period="month", amounts=frozenset({"cpu"}), spelt=upper))
BY_VO = described(SumsKind(key=("vo", "queue"), per_core=False, spelt=f"{__name__}:upper"))
COUNT = described(SumsKind(key=(), amounts=frozenset()))
WRONG = described(SumsKind(key=("vo",), spelt=upper))


def site_of(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Site:
    install(folder, monkeypatch, plugins.TARGETS, mine=f"{__name__}:{kind}")
    source = ListSource("ce1")
    site = Site(folder, [source], [])
    site.table["targets"]["mine"] = {"type": "mine"}
    source.add(*(make_job(n, queue=f"q{n % 2}", vo="atlas", cores=4, wall_s=100 * n, cpu_ms=7000) for n in range(6)))
    site.collect()
    site.publish()
    return site


def service_of(kind: str) -> type[Adding]:
    made: type[Adding] = globals()[kind].factory
    return made


@pytest.mark.parametrize(
    ("kind", "asked", "named", "compared", "service"),
    [
        ("BY_QUEUE", ["Q0", "Q1"], "2026-11 Q0", ("jobs", "cpu"), (None, 42)),
        ("BY_VO", ["ATLAS"], "2026-11-01 ATLAS Q0", ("jobs", "wall", "cpu"), (1500, 42)),
        ("COUNT", [""], "2026-11-01", ("jobs",), (None, None)),
    ],
)
def test_sums_are_compared_as_the_kind_states(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    asked: list[str],
    named: str,
    compared: tuple[str, ...],
    service: tuple[float | None, float | None],
) -> None:
    site, made = site_of(tmp_path, monkeypatch, kind), service_of(kind)
    found, differences = reconciled(site, NOV)
    assert (found.evidence, found.agrees, differences, found.compared) == ("query", True, [], compared)
    assert (month(found).confirmed, month(found).service_jobs) == (6, 6)
    assert (month(found).service_wall_s, month(found).service_cpu_s) == service
    assert made.asked == asked

    altered = make_job(2).record_id
    made.kept[altered] = msgspec.structs.replace(made.kept[altered], cpu_ms=90_000)
    found, differences = reconciled(site, NOV)
    assert [each.record for each in differences] == ([named] if "cpu" in compared else [])

    del made.kept[altered]
    found, differences = reconciled(site, NOV)
    assert month(found).missing == 1
    assert altered in kinds(differences).get("suspect", set()) | kinds(differences).get("missing", set())


def test_sums_of_an_add_on_are_compared_by_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, made = site_of(tmp_path, monkeypatch, "BY_VO"), service_of("BY_VO")
    result = site.publisher.run().reconciled["mine"]
    assert (result.confirmed, result.differences) == (6, 0)
    assert made.asked, "its service was asked"
    del made.kept[make_job(2).record_id]
    site.now += 7 * 86_400
    result = site.publisher.run().reconciled["mine"]
    assert result.differences
    assert site.publisher.status().targets["mine"].is_contradicted


def test_sums_by_other_columns_than_stated_are_a_defect_of_the_add_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, made = site_of(tmp_path, monkeypatch, "WRONG"), service_of("WRONG")
    monkeypatch.setattr(made, "usage", lambda *_: [PeriodSum(("ATLAS", "Q0"), 0, 6)])
    found, _ = reconciled(site, NOV)
    assert "the add-on 'mine' failed as a target: ValueError: its sums must have the values of vo" in (
        found.unavailable or ""
    )
