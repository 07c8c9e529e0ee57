"""`sacct` as the other side of Slurm sources, end to end through `reconcile --source --with-tool`.

What a real sacct printed was recorded (`fixtures/slurm/two_clusters`); the program here prints the records of the time
and clusters that it is asked for, as the real one does, and keeps its arguments.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.config.schema import SourceSettings
from publisher.errors import SourceError, SourceFormatError
from publisher.sources.base import Window
from publisher.sources.slurm.source import SlurmSource
from publisher.sources.tool import ToolSums
from tests.publisher.cli.program import BASE, FILES, Done, Program
from tests.publisher.site import NOVEMBER

WEEK_S: Final = 7 * 86_400
SACCT: Final = """#!{python} -IS
import calendar, json, sys, time
with open({called!r}, "a") as called:
    called.write(json.dumps(sys.argv[1:]) + "\\n")
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
stamp = lambda text: calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
begin, until = stamp(options["starttime"]), stamp(options["endtime"])
clusters = options.get("clusters", "cluster").split(",")
header, *lines = open({sums!r}).read().splitlines()
names = header.split("|")
print(options["delimiter"].join(options["format"].split(",")))
for line in lines:
    row = dict(zip(names, line.split("|")))
    if row["Cluster"] not in clusters or int(row["Submit"]) > until:
        continue
    if row["End"] == "Unknown" or int(row["End"]) >= begin:
        print(options["delimiter"].join(row[name] for name in options["format"].split(",")))
"""


class RecordedSacct:
    """A `sacct` in the search path. `sums`: the recorded table that it prints."""

    def __init__(self, folder: Path, recorded: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.sums = folder / "sums.psv"
        self.sums.write_bytes(recorded.read_bytes())
        self._called = folder / "called"
        program = self.folder / "sacct"
        program.write_text(SACCT.format(python=sys.executable, called=str(self._called), sums=str(self.sums)))
        program.chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self._called.read_text().splitlines()] if self._called.exists() else []

    def replace(self, old: str, new: str) -> None:
        text = self.sums.read_text()
        assert old in text
        self.sums.write_text(text.replace(old, new))


@pytest.fixture
def sacct(fixtures: Path, tmp_path: Path) -> RecordedSacct:
    return RecordedSacct(tmp_path, fixtures / "slurm" / "two_clusters" / "sums.psv")


@pytest.fixture(scope="module")
def site(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The table of both clusters, collected and published. Nothing here changes it."""
    saved = fixtures / "slurm" / "two_clusters" / "saved.psv"
    source = f'\n[sources.cluster]\ntype = "slurm"\npath = "{saved}"\ncomplete_since = "2026-09-01"\n'
    made = Program(tmp_path_factory.mktemp("site"), BASE + source + FILES)
    made("run").ok()
    return made


def reconciled(site: Program, sacct: RecordedSacct, *months: str) -> tuple[Done, dict[str, Any]]:
    options = [word for month in months for word in ("--month", month)]
    done = site("reconcile", "--source", "--with-tool", *options, "--json", PATH=sacct.path)
    return done, done.object["sums"]["sources"]["cluster"]


def test_sums_of_all_runs_of_both_clusters(site: Program, sacct: RecordedSacct) -> None:
    """Requeued, suspended, and resized jobs, array tasks, steps, a deleted user, and borders of months."""
    done, source = reconciled(site, sacct, "2026-10", "2026-11")
    assert (done.code, source["tool_error"]) == (0, None)
    own = {key: value for key, value in source["own"].items() if key != "tool"}
    assert own == {
        "jobs": 45,
        "wall_ms": 3_888_182_000,
        "core_ms": 11_664_398_000,
        "cpu_ms": 12_308,
        "cpu_within_ms": 0,
    }
    assert source["tool"] == {**own, "tool": "sacct"}
    assert {word for call in sacct.calls for word in call if word.startswith("--clusters")} == {
        "--clusters=cluster,north"
    }
    assert not any("--allocations" in call for call in sacct.calls), "its TotalCPU would be 0"


def test_a_run_counts_in_the_month_of_its_end(site: Program, sacct: RecordedSacct) -> None:
    _, october = reconciled(site, sacct, "2026-10")
    _, november = reconciled(site, sacct, "2026-11")
    assert october["tool"] == {
        "tool": "sacct", "jobs": 1, "wall_ms": 2_000, "core_ms": 2_000, "cpu_ms": 2, "cpu_within_ms": 0
    }  # fmt: skip
    assert november["tool"]["jobs"] == november["own"]["jobs"] == 44


def test_people_see_both_sides(site: Program, sacct: RecordedSacct) -> None:
    done = site("reconcile", "--source", "--with-tool", "--month", "2026-11", PATH=sacct.path).ok()
    assert "Beside the program of the batch system" in done.out
    (row,) = [line for line in done.out.splitlines() if "sacct" in line]
    assert row.count("44") == 2
    assert "agrees" in row


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        ("cluster|14|c2|1|1793491190|", "cluster|14|c2|1|4000000000|", {"jobs", "wall_ms", "core_ms", "cpu_ms"}),
        ("|1793491197|1793491199|2|2|", "|1793491197|1793491199|3|3|", {"wall_ms", "core_ms"}),
        ("|1793491199|2|2|00:00.002|", "|1793491199|2|2|00:00.003|", {"cpu_ms"}),
    ],
    ids=["no such run", "a second more", "a millisecond of CPU time more"],
)
def test_a_difference_is_found(site: Program, sacct: RecordedSacct, old: str, new: str, differing: set[str]) -> None:
    sacct.replace(old, new)
    done, source = reconciled(site, sacct, "2026-10", "2026-11")
    assert done.code == 1
    assert {name for name, own in source["own"].items() if name != "tool" and own != source["tool"][name]} == differing


def test_a_source_that_asks_sacct_is_compared_with_its_sums(fixtures: Path, tmp_path: Path) -> None:
    """The same program, asked for less: steps, texts, and delimiters of users are not in this answer."""
    folder = fixtures / "slurm" / "two_clusters"
    sacct = RecordedSacct(tmp_path, folder / "sums.psv")
    source = SlurmSource("cluster", SourceSettings(type="slurm", path=sacct.folder / "sacct"))
    window = Window(NOVEMBER, NOVEMBER + 30 * 86_400)
    assert source.tool_sums(window, ["north"]) == ToolSums("sacct", 6, 9_000, 18_000, 4_152)
    assert source.tool_sums(window, ()).jobs == 38, "the local cluster"


def test_sacct_is_asked_for_a_week_at_a_time(sacct: RecordedSacct, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", sacct.path)
    source = SlurmSource("cluster", SourceSettings(type="slurm", path=sacct.sums))
    source.tool_sums(Window(NOVEMBER, NOVEMBER + 2 * WEEK_S + 1), ())
    spans = [[word for word in call if word.startswith(("--start", "--end"))] for call in sacct.calls]
    assert spans == [
        ["--starttime=2026-11-01T00:00:00", "--endtime=2026-11-08T00:00:00"],
        ["--starttime=2026-11-08T00:00:00", "--endtime=2026-11-15T00:00:00"],
        ["--starttime=2026-11-15T00:00:00", "--endtime=2026-11-15T00:00:01"],
    ]


def test_without_sacct_it_says_so(site: Program, tmp_path: Path) -> None:
    done = site("reconcile", "--source", "--with-tool", "--month", "2026-11", PATH=str(tmp_path / "nothing")).ok()
    assert "cluster: sacct is not installed here. Omit --with-tool, or install it" in done.err


def test_what_is_not_understood_is_an_error(
    sacct: RecordedSacct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", sacct.path)
    source = SlurmSource("cluster", SourceSettings(type="slurm", path=tmp_path / "saved.psv"))
    window = Window(NOVEMBER, NOVEMBER + 30 * 86_400)
    sacct.replace("|00:01.684|", "|1.6 s|")
    with pytest.raises(SourceFormatError, match="a duration is not of the form"):
        source.tool_sums(window, ())
    (sacct.folder / "sacct").write_text("#!/bin/sh\necho 'sacct: error: no slurmdbd' >&2\nexit 1\n")
    with pytest.raises(SourceError, match="exit code 1: sacct: error: no slurmdbd"):
        source.tool_sums(window, ())
