"""Asking a service what it holds: SGAS by its query and monitor over TLS, the directory by its files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from publisher.config import schema
from publisher.config.directory import DirectorySettings
from publisher.config.targets import SgasSettings
from publisher.errors import TargetError
from publisher.security.exchange import Failure
from publisher.security.http import Reply
from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Pki
from publisher.targets import sgas as targets_sgas
from publisher.targets.base import EvidenceUnavailable, GivesSums, KeepsMessages, KeptMessage, Message, PeriodSum
from publisher.targets.directory import DirectoryTarget
from publisher.targets.identity import TargetContext
from publisher.targets.sgas import QUERY, SgasTarget
from tests.publisher.simulator.records import message, record

FIRST = 20758
"""2026-11-01, on which all records of the simulator's tests end."""


@pytest.fixture
def sgas(simulator: Simulator) -> Iterator[SgasTarget]:
    client = simulator.pki.client
    own = schema.Credentials(certificate=client.certificate, key=client.key, ca_directory=simulator.pki.ca_directory)
    target = SgasTarget("neic", SgasSettings(type="sgas", url=simulator.sgas_url), TargetContext(own))
    yield target
    target.close()


def posted(sgas: SgasTarget, *records: str) -> None:
    sgas.post(Message("b", "ogf-ur", "application/xml", message(*records)))


@pytest.mark.parametrize("exact", [True, False], ids=["custom query", "built-in query"])
def test_sgas_gives_sums_by_machine_user_vo_and_day(simulator: Simulator, sgas: SgasTarget, exact: bool) -> None:
    simulator.sgas.custom_query_defined = exact
    posted(sgas, record(1), record(2, wall="PT1800S", cpu=("PT100S", "PT20S")), record(3, machine="ce2.example.org"))
    assert isinstance(sgas, GivesSums)
    wall_s = 4 * (3600 + 1800)  # all processors together
    cpu_s, within_s = (3120, 0.0) if exact else (0.83 * 3600 + 0.03 * 3600, 36.0)  # 3000 s and 120 s
    expected = PeriodSum(
        ("ce1.example.org", "/DC=org/CN=Jane", "atlas"), FIRST, 2, wall_s, pytest.approx(cpu_s), within_s
    )
    assert sgas.usage("ce1.example.org", FIRST, FIRST + 30) == [expected]
    assert sgas.usage("ce1.example.org", FIRST + 1, FIRST + 30) == [], "what ended before was not asked for"
    assert sgas.usage("ce1.example.org", FIRST - 30, FIRST) == [], "nor what ended behind"
    assert sgas.usage("ce9.example.org", FIRST, FIRST + 30) == []


def test_the_built_in_query_is_asked_where_the_custom_one_gives_nothing(simulator: Simulator, sgas: SgasTarget) -> None:
    posted(sgas, record(1))
    simulator.faults.replace([Fault("status", code=500, service="query", count=1)])
    first, second = (sgas.usage("ce1.example.org", FIRST, FIRST + 1) for _ in range(2))
    assert isinstance(first, list)
    assert first == second
    assert first[0].within_s == 18.0, "the custom query was not asked again"


def test_sgas_gives_when_it_last_took_records_of_a_machine(sgas: SgasTarget) -> None:
    assert sgas.last_registration_s("ce1.example.org") is None
    posted(sgas, record(1))
    reported = sgas.last_registration_s("ce1.example.org")
    assert isinstance(reported, float)
    assert reported < 60


@pytest.mark.parametrize(
    ("fault", "said", "unauthorised"),
    [
        (Fault("status", code=500, service="query"), "sgas.authz", False),
        (Fault("status", code=403, service="query"), "sgas.authz", True),
        (Fault("status", code=404, service="query"), "plug-in", False),
        (Fault("html", code=200, service="query"), "cannot be read", False),
        (Fault("json", code=200, service="query"), "cannot be read", False),
        (Fault("close", service="query"), "", False),
    ],
    ids=lambda value: value.kind + str(value.code) if isinstance(value, Fault) else "",
)
def test_a_service_without_evidence_says_why(
    simulator: Simulator, sgas: SgasTarget, fault: Fault, said: str, unauthorised: bool
) -> None:
    simulator.faults.replace([fault])
    for reported in (sgas.usage("ce1.example.org", FIRST, FIRST + 1), sgas.last_registration_s("ce1.example.org")):
        if fault.code == 404 and reported is None:
            continue  # the monitor's word for a machine it does not know
        assert isinstance(reported, EvidenceUnavailable)
        assert reported.reason
        assert said in reported.reason
        assert reported.reason.count("cut") <= 1, "one problem is reported once"
        assert reported.unauthorised is unauthorised


def test_without_the_right_to_query_nothing_is_reported(pki: Pki) -> None:
    with Simulator(pki, rights={pki.client.dn: ["jobinsert"]}) as running:
        own = schema.Credentials(certificate=pki.client.certificate, key=pki.client.key, ca_directory=pki.ca_directory)
        target = SgasTarget("neic", SgasSettings(type="sgas", url=running.sgas_url), TargetContext(own))
        reported = target.usage("ce1.example.org", FIRST, FIRST + 1)
        monitor = target.last_registration_s("ce1.example.org")
        target.close()
    assert isinstance(reported, EvidenceUnavailable)
    assert isinstance(monitor, EvidenceUnavailable)
    assert reported.unauthorised
    assert "right `customquery:querygroup=usage-publisher`" in reported.reason
    assert "lacks the right `query:all`" in reported.reason
    assert "LUTS from its master branch" in reported.reason
    assert "lacks the right `monitor`" in monitor.reason


def line(day: str, jobs: Any = 1, **facts: Any) -> dict[str, Any]:
    usual = {"machine_name": "ce1", "user_identity": "u", "vo_name": "v", "start_date": day, "end_date": day}
    return usual | {"n_jobs": jobs, "cpu_time": 1.5, "wall_time": 2} | facts


def answering(*lines: dict[str, Any]) -> Callable[[str], Reply]:
    return lambda _path: Reply(200, {}, json.dumps(lines).encode())


def built_in(*lines: dict[str, Any]) -> tuple[Callable[[str], Reply], str]:
    return answering(*lines), QUERY


def test_numbers_as_databases_write_them_and_users_without_a_grid_name() -> None:
    ask = answering(line("2026-11-01", "7", cpu_time="0.5", wall_time=None, user_identity="ce1:ada", vo_name=None))
    assert targets_sgas.usage(ask, QUERY, "ce1", FIRST, FIRST + 1) == [
        PeriodSum(("ce1", "", ""), FIRST, 7, 0.0, 1800.0, 7 * 18.0)
    ]


def test_hours_of_the_simulator_are_rounded_a_record_at_a_time_after_multiplying_by_processors(
    simulator: Simulator, sgas: SgasTarget
) -> None:
    simulator.sgas.custom_query_defined = False
    posted(sgas, *(record(number, wall="PT17S", cpu=("PT5S",)) for number in range(1, 11)))
    reported = sgas.usage("ce1.example.org", FIRST, FIRST + 1)
    assert isinstance(reported, list)
    (day,) = reported
    assert (day.jobs, day.wall_s, day.cpu_s) == (10, pytest.approx(10 * 72), 0), "4 x 17 s is 0.02 h; 5 s is 0.00 h"
    assert abs(day.wall_s - 10 * 4 * 17) <= day.within_s == 180


@pytest.mark.parametrize(
    "bad", ["inf", "nan", "-Infinity", "9" * 400, "1e400", "1e99", "0x10", "1_0", "\u0661", "", 10**19]
)
@pytest.mark.parametrize("name", ["n_jobs", "cpu_time", "wall_time"])
def test_what_is_not_a_number_is_not_an_answer(name: str, bad: str | int) -> None:
    if name != "n_jobs" and bad == "":
        return  # no hours
    reported = targets_sgas.usage(*built_in(line("2026-11-01") | {name: bad}), "ce1", FIRST, FIRST + 1)
    assert isinstance(reported, EvidenceUnavailable)
    assert name in reported.reason
    assert len(reported.reason) < 200


@pytest.mark.parametrize("bad", ["-1", "1.5"])
def test_jobs_are_counted_in_whole_numbers(bad: str) -> None:
    reported = targets_sgas.usage(*built_in(line("2026-11-01", bad)), "ce1", FIRST, FIRST + 1)
    assert isinstance(reported, EvidenceUnavailable)
    assert "n_jobs" in reported.reason


def test_digits_beyond_what_json_readers_take_are_not_an_answer() -> None:
    text = json.dumps([line("2026-11-01", 777)]).replace("777", "9" * 400)
    reported = targets_sgas.usage(lambda _path: Reply(200, {}, text.encode()), QUERY, "ce1", FIRST, FIRST + 1)
    assert isinstance(reported, EvidenceUnavailable)
    monitor = Reply(200, {}, b'{"registration_epoch": ' + b"9" * 400 + b"}")
    assert isinstance(targets_sgas.last_registration_s(lambda _path: monitor, "ce1"), EvidenceUnavailable)
    monitor = Reply(200, {}, b'{"registration_epoch": 1e300}')
    assert isinstance(targets_sgas.last_registration_s(lambda _path: monitor, "ce1"), EvidenceUnavailable)


def test_a_monitor_that_answers_null_does_not_know_the_machine() -> None:
    assert targets_sgas.last_registration_s(lambda _path: Reply(200, {}, b"null"), "ce1") is None


def test_days_and_machines_that_were_not_asked_for_are_dropped() -> None:
    ask = answering(line("2026-10-31"), line("2026-11-01"), line("2026-11-02"), line("2026-11-01", machine_name="x"))
    reported = targets_sgas.usage(ask, QUERY, "ce1", FIRST, FIRST + 1)
    assert isinstance(reported, list)
    assert [one.day for one in reported] == [FIRST]


def test_sums_over_several_days_are_not_an_answer() -> None:
    reported = targets_sgas.usage(*built_in(line("2026-11-01", end_date="2026-11-30")), "ce1", FIRST, FIRST + 30)
    assert isinstance(reported, EvidenceUnavailable)
    assert "although days were requested" in reported.reason


def test_an_answer_that_is_too_large_is_asked_for_in_halves() -> None:
    asked: list[str] = []

    def ask(path: str) -> Reply | Failure:
        asked.append(path)
        if len(asked) == 1:
            return Failure("too-large", "the answer has too many bytes", sent=True)
        return Reply(200, {}, json.dumps([line("2026-11-01"), line("2026-11-02")]).encode())

    reported = targets_sgas.usage(ask, QUERY, "ce1", FIRST, FIRST + 2)
    assert isinstance(reported, list)
    assert [one.day for one in reported] == [FIRST, FIRST + 1]
    assert "start_date=2026-10-31&end_date=2026-11-03" in asked[0]


def directory(path: Path, layout: str = "files") -> DirectoryTarget:
    settings = DirectorySettings(type="directory", path=path, layout=layout)  # type: ignore[arg-type]
    return DirectoryTarget("spool", settings, TargetContext())


def write(target: DirectoryTarget, *names: str) -> list[str]:
    made = []
    for name in names:
        outcome = target.post(Message(name, "apel-summary", "text/plain", name.encode()))
        made.append(outcome.receipt["file"])  # type: ignore[union-attr]
    return made


@pytest.mark.parametrize("layout", ["files", "dirq"])
def test_a_directory_shows_what_was_written_oldest_first(tmp_path: Path, layout: str) -> None:
    target = directory(tmp_path / "out", layout)
    assert isinstance(target, KeepsMessages)
    assert target.taken_away is (layout == "dirq")
    assert list(target.kept()) == [], "and makes none by looking"
    assert not (tmp_path / "out").exists()
    names = write(target, "zz", "aa", "mm")
    assert list(target.kept()) == [
        KeptMessage(name, text) for name, text in zip(names, (b"zz", b"aa", b"mm"), strict=True)
    ]
    (tmp_path / "out" / names[1]).unlink()
    assert [target.keeps(name) for name in names] == [True, False, True]


def test_what_is_not_a_message_of_a_directory_is_omitted_or_reported(tmp_path: Path) -> None:
    target = directory(tmp_path)
    (tmp_path / ".hidden").write_bytes(b"x")
    (tmp_path / "half.xml.tmp").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / ".hidden")
    found = {kept.name: kept.content for kept in target.kept()}
    assert set(found) == {"folder", "pipe", "link"}
    assert all(isinstance(content, str) for content in found.values())


def test_locks_and_leftovers_of_a_queue_are_not_messages(tmp_path: Path) -> None:
    target = directory(tmp_path, "dirq")
    (name,) = write(target, "one")
    os.link(tmp_path / name, tmp_path / f"{name}.lck")
    (tmp_path / "obsolete").mkdir()
    (tmp_path / "not-a-directory").write_bytes(b"")
    assert [kept.name for kept in target.kept()] == [name]


def test_a_directory_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")
    target = directory(tmp_path / "out")
    with pytest.raises(TargetError, match="readable"):
        list(target.kept())
    with pytest.raises(TargetError):
        target.keeps("x")
