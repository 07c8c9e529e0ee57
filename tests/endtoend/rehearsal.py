"""A site on this machine: an ARC database, the simulated services, and the program as a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from tests.publisher.cli.program import COMMAND, Done, run_command

_PATIENCE_S = 60.0


class Rehearsal:
    """A folder with `accounting.db`, a configuration and the state; commands run as real processes."""

    def __init__(self, folder: Path, simulator: Simulator, pki: Pki) -> None:
        self.folder = folder
        self.simulator = simulator
        self.pki = pki
        self.database = folder / "accounting.db"
        self.configuration = folder / "publisher.toml"

    def configure(self, targets: str, *, retry: str = "attempts = 1\n") -> None:
        """Write the configuration with these target tables; `{sgas}`, `{ams}`, and `{token}` are replaced by the
        URLs."""
        names = {
            "sgas": f'type = "sgas"\nurl = "{self.simulator.sgas_url}"\n{retry}',
            "ams": f'type = "ams"\nurl = "{self.simulator.ams_url}"\nauth_url = "{self.simulator.token_url}"\n{retry}',
        }
        self.configuration.write_text(
            f'[site]\nname = "TEST-SITE"\n[store]\nurl = "sqlite:///state/store.db"\n'
            f'[sources.ce1]\ntype = "arc"\npath = "accounting.db"\ncomplete_since = "2026-01-01"\n'
            f"{targets.format(**names)}\n"
            f'[credentials]\ncertificate = "{self.pki.client.certificate}"\nkey = "{self.pki.client.key}"\n'
            f'ca_directory = "{self.pki.ca_directory}"\n',
            encoding="utf-8",
        )

    def command(self, *arguments: str) -> Done:
        """Run a command to its end, in a process that is forked from one that has loaded the program."""
        return run_command(["--config", str(self.configuration), *arguments], self.folder, os.environ)

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Run a command with --json; it must end with this code."""
        done = self.command(*arguments, "--json")
        assert done.code == code, f"{arguments} ended with {done.code}: {done.err[-2000:]}"
        return done.object

    def killed_at_first_fault(self, *arguments: str, with_signal: int = signal.SIGKILL) -> int:
        """Run a command and kill it as soon as the simulator has applied its first fault; gives its exit code."""
        process = subprocess.Popen(
            [*COMMAND, "--config", str(self.configuration), *arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        tick = threading.Event()
        waited = 0.0
        while not self.simulator.faults.applied()[0][1]:
            assert process.poll() is None, "the program ended before the fault was applied"
            assert waited < _PATIENCE_S, "the fault was never applied"
            tick.wait(0.01)
            waited += 0.01
        os.kill(process.pid, with_signal)
        return process.wait(timeout=_PATIENCE_S)
