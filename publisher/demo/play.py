"""The demonstration: each step is a command of an administrator, run in a process of its own."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from publisher.demo.compute_element import add_late_job, make_database
from publisher.errors import OutputError, PublisherError
from publisher.text import problem_text
from publisher.whole_file import write_whole

_CONFIGURATION = """\
# The configuration of the demonstration: one compute element, an SGAS and an APEL (AMS) service on this machine.
[site]
name = "DEMO-SITE"

[store]
url = "sqlite:///state/store.db"

[sources.ce1]
type = "arc"
path = "accounting.db"
complete_since = "2026-09-01"      # the first job of the demonstration is later

[targets.sgas]
type = "sgas"
url = {sgas_url}
batch_records = 10

[targets.apel]
type = "ams"
url = {ams_url}
auth_url = {token_url}
records = "apel-summary"

[credentials]
certificate = {certificate}
key = {key}
ca_directory = {ca_directory}
"""

Say = Callable[[str], None]


def play(directory: Path, say: Say, *, kept: bool) -> int:
    """Run the demonstration in an empty directory, which the caller removes afterwards unless `kept`.

    Returns the exit code 0. Raises `OutputError` if the directory cannot be written, `PublisherError` if a step fails.
    """
    database = directory / "accounting.db"
    configuration = directory / "publisher.toml"
    with _simulator(directory, say) as services:
        settings = _CONFIGURATION.format(**{key: json.dumps(value) for key, value in services.items()})
        with writing(directory):
            finished = make_database(database)
            write_whole(configuration, settings.encode())
        say(f"An ARC compute element with {finished} finished jobs: {database}")
        say(f"The configuration: {configuration}")
        steps: list[tuple[str, list[str], int]] = [
            ("Check the configuration. Nothing is sent.", ["check"], 0),
            ("Collect the jobs and publish them.", ["run"], finished),
            ("Run again: there is nothing to send.", ["run"], finished),
        ]
        for text, arguments, expected in steps:
            _command(configuration, text, arguments, say)
            _expect(configuration, expected if arguments != ["check"] else 0, say)
        with writing(directory):
            late = add_late_job(database)
        say(f"\nA late job appears; it ended before jobs that were already sent: {late}")
        _command(configuration, "Only this job is sent, and the summary of its month.", ["run"], say)
        _expect(configuration, finished + 1, say)
        _command(configuration, "Show where it was delivered.", ["jobs", late], say)
        _command(configuration, "Show the state of all sources and targets.", ["status"], say)
        say(
            "The late job is accepted and not yet confirmed: `run` compares each target with what its service has once "
            "a day (`reconcile_every`)."
        )
    if not kept:
        say(
            "\nEverything was in a temporary folder, which is removed now. To keep it, run:\n"
            f"  {_program()} demo --directory usage-demo"
        )
        return 0
    say(
        f"\nLook next, in {directory}:\n"
        f"  {_program()} --config {configuration} render ogf-ur --since 2026-09 | head\n"
        f"  {_program()} --config {configuration} status --json\n"
        "  README.md, then docs/start/tour.md: the same with your own computing element and services"
    )
    return 0


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Raises `OutputError` where the directory, or a file in it, cannot be written."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = problem_text(error)
        hint = "Free some disk space, or name another folder with --directory"
        raise OutputError(f"{directory} cannot be written: {reason}", hint=hint) from error


def _program() -> str:
    """The command, with its folder if that is not in the PATH."""
    return "usage-publisher" if which("usage-publisher") else str(Path(sys.executable).with_name("usage-publisher"))


@contextmanager
def _simulator(directory: Path, say: Say) -> Iterator[dict[str, Any]]:
    """Run the services in a process that ends with the demonstration; gives their addresses and files."""
    say("Starting an SGAS and an APEL messaging service on loopback, with TLS and temporary certificates")
    arguments = [sys.executable, "-P", "-m", "publisher.simulator", "--directory", str(directory / "services")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        try:
            assert process.stdout is not None  # it is a pipe
            line = process.stdout.readline()
            try:
                ready = json.loads(line)
            except ValueError:
                raise PublisherError("the simulated services did not start") from None
            say(f"  SGAS {ready['sgas_url']}\n  AMS  {ready['ams_url']}")
            yield ready
        finally:
            process.terminate()


def _command(configuration: Path, text: str, arguments: list[str], say: Say) -> None:
    say(f"\n{text}\n$ usage-publisher --config {configuration} {' '.join(arguments)}")
    done = _run(configuration, arguments, capture=False)
    if done.returncode != 0:
        raise PublisherError(f"`usage-publisher {' '.join(arguments)}` ended with exit code {done.returncode}")


def _expect(configuration: Path, jobs: int, say: Say) -> None:
    """Check that each target has this number of jobs, and none waits. Raises `PublisherError`."""
    status = json.loads(_run(configuration, ["status", "--json"], capture=True).stdout)
    for name, target in status["targets"].items():
        if target["accepted"] != jobs or target["waiting"]:
            raise PublisherError(f"{name} has {target['accepted']} jobs and should have {jobs}")
    if jobs:
        say(f"Each service has {jobs} jobs, each once.")


def _run(configuration: Path, arguments: list[str], *, capture: bool) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-P", "-m", "publisher.cli", "--config", str(configuration), *arguments]
    return subprocess.run(program, check=False, text=True, stdout=subprocess.PIPE if capture else None)  # noqa: S603 - our own program
