"""Metrics for Prometheus, read back with its own parser; rules and dashboard use existing names only."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from publisher.config.allocations import Allocation
from publisher.errors import ConfigError, StoreBusyError
from publisher.observe.allocations import AllocationUse
from publisher.observe.metrics import PREFIX, StatusCollector, TargetTally, serve, text, write
from publisher.status.status import SourceStatus, Status, TargetStatus
from tests.conftest import ROOT

CONF = ROOT / "conf"
NOW = 1_795_000_000
SOURCE = SourceStatus(
    jobs=7, unreadable=1, skipped=2, last_collected=NOW - 60, last_job_end=NOW - 3600, read_to_end=True, silent=False,
    error=None,
)  # fmt: skip
TARGET = TargetStatus(
    accepted=5, confirmed=4, waiting=1, in_flight=0, rejected=1, held=0, waived=0, superseded=0,
    last_sent_end_time=NOW - 7200, complete_until=NOW - 9000, oldest_waiting_end_time=NOW - 8000, last_attempt=NOW - 60,
    last_success=NOW - 60, last_error=None, certificate_days_left=30, groups=None, evidence="query",
    reconciled_at=NOW - 600, differences=1, unconfirmed_since=NOW - 5000, unconfirmed_days=0,
)  # fmt: skip
STATUS = Status(complete=False, sources={"ce1": SOURCE}, targets={"neic": TARGET})


def watched(status: Status = STATUS) -> StatusCollector:
    made = StatusCollector(lambda: status, lambda: {"neic": TargetTally(3, 5, 9000, 1, 0.25)}, lambda: NOW)
    made.exit_code, made.last_run = 1, NOW - 60
    times = {"since": "2026-01-01", "until": "2999-01-01"}
    allocation = Allocation.model_validate({"name": "Thesis", "user": "ada", "amount": 1, **times})
    made.allocations = [AllocationUse(allocation, 0, 0, 0)]
    return made


def samples(given: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(given):
        assert family.documentation, family.name
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def one(found: dict[Any, float], name: str, **labels: str) -> float | None:
    return found.get((PREFIX + name, frozenset(labels.items())))


def test_every_number_of_the_status_is_there() -> None:
    found = samples(text(watched()))
    assert (one(found, "complete"), one(found, "delivered")) == (0, 0)
    assert one(found, "last_run_exit_code") == 1
    assert one(found, "source_jobs", source="ce1") == 7
    assert one(found, "source_unreadable", source="ce1") == 1
    assert one(found, "source_unread_files", source="ce1") == 0
    assert one(found, "source_last_job_end_timestamp_seconds", source="ce1") == NOW - 3600
    assert one(found, "target_jobs", target="neic", state="accepted") == 5
    assert one(found, "target_jobs", target="neic", state="rejected") == 1
    assert one(found, "target_oldest_waiting_timestamp_seconds", target="neic") == NOW - 8000
    assert one(found, "target_complete_until_timestamp_seconds", target="neic") == NOW - 9000
    assert one(found, "target_last_success_timestamp_seconds", target="neic") == NOW - 60
    assert one(found, "target_certificate_days", target="neic") == 30
    assert one(found, "target_unconfirmed_since_timestamp_seconds", target="neic") == NOW - 5000
    assert one(found, "target_reconciled_timestamp_seconds", target="neic") == NOW - 600
    assert (one(found, "target_evidence", target="neic"), one(found, "target_differences", target="neic")) == (1, 1)
    assert one(found, "process_bytes", target="neic") == 9000
    assert one(found, "process_retries", target="neic") == 1
    assert one(found, "process_answer_seconds", target="neic") == 0.25


def test_what_is_not_known_has_no_sample() -> None:
    nothing = msgspec.structs.replace(TARGET, oldest_waiting_end_time=None, complete_until=None)
    found = samples(text(watched(msgspec.structs.replace(STATUS, targets={"neic": nothing}))))
    assert one(found, "target_oldest_waiting_timestamp_seconds", target="neic") is None
    assert one(found, "target_complete_until_timestamp_seconds", target="neic") is None


def test_a_shadow_is_distinguished_from_a_backlog() -> None:
    shadow = msgspec.structs.replace(TARGET, shadow=True)
    found = samples(text(watched(msgspec.structs.replace(STATUS, targets={"neic": TARGET, "new": shadow}))))
    assert (one(found, "target_shadow", target="neic"), one(found, "target_shadow", target="new")) == (0, 1)


def test_a_store_that_cannot_be_read_is_a_number_too() -> None:
    def busy() -> Status:
        raise StoreBusyError("held")

    found = samples(text(StatusCollector(busy, dict, lambda: NOW)))
    assert one(found, "store_readable") == 0
    assert one(found, "complete") is None


def test_names_that_need_escaping_come_back_as_they_are() -> None:
    odd = 'a"b\\c\nd'
    found = samples(text(watched(msgspec.structs.replace(STATUS, sources={odd: SOURCE}))))
    assert one(found, "source_jobs", source=odd) == 7


def test_the_file_is_whole_and_readable_for_the_node_exporter(tmp_path: Path) -> None:
    path = tmp_path / "usage.prom"
    write(watched(), path)
    write(watched(), path)
    assert samples(path.read_text(encoding="utf-8"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_reported_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.textfile"):
        write(watched(), tmp_path / "missing" / "usage.prom")


def test_the_page_of_numbers_is_served_until_it_is_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    end = serve(watched(), f"127.0.0.1:{port}", unexpected)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert one(samples(answer.read().decode()), "source_jobs", source="ce1") == 7
        with pytest.raises(ConfigError, match=r"metrics\.listen"):
            serve(watched(), f"127.0.0.1:{port}", unexpected)
    finally:
        end()


def unexpected(problem: str) -> None:
    raise AssertionError(problem)


def listener_pid(parent: int) -> int:
    """The process id of the one listener that `parent` started, as soon as it is another program."""
    found: list[int] = []
    while not found:
        found = [
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if with_parent(folder, parent) and b"metrics_listener" in (folder / "cmdline").read_bytes()
        ]
    (pid,) = found
    return pid


def with_parent(folder: Path, parent: int) -> bool:
    try:
        return f"\nPPid:\t{parent}\n" in (folder / "status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return False


@pytest.fixture
def listening() -> Iterator[int]:
    """The port of the page of numbers."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    end = serve(watched(), f"127.0.0.1:{port}", unexpected, ["metrics.example.org"])
    try:
        yield port
    finally:
        end()


def asked(port: int, request: str, host: str = "127.0.0.1") -> bytes:
    """The complete answer."""
    with socket.create_connection(("127.0.0.1", port), 60, source_address=(host, 0)) as connection:
        connection.sendall(request.encode())
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    return answer


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_silent_connections_take_nothing_from_the_publisher(listening: int) -> None:
    before = open_files()
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", listening), 60))
        request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for host in ("127.0.0.2", "127.0.0.1"):
            assert b"\nusage_publisher_complete 0.0\n" in asked(listening, request, host)
        assert open_files() == before + 100


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        ("GET /metrics?name=x HTTP/1.1\r\nHost: LocalHost:9464\r\n\r\n", b"200"),
        ("HEAD /metrics HTTP/1.0\r\nhost:[::1]:9464\r\n\r\n", b"200"),
        ("GET /metrics HTTP/1.1\r\nX: y\r\nHost: 192.0.2.7:9464\r\n\r\n", b"200"),
        ("GET /metrics HTTP/1.1\r\nHost: metrics.example.org\r\n\r\n", b"200"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example.org:9464\r\n\r\n", b"421"),
        ("GET /metrics HTTP/1.1\r\nHost: localhost.evil.example.org\r\n\r\n", b"421"),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example.org\r\n\r\n", b"421"),
        ("GET /metrics HTTP/1.1\r\nHost: evil@localhost\r\n\r\n", b"421"),
        ("GET /metrics HTTP/1.1\r\n\r\nHost: localhost\r\n\r\n", b"421"),
        ("GET /metrics HTTP/1.0\r\n\r\n", b"421"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405"),
        ("\r\n\r\n", b"405"),
        ("GET /metrics HTTP/1.1\r\nX: " + 8192 * "x", b"431"),
    ],
)
def test_only_the_numbers_are_answered(listening: int, request_text: str, code: bytes) -> None:
    head, _, body = asked(listening, request_text).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + code)
    assert bool(body) == (not request_text.startswith("HEAD"))


def test_numbers_are_made_only_when_they_are_asked_for() -> None:
    made = []

    def status() -> Status:
        made.append(1)
        return STATUS

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    end = serve(StatusCollector(status, dict, lambda: NOW), f"127.0.0.1:{port}", unexpected)
    try:
        asked(port, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert made == []
        asked(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert made == [1]
    finally:
        end()


def test_a_listener_that_was_killed_is_started_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    problems: list[str] = []
    end = serve(watched(), f"127.0.0.1:{port}", problems.append)
    try:
        for time_of, pause_s in enumerate((1, 2), 1):
            assert asked(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
            killed = listener_pid(os.getpid())
            os.kill(killed, signal.SIGKILL)
            # the connection waits in the queue of the listening socket until the next listener accepts it
            assert asked(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
            assert not Path(f"/proc/{killed}").exists(), "a zombie"
            assert problems[time_of - 1 :] == [
                f"the listener for metrics ended: signal 9. It is started again in {pause_s} s"
            ]
    finally:
        end()


def test_a_listener_is_not_started_again_after_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ended = threading.Event()
    end = serve(watched(), f"127.0.0.1:{port}", lambda _problem: ended.set())
    try:
        killed = listener_pid(os.getpid())
        os.kill(killed, signal.SIGKILL)
        assert ended.wait(60)
    finally:
        end()
    assert not Path(f"/proc/{killed}").exists(), "a zombie"
    with socket.create_server(("127.0.0.1", port)):
        pass  # no other process listens there


def _known() -> set[str]:
    return {name for name, _ in samples(text(watched()))}


def _asked(expression: str) -> set[str]:
    return set(re.findall(rf"{PREFIX}\w+", expression))


def test_alert_rules_ask_for_numbers_that_exist() -> None:
    rules = yaml.safe_load((CONF / "prometheus" / "usage-publisher.rules.yml").read_text(encoding="utf-8"))
    found = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in found}) == len(found) > 8
    for rule in found:
        asked = _asked(rule["expr"])
        assert asked, rule["alert"]
        assert asked <= _known(), rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]


def test_the_dashboard_asks_for_numbers_that_exist() -> None:
    board = json.loads((CONF / "grafana" / "usage-publisher.json").read_text(encoding="utf-8"))
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        for target in panel["targets"]:
            asked = _asked(target["expr"])
            assert asked, panel["title"]
            assert asked <= _known(), panel["title"]
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables


def test_held_and_rejected_records_are_not_delivered() -> None:
    whole = msgspec.structs.replace(STATUS, complete=True)
    good = {"ce": msgspec.structs.replace(TARGET, held=0, rejected=0)}
    for targets, delivered in (({}, 1), (good, 1), *(({**good, "b": bad}, 0) for bad in _left_behind())):
        watched = StatusCollector(
            lambda targets=targets: msgspec.structs.replace(whole, targets=targets),
            dict,
            lambda: NOW,  # type: ignore[misc]
        )
        assert one(samples(text(watched)), "delivered") == delivered


def _left_behind() -> list[TargetStatus]:
    good = msgspec.structs.replace(TARGET, held=0, rejected=0)
    return [msgspec.structs.replace(good, held=8_076), msgspec.structs.replace(good, rejected=1)]


def test_the_dashboard_calls_good_only_what_is_delivered() -> None:
    board = json.loads((CONF / "grafana" / "usage-publisher.json").read_text(encoding="utf-8"))
    (panel,) = (each for each in board["panels"] if each["title"] == "Everything delivered")
    assert [_asked(target["expr"]) for target in panel["targets"]] == [{"usage_publisher_delivered"}]


def test_the_dashboard_marks_what_waits_for_a_shadow() -> None:
    board = json.loads((CONF / "grafana" / "usage-publisher.json").read_text(encoding="utf-8"))
    asked = [target for panel in board["panels"] for target in panel["targets"] if "waiting" in target["expr"]]
    assert len(asked) >= 3
    shadows = "on (instance, target) usage_publisher_target_shadow == 1"
    for target in asked:
        assert f"unless {shadows}" in target["expr"] or (
            f"and {shadows}" in target["expr"] and "(shadow)" in target["legendFormat"]
        )
    assert any("(shadow)" in target["legendFormat"] for target in asked)
