"""The units and the container recipe in conf/: what systemd thinks of them, and that they name what exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
MOST_EXPOSED = 30
"""Tenths: 3.0 of 10."""


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    return subprocess.run([program, *arguments], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    here = tmp_path / unit.name
    text = unit.read_text(encoding="utf-8")
    program = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)
    assert program is not None
    here.write_text(text.replace(program[1], "/bin/true"), encoding="utf-8")  # ours is not installed there
    for other in unit.parent.glob("*.timer"):
        shutil.copy(other, tmp_path)
    done = _analyze("verify", str(here))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_the_service_is_confined(unit: Path) -> None:
    done = _analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit))
    assert done.returncode == 0, done.stdout[-300:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_the_command_is_one_of_ours(unit: Path) -> None:
    from tests.docs.test_commands import parse

    text = unit.read_text(encoding="utf-8")
    line = re.search(r"^ExecStart=\S+/usage-publisher (.*)$", text, re.MULTILINE)
    assert line is not None
    parse(line[1].split())


def test_the_service_that_stays_talks_to_its_manager() -> None:
    text = (ROOT / "conf" / "systemd" / "usage-publisher-daemon.service").read_text(encoding="utf-8")
    for expected in ("Type=notify", "WatchdogSec=", "ExecReload=/bin/kill -HUP $MAINPID", "Restart=on-failure"):
        assert expected in text


def test_the_container_recipe_is_small_and_unprivileged() -> None:
    recipe = (ROOT / "conf" / "container" / "Containerfile").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n\s*", " ", recipe)
    steps = [line.split(maxsplit=1) for line in joined.splitlines() if line and not line.startswith("#")]
    words = [step[0] for step in steps]
    assert set(words) <= {
        "FROM",
        "ARG",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "VOLUME",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    bases = [step[1].split()[0] for step in steps if step[0] == "FROM"]
    assert all(re.search(r":[\w.-]+$", base) and not base.endswith(":latest") for base in bases)
    last = words.index("FROM", 1)
    user = next(step[1] for step in steps[last:] if step[0] == "USER")
    assert not user.startswith(("0", "root"))
    assert words.index("USER", last) < words.index("ENTRYPOINT", last)
    assert "--constraint constraints.txt" in joined
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for step in steps[:last]:
        if step[0] == "COPY":
            for source in step[1].split()[:-1]:
                assert (ROOT / source).exists() or source == "dist", source  # which `make wheel` fills
                assert f"!{source}" in ignored, source
    assert "dist/*.whl" in joined
