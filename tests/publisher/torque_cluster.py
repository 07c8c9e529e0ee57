"""A cluster in a folder: a TORQUE log that we write, the real publisher over it, a directory as its service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from publisher.api import Publisher
from publisher.config import file as config_file
from publisher.events import ignore
from publisher.publish.context import Tools
from publisher.reason import sentence
from publisher.store.schema import State
from tests.publisher.site import store_url_of

NOW: Final = 1_795_200_000
"""2026-11-20T18:40:00Z."""


def torque_line(number: int, end: int, *, wall_s: int = 100, **fields: str) -> str:
    """The E record of a job that ended then, epoch seconds."""
    stamp = time.strftime("%m/%d/%Y %H:%M:%S", time.gmtime(end))
    given = {
        "user": "ada", "group": "physics", "queue": "main", "ctime": str(end - wall_s - 10),
        "qtime": str(end - wall_s - 10), "etime": str(end - wall_s - 10), "start": str(end - wall_s),
        "exec_host": "wn1/0", "end": str(end), "Exit_status": "0", "resources_used.cput": "00:00:50",
        "resources_used.walltime": time.strftime("%H:%M:%S", time.gmtime(wall_s)),
    } | fields  # fmt: skip
    text = " ".join(f"{name}={value}" for name, value in given.items())
    return f"{stamp};E;{number}.server;{text}\n"


class TorqueCluster:
    """See the module. `source` and `target` are tables of the configuration, to be changed between commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = NOW
        self.store_url = store_url_of(folder)
        (folder / "accounting").mkdir()
        self.source: dict[str, Any] = {"type": "torque", "path": "accounting", "complete_since": "2026-01-01"}
        self.target: dict[str, Any] = {
            "type": "directory", "path": "out", "layout": "files", "records": "apel-job", "sync": False,
        }  # fmt: skip
        self.more: dict[str, Any] = {}

    def log(self, *lines: str) -> None:
        """Append to the accounting log."""
        with (self.folder / "accounting" / "20261120").open("a", encoding="utf-8") as file:
            file.writelines(lines)

    def publisher(self) -> Publisher:
        """A new process."""
        table = {
            "site": {"name": "EXAMPLE-SITE"},
            "store": {"url": self.store_url},
            "sources": {"ce1": self.source},
            "targets": {"spool": self.target},
            **self.more,
        }
        config = config_file.parse(table, self.folder / "publisher.toml")
        return Publisher(config, Tools(lambda: self.now, ignore))

    def run(self) -> None:
        """`usage-publisher run`, without the timer."""
        with self.publisher() as publisher:
            collected = publisher.collect()
            assert collected is not None
            assert {name: found.error for name, found in collected.items()} == dict.fromkeys(collected)
            delivered = publisher.publish()
            assert {name: done.error for name, done in delivered.items()} == dict.fromkeys(delivered)

    def sent(self) -> str:
        """What was sent since the last call, in its order."""
        there = (self.folder / "out").glob("*.*") if (self.folder / "out").exists() else ()
        files = sorted(there, key=lambda file: file.stat().st_mtime_ns)
        text = "\n".join(file.read_text(encoding="utf-8") for file in files)
        for file in files:
            file.unlink()
        return text

    def held(self) -> dict[str, str]:
        """Why each record that is held is held."""
        with self.publisher() as publisher:
            return {found.record_id: sentence(found.reason) for found in publisher.listed(State.HELD)}

    def counts(self) -> tuple[int, int, int]:
        """Jobs accepted, waiting and held."""
        with self.publisher() as publisher:
            found = publisher.status().targets["spool"]
            return found.accepted, found.waiting, found.held

    def check(self) -> list[str]:
        """What `check` says of rules and sources, other than that all is well."""
        with self.publisher() as publisher:
            return [f"{found.subject}: {found.message}" for found in publisher.check() if found.level != "green"]
