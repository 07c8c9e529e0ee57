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


def run_pytest(module: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = ("PYTEST_", "RUN_LONG", "USAGE_PUBLISHER_")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    return subprocess.run(
        [*command, *options, str(module)],
        cwd=ROOT,
        env=inherited | environment,
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


def test_ci_runs_the_tests_of_either_store_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"tests/test_module.py::test_{number}" for number in range(300)]
    for everything in (True, False):
        monkeypatch.setattr(extent, "_RUN_EITHER_STORE", everything)
        chosen = sum(map(extent.is_run_on_postgresql, names))
        assert chosen == 300 if everything else 75 < chosen < 125
    assert " RUN_EITHER_STORE=1\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
