"""The batch system's own program as the other side of a source: `qacct` and `arcctl accounting stats`.

What `qacct` prints was recorded (`fixtures/gridengine/real`); the programs here print what is recorded, and keep their
arguments.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.calendar import Month
from publisher.api import Publisher
from publisher.config.schema import SourceSettings
from publisher.errors import SourceError, SourceFormatError, SourceMissingError
from publisher.reconcile.conservation import Conservation
from publisher.sources.arc.source import ArcSource
from publisher.sources.base import Window
from publisher.sources.gridengine.qacct import figures
from publisher.sources.gridengine.source import GridEngineSource
from publisher.sources.tool import ToolSums
from tests.publisher.cli.program import BASE, FILES
from tests.publisher.site import NOVEMBER

WINDOW = Window(NOVEMBER, NOVEMBER + 30 * 86_400)
Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a shell script in the search path; gives the file with a line of arguments for each call."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def put(name: str, script: str) -> Path:
        called = tmp_path / f"{name}.called"
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "$@" >>"{called}"\n{script}\n')
        program.chmod(0o755)
        return called

    return put


def qacct(real: Path) -> str:
    """The output of the real qacct, by whether it was asked only for master tasks."""
    return f'case "$*" in *" -m "*) cat "{real}/qacct-m-slots.txt";; *) cat "{real}/qacct-slots.txt";; esac'


@pytest.fixture
def real(fixtures: Path) -> Path:
    return fixtures / "gridengine" / "real"


def source_of(path: Path) -> GridEngineSource:
    return GridEngineSource("ge", SourceSettings(type="gridengine", path=path), {})


def conserved(folder: Path, accounting: Path) -> Conservation:
    config = folder / "publisher.toml"
    config.write_text(BASE + f'\n[sources.ge]\ntype = "gridengine"\npath = "{accounting}"\n' + FILES)
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        with publisher.reconcile((), (Month(2026, 11),)) as found:
            return publisher.conservation(found, with_tool=True)


def test_sums_of_qacct(install: Install, real: Path) -> None:
    called = install("qacct", qacct(real))
    said = source_of(real / "accounting").tool_sums(WINDOW, ())
    assert said == ToolSums("qacct", wall_ms=97_000, core_ms=136_000, cpu_ms=13_818, cpu_within_ms=2)
    ends = f"-f {real}/accounting -E -b 202611010000.00 -e 202611302359.59"
    assert called.read_text().splitlines() == [f"{ends} -m -slots", f"{ends} -slots"]


def test_the_source_agrees_with_qacct(install: Install, real: Path, tmp_path: Path) -> None:
    install("qacct", qacct(real))
    found = conserved(tmp_path, real / "accounting")
    reading = found.readings["ge"]
    assert reading.own is not None
    assert (reading.own.jobs, reading.own.wall_ms, reading.own.core_ms) == (32, 97_000, 136_000)
    assert reading.differing == []


def test_runs_that_two_sources_share_count_for_each(install: Install, real: Path, tmp_path: Path) -> None:
    """Each program adds up all runs of its own source."""
    install("qacct", qacct(real))
    shutil.copy(real / "accounting", tmp_path / "accounting")
    config = tmp_path / "publisher.toml"
    tables = "".join(
        f'\n[sources.{name}]\ntype = "gridengine"\npath = "{path}"\n'
        for name, path in (("one", real / "accounting"), ("two", tmp_path / "accounting"))
    )
    config.write_text(BASE + tables + FILES)
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        with publisher.reconcile((), (Month(2026, 11),)) as found:
            readings = publisher.conservation(found, with_tool=True).readings
    assert [(reading.own, reading.differing) for reading in readings.values()] == [(readings["two"].own, [])] * 2
    assert readings["one"].own is not None
    assert readings["one"].own.jobs == 32


def test_a_second_more_in_qacct_is_found(install: Install, real: Path, tmp_path: Path) -> None:
    install("qacct", qacct(real) + " | sed 's/ 80 / 81 /'")
    found = conserved(tmp_path, real / "accounting")
    assert found.readings["ge"].differing == ["wall_ms", "core_ms"]
    assert not found.agrees


def test_lost_runs_are_in_neither_side(install: Install, real: Path, tmp_path: Path) -> None:
    table = "SLOTS\n====\n 1 3 2.927 0.012 2.939 0.004 0.000 0.000\n 4 0 0 0 0 0 0 0\n"
    install("qacct", f"printf '{table}'".replace("\n", "\\n"))
    reading = conserved(tmp_path, real / "forced" / "accounting").readings["ge"]
    assert reading.own is not None
    assert (reading.runs, reading.own.jobs, reading.differing) == (6, 1, [])


def test_without_the_program_it_says_so(real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = conserved(tmp_path, real / "accounting")
    assert found.readings["ge"].tool_error == "qacct is not installed here. Omit --with-tool, or install it"
    assert found.readings["ge"].error is None


def test_a_batch_system_without_such_a_program_is_named(fixtures: Path, tmp_path: Path) -> None:
    config = tmp_path / "publisher.toml"
    logs = fixtures / "torque" / "accounting"
    config.write_text(BASE + f'\n[sources.ce1]\ntype = "torque"\npath = "{logs}"\n' + FILES)
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        with publisher.reconcile((), (Month(2026, 10),)) as found:
            reading = publisher.conservation(found, with_tool=True).readings["ce1"]
    assert reading.tool_error == "--with-tool: torque has no program of its own that adds up jobs"


def test_compressed_files_are_not_for_qacct(install: Install, real: Path, tmp_path: Path) -> None:
    called = install("qacct", qacct(real))
    shutil.copy(real / "accounting", tmp_path / "accounting")
    (tmp_path / "accounting.1.gz").write_bytes(gzip.compress((real / "accounting").read_bytes()))
    with pytest.raises(SourceMissingError, match=r"qacct cannot read .*accounting.1.gz"):
        source_of(tmp_path / "accounting").tool_sums(WINDOW, ())
    assert not called.exists()


@pytest.mark.parametrize(
    "row",
    ["1 2 3", "one 1 1 1 1 1 1 1", "1 x 1 1 1 1 1 1", "1 1 1 1 1,5 1 1 1", "1 NaN 1 1 1 1 1 1", "1 1 1 1 1 1 1 1 1"],
)
def test_what_is_no_row_of_figures_is_refused(row: str) -> None:
    with pytest.raises(SourceFormatError, match="not a row of figures"):
        list(figures(["SLOTS WALLCLOCK", "=====", row]))
    assert list(figures(["SLOTS WALLCLOCK", "====="])) == []


def test_a_program_that_fails_is_an_error(install: Install, real: Path) -> None:
    install("qacct", "echo 'error: no cell' >&2; exit 3")
    with pytest.raises(SourceError, match="exit code 3: error: no cell"):
        source_of(real / "accounting").tool_sums(WINDOW, ())


def arc(path: Path) -> ArcSource:
    return ArcSource("ce1", SourceSettings(type="arc", path=path))


def test_sums_of_arcctl(install: Install, tmp_path: Path) -> None:
    """Its ends begin after `-b`, and include `-e`."""
    called = install("arcctl", 'case "$*" in *jobcount) echo 7;; *walltime) echo 3600;; *) echo 1800;; esac')
    assert arc(tmp_path).tool_sums(WINDOW, ()) == ToolSums("arcctl", jobs=7, wall_ms=3_600_000, cpu_ms=1_800_000)
    ends = "accounting stats -b 2026-10-31 23:59:59 -e 2026-11-30 23:59:59 -o"
    assert called.read_text().splitlines() == [f"{ends} jobcount", f"{ends} walltime", f"{ends} cputime"]


@pytest.mark.parametrize("said", ["", "no jobs", "1\\n2"])
def test_what_is_no_number_of_arcctl_is_refused(install: Install, tmp_path: Path, said: str) -> None:
    install("arcctl", f"printf '{said}\\n'")
    with pytest.raises(SourceFormatError, match="not a number"):
        arc(tmp_path).tool_sums(WINDOW, ())
