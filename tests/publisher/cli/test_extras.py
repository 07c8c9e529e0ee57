"""The base install: what it does without any extra, and what is said where one is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest

from publisher.errors import EXTRAS
from tests.publisher.cli.program import Done, Program

BASE_ONLY: Final = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
sys.argv[0] = "usage-publisher"
from publisher.cli.main import main
main()
"""
MONTH: Final = ("--month", "2026-10")


def run_without(site: Program, missing: set[str], *arguments: str) -> Done:
    """Run a command where these libraries are not installed."""
    done = subprocess.run(
        [sys.executable, "-c", BASE_ONLY.format(missing=missing), *arguments], cwd=site.folder, env=site.environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def libraries_of(*extras: str) -> set[str]:
    """The libraries that these extras have."""
    return {library for library, extra in EXTRAS.items() if extra in extras}


@pytest.mark.parametrize(
    ("missing", "arguments", "library", "extra"),
    [
        ({"reports"}, ("report", "totals", *MONTH), "duckdb", "reports"),
        ({"reports"}, ("report", "utilization", "--output", "a.png"), "duckdb", "reports"),
        ({"reports"}, ("report", "statements", *MONTH, "--output", "a"), "numpy", "reports"),
        ({"reports"}, ("archive", "archive"), "duckdb", "reports"),
        ({"web"}, ("serve",), "uvicorn", "web"),
        ({"reports", "web"}, ("serve",), "uvicorn", "web"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_one_line_says_which_extra_is_missing(
    collected: Program, missing: set[str], arguments: tuple[str, ...], library: str, extra: str
) -> None:
    done = run_without(collected, libraries_of(*missing), *arguments)
    said = (
        f"this needs {library}, which is not installed. "
        f"Install the package usage-publisher-extras, or in a checkout: pip install -c constraints.txt '.[{extra}]'"
    )
    assert (done.code, done.out, done.err) == (2, "", f"usage-publisher: {said}\n")
    done = run_without(collected, libraries_of(*missing), "--json", *arguments)
    assert (done.code, done.object, done.err) == (2, {"error": said, "exit_code": 2}, f"usage-publisher: {said}\n")


@pytest.mark.extra("dask")
def test_a_cluster_needs_its_extra(collected: Program) -> None:
    collected("archive", "archive").ok()
    arguments = ("report", "totals", *MONTH, "--archive", "archive", "--dask", "tcp://127.0.0.1:1")
    done = run_without(collected, {"distributed"}, *arguments)
    assert done.code == 2
    assert done.err.endswith("pip install -c constraints.txt '.[dask]'\n")


def test_a_store_on_a_server_needs_its_extra(fresh: Program) -> None:
    text = fresh.config.read_text("utf-8").replace("sqlite:///store.db", "postgresql://usage@127.0.0.1:1/usage")
    fresh.configure(text)
    for command in ("status", "run"):
        done = run_without(fresh, {"psycopg"}, command)
        assert done.code == 2, done.err
        assert "pip install -c constraints.txt '.[postgresql]'" in done.err


def test_all_else_works_without_any_extra(fresh: Program) -> None:
    def base(*arguments: str) -> Done:
        return run_without(fresh, set(EXTRAS), *arguments)

    for command in ("run", "reconcile", "status", "jobs", "check"):
        done = base(command, "--json")
        assert "not installed" not in done.err, command
        assert done.code in {0, 1}, (command, done.err)
    assert json.loads(base("render", "utilization", "--since", "2026-10", "--until", "2026-11").ok().out)["bins"]
    assert base("render", "apel-summary", "--since", "2026-10").ok().out
    shown = base("--help").ok().out
    for command in ("report", "archive", "serve", "demo"):
        assert f"  {command} " in shown
    assert "--by" in base("report", "totals", "--help").ok().out


def test_each_library_is_in_the_extra_that_is_named(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    of_library = packages_distributions()
    for library, extra in EXTRAS.items():
        name = of_library.get(library, [library])[0].lower()
        listed = {each for each, needed in extras.items() if any(one.startswith(name) for one in needed)}
        assert listed == {extra}, library
        assert not any(one.startswith(name) for one in project["dependencies"]), library
