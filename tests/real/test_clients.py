"""What the services' own clients read after we sent: what was sent."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from formats.calendar import Month, month_of
from formats.job import Job
from formats.text import date_time
from publisher.config.schema import SourceSettings
from publisher.sources import make_source
from publisher.testing.delivery import VO, DeliverySite
from publisher.testing.jobs import NOVEMBER, make_job, make_jobs
from tests.publisher.auditor import AuditorDouble, seconds
from tests.publisher.site import ListSource, Site
from tests.publisher.store.server import serving
from tests.publisher.targets.doubles import FolderDouble, WaldurService
from tests.publisher.targets.test_auditor import assert_table_takes_any_text
from tests.publisher.targets.test_promises import TestWaldur as Waldur
from tests.publisher.waldur import WaldurDouble, settings_of
from tests.real.programs import RealProgram


def test_auditors_client_reads_every_record(tmp_path: Path) -> None:
    auditor = RealProgram("python-auditor")
    with AuditorDouble().running() as double:
        site = DeliverySite(tmp_path, double, json.loads, None, batch_records=100)
        site.add(*make_jobs(300, name="ü 'x'\"\\"))
        site.settle()
        site.reopen()
        address = urlsplit(double.url)
        found = auditor.read("auditor_client", {"host": address.hostname, "port": address.port})
    assert found.keys() == double.rows.keys()
    for name, sent in double.rows.items():
        read = found[name]
        assert read["runtime"] == seconds(sent["stop_time"]) - seconds(sent["start_time"])
        assert read["components"] == {
            each["name"]: [each["amount"], {score["name"]: score["value"] for score in each["scores"]}]
            for each in sent["components"]
        }
        assert (read["site"], read["user"]) == (sent["meta"].get("site_id"), sent["meta"].get("user_id"))
    auditor.compared("records", len(found))


def test_auditors_schema_takes_records_with_any_text() -> None:
    auditor = RealProgram("auditor")
    with serving() as postgresql:
        auditor.compared("records in its schema", assert_table_takes_any_text(postgresql, auditor.schema()))


def test_auditors_apel_plugin_sums_what_we_sum(tmp_path: Path) -> None:
    plugin = RealProgram("auditor-apel-plugin")
    jobs = [
        make_job(
            number,
            end=NOVEMBER + 7200 * number,  # on several days: it asks for each
            wall_s=90 + number % 50,
            cpu_ms=1000 * (number % 70),
            cores=1 + number % 3,
            user_dn=f"/DC=org/CN=User {number % 4}",
            fqans=("/atlas/production/Role=pilot",) if number % 2 else (),
        )
        for number in range(1, 300)
    ]
    with AuditorDouble().running() as double:
        site = DeliverySite(tmp_path, double, json.loads, None, batch_records=100)
        site.add(*jobs)
        site.settle()
        site.reopen()
        address = urlsplit(double.url)
        month = {"site": "EXAMPLE-SITE", "year": 2026, "month": 11}
        theirs = plugin.read("auditor_summaries", {"host": address.hostname, "port": address.port, **month})
    (tmp_path / "summaries").mkdir()
    files = FolderDouble(tmp_path / "outgoing", layout="files", records="apel-normalised-summary")
    summed = DeliverySite(tmp_path / "summaries", files, lambda body: body, None)
    summed.add(*jobs)
    summed.settle()
    summed.reopen()
    read, own = _summaries(theirs), _summaries("\n%%\n".join(each.read_text("utf-8") for each in files.files()))
    assert read.keys() == own.keys()
    for key, group in own.items():
        assert {name: read[key][name] for name in _EXACT} == {name: group[name] for name in _EXACT}
        for name in ("NormalisedWallDuration", "NormalisedCpuDuration"):  # which it rounds for each job
            assert abs(_normalised(read[key][name]) - _normalised(group[name])) <= int(group["NumberOfJobs"])
    plugin.compared("sums of groups", len(own))


_EXACT: Final = ("NumberOfJobs", "WallDuration", "CpuDuration", "EarliestEndTime", "LatestEndTime")
_KEY: Final = ("VO", "VORole", "GlobalUserName", "SubmitHost", "Processors", "NodeCount")


def _summaries(text: str) -> dict[tuple[str, ...], dict[str, str]]:
    """The groups of normalised summaries in messages of APEL."""
    groups = [dict(line.partition(": ")[::2] for line in part.splitlines()) for part in text.split("%%")]
    found = {tuple(group[name] for name in _KEY): group for group in groups if "WallDuration" in group}
    assert len(found) == text.count("\nWallDuration: ")
    return found


def _normalised(amounts: str) -> int:
    return int(amounts.removeprefix("{HEPscore23: ").removesuffix("}"))


def test_waldurs_client_reads_and_writes_the_same(tmp_path: Path) -> None:
    waldur = RealProgram("waldur-api-client")
    with WaldurService(tmp_path).running() as double:
        site = DeliverySite(tmp_path, double, json.loads, None, Waldur().complete, batch_records=1)
        site.add(*make_jobs(60))
        site.settle()
        month = month_of(site.now)
        site.reopen()
        payloads = [body for method, _, body in double.requests if method == "POST" and body is not None]
        given = {"url": double.url, "month": str(month), "payloads": payloads}
        found = waldur.read("waldur_client", given)
        amounts = double.amounts(Month(month.year, month.month))
    names = {each["uuid"]: account for account, each in double.resources.items()}
    read = {(names[_hex(one)], component, ""): Decimal(usage) for one, component, usage in found["usages"]}
    read |= {(names[_hex(one)], *rest): Decimal(usage) for one, *rest, usage in found["of_users"]}
    assert {key: usage for key, usage in read.items() if usage} == amounts
    assert [_plain(each) for each in found["payloads"]] == [_plain(each) for each in payloads]
    waldur.compared("usages", len(amounts))
    waldur.compared("payloads", len(payloads))


def test_waldurs_site_agent_sums_what_we_sum(tmp_path: Path) -> None:
    """Of the same rows of sacct, but for what a job was granted beyond its request, which only we count."""
    agent = RealProgram("waldur-site-agent-slurm")
    rows = [_of_sacct(number) for number in range(1, 300)]
    components = {"cpu": 60, "gres/gpu": 60}
    given = {"rows": rows, "components": components, "accounts": ["physics", "bio&x"], "year": 2026, "month": 11}
    theirs = agent.read("waldur_agent", given)
    with WaldurService(tmp_path).running() as double:
        own = {"cpu_k_hours": {"amount": "core-hours"}, "gpu_hours": {"amount": "gpu-hours"}}
        site = DeliverySite(tmp_path, double, json.loads, None, batch_records=1, components=own)
        site.add(*(msgspec.structs.replace(job, vo=VO) for job in _jobs_of(tmp_path, rows)))
        site.settle()
        ours = double.amounts(Month(2026, 11))
        site.reopen()
    more: Counter[tuple[str, str]] = Counter()
    for number, row in enumerate(rows, 1):
        for user in (row["User"], _ALL_USERS):
            more[row["Account"], user] += _elapsed_s(number) * _granted_more(number)
    for account, users in theirs.items():
        for user, amounts in users.items():
            name = "" if user == _ALL_USERS else user
            cpu_h = ours[account, "cpu_k_hours", name] - Decimal(more[account, user]) / 3600
            gpu_h = ours[account, "gpu_hours", name]
            # Both round to hundredths, the agent each user alone.
            assert abs(cpu_h - Decimal(str(amounts["cpu"]))) < Decimal("0.02"), (account, user)
            assert abs(gpu_h - Decimal(str(amounts["gres/gpu"]))) < Decimal("0.02"), (account, user)
    assert more.total()
    agent.compared("amounts", len(ours))
    assert len(ours) == sum(map(len, theirs.values())) * len(components)


def test_waldurs_site_agent_requests_what_we_request(tmp_path: Path) -> None:
    """Its mode `report` and ours, twice, the second time with shorter jobs of another user."""
    agent = RealProgram("waldur-site-agent-slurm")
    rows = [_of_sacct(number) for number in range(1, 300) if not _granted_more(number)]
    rows.append(rows[0] | {"JobID": "999", "User": "leaves"})
    later = [*rows[:-9], *(row | {"Elapsed": "00:00:01", "User": "user0"} for row in rows[-9:])]
    with WaldurDouble("physics", "bio&x").running() as theirs, WaldurDouble("physics", "bio&x").running() as ours:
        for double in (theirs, ours):
            double.components = {"cpu": "usage", "gres/gpu": "usage"}
            double.now = lambda: NOVEMBER + 20 * 86_400
        resources = {name: each["uuid"] for name, each in theirs.resources.items()}
        given = {
            "url": theirs.url, "token": "staff", "resources": resources, "components": {"cpu": 60, "gres/gpu": 60},
            "reports": [rows, later], "at": "2026-11-21T00:00:00+00:00", "year": 2026, "month": 11,
        }  # fmt: skip
        said = agent.read("waldur_agent_requests", given)
        source = ListSource("slurm")
        site = Site(tmp_path, [source], [])
        site.now = NOVEMBER + 20 * 86_400
        components = {"cpu": {"amount": "core-hours"}, "gres/gpu": {"amount": "gpu-hours"}}
        site.table["targets"]["waldur"] = settings_of(ours, tmp_path, components=components)
        source.add(*_jobs_of(tmp_path, rows))
        site.collect()
        site.publish()
        first = _totals(ours)
        source.add(*_jobs_of(tmp_path, later))
        site.collect()
        site.publish()
        second = _totals(ours)
    agreed = _totals(theirs)
    assert {key: each.keys() for key, each in first.items()} == {key: each.keys() for key, each in agreed.items()}
    for key, amounts in first.items():
        for name, amount in amounts.items():
            assert abs(amount - agreed[key][name]) < Decimal("0.02"), (key, name)
        assert sum(amounts.values()) == 2 * amounts[""], "shares add up"
    assert any(sum(each.values()) != 2 * each[""] for each in agreed.values()), "those of the agent do not"
    assert all("date" in body for body in _written(theirs)), "the agent always says when"
    assert not any("date" in body for body in _written(ours)), "of the present month we do not"
    assert "UsageAnomalyError" in said["stopped"][1]["physics"], "a value that falls is not sent"
    assert second["physics", "cpu"][""] < first["physics", "cpu"][""]
    assert (second["physics", "cpu"]["leaves"], agreed["physics", "cpu"]["leaves"] > 0) == (0, True)
    assert ("--truncate" in said["called"], "--duplicates" in said["called"]) == (True, False)
    agent.compared("requests", len(_written(theirs)))


def _jobs_of(folder: Path, rows: list[dict[str, str]]) -> list[Job]:
    table = folder / "sacct.psv"
    lines = ["|".join(values) for values in (rows[0], *(row.values() for row in rows))]
    table.write_text("\n".join([*lines, ""]), encoding="utf-8")
    source = make_source("slurm", SourceSettings.model_validate({"type": "slurm", "path": table, "cluster": "c1"}))
    return [job for page in source.pages({}) for job in page.jobs]


def _written(double: WaldurDouble) -> list[dict[str, Any]]:
    return [body for _, path, body in double.requests if path.endswith("/set_usage/")]


def _totals(double: WaldurDouble) -> dict[tuple[str, str], dict[str, Decimal]]:
    """By account and component: what its users have (empty: all of them)."""
    names = {each["uuid"]: name for name, each in double.resources.items()}
    found = {(names[of], name): {"": amount} for (of, name, _), amount in double.rows.items()}
    for ((of, name, _), user), amount in double.users.items():
        found[names[of], name][user] = amount
    return found


_ALL_USERS: Final = "TOTAL_ACCOUNT_USAGE"


def _elapsed_s(number: int) -> int:
    return 1 + number * 7919 % 99_999


def _granted_more(number: int) -> int:
    """Cores that a job was granted beyond its request."""
    return 2 if number % 10 == 0 else 0


def _of_sacct(number: int) -> dict[str, str]:
    """A row of sacct by column."""
    end, elapsed_s, cores = NOVEMBER + 100_000 + 3600 * number, _elapsed_s(number), 1 + number % 8
    days, seconds = divmod(elapsed_s, 86_400)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    resources = f"gres/gpu={1 + cores % 3},mem=4294967296,node=1"
    granted = cores + _granted_more(number)
    return {
        "JobID": str(number), "User": f"user{number % 5}", "Account": "physics" if number % 3 else "bio&x",
        "State": "COMPLETED", "Start": date_time(end - elapsed_s).removesuffix("Z"),
        "End": date_time(end).removesuffix("Z"), "Elapsed": f"{days}-{clock}" if days else clock, "NCPUS": str(granted),
        "ReqTRES": f"cpu={cores},{resources}", "AllocTRES": f"cpu={granted},{resources}",
    }  # fmt: skip


def _hex(text: str) -> str:
    return text.replace("-", "")


def _plain(value: Any) -> Any:
    """A payload without regard to how a UUID or an instant is written."""
    if isinstance(value, dict):
        return {
            key: str(each).replace("-", "").replace("+00:00", "Z") if key in {"resource", "date"} else _plain(each)
            for key, each in value.items()
        }
    return [_plain(each) for each in value] if isinstance(value, list) else value
