"""Allocations: parts of jobs across their borders, pace, the day on which they run dry, files, mails, and metrics."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from publisher.config.allocations import Allocation
from publisher.errors import ConfigError, UsageError
from publisher.observe.allocations import AllocationUse
from publisher.observe.metrics import StatusCollector, text
from publisher.page.auth import EVERYBODY, Person
from publisher.page.query import parse
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.view_kind import ALLOCATIONS
from tests.publisher.report.torque_site import table
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

DAY = 86_400
HOUR = 3600
NEVER = ReportRequest(start=0, stop=1)


def stamp(instant: int) -> str:
    return f"{datetime.fromtimestamp(instant, UTC):%Y-%m-%dT%H:%M:%SZ}"


def allocation(name: str, since: int, until: int, amount: int = 100, **holder: Any) -> dict[str, Any]:
    return {"name": name, "since": stamp(since), "until": stamp(until), "amount": amount, **(holder or {"user": "ada"})}


def allocated(folder: Path, *allocations: dict[str, Any], files: tuple[dict[str, Any], ...] = ()) -> Site:
    source = ListSource("ce1")
    of_thesis = {"account": "thesis", "cluster": "alpha"}
    source.add(
        make_job(1, local_user="ada", end=NOVEMBER + 2 * HOUR, wall_s=4 * HOUR, slots=3),  # half of it is of October
        make_job(2, local_user="ada", end=NOVEMBER + 10 * DAY, wall_s=10 * HOUR, slots=2, gpus=1, **of_thesis),
        make_job(3, local_user="bob", end=NOVEMBER + 10 * DAY, wall_s=7 * HOUR, slots=1),
        make_job(
            4, local_user="eve", end=NOVEMBER + 9 * DAY, wall_s=HOUR, slots=4, account="students", cluster="alpha"
        ),
    )
    site = Site(folder, [source], [])
    site.table["allocations"] = list(allocations)
    site.table["allocation_files"] = list(files)
    site.now = NOVEMBER + 10 * DAY + 60
    site.collect()
    return site


def shown(site: Site, **filters: str) -> Report:
    return site.publisher.view("allocations", ReportRequest(start=0, stop=1, filters=filters))


def test_a_job_across_the_border_counts_by_its_parts(tmp_path: Path) -> None:
    site = allocated(
        tmp_path,
        allocation("October", NOVEMBER - 30 * DAY, NOVEMBER),
        allocation("November", NOVEMBER, NOVEMBER + 30 * DAY, 52),
        allocation("GPUs", NOVEMBER, NOVEMBER + 30 * DAY, 5, user="ada", resource="gpus"),
    )
    report = shown(site)
    assert table(report, "allocation", "holder", "used_h", "left_h", "used", "dry", "renewed_by") == [
        ("October", "user ada", 6.0, 94.0, 0.06, None, "November"),
        ("November", "user ada", 26.0, 26.0, 0.5, "2026-11-21", None),
        ("GPUs", "user ada", 10.0, -5.0, 2.0, "used up", None),
    ]
    paces = [pace for (pace,) in table(report, "pace_h_per_day")]
    assert paces[1] == pytest.approx(26 / (10 + 60 / DAY))
    assert report.notes[-1] == "Without an allocation: 2 jobs of the last 30 days, 11.0 core h."
    assert report.facts["without_allocation"]["core_ms"] == 11 * HOUR * 1000
    (plot,) = report.plots
    assert plot.x == ("November", "GPUs (gpus)")
    assert [one.values for one in plot.series] == [(50.0, 200.0), (pytest.approx(33.34, abs=0.01),) * 2]


def test_each_word_of_the_holder_must_be_that_of_the_job(tmp_path: Path) -> None:
    since, until = NOVEMBER, NOVEMBER + 30 * DAY
    site = allocated(
        tmp_path,
        allocation("thesis", since, until, account="thesis"),
        allocation("thesis of ada", since, until, account="thesis", user="ada", cluster="alpha"),
        allocation("thesis of bob", since, until, account="thesis", user="bob"),
        allocation("elsewhere", since, until, account="thesis", cluster="beta"),
        allocation("both", since, until, account="science", subaccounts=["thesis", "students"]),
    )
    assert table(shown(site), "allocation", "used_h") == [
        ("thesis", 20.0), ("thesis of ada", 20.0), ("thesis of bob", 0.0), ("elsewhere", 0.0), ("both", 24.0)
    ]  # fmt: skip
    assert table(shown(site, user="eve"), "allocation", "used_h") == [("both", 24.0)]
    assert table(shown(site, user="bob"), "allocation", "used_h") == [("thesis of bob", 0.0)]
    assert shown(site, user="bob").notes[-2:] == (
        "At the pace of the last 30 days not dry before its end: thesis of bob.",
        "Without an allocation: 1 job of the last 30 days, 7.0 core h.",
    )
    nobody = shown(site, user="mallory")
    assert nobody.nothing
    assert not nobody.rows


def test_an_allocation_in_which_no_job_counts_is_named(tmp_path: Path) -> None:
    since, until = NOVEMBER, NOVEMBER + 30 * DAY
    site = allocated(
        tmp_path,
        allocation("thesis", since, until, account="thesis"),
        allocation("as a project", since, until, project="thesis"),
        allocation("next year", until, until + DAY, project="thesis"),
    )
    notes = [note for note in shown(site).notes if note.startswith("No job counts yet")]
    assert notes == [
        "No job counts yet in 'as a project' (project thesis). See `report totals --by project,account` for names."
    ]
    (tmp_path / "five").mkdir()
    of_five = allocated(tmp_path / "five", *(allocation(f"a{n}", since, until, user=f"u{n}") for n in range(5)))
    assert "'a2' (user u2), and 2 others." in shown(of_five).notes[1]


def test_the_page_shows_users_the_allocations_of_their_jobs() -> None:
    eve = Person("eve", "students", "user", frozenset({"allocations"}), "eve")
    asked = parse(ALLOCATIONS, {"user": "ada"}, NOVEMBER, (None, None), eve).request
    assert asked.filters == {"user": "eve"}
    assert parse(ALLOCATIONS, {}, NOVEMBER, (None, None), EVERYBODY).request.filters == {}


def test_overlapping_allocations_are_refused(tmp_path: Path) -> None:
    first, second = (
        allocation(name, NOVEMBER + start * DAY, NOVEMBER + 9 * DAY) for start, name in ((0, "a"), (5, "b"))
    )
    overlap = r"'b' begins at 2026-11-06T00:00:00Z, before 'a' ends .* cores of user ada"
    with pytest.raises(ConfigError, match=overlap):
        allocated(tmp_path, first, second)
    (tmp_path / "more.csv").write_text(
        "name,user,amount,since,until\nb,ada,5,2026-11-06,2026-11-08\n", encoding="utf-8"
    )
    site = allocated(tmp_path, first, files=({"type": "csv", "path": "more.csv"},))
    with pytest.raises(ConfigError, match=overlap):
        shown(site)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"user": None}, "needs a project, an account, or a user"),
        ({"until": stamp(NOVEMBER)}, "since must be before until"),
        ({"subaccounts": ["a"]}, "subaccounts need an account"),
        ({"amount": 0}, "greater than 0"),
    ],
)
def test_wrong_allocations(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    one = {**allocation("a", NOVEMBER, NOVEMBER + DAY), **change}
    with pytest.raises(ConfigError, match=problem):
        allocated(tmp_path, {name: value for name, value in one.items() if value is not None})


def test_no_allocation_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no allocation"):
        shown(allocated(tmp_path))


def test_a_csv_file_has_an_allocation_in_each_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "account,user,resource,amount,since\nthesis,,,12.5,\nthesis,ada,gpus,20,2026-11-10\n", encoding="utf-8"
    )
    file = {"type": "csv", "path": "a.csv", "since": "2026-11-01", "until": "2026-12-01"}
    report = shown(allocated(tmp_path, files=(file,)))
    assert table(report, "allocation", "resource", "since", "amount_h", "used_h") == [
        ("thesis", "cores", NOVEMBER, 12.5, 20.0),
        ("thesis / ada", "gpus", NOVEMBER + 9 * DAY, 20.0, 10.0),
    ]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("user,amount\nada,much\n", "a.csv, line 2: amount: must be an amount"),
        ("user,amount,until\nada,1,2027-01-01\n\nbob,1,2027-01-01,2\n", "a.csv, line 4: it has more cells"),
        (
            "user,amount,until\nada,1,2027-01-01\n,1,2027-01-01\n",
            "a.csv, line 3: needs a project, an account, or a user",
        ),
        ("user,hours\nada,1\n", "has an unknown column 'hours'"),
        ("user,amount,until\nada,1,\n", "a.csv, line 2: until: Field required"),
        ("user,amount,until\nada,1,\xff\n", "a.csv cannot be read"),
    ],
)
def test_wrong_csv_files(tmp_path: Path, lines: str, problem: str) -> None:
    (tmp_path / "a.csv").write_bytes(lines.encode("latin-1"))
    site = allocated(tmp_path, files=({"type": "csv", "path": "a.csv", "since": "2026-11-01"},))
    with pytest.raises(ConfigError, match=problem):
        shown(site)


ASSOCIATIONS = """\
Cluster|Account|User|Partition|ParentName|GrpTRESMins|
alpha|root|||||
alpha|root|root||||
alpha|science|||root|cpu=6000,mem=19992000,gres/gpu=600|
alpha|thesis|||science|cpu=1000|
alpha|thesis|ada|||cpu=60,billing=7|
alpha|thesis|ada|gpu||cpu=120|
alpha|students|||science||
beta|science|||root|cpu=60|
"""
OF_NOVEMBER = {"type": "sacctmgr", "path": "a.txt", "since": "2026-11-01", "until": "2026-12-01"}


@pytest.mark.parametrize("parent", ["ParentName", "Par Name"])
def test_limits_of_associations_are_those_of_the_accounts_below_too(tmp_path: Path, parent: str) -> None:
    (tmp_path / "a.txt").write_text(ASSOCIATIONS.replace("ParentName", parent), encoding="utf-8")
    report = shown(allocated(tmp_path, files=(OF_NOVEMBER,)))
    assert table(report, "allocation", "holder", "resource", "amount_h", "used_h") == [
        ("science", "account science, cluster alpha", "cores", 100.0, 24.0),
        ("science", "account science, cluster alpha", "gpus", 10.0, 10.0),
        ("thesis", "account thesis, cluster alpha", "cores", 16.666666667, 20.0),
        ("thesis / ada", "account thesis, user ada, cluster alpha", "cores", 1.0, 20.0),
        ("science", "account science, cluster beta", "cores", 1.0, 0.0),
    ]
    assert report.notes[:3] == (
        "Not read of a.txt: 1 limit of a partition.",
        "Not read of a.txt: 1 limit of billing.",
        "Not read of a.txt: 1 limit of mem.",
    )


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("|ParentName|", "|Share|", "has no column ParentName"),
        ("|GrpTRESMins|", "|GrpCPUs|", "has no column GrpTRESMins"),
        (ASSOCIATIONS, "", "has no column Cluster"),
        ("|||science|cpu=1000|", "|||science", "a.txt, line 5: it has too few cells"),
        ("cpu=1000", "cpu=16h", "a.txt, line 5: cpu=16h is not a number of minutes"),
        ("cpu=1000", "cpu=0", "a.txt, line 5: amount: Input should be greater than 0"),
    ],
)
def test_wrong_tables_of_associations(tmp_path: Path, before: str, after: str, problem: str) -> None:
    (tmp_path / "a.txt").write_text(ASSOCIATIONS.replace(before, after), encoding="utf-8")
    site = allocated(tmp_path, files=(OF_NOVEMBER,))
    with pytest.raises(ConfigError, match=problem):
        shown(site)
    with pytest.raises(ConfigError, match="limits of associations have no dates"):
        allocated(tmp_path, files=({"type": "sacctmgr", "path": "a.txt", "since": "2026-11-01"},))


def test_parts_of_runs_are_those_of_plain_python(tmp_path: Path) -> None:
    chance = random.Random(27)
    source = ListSource("ce1")
    jobs = []
    for number in range(300):
        start = NOVEMBER - 40 * DAY + chance.randrange(80 * DAY)
        wall_s, slots = chance.choice([0, 1, HOUR, chance.randrange(9 * DAY)]), chance.choice([1, 8, 1 << 40])
        user, account = chance.choice(["ada", "bob"]), chance.choice([None, "thesis"])
        jobs.append((start, wall_s, slots, user, account))
        source.add(make_job(number, start=start, end=start + wall_s, wall_s=wall_s, slots=slots, local_user=user,
                            account=account))  # fmt: skip
    holders = [{"user": "ada"}, {"account": "thesis"}, {"user": "bob", "account": "thesis"}]
    borders = [NOVEMBER + days * DAY + 1 for days in (-35, -20, -1, 3, 30)]
    site = Site(tmp_path, [source], [])
    site.table["allocations"] = [
        allocation(f"{place}", since, until, 10, **holder)
        for holder in holders
        for place, (since, until) in enumerate(pairwise(borders))
    ]
    site.now = NOVEMBER + 45 * DAY
    site.collect()

    def part(start: int, wall_s: int, slots: int, until: int) -> int:
        length = max(wall_s, 1)
        return min(slots, 1 << 24) * wall_s * 1000 * min(max(until - start, 0), length) // length

    for use in site.publisher.allocations():
        one = use.allocation
        expected = sum(
            part(start, wall_s, slots, one.until) - part(start, wall_s, slots, one.since)
            for start, wall_s, slots, user, account in jobs
            if one.user in {None, user} and one.account in {None, account}
        )
        assert use.used_ms == expected, one


def of_thesis(used_h: float, since: int = NOVEMBER, until: int = NOVEMBER + 30 * DAY) -> AllocationUse:
    one = Allocation.model_validate(allocation("Thesis", since, until, account="thesis"))
    return AllocationUse(one, round(used_h * 3_600_000), round(used_h * 3_600_000), 10 * DAY)


def test_thresholds_are_exact() -> None:
    assert of_thesis(74.999999).reached == ()
    assert of_thesis(75).reached == (75,)
    assert of_thesis(89.999999).reached == (75,)
    assert of_thesis(250).reached == (75, 90, 100)


def test_metrics_have_the_present_allocations() -> None:
    now = NOVEMBER + 10 * DAY
    collector = StatusCollector(_unreadable, dict, lambda: now)
    collector.allocations = [of_thesis(91), of_thesis(5, since=NOVEMBER - 30 * DAY, until=NOVEMBER)]
    families = {family.name: family.samples for family in text_string_to_metric_families(text(collector))}
    (used,) = families["usage_publisher_allocation_used_ratio"]
    assert (used.value, used.labels["holder"], used.labels["since"]) == (0.91, "account thesis", "2026-11-01T00:00:00Z")
    assert [one.value for one in families["usage_publisher_allocation_threshold_percent"]] == [90]


def _unreadable() -> Any:
    raise UsageError("no store")


def test_the_keys_of_thresholds_stay_those_in_stores() -> None:
    """After an upgrade with other keys, every threshold that was ever reached would be mailed once more."""
    words = {"user": "ada", "account": "physics", "cluster": "alpha", "resource": "gpus"}
    values = allocation("Renamed since", NOVEMBER, NOVEMBER + 90 * DAY, 2500, **words)
    use = AllocationUse(Allocation.model_validate(values), 0, 0, 0)
    whole = AllocationUse(Allocation.model_validate({**values, "amount": "2500.000"}), 0, 0, 0)
    other = AllocationUse(Allocation.model_validate({**values, "amount": "2500.001"}), 0, 0, 0)
    assert use.notice_key(90) == whole.notice_key(90) == "allocation 3acb0e1436db3eb6: 90 %"
    assert other.notice_key(90) != use.notice_key(90)
