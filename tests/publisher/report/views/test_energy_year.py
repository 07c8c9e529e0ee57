"""A year of four systems beside plain Python: every cell of `energy` is equal, to the millijoule and the microgram."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from formats.job import Host, Job
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from tests.extent import RUN_WHOLE, every, short_or_whole
from tests.publisher.site import ListSource, Site, make_job

OSLO = ZoneInfo("Europe/Oslo")
START = int(datetime(2025, short_or_whole(3, 1), short_or_whole(24, 1), tzinfo=OSLO).timestamp())
STOP = int((datetime(2025, 4, 7, tzinfo=OSLO) if not RUN_WHOLE else datetime(2026, 1, 1, tzinfo=OSLO)).timestamp())
"""All of the year, or two weeks with a change of clocks."""
MOVED = int(datetime(2025, 4, 1, 12, tzinfo=UTC).timestamp())
"""When the nodes of slurm were replaced by larger ones."""
SYSTEMS = ("slurm", "gridengine", "torque", "htcondor")
PUE = Fraction(137, 100)
NODES = [
    {"name": "s[1-8]", "cores": 16, "until": "2025-04-01T12:00Z", "watts_idle": 33.3, "watts_max": 400},
    {"name": "s[1-8]", "cores": 24, "since": "2025-04-01T12:00Z", "watts_idle": 41, "watts_max": 700, "gpus": 2},
    {"name": "g[1-4]", "cores": 8, "watts_idle": 20},
    {"name": "t[1-4]", "cores": 32},
]
POWER: list[dict[str, Any]] = [
    {"watts_core": 7.123456, "watts_gib": 0.3725, "queue": "fat*", "whole_nodes": True},
    {"watts_core": 4.5, "watts_gpu": 250, "cluster": "slurm.example.org"},
    {"watts_core": 3, "source": "gridengine", "whole_nodes": True},
    {"watts_core": "6.25", "source": ["torque"], "queue": "main"},
]

PRICES = [
    {"resource": "energy", "price": "0.31", "queue": "fatter", "name": "dear"},
    {"resource": "energy", "price": "0.123456789", "queue": "fat*", "name": "cheap"},
]


def hours() -> Iterator[tuple[int, str, Fraction]]:
    """Of each hour of the file its start, as it is written, with the offset of its season, and grams a kWh."""
    random = Random(7)
    for at in range(START - 86_400, STOP, 3600):
        if not 100 <= (at - START) // 3600 < 130:  # the meter was broken
            grams = Fraction(random.randrange(1, 600_000), 1000)
            yield at, datetime.fromtimestamp(at, OSLO).isoformat(), grams


def jobs(count: int) -> dict[str, list[Job]]:
    """Jobs of the year by system; half have a value that was measured, some an impossible one."""
    random = Random(27)
    found: dict[str, list[Job]] = {system: [] for system in SYSTEMS}
    days = [(3, 30), (10, 26)] if RUN_WHOLE else [(3, 30)]
    changes = [int(datetime(2025, month, day, 1, tzinfo=UTC).timestamp()) for month, day in days]
    for number in range(count):
        system = SYSTEMS[number % 4]
        start = random.randrange(START - 80_000, STOP - 10)
        if number % 20 == 0:
            start = random.choice([*changes, MOVED]) - random.randrange(7_000)
        wall_s = random.choice([0, 1, 59, 3600, random.randrange(90_000), random.randrange(400_000)])
        names = random.sample([f"{system[0]}{node}" for node in range(1, 5)], random.choice([1, 1, 1, 2, 3]))
        cores = random.choice([1, 5, 8, 16, 24, 32]) * (len(names) if random.random() < 0.7 else 1)
        if random.random() < 0.6:
            cores = len(names) * node_of(names[0], start)["cores"]
        likely = cores * wall_s * random.uniform(1, 20)
        joules = random.choice([*[likely] * 8, 2.0**32 - 2, -3.5, 2.0**64 - 2, 0.0, 0.0015])
        found[system].append(
            make_job(
                number,
                record_id=f"{system}-{number}",
                system=system,
                status=random.choice(["completed", "failed"]),
                cluster=f"{system}.example.org",
                queue=random.choice(["main", "fat", "fatter"]),
                local_user=random.choice(["ada", "bob", "eve"]),
                project=random.choice(["p1", "p2", None]),
                vo=None,
                user_dn=None,
                hosts=() if system == "htcondor" else tuple(Host(name) for name in names),
                cores=cores,
                slots=cores,
                gpus=random.choice([None, None, 1, 3]),
                memory_rss_kib=random.choice([None, random.randrange(1 << 30)]),
                start=start,
                submit=start - 10,
                end=start + wall_s,
                wall_ms=wall_s * 1000 + random.randrange(1000),
                energy_j=joules if random.random() < 0.95 else None,
            )
        )
    return found


def half_up(exact: Fraction) -> int:
    return int(exact + Fraction(1, 2))


def exact(watts: object) -> Fraction:
    return Fraction(str(watts))


def rule_of(system: str, job: Job) -> dict[str, Any] | None:
    if str(job.queue).startswith("fat"):
        return POWER[0]
    if system == "slurm":
        return POWER[1]
    if system == "gridengine":
        return POWER[2]
    return POWER[3] if system == "torque" else None


def node_of(name: str, at: int) -> dict[str, Any]:
    if name[0] == "s":
        return NODES[0] if at < MOVED else NODES[1]
    return NODES[2] if name[0] == "g" else NODES[3]


def measured_mj(system: str, job: Job) -> int | None:
    if job.energy_j is None or not 0 < job.energy_j < 1e15 or job.energy_j == 2.0**32 - 2:
        return None
    value = round(job.energy_j * 1000)
    nodes = [node_of(host.name, job.start or 0) for host in job.hosts]
    slots = job.slots or 0
    each = [slots // len(nodes) + (place < slots % len(nodes)) for place in range(len(nodes))]
    rule = rule_of(system, job)
    alone = bool(nodes) and all(held >= node["cores"] for held, node in zip(each, nodes, strict=True))
    if not value or not (alone or (rule is not None and rule.get("whole_nodes"))):
        return None
    if nodes and all("watts_max" in node for node in nodes):
        watts = sum(
            exact(node["watts_max"]) - exact(node["watts_idle"]) * Fraction(max(0, node["cores"] - held), node["cores"])
            for held, node in zip(each, nodes, strict=True)
        )
        if value > watts * (job.wall_ms or 0):
            return None
    return value


def modelled_mj(system: str, job: Job) -> int | None:
    rule = rule_of(system, job)
    if rule is None:
        return None
    watts = (job.slots or 0) * exact(rule["watts_core"]) + (job.gpus or 0) * exact(rule.get("watts_gpu", 0))
    watts += Fraction(job.memory_rss_kib or 0, 1 << 20) * exact(rule.get("watts_gib", 0))
    return half_up(watts * (job.wall_ms or 0))


def carbon_ug(energy_mj: int, first: int, last: int, known: dict[int, Fraction]) -> Fraction | None:
    """The emissions of energy that is used evenly; None if an hour is not known. `known` is by hours since 1970."""
    last = max(last, first + 1)
    grams = Fraction(0)
    for hour in range(first // 3600, (last - 1) // 3600 + 1):
        if hour not in known:
            return None
        inside = min(last, (hour + 1) * 3600) - max(first, hour * 3600)
        grams += known[hour] * inside
    return energy_mj * grams / (last - first) / 3_600_000_000 * 1_000_000


def idle(all_jobs: list[Job], known: dict[int, Fraction]) -> tuple[int, int, int]:
    """The energy of idle cores, its emissions, and the energy that has them, second by second where it changes."""
    used = emitted = with_carbon = Fraction(0)
    edges = sorted({START, STOP, *(hour * 3600 for hour in known), *((hour + 1) * 3600 for hour in known)})
    edges = [at for at in edges if START <= at <= STOP]
    tables = ((NODES[0], "s", 8, START, MOVED), (NODES[1], "s", 8, MOVED, STOP), (NODES[2], "g", 4, START, STOP))
    for table, letter, count, since, until in tables:
        held: defaultdict[int, int] = defaultdict(int)
        for job in all_jobs:
            for place, host in enumerate(job.hosts):
                if host.name[0] == letter:
                    slots, hosts = job.slots or 0, len(job.hosts)
                    amount = slots // hosts + (place < slots % hosts)
                    at, last = max(job.start or 0, since), min(job.end or 0, until)
                    while at < last:  # hour by hour
                        following = min((at // 3600 + 1) * 3600, last)
                        held[at // 3600] += amount * (following - at)
                        at = following
        for first, last in pairwise(edges):
            capacity = count * table["cores"] * max(0, min(last, until) - max(first, since))
            inside = sum(held[hour] for hour in range(first // 3600, (last + 3599) // 3600))
            energy = Fraction(max(0, capacity - inside), table["cores"]) * exact(table["watts_idle"]) * 1000
            used += energy
            if (grams := known.get(first // 3600)) is not None:
                with_carbon += energy
                emitted += energy * grams / 3_600_000_000 * 1_000_000
    return half_up(used), half_up(emitted), half_up(with_carbon)


KEYS = {
    "user": lambda system, job: job.local_user,
    "project": lambda system, job: job.project or "",
    "queue": lambda system, job: job.queue,
    "cluster": lambda system, job: job.cluster,
    "month": lambda system, job: f"{datetime.fromtimestamp(job.end, OSLO):%Y-%m}",
}


def cells(report: Report) -> dict[Any, dict[str, Any]]:
    names = [column.name for column in report.columns]
    found = {row[0]: dict(zip(names, row, strict=True)) for row in report.rows}
    return found | {"total": dict(zip(names, report.footer, strict=True))}


def expected(chosen: list[tuple[str, Job]], known: dict[int, Fraction], more: tuple[int, int, int]) -> dict[str, Any]:
    """The cells of a row."""
    idle_mj, idle_ug, idle_known = more
    measured = modelled = ug = with_carbon = unknown = core_ms = gpu_ms = 0
    for system, job in chosen:
        core_ms += (job.slots or 0) * (job.wall_ms or 0)
        gpu_ms += (job.gpus or 0) * (job.wall_ms or 0)
        value, model = measured_mj(system, job), modelled_mj(system, job)
        used = model if value is None else value
        measured += value or 0
        modelled += 0 if value is not None else model or 0
        unknown += used is None
        if used is not None:
            carbon = carbon_ug(used, job.start or 0, job.end or 0, known)
            if carbon is not None:
                ug, with_carbon = ug + half_up(carbon), with_carbon + used
    modelled, ug, with_carbon = modelled + idle_mj, ug + idle_ug, with_carbon + idle_known
    energy = measured + modelled
    kwh = energy * PUE / 3_600_000_000
    core_h, co2e_kg = Fraction(core_ms, 3_600_000), ug * PUE / 1_000_000_000
    return {
        "jobs": len(chosen) or None, "core_h": core_h if chosen else None,
        "gpu_h": Fraction(gpu_ms, 3_600_000) if gpu_ms else None,
        "measured_mj": measured, "modelled_mj": modelled,
        "modelled_kwh": Fraction(modelled, 3_600_000_000), "with_pue_kwh": kwh, "co2e_kg": co2e_kg,
        "kwh_per_core_h": kwh / core_h if core_h else None,
        "co2e_g_per_core_h": co2e_kg * 1000 / core_h if core_h else None,
        "measured_share": Fraction(measured, energy), "carbon_known": Fraction(with_carbon, energy),
        "unknown_jobs": unknown,
    }  # fmt: skip


def test_a_year_of_four_systems(tmp_path: Path) -> None:
    of_systems = jobs(short_or_whole(200, 50_000))
    sources = [ListSource(system, page=5_000) for system in SYSTEMS]
    site = Site(tmp_path, sources, [])
    for source in sources:
        source.add(*of_systems[source.name])
    known = {at // 3600: grams for at, _, grams in hours()}
    lines = [f"{start},{float(grams):.3f}" for _, start, grams in hours()]
    (tmp_path / "carbon.csv").write_text("\n".join(["start,g_per_kwh", *lines]) + "\n")
    site.table |= {"energy": {"pue": 1.37, "carbon_file": "carbon.csv", "power": POWER}, "nodes": NODES}
    site.table["charges"] = {"timezone": "Europe/Oslo", "prices": PRICES}
    site.now = STOP
    site.publisher.collect()
    context = ReportContext(site.publisher.store, site.config, STOP)
    everything = [(system, job) for system in SYSTEMS for job in of_systems[system]]
    counted = [(system, job) for system, job in everything if START <= (job.end or 0) < STOP]
    of_idle = idle([job for _, job in everything], known)
    assert sum(measured_mj(*one) is not None for one in counted) > len(counted) / 3
    for key in every(3, KEYS, 1):
        request = ReportRequest(start=START, stop=STOP, by=(key,), timezone="Europe/Oslo")  # type: ignore[arg-type]
        found = cells(make("energy", context, request))
        groups: defaultdict[Any, list[tuple[str, Job]]] = defaultdict(list)
        for system, job in counted:
            groups[KEYS[key](system, job)].append((system, job))
        assert found.keys() == {*groups, "(idle nodes)", "total"}
        right = {name: expected(chosen, known, (0, 0, 0)) for name, chosen in groups.items()}
        right |= {"(idle nodes)": expected([], known, of_idle), "total": expected(counted, known, of_idle)}
        for name, row in right.items():
            for column, value in row.items():
                shown = found[name][column]
                is_whole = isinstance(value, int) or value is None
                assert shown == (value if is_whole else pytest.approx(float(value), rel=1e-12)), (key, name, column)
    start, stop = (int(datetime(2025, month, 1, tzinfo=UTC).timestamp()) for month in (3, 4))
    charges = make("charges", context, ReportRequest(start=start, stop=stop))
    of_users: defaultdict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for system, job in everything:
        if datetime.fromtimestamp(job.end or 0, OSLO).month == 3 and job.queue != "main":
            value = measured_mj(system, job)
            used = modelled_mj(system, job) if value is None else value
            place = 0 if job.queue == "fatter" else 1  # both match fatter: the first counts
            of_users[str(job.local_user), PRICES[place]["name"]] += (used or 0) * PUE / 3_600_000_000
    items = {(row[0], row[1]): (row[3], row[8]) for row in charges.rows if row[1] != "total"}
    assert items.keys() == of_users.keys()
    for (user, name), kwh in of_users.items():
        price = Fraction(next(str(one["price"]) for one in PRICES if one["name"] == name))
        quantity, amount = items[user, name]
        assert quantity == pytest.approx(float(kwh), rel=1e-12)
        assert amount == Decimal(half_up(kwh * price * 100)).scaleb(-2)
