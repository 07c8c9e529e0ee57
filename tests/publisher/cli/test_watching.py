"""A run as those see it who watch: Prometheus, the log, the mail box, the service manager."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.publisher.cli.program import COMMAND, WHOLE, Program
from tests.publisher.observe.test_metrics import listener_pid, one, samples


def test_a_run_writes_its_numbers_and_its_log(fresh: Program) -> None:
    fresh.configure(WHOLE + '[metrics]\ntextfile = "usage.prom"\n[log]\nfile = "log"\nformat = "json"\n')
    fresh("run").ok()
    found = samples((fresh.folder / "usage.prom").read_text(encoding="utf-8"))
    assert one(found, "last_run_exit_code") == 0
    assert one(found, "complete") == 1
    assert one(found, "target_jobs", target="files", state="accepted") == 37
    assert one(found, "process_records", target="files") == 37
    reported = [json.loads(line) for line in (fresh.folder / "log").read_text(encoding="utf-8").splitlines()]
    assert {line["event"] for line in reported} >= {
        "run begun",
        "page stored",
        "batch sent",
        "batch settled",
        "run ended",
    }
    assert len({line["run"] for line in reported}) == 1


def test_a_run_that_fails_is_a_number_too(fresh: Program) -> None:
    fresh.configure(WHOLE + '[metrics]\ntextfile = "usage.prom"\n')
    (fresh.folder / "accounting.db").unlink()
    code = fresh("run").code
    assert code == 1
    found = samples((fresh.folder / "usage.prom").read_text(encoding="utf-8"))
    assert one(found, "last_run_exit_code") == code
    assert one(found, "source_failing", source="ce1") == 1


def test_a_run_has_the_use_of_allocations_as_numbers(fresh: Program) -> None:
    times = 'since = "2026-01-01"\nuntil = "2999-01-01"\n'
    settings = WHOLE + '[metrics]\ntextfile = "usage.prom"\n'
    fresh.configure(settings + f'[[allocations]]\nname = "Thesis"\nuser = "ada"\namount = 10\n{times}')
    fresh("run").ok()
    found = samples((fresh.folder / "usage.prom").read_text(encoding="utf-8"))
    labels = {"allocation": "Thesis", "holder": "user ada", "resource": "cores", "since": "2026-01-01T00:00:00Z"}
    assert one(found, "allocation_amount_hours", **labels) == 10
    fresh.configure(settings + '[[allocation_files]]\ntype = "csv"\npath = "none.csv"\n')
    assert "allocations are not watched: allocation_files: " in fresh("run").ok().err
    assert "allocation_" not in (fresh.folder / "usage.prom").read_text(encoding="utf-8")


def test_an_observer_that_fails_does_not_stop_the_run(fresh: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    watching = '[log]\nfile = "/dev/full"\n[metrics]\ntextfile = "missing/usage.prom"\n'
    watching += f'[notices]\nmail_to = ["a@b"]\nsmtp = "127.0.0.1:{port}"\n'
    fresh.configure(WHOLE.replace('path = "files"', 'path = "/proc/files"') + watching + 'target_fails_for = "0s"\n')
    done = fresh("run")
    assert "metrics.textfile" in done.err
    assert "the log /dev/full cannot be written: No space left on device" in done.err
    assert "Traceback" not in done.err
    assert f"could not be mailed through 127.0.0.1:{port}" in done.err
    assert "summaries" in done.out


@contextmanager
def staying(site: Program, channel: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, "run", "--every", "1h"], cwd=site.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=site.environment | {"NOTIFY_SOCKET": channel.getsockname()},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def reported(channel: socket.socket, expected: str) -> str:
    while True:
        said = channel.recv(4096).decode()
        if said.startswith(expected):
            return said


def test_a_program_that_keeps_running_notifies_its_manager_reads_its_configuration_anew_and_ends(
    fresh: Program,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(fresh.folder / "notify"))
        channel.settimeout(60)
        with staying(fresh, channel) as process:
            reported(channel, "READY=1")
            reported(channel, "STATUS=last run ended with 0")

            fresh.configure(WHOLE + f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
            process.send_signal(signal.SIGHUP)
            reported(channel, "RELOADING=1")
            reported(channel, "READY=1")
            reported(channel, "STATUS=last run ended with 0")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert one(samples(answer.read().decode()), "target_jobs", target="files", state="accepted") == 37
            os.kill(listener_pid(process.pid), signal.SIGKILL)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.status == 200

            fresh.configure("nonsense = 1\n")
            process.send_signal(signal.SIGHUP)
            reported(channel, "RELOADING=1")
            reported(channel, "STATUS=last run ended with 0")

            process.send_signal(signal.SIGTERM)
            reported(channel, "STOPPING=1")
            _, messages = process.communicate(timeout=60)
            assert process.returncode == 0
            assert messages.count(b"The configuration was read again") == 1
            assert b"The previous configuration stays in use" in messages
            assert messages.count(b"usage-publisher: the listener for metrics ended: signal 9.") == 1
