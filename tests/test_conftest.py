"""The rules of the test run itself: what is left out, and that CI notices a skip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import extent
from tests.conftest import REFERENCE_MISSING, ROOT

MODULE = f"""
import pytest

def test_plain(): pass

@pytest.mark.long
def test_long(): pass

@pytest.mark.bench
def test_bench(): pass

def test_skips(): pytest.skip("no openssl here")

def test_reference(): pytest.skip({REFERENCE_MISSING!r})

@pytest.mark.xfail
def test_known_defect(): assert False
"""


def run_pytest(place: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a module, or those of the folder in which pytest is started."""
    ours = ("PYTEST_", "RUN_", "USAGE_PUBLISHER_")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), *options]
    command += ["--rootdir=.", "-o", "testpaths=."] if place.is_dir() else [str(place)]
    return subprocess.run(
        command,
        cwd=place if place.is_dir() else ROOT,
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "test_module.py"
    path.write_text(MODULE, encoding="utf-8")
    return path


def test_long_and_bench_are_left_out_unless_asked_for(module: Path) -> None:
    assert "1 passed, 2 skipped, 2 deselected, 1 xfailed" in run_pytest(module).stdout
    assert "2 passed, 2 skipped, 1 deselected, 1 xfailed" in run_pytest(module, RUN_LONG="1").stdout
    assert "1 passed, 5 deselected" in run_pytest(module, "-m", "bench").stdout


def test_a_skip_fails_where_skips_are_forbidden(module: Path) -> None:
    done = run_pytest(module, USAGE_PUBLISHER_NO_SKIPS="1")
    assert done.returncode == 1
    assert "1 failed, 1 passed, 1 skipped, 2 deselected, 1 xfailed" in done.stdout
    assert "no openssl here" in done.stdout


def test_a_module_that_skips_itself_fails_there_too(tmp_path: Path) -> None:
    path = tmp_path / "test_module.py"
    path.write_text("import pytest\npytest.skip('no browser here', allow_module_level=True)\n", encoding="utf-8")
    assert run_pytest(path).returncode == 5, "nothing ran"
    done = run_pytest(path, USAGE_PUBLISHER_NO_SKIPS="1")
    assert done.returncode == 2
    assert "no browser here" in done.stdout


CASES = """
import pytest

@pytest.mark.parametrize("case", range(10))
def test_writes(tmp_path, case): pass

@pytest.mark.parametrize("case", range(9))
def test_calculates(case): pass

@pytest.mark.parametrize("case", range(2))
def test_has_two(tmp_path, case): pass

class Suite:
    def test_promise(self, tmp_path): pass

class TestOneKind(Suite): pass

class TestOtherKind(Suite): pass
"""


def test_a_fifth_of_the_cases_that_write_runs_unless_all_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text(CASES, encoding="utf-8")
    assert "13 passed, 10 deselected" in run_pytest(tmp_path).stdout
    assert "23 passed" in run_pytest(tmp_path, RUN_EVERY_CASE="1").stdout
    file = tmp_path / "test_module.py"
    assert "23 passed" in run_pytest(file).stdout, "who names a file gets all of it"
    assert "13 passed, 10 deselected" in run_pytest(file, RUN_EVERY_CASE="0").stdout


def test_ci_runs_every_case() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "\nRUN_EVERY_CASE=1 make test\n" in script
    assert "RUN_EVERY_CASE=0 make test-base " in script.partition("RUN_EVERY_CASE=1 make test\n")[2]


def test_each_case_is_that_of_some_test() -> None:
    chosen = {case for number in range(50) for case in extent.some(f"test_{number}", ("sqlite", "postgresql"))}
    assert chosen == {"sqlite", "postgresql"}
    assert extent.some("test", ("one",)) == ("one",)
