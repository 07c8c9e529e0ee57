"""`energy`: every figure beside plain Python; what may not be used is not, and is counted."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from publisher.api import Publisher
from publisher.errors import PublisherError
from publisher.report.output import to_prometheus
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.document import statement_document, to_text
from publisher.report.views import make
from publisher.report.views.charges import statements
from tests.publisher.cli.program import BASE

NOW = 1_772_600_000
DAY, NEXT = 1_772_409_600, 1_772_496_000
"""2 March 2026 and the day after it, UTC."""
_COLUMNS = (
    "Cluster|JobIDRaw|JobID|User|Group|State|Submit|Start|End|ElapsedRaw|NCPUS|NNodes|NodeList|AllocTRES|"
    "ConsumedEnergyRaw|Partition"
)
POWER = """
[energy]
pue = 1.5
carbon_g_per_kwh = 100
[[energy.power]]
watts_core = 5
watts_gpu = 300
[[nodes]]
name = "n[1-4]"
cores = 32
watts_idle = 64
watts_max = 500
"""

_WITHOUT_POWER = '[energy]\n[[nodes]]\nname = "n[1-4]"\ncores = 32\n'


def energy_site(folder: Path, jobs: list[dict[str, object]], more: str = POWER) -> Publisher:
    """Slurm jobs of one hour from midnight: `nodes`, `count`, `cores`, `gpus`, `joules`, `user`, `queue`."""
    lines = [_COLUMNS]
    for number, job in enumerate(jobs, 1):
        count, cores, gpus = job.get("count", 1), job.get("cores", 32), job.get("gpus", 0)
        resources = f"cpu={cores},node={count}" + (f",gres/gpu={gpus}" if gpus else "")
        lines.append(
            f"alpha|{number}|{number}|{job.get('user', 'ada')}|physics|COMPLETED|2026-03-01T23:00:00|"
            f"2026-03-02T00:00:00|2026-03-02T01:00:00|3600|{cores}|{count}|{job.get('nodes', 'n1')}|{resources}|"
            f"{job.get('joules', '')}|{job.get('queue', 'main')}"
        )
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")
    config = folder / "publisher.toml"
    config.write_text(BASE + f'\n[sources.slurm]\ntype = "slurm"\npath = "sacct.psv"\ntimezone = "UTC"\n{more}')
    publisher = Publisher.from_file(config)
    collected = publisher.collect()
    assert collected is not None
    assert collected["slurm"].jobs == len(jobs)
    return publisher


def view(publisher: Publisher, **asked: object) -> Report:
    given: dict[str, object] = {"start": DAY, "stop": NEXT, **asked}
    context = ReportContext(publisher.store, publisher.config, NOW)
    return make("energy", context, ReportRequest(**given))  # type: ignore[arg-type]


def rows(report: Report) -> dict[object, dict[str, object]]:
    names = [column.name for column in report.columns]
    return {row[0]: dict(zip(names, row, strict=True)) for row in report.rows}


def test_measured_or_else_modelled_with_pue_once_and_idle_by_itself(tmp_path: Path) -> None:
    jobs: list[dict[str, object]] = [
        {"joules": 720_000},  # 0.2 kWh
        {"user": "bob", "nodes": "n2", "cores": 16, "gpus": 1, "joules": 900_000},  # shared: 16 x 5 W + 300 W
    ]
    with energy_site(tmp_path, jobs) as site:
        found = view(site, by=("user",))
        assert found.footer[0] == "total"
        all_cells = dict(zip([column.name for column in found.columns], found.footer, strict=True))
        cells = rows(found)
        assert (cells["ada"]["measured_mj"], cells["ada"]["modelled_mj"]) == (720_000_000, 0)
        assert (cells["ada"]["with_pue_kwh"], cells["ada"]["co2e_kg"]) == (0.3, 0.03)
        assert cells["ada"]["kwh_per_core_h"] == pytest.approx(0.3 / 32)
        assert cells["ada"]["co2e_g_per_core_h"] == pytest.approx(30 / 32)
        assert (cells["ada"]["measured_share"], cells["ada"]["method"]) == (1.0, "batch system")
        assert (cells["bob"]["measured_mj"], cells["bob"]["modelled_mj"]) == (0, 380 * 3_600_000)
        assert (cells["bob"]["measured_share"], cells["bob"]["method"]) == (0.0, "modelled")
        idle_mj = (4 * 24 - 1 - Fraction(1, 2)) * 64 * 3_600_000
        assert cells["(idle nodes)"]["modelled_mj"] == idle_mj
        assert cells["(idle nodes)"]["jobs"] is None
        assert all_cells["measured_mj"] == 720_000_000
        assert all_cells["modelled_mj"] == 380 * 3_600_000 + idle_mj
        assert view(site, by=("user",), filters={"user": "ada"}).rows[-1][0] == "ada"
        assert any("all their cores" in note for note in found.notes)
        note = f"Idle nodes used {float(idle_mj) / 3.6e9:,.1f} kWh (without PUE) besides"
        assert any(line.startswith(note) for line in view(site).notes)
        assert not any("besides" in line for line in found.notes)


def test_unknown_energy_is_no_bar_of_zero(tmp_path: Path) -> None:
    with energy_site(tmp_path, [{"joules": 720_000}, {"user": "bob"}], _WITHOUT_POWER) as site:
        (plot,) = view(site, by=("user",)).plots
        assert plot.x == ("ada", "bob")
        assert [one.values for one in plot.series] == [(0.2, None), (0.0, None)]
        days = view(site, by=("day",), filters={"user": "bob"}, stop=NEXT + 86_400).plots[0]
        assert days.series[0].values == (None, 0.0), "no job, no energy"


@pytest.mark.parametrize(
    ("joules", "cores", "why"),
    [
        (str(2**32 - 2), 32, "negative"),
        (str(500 * 3600 + 1), 32, "can draw"),
        ("100", 31, "all their cores"),
    ],
)
def test_what_may_not_be_used_is_modelled_and_counted(tmp_path: Path, joules: str, cores: int, why: str) -> None:
    with energy_site(tmp_path, [{"joules": joules, "cores": cores}]) as site:
        found = view(site)
        assert rows(found)[1]["measured_mj"] == 0
        assert rows(found)[1]["modelled_mj"] == cores * 5 * 3_600_000
        assert [note for note in found.notes if why in note and ": 1 job" in note]


def test_the_name_of_a_host_in_a_note_is_a_text(tmp_path: Path) -> None:
    braced = '[[nodes]]\nname = "n{x}"\ncores = 32\nwatts_max = 500\n'
    with energy_site(tmp_path, [{"nodes": "n{x}", "joules": 520 * 3600}], POWER + braced) as site:
        (note,) = [note for note in view(site).notes if "watts_max" in note]
    assert " W on n{x}, " in note


def test_the_note_on_watts_max_says_by_how_much_it_is_exceeded(tmp_path: Path) -> None:
    jobs: list[dict[str, object]] = [
        {"nodes": "n1", "joules": 520 * 3600}, {"nodes": "n[2-4]", "count": 3, "cores": 96, "joules": 2100 * 3600}
    ]  # fmt: skip
    with energy_site(tmp_path, jobs) as site:
        (note,) = [note for note in view(site).notes if "watts_max" in note]
    assert note.endswith(": 2 jobs; the highest is 2,100 W on n2 and 2 other nodes, where 1,500 W are possible.")


def test_a_key_of_which_no_job_has_a_value_is_named_beside_idle_nodes(tmp_path: Path) -> None:
    with energy_site(tmp_path, [{"user": "ada"}]) as site:
        assert any("No job has a value for project" in note for note in view(site, by=("project",)).notes)
        assert not any("No job has a value" in note for note in view(site, by=("user",)).notes)


@pytest.mark.parametrize("joules", ["", "0", "-5", str(2**64 - 2)])
def test_what_says_nothing_is_modelled(tmp_path: Path, joules: str) -> None:
    with energy_site(tmp_path, [{"joules": joules}]) as site:
        assert rows(view(site))[1]["modelled_mj"] == 160 * 3_600_000


def test_impossible_runs_are_left_out(tmp_path: Path) -> None:
    with energy_site(tmp_path, [{"cores": 1 << 23}, {"cores": 1 << 24}, {}]) as site:
        found = view(site)
        assert rows(found)[3]["unknown_jobs"] == 1
        assert any("are impossible: 1 job." in note for note in found.notes)


def test_the_most_that_nodes_can_draw_is_measured(tmp_path: Path) -> None:
    jobs: list[dict[str, object]] = [
        {"joules": 500 * 3600},
        {"nodes": "n[2-3]", "count": 2, "cores": 64, "joules": 2 * 500 * 3600},
    ]
    with energy_site(tmp_path, jobs) as site:
        assert rows(view(site))[2]["measured_mj"] == 3 * 500 * 3_600_000


def test_without_a_rule_energy_is_unknown(tmp_path: Path) -> None:
    rule = '[[energy.power]]\nwatts_core = 5\nqueue = "long"\n'
    with energy_site(tmp_path, [{"queue": "long"}, {}, {"joules": 7}], rule) as site:
        cells = rows(view(site, by=("queue",)))
        assert (cells["long"]["modelled_kwh"], cells["long"]["unknown_jobs"]) == (0.16, 0)
        assert (cells["main"]["with_pue_kwh"], cells["main"]["method"], cells["main"]["unknown_jobs"]) == (
            None,
            None,
            2,
        )


def test_whole_nodes_by_the_configuration(tmp_path: Path) -> None:
    rule = '[[energy.power]]\nwatts_core = 5\nqueue = "alone"\nwhole_nodes = true\n'
    with energy_site(tmp_path, [{"queue": "alone", "joules": 7, "cores": 3}], rule) as site:
        found = view(site)
        assert rows(found)[1]["measured_mj"] == 7000
        assert any("not checked: 1 job." in note for note in found.notes)


def carbon_site(tmp_path: Path, text: str, jobs: list[dict[str, object]] | None = None) -> Publisher:
    (tmp_path / "carbon.csv").write_text(text)
    more = POWER.replace("carbon_g_per_kwh = 100", 'carbon_file = "carbon.csv"')
    return energy_site(tmp_path, [{}] if jobs is None else jobs, more)


def test_carbon_by_the_hour(tmp_path: Path) -> None:
    hours = "start,g_per_kwh\n2026-03-02T00:30+00:30,100\n2026-03-02T01:00Z,500.125\n2026-03-02T05:00Z,7\n"
    with carbon_site(tmp_path, hours) as site:
        cells = rows(view(site, by=("user",)))
        assert cells["ada"]["co2e_kg"] == pytest.approx(0.16 * 1.5 * 0.1)
        idle = cells["(idle nodes)"]
        kwh = 0.064 * (3 * 0.1 + 4 * 0.500125 + 4 * 0.007)
        assert idle["co2e_kg"] == pytest.approx(kwh * 1.5)
        assert idle["carbon_known"] == pytest.approx(11 / 95)
        assert any("no value for 21 hours of the interval, from 2026-03-02T02:00:00Z" in x for x in view(site).notes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("start,grams\n", "has no column g_per_kwh"),
        ("", "has no column start"),
        ("start,g_per_kwh\n2026-10-25T02:00,1\n", "line 2: '2026-10-25T02:00' has no zone"),
        ("start,g_per_kwh\n2026-03-02T00:00Z,-1\n", "line 2: '-1': must be a number from 0"),
        ("start,g_per_kwh\n2026-03-02T00:00Z,NaN\n", "line 2: 'NaN'"),
        ("start,g_per_kwh\n2026-03-02T00:00Z,much\n", "line 2: 'much'"),
        ("start,g_per_kwh\n2026-03-02T00:00Z\n", "line 2: it has too few cells"),
        ("start,g_per_kwh\nnoon,1\n", "line 2: 'noon' is not a time"),
        ("start,g_per_kwh\n2026-03-02T01:00Z,1\n2026-03-02T01:30Z,1\n", "line 3: 2026-03-02T01:30:00Z is not an hour"),
    ],
)
def test_a_bad_carbon_file_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    with carbon_site(tmp_path, text) as site, pytest.raises(PublisherError, match=r".*") as raised:
        view(site)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("[energy]\npue = 0.9\n", "must be a number from 1 to 10"),
        ("[energy]\npue = nan\n", "must be a number from 1 to 10"),
        ("[[energy.power]]\nwatts_core = -1\n", "must be a number from 0 to 10,000"),
        ('[[energy.power]]\nwatts_core = "many"\n', "must be a number from 0 to 10,000"),
        ('[energy]\ncarbon_g_per_kwh = 1\ncarbon_file = "c.csv"\n', "cannot be set together"),
        ('[[nodes]]\nname = "n"\ncores = 1\nwatts_idle = 2\nwatts_max = 1\n', "watts_idle must be at most watts_max"),
        ('[[energy.measured]]\ntype = "csv"\npath = "x"\ndays = 3\n', "has no effect on a CSV file"),
        (POWER.replace("watts_max = 500", "watts_max = 150"), "is less than the 160 W"),
    ],
)
def test_a_bad_configuration_is_an_error(tmp_path: Path, more: str, problem: str) -> None:
    with pytest.raises(PublisherError) as raised:
        energy_site(tmp_path, [{}], more)
    assert problem in str(raised.value)


CHARGES = (
    POWER
    + """
[charges]
by = "user"
[[charges.prices]]
resource = "cores"
price = "0.01"
[[charges.prices]]
resource = "energy"
price = "0.2"
queue = "main"
"""
)


def test_energy_is_charged_with_pue_and_is_a_line_of_statements(tmp_path: Path) -> None:
    jobs: list[dict[str, object]] = [
        {"joules": 7_200_000 // 5}, {"user": "bob", "nodes": "n2", "queue": "other"},
    ]  # fmt: skip
    with energy_site(tmp_path, jobs, CHARGES) as site:
        month = {"start": 1_772_323_200, "stop": 1_775_001_600}
        context = ReportContext(site.store, site.config, NOW)
        found = make("charges", context, ReportRequest(**month))  # type: ignore[arg-type]
        items = [(row[0], row[1], row[3], row[4], str(row[8])) for row in found.rows if row[0] != "(all)"]
        assert items == [
            ("ada", "cores", 32.0, "core h", "0.32"),
            ("ada", "energy (main)", 0.6, "kWh", "0.12"),
            ("ada", "total", None, "", "0.44"),
            ("bob", "cores", 32.0, "core h", "0.32"),
            ("bob", "total", None, "", "0.32"),
        ]
        assert "0.240 kWh in queue other have no price and are not charged." in found.notes
        made = statements(context, ReportRequest(**month))  # type: ignore[arg-type]
        text = " ".join(to_text(statement_document(made, made.all[0])).split())
        assert "Energy of these jobs: 0.600 kWh with PUE 1.5, 0.060 kg CO2e (100 % measured, the rest" in text
        assert "Subtotal Energy" in text


@pytest.mark.parametrize("key", ['type = "compute"', 'hours = "22-06"'])
def test_the_price_of_energy_has_no_place(tmp_path: Path, key: str) -> None:
    with pytest.raises(PublisherError) as raised:
        energy_site(tmp_path, [{}], f'[[charges.prices]]\nresource = "energy"\nprice = "1"\n{key}\n')
    assert "cannot be set for energy" in str(raised.value)


def test_gauges_for_prometheus(tmp_path: Path) -> None:
    jobs: list[dict[str, object]] = [{"user": 'a"d\\a'}, {"queue": "other"}]
    with energy_site(tmp_path, jobs, POWER.replace("watts_idle = 64\n", "")) as site:
        lines = to_prometheus(view(site, by=("user",))).splitlines()
        assert "# TYPE usage_publisher_report_energy_with_pue_kwh gauge" in lines
        assert 'usage_publisher_report_energy_modelled_mj{user="ada"} 5.76e+08' in lines
        assert [line for line in lines if 'user="a\\"d\\\\a"' in line]
        assert "usage_publisher_report_energy_jobs 2.0" in to_prometheus(view(site)).splitlines()
        empty = to_prometheus(view(site, filters={"user": "nobody"}))
        assert not [line for line in empty.splitlines() if not line.startswith("#")]
