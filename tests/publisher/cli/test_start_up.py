"""Start-up: commands load what they need and no more, which is what makes them start quickly."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from publisher.errors import EXTRAS
from tests.publisher.cli.program import Program

HEAVY = (
    *("httpx", "lxml", "alembic", "cryptography", "sqlalchemy", "pydantic", "email"),
    *EXTRAS,
    "rich.console",
)
STORE = ("sqlalchemy", "pydantic", "email")
TELL = """
import atexit, json, sys
atexit.register(lambda: sys.stderr.write(json.dumps([name for name in {names!r} if name in sys.modules])))
sys.argv[0] = "usage-publisher"
from publisher.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (("--help",), ()),
        (("--version",), ("email",)),
        (("status", "--json"), STORE),
        (("jobs", "--json"), STORE),
        (("records", "list", "--state", "held", "--json"), STORE),
        (("store", "audit", "--json"), STORE),
    ],
    ids=lambda value: value[0] if value else "",
)
def test_only_what_is_needed_is_loaded(published: Program, command: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TELL.format(names=HEAVY), *command], cwd=published.folder, env=published.environment,
        capture_output=True, check=True,
    )  # fmt: skip
    assert set(json.loads(done.stderr)) <= set(allowed)


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("publisher.sources.background", ("sqlalchemy", "cryptography", "httpx", "typer", "email", "structlog")),
        ("publisher.sources.background", ("publisher.config.targets", "publisher.config.schema")),
        ("publisher.messages.background", ("sqlalchemy.dialects.postgresql", "cryptography", "httpx", "typer")),
        ("publisher.publish.publish", ("lxml", "distributed", "alembic")),
        ("publisher.cli.main", ("rich.console", "sqlalchemy")),
        ("publisher.api", ("publisher.collect", "publisher.reconcile", "publisher.sources.background")),
        ("publisher.status.status", ("publisher.collect", "publisher.publish")),
    ],
)
def test_a_part_loads_little(module: str, spared: tuple[str, ...]) -> None:
    reported = f"import sys, {module}; print([name for name in {spared!r} if sys.modules.get(name)])"
    done = subprocess.run([sys.executable, "-c", reported], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_program_is_not_searched_for_cycles_while_it_is_loaded_or_ends() -> None:
    reported = """
import atexit, gc, sys
rounds = []
gc.callbacks.append(lambda phase, found: rounds.append(phase))
atexit.register(lambda: sys.stderr.write(f"{len(rounds)} {len(gc.get_objects())}"))
sys.argv = ["usage-publisher", "status", "--help"]
from publisher.cli.start import main
main()
"""
    done = subprocess.run([sys.executable, "-c", reported], capture_output=True, text=True, check=True)
    searched, left = map(int, done.stderr.split())
    assert searched < 20
    assert left < 1_000, "at its end Python searches what is left"


def test_settings_of_other_kinds_of_target_are_not_built() -> None:
    reported = """
import json
from pathlib import Path
from publisher.config import file
target = {"type": "directory", "path": "out", "records": "ogf-ur"}
config = file.parse({"site": {"name": "x"}, "targets": {"files": target}}, Path("/x/publisher.toml"))
from publisher.config.target_registry import TARGET_KINDS
kinds = [kind.name for kind in TARGET_KINDS.values() if kind.settings.__pydantic_complete__]
print(json.dumps([kinds, config.targets["files"].type]))
"""
    done = subprocess.run([sys.executable, "-c", reported], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [["directory"], "directory"]
