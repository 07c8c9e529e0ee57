"""What the services' own clients read after we sent: what was sent."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from formats.calendar import Month, month_of
from publisher.testing.delivery import DeliverySite
from publisher.testing.jobs import NOVEMBER, make_job, make_jobs
from tests.publisher.auditor import AuditorDouble, seconds
from tests.publisher.targets.doubles import FolderDouble, WaldurService
from tests.publisher.targets.test_promises import TestWaldur as Waldur
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
