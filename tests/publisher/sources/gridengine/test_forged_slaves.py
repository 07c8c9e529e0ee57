"""Slave lines that a user may have written add nothing to another user's parallel job."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.config import schema
from publisher.sources.gridengine.source import GridEngineSource
from tests.publisher.sources.log_reading import Seen, read_on


def line(number: int, user: str, *, cpu: int = 60, pe_task: str = "NONE", request: str = "", pe: str = "NONE") -> str:
    zeros = ":".join("0" * 15)
    return (
        f"q:h:g:{user}:n:{number}:sge:0:1795000000:1795000010:1795000110:0:0:100:1.0:1.0:{zeros}:NONE:d:{pe}:2:0:{cpu}:0:"
        f"0:-q q -l arch={request}:0.0:{pe_task}:1000.0:0:0\n"
    )


FORGED = line(12, "ada", cpu=90_000, pe_task="1.n2", pe="mpi")
MASTER = line(12, "ada", pe="mpi")


def read(tmp_path: Path, *parts: str) -> Seen:
    path = tmp_path / "accounting"
    path.unlink(missing_ok=True)
    source = GridEngineSource("ge", schema.SourceSettings(type="gridengine", path=path, cluster="c"))
    seen = Seen()
    for part in parts:
        with path.open("a") as stream:
            stream.write(part)
        read_on(source, seen)
    return seen


def assert_true(seen: Seen) -> None:
    """Nothing forged is stored, and each true job is stored or offered for a decision."""
    for number in ("11", "12", "13"):
        stored = [job.cpu_ms for job in seen.jobs.values() if job.local_id == number]
        held = [each.suspect.cpu_ms for each in seen.unreadable if each.suspect and each.suspect.local_id == number]
        assert stored == [60_000] or (stored == [] and 60_000 in held)


@pytest.mark.parametrize("end", ["y", "#y"])
@pytest.mark.parametrize("begin", ["x", "a:b", "x:0.0:NONE:0.0:0:0", "a:b:c:d:e:f:g", "#"])
@pytest.mark.parametrize("several", [1, 3])
def test_a_forged_slave_adds_nothing(tmp_path: Path, begin: str, end: str, several: int) -> None:
    evil = line(7, "eve", request=f"{begin}\n{FORGED * several}{end}")
    seen = read(tmp_path, line(11, "ada") + evil + MASTER + line(13, "ada"))
    assert_true(seen)
    listed = b"".join(each.raw for each in seen.unreadable)
    assert FORGED.encode().strip() in listed, "it is shown"


@pytest.mark.parametrize("cut", ["x\n", "x\n" + line(55, "bob"), ""])
def test_a_forged_slave_after_a_cut_line_adds_nothing(tmp_path: Path, cut: str) -> None:
    """The rest of the broken record ends a record of the user's text: no line is a rest by itself."""
    open_end = line(99, "eve").partition("arch=")[0]
    evil = line(7, "eve", request=f"x\n{FORGED}{cut}{open_end}arch=z")
    seen = read(tmp_path, line(11, "ada") + evil, MASTER + line(13, "ada"))
    assert_true(seen)
    assert "12" not in {job.local_id for job in seen.jobs.values()}, "it is not known whether the slave is a forged one"


def test_a_slave_of_an_earlier_reading_is_doubtful_too(tmp_path: Path) -> None:
    own = line(7, "eve", request="z")
    rest = "y:0.0:NONE:0.0:0:0\n"
    seen = read(tmp_path, line(11, "ada") + own + FORGED, rest, MASTER + line(13, "ada"))
    assert_true(seen)
    assert FORGED.encode().strip() in [each.raw for each in seen.unreadable]


def test_true_slaves_are_added(tmp_path: Path) -> None:
    slave = line(12, "ada", cpu=40, pe_task="1.n2", pe="mpi")
    seen = read(tmp_path, slave, slave.replace("1.n2", "1.n3") + MASTER)
    assert [job.cpu_ms for job in seen.jobs.values()] == [140_000]
