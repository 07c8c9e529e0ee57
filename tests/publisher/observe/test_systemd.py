"""The service manager hears what it wants to hear, in its protocol."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.observe.systemd import ServiceManager


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(tmp_path / "notify"))
        opened.settimeout(10)
        yield opened


def test_states_are_sent(channel: socket.socket) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": channel.getsockname()})
    manager.ready()
    manager.status("last run\nended with 0")
    manager.stopping()
    assert [channel.recv(1000) for _ in range(3)] == [b"READY=1", b"STATUS=last run ended with 0", b"STOPPING=1"]


def test_alive_is_sent_twice_in_the_time_out_and_not_more_often(channel: socket.socket) -> None:
    manager = ServiceManager(
        {"NOTIFY_SOCKET": channel.getsockname(), "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}
    )
    assert manager.alive_every_s == 30.0
    for _ in range(5):
        manager.alive()
    manager.ready()
    assert [channel.recv(1000) for _ in range(2)] == [b"WATCHDOG=1", b"READY=1"]


def test_the_watchdog_of_another_process_is_not_ours() -> None:
    assert ServiceManager({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}).alive_every_s is None


def test_without_a_manager_nothing_is_sent_and_a_dead_one_does_no_harm(tmp_path: Path) -> None:
    ServiceManager({}).ready()
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready()
