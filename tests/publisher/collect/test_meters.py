"""Energy of other programs: by job, cluster, and start; late values reach reports, and targets that are sent energy."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from formats.calendar import SECONDS_A_DAY, Month
from formats.job import Job
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from publisher.store.schema import State
from publisher.targets.auditor import AuditorTarget
from publisher.targets.identity import TargetContext
from publisher.targets.waldur import WaldurTarget
from tests.publisher.auditor import AuditorDouble
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, NOW, ListSource, Site, make_job
from tests.publisher.waldur import WaldurDouble, settings_of

_UNITS = (
    "CREATE TABLE units (id INTEGER PRIMARY KEY, cluster_id TEXT, uuid TEXT, started_at TEXT, started_at_ts INTEGER, "
    "ended_at_ts INTEGER, total_cpu_energy_usage_kwh TEXT, total_gpu_energy_usage_kwh TEXT)"
)


def ceems(path: Path, *units: tuple[str, str, int, object, object]) -> None:
    """A database of CEEMS with units: cluster, job, start, kWh of CPUs and GPUs as maps or as raw text."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute(_UNITS)
        for cluster, job, start, *maps in units:
            texts = [each if isinstance(each, str) or each is None else json.dumps(each) for each in maps]
            row = (cluster, job, "", start * 1000, (start + 100) * 1000, *texts)
            database.execute(
                "INSERT INTO units (cluster_id, uuid, started_at, started_at_ts, ended_at_ts, "
                "total_cpu_energy_usage_kwh, total_gpu_energy_usage_kwh) VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )
        database.commit()


def metered_site(tmp_path: Path, *meters: dict[str, Any]) -> Site:
    source = ListSource("slurm")
    source.add(job(1), job(2), job(3, cluster="beta"), job(2, record_id="again", start=NOVEMBER + 9_000, run=1))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.table["energy"] = {"measured": list(meters), "power": [{"watts_core": 36}]}
    site.collect()
    return site


def job(number: int, **facts: Any) -> Job:
    start = facts.pop("start", NOVEMBER + 3600 + number)
    usual = {"cluster": "alpha", "start": start, "end": start + 100, "submit": start - 1, "energy_j": None}
    return make_job(number, **(usual | facts))


def view(site: Site) -> dict[str, Any]:
    context = ReportContext(site.publisher.store, site.config, NOW)
    found: Report = make("energy", context, ReportRequest(start=NOVEMBER, stop=NOW))
    return dict(zip([column.name for column in found.columns], found.rows[0], strict=True))


def start_of(number: int) -> int:
    return NOVEMBER + 3600 + number


@pytest.mark.either_store
def test_values_of_ceems_by_cluster_job_and_start(tmp_path: Path) -> None:
    meter = {"type": "ceems", "path": "ceems.db", "cluster": "alpha", "ceems_cluster": "slurm-a", "days": 90}
    ceems(
        tmp_path / "ceems.db",
        ("slurm-a", "1", start_of(1), {"total": 0.001}, {"total": 0.0005}),
        ("slurm-a", "2", NOVEMBER + 9_000, {"rapl": 0.002}, None),
        ("slurm-a", "2", start_of(2) + 1, {"total": 1}, None),  # no run started then
        ("slurm-a", "3", start_of(3), {"total": 1}, None),  # that of the cluster beta
        ("slurm-b", "2", start_of(2), {"total": 1}, None),  # another cluster of CEEMS
        ("slurm-a", "2", start_of(2), {"rapl": 1, "ipmi": 2}, None),
    )
    site = metered_site(tmp_path, meter)
    assert view(site)["measured_mj"] == 0
    before = site.publisher.store
    (result,) = site.publisher.read_meters().values()
    assert (result.read, result.stored, result.without_run, result.impossible) == (5, 2, 2, 1)
    assert "has no total" in result.refused
    assert before is site.publisher.store
    found = view(site)
    assert found["measured_mj"] == round(0.0015 * 3.6e9) + round(0.002 * 3.6e9)
    assert (found["modelled_mj"], found["method"]) == (2 * 3_600_000, "CEEMS, modelled")
    (again,) = site.publisher.read_meters().values()
    assert again.stored == 0


def test_values_of_ceems_are_without_its_pue(tmp_path: Path) -> None:
    ceems(tmp_path / "ceems.db", ("slurm-a", "1", start_of(1), {"total": 0.0015}, {"total": 0.0015}))
    site = metered_site(tmp_path, {"type": "ceems", "path": "ceems.db", "ceems_pue": "1.25", "days": 90})
    site.publisher.read_meters()
    assert view(site)["measured_mj"] == round(0.003 * 3.6e9 / 1.25)


@pytest.mark.either_store
def test_late_values_change_reports_and_nothing_that_is_sent(tmp_path: Path) -> None:
    site = metered_site(tmp_path, {"type": "csv", "path": "energy.csv"})
    site.publish("sgas")
    posted = site.receivers["sgas"].posts
    for joules in ("7", "8.5"):
        (tmp_path / "energy.csv").write_text(f"job,start,joules\n1,{start_of(1)},{joules}\n")
        (result,) = site.publisher.read_meters().values()
        assert result.stored == 1
        site.collect()
        site.publish("sgas")
        assert (view(site)["measured_mj"], view(site)["method"]) == (round(float(joules) * 1000), "file, modelled")
    assert site.receivers["sgas"].posts == posted
    assert {finding.level for finding in site.publisher.maintenance.check()} == {"green"}


def test_a_last_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    site = metered_site(tmp_path, {"type": "csv", "path": "energy.csv"})
    file = tmp_path / "energy.csv"
    file.write_text(f"job,start,joules\n1,{start_of(1)},7\n2,{start_of(2)},12")
    (result,) = site.publisher.read_meters().values()
    assert (result.stored, result.impossible) == (1, 1)
    assert result.refused == "line 3: the last line has no line feed: it may be cut off"
    with file.open("a") as more:
        more.write("345\n")
    (result,) = site.publisher.read_meters().values()
    assert (result.stored, result.impossible) == (1, 0)
    assert view(site)["measured_mj"] == 12_352_000


def test_nothing_is_read_while_another_process_collects_or_closes_a_month(tmp_path: Path) -> None:
    site = metered_site(tmp_path, {"type": "csv", "path": "energy.csv"})
    (tmp_path / "energy.csv").write_text(f"job,start,joules\n1,{start_of(1)},7\n")
    with site.publisher.store.lock("collect") as held:
        assert held
        assert site.publisher.read_meters() == {}
    assert [one.stored for one in site.publisher.read_meters().values()] == [1]


def test_the_first_meter_counts(tmp_path: Path) -> None:
    site = metered_site(tmp_path, {"type": "csv", "path": "a.csv"}, {"type": "csv", "path": "b.csv"})
    (tmp_path / "a.csv").write_text(f"job,start,joules\n1,{start_of(1)},7\n")
    (tmp_path / "b.csv").write_text(f"job,start,joules\n1,{start_of(1)},8\n2,{start_of(2)},9\n")
    for stored in ([1, 1], [0, 0]):
        assert [one.stored for one in site.publisher.read_meters().values()] == stored
    assert view(site)["measured_mj"] == 16_000


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1,2026-11-01T01:00,7", "has no zone"),
        (f"1,{start_of(1)},-1", "is not an amount"),
        (f"1,{start_of(1)},NaN", "cannot convert float NaN"),
        (f"1,{start_of(1)},inf", "cannot convert float infinity"),
        (f"1,{start_of(1)},much", "could not convert string"),
        (f"1,{start_of(1)},4294967294", "is not an amount"),
        (f"1,{start_of(1)},18446744073709551614", "is not an amount"),
        (f",{start_of(1)},1", "names no job"),
        (f"1,{start_of(1)}", "could not convert string"),
    ],
)
def test_values_that_cannot_be_are_counted(tmp_path: Path, row: str, problem: str) -> None:
    site = metered_site(tmp_path, {"type": "csv", "path": "energy.csv"})
    (tmp_path / "energy.csv").write_text(f"job,start,joules\n{row}\n2,{start_of(2)},5\n")
    (result,) = site.publisher.read_meters().values()
    assert (result.impossible, result.stored, result.error) == (1, 1, None)
    assert result.refused.startswith("line 2: ")
    assert problem in result.refused


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        ("csv", None, "No such file"),
        ("csv", b"job,begin,joules\n", "it has no column start"),
        ("csv", b"job,start,joules\n\xff\xfe", "can't decode"),
        ("ceems", b"not a database, but long enough for one" * 30, "file is not a database"),
        ("ceems", b"", "no such table: units"),
    ],
)
def test_a_meter_that_cannot_be_read_is_an_error_of_it_alone(
    tmp_path: Path, kind: str, content: bytes | None, problem: str
) -> None:
    site = metered_site(tmp_path, {"type": kind, "path": "bad"}, {"type": "csv", "path": "good.csv"})
    (tmp_path / "good.csv").write_text(f"job,start,joules\n1,{start_of(1)},7\n")
    if content is not None:
        (tmp_path / "bad").write_bytes(content)
    bad, good = site.publisher.read_meters().values()
    assert problem in str(bad.error)
    assert (good.error, good.stored) == (None, 1)


@pytest.mark.either_store
def test_a_purged_run_takes_its_energy_along(tmp_path: Path) -> None:
    site = metered_site(tmp_path, {"type": "csv", "path": "energy.csv"})
    (tmp_path / "energy.csv").write_text(f"job,start,joules\n1,{start_of(1)},7\n")
    site.publisher.read_meters()
    site.publish("sgas")
    site.now += 400 * 86_400
    site.table["store"]["keep_jobs"] = "2 months"
    site.reopen()
    site.publisher.maintenance.purge()
    with site.publisher.store.read() as connection:
        for table in ("runs", "energies"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0


def test_a_damaged_run_stops_no_other(tmp_path: Path) -> None:
    site = metered_site(tmp_path, {"type": "csv", "path": "energy.csv"})
    (tmp_path / "energy.csv").write_text(f"job,start,joules\n1,{start_of(1)},7\n2,{start_of(2)},5\n")
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE runs SET row_check = row_check + 1 WHERE local_id = '1'")
    (result,) = site.publisher.read_meters().values()
    assert (result.stored, result.without_run) == (1, 1)


WATT_HOURS = {"amount": "energy-kwh", "divisor": "0.001"}


def reporting_site(tmp_path: Path, double: WaldurDouble, *jobs: Job, **energy: Any) -> Site:
    """Jobs of one core and 100 s, which 36 W make 1 Wh, for Waldur and for a service without energy."""
    source = ListSource("slurm")
    source.add(*jobs)
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.now = NOVEMBER + 20 * SECONDS_A_DAY
    double.now = lambda: site.now
    site.make_target = lambda name, given, context: WaldurTarget(
        name, given, TargetContext(context.credentials, lambda: site.now)
    )
    components = {"gpu_hours": WATT_HOURS, "cpu_k_hours": {"amount": "jobs"}}
    site.table["targets"]["waldur"] = settings_of(double, tmp_path, "staff", attempts=1, components=components)
    site.table["energy"] = {"pue": 1.5, "measured": [{"type": "csv", "path": "energy.csv"}], **energy}
    return site


def publish_all(site: Site) -> None:
    site.collect()
    site.publish()


def measure(site: Site, joules: dict[int, float]) -> None:
    rows = [f"{number},{start_of(number)},{amount}\n" for number, amount in joules.items()]
    (site.folder / "energy.csv").write_text("".join(["job,start,joules\n", *rows]))
    site.publisher.read_meters()


def test_waldur_gets_what_was_measured_late_and_other_services_nothing(tmp_path: Path) -> None:
    with WaldurDouble("physics").running() as double:
        facts = {"account": "physics", "local_user": "ada", "slots": 1, "cores": 1, "wall_s": 100}
        site = reporting_site(tmp_path, double, job(1, **facts), job(2, **facts))

        def total() -> Decimal | None:
            return double.amounts(Month(2026, 11)).get(("physics", "gpu_hours", ""))

        publish_all(site)
        posts = site.receivers["sgas"].posts
        (reason,) = set(site.reasons("waldur").values())
        assert reason == (
            "energy: unknown, and this target needs it: nothing was measured, and no [[energy.power]] matches it"
        )
        measure(site, {1: 7200})
        publish_all(site)
        assert (total(), len(site.in_state("waldur", State.HELD))) == (Decimal("3.00"), 1)
        measure(site, {1: 5400})
        publish_all(site)
        assert total() == Decimal("2.25")
        site.table["energy"]["power"] = [{"watts_core": 36}]
        site.reopen()
        publish_all(site)
        assert (total(), len(site.in_state("waldur", State.ACCEPTED))) == (Decimal("3.75"), 2)
        requests = len(double.requests)
        measure(site, {1: 5400})
        publish_all(site)
        assert len(double.requests) == requests
        assert site.receivers["sgas"].posts == posts
        assert {finding.level for finding in site.publisher.maintenance.check()} == {"green"}


def test_waldur_has_what_is_true_after_any_history_of_values(tmp_path: Path) -> None:
    chance = Random(4)
    with WaldurDouble("physics", "bio").running() as double:
        accounts = {number: chance.choice(["physics", "bio"]) for number in range(1, 13)}
        facts = {"local_user": "ada", "slots": 1, "cores": 1, "wall_s": 100}
        site = reporting_site(tmp_path, double, power=[{"watts_core": 36}])
        joules: dict[int, float] = {}
        read: set[int] = set()
        for _step in range(25):
            match chance.randrange(4):
                case 0 if len(read) < len(accounts):
                    number = min(accounts.keys() - read)
                    site.sources["slurm"].add(job(number, account=accounts[number], **facts))
                    read.add(number)
                case 1:
                    joules[chance.choice([*accounts])] = chance.choice([1800, 3600, 72_000.5])
                    measure(site, joules)
                case 2:
                    site.reopen()
                case _:
                    publish_all(site)
        site.collect()
        measure(site, joules)
        publish_all(site)
        expected: Counter[str] = Counter()
        for number in read:
            expected[accounts[number]] += round(joules.get(number, 3600) * 1500)
        amounts = double.amounts(Month(2026, 11))
        for account, energy_mj in expected.items():
            hundredths = (energy_mj * 200 + 3_600_000) // 7_200_000
            assert amounts[account, "gpu_hours", ""] == Decimal(hundredths) / 100


def test_records_of_auditor_whose_energy_changed_are_listed(tmp_path: Path) -> None:
    with AuditorDouble().running() as double:
        source = ListSource("slurm")
        source.add(job(1, slots=1, cores=1, wall_s=100), job(2, slots=1, cores=1, wall_s=100))
        site = Site(tmp_path, [source], [RecordReceiver("sgas")])
        site.make_target = lambda name, given, _context: AuditorTarget(name, given, TargetContext())
        components = {"Energy": {"amount": "energy-j"}}
        site.table["targets"]["auditor"] = {**double.settings, "components": components, "local_jobs": "send"}
        measured = [{"type": "csv", "path": "energy.csv"}]
        site.table["energy"] = {"pue": 1.5, "measured": measured, "power": [{"watts_core": 36}]}
        publish_all(site)
        posts = site.receivers["sgas"].posts
        for joules in (7200.0, 7200.0, 9000.0):
            measure(site, {1: joules})
            publish_all(site)
        assert [row["components"][0]["amount"] for row in double.rows.values()] == [5400, 5400]
        changed = make_job(1).record_id
        assert site.in_state("auditor", State.SUPERSEDED) == {changed}
        assert "Energy 5400 there, Energy 13500 here" in str(site.reasons("auditor")[changed])
        assert site.receivers["sgas"].posts == posts
