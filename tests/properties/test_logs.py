"""Whatever happens to a log while it is read, its runs are those of the whole log; an invalid line affects only
itself."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.job import Job
from publisher.config.schema import SourceSettings as Settings
from publisher.sources import make_source
from tests.extent import short_or_whole
from tests.publisher.sources.log_reading import Seen, read_on

FEWER: Final = settings(max_examples=max(settings.default.max_examples // 20, short_or_whole(8, 20)))
"""Each example is a life of a whole log."""

LOGS: Final[dict[str, dict[str, Any]]] = {
    "gridengine/accounting-8.1.9": {"type": "gridengine", "cluster": "c"},
    "gridengine/accounting-variants": {"type": "gridengine", "cluster": "c"},
    "gridengine/accounting.jsonl": {"type": "gridengine", "cluster": "c"},
    "dqs/act_file": {"type": "dqs"},
    "torque/accounting": {"type": "torque", "timezone": "Europe/Oslo"},
    "pbs/accounting": {"type": "pbs", "timezone": "America/Denver"},
    "slurm/sacct.psv": {"type": "slurm", "timezone": "UTC"},
    "slurm/jobcomp.log": {"type": "slurm", "timezone": "UTC"},
    "htcondor/history": {"type": "htcondor"},
    "htcondor/apel-batch.log": {"type": "htcondor"},
    "lsf/lsb.acct": {"type": "lsf"},
}
"""A log of each kind, and how its source is configured."""


class RotatedLog(NamedTuple):
    """A log and what one reading of all of it gives."""

    name: str
    content: bytes
    expected: Seen


def content_of(fixtures: Path, name: str) -> bytes:
    """The log as one file; that of a folder of days, in their order."""
    place = fixtures / name
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return b"".join(file.read_bytes() for file in files)


def read(file: Path, name: str, seen: Seen) -> Seen:
    return read_on(make_source("s", Settings(path=file, **LOGS[name])), seen)


def whole(place: Path, name: str, content: bytes) -> Seen:
    """The result of one reading of the whole log."""
    file = place / "log"
    file.write_bytes(content)
    return read(file, name, Seen())


@pytest.fixture(scope="module", params=LOGS)
def log(request: pytest.FixtureRequest, fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> RotatedLog:
    """Each log, and what is in it."""
    name = request.param
    content = content_of(fixtures, name)
    return RotatedLog(name, content, whole(tmp_path_factory.mktemp("whole"), name, content))


def finished(seen: Seen) -> dict[str, Job]:
    return {key: job for key, job in seen.jobs.items() if job.finished}


def renamed(file: Path) -> None:
    """As logrotate does: every copy gets the next number."""
    _make_room(file)
    file.rename(file.with_name("log.1"))
    file.touch()


def copied_and_emptied(file: Path) -> None:
    """As logrotate's `copytruncate` does."""
    _make_room(file)
    shutil.copyfile(file, file.with_name("log.1"))
    file.write_bytes(b"")


def renamed_and_compressed(file: Path) -> None:
    """The copy is packed at once."""
    _make_room(file)
    file.with_name("log.1.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()
    file.touch()


def _make_room(file: Path) -> None:
    copies = [copy for copy in file.parent.iterdir() if copy.name.startswith("log.")]
    for copy in sorted(copies, key=lambda copy: int(copy.name.split(".")[1]), reverse=True):
        _, number, *ending = copy.name.split(".")
        copy.rename(copy.with_name(".".join(["log", str(int(number) + 1), *ending])))


ROTATIONS: Final[tuple[Callable[[Path], None], ...]] = (renamed, copied_and_emptied, renamed_and_compressed)
Step = tuple[float, str, Callable[[Path], None] | None]
READINGS: Final = ("read", "read", "read anew", "none")
STEPS = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(READINGS), st.sampled_from((None, *ROTATIONS))), max_size=5)
"""How much of the log is written, what is read then, and how the log is rotated if its last line is whole."""


@given(steps=STEPS)
@FEWER
def test_any_life_of_a_log_gives_the_same_runs(log: RotatedLog, steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as place:
        seen = lived(Path(place, "log"), log, steps)
    assert shown(seen) == shown(log.expected)
    assert {each.reason for each in seen.unreadable} >= {each.reason for each in log.expected.unreadable}
    assert seen.at_end


def shown(seen: Seen) -> dict[str, Job]:
    """The finished runs, and those that are held as suspect."""
    held = {each.suspect.record_id: each.suspect for each in seen.unreadable if each.suspect is not None}
    return {key: job for key, job in held.items() if job.finished} | finished(seen)


def lived(file: Path, log: RotatedLog, steps: list[Step]) -> Seen:
    """What was read while the log was written, rotated and read step by step, and then to its end."""
    file.touch()
    seen, done = Seen(), 0
    for share, reading, rotate in [*sorted(steps, key=lambda step: step[0]), (1.0, "read", None)]:
        upto = int(share * len(log.content))
        with file.open("ab") as writing:
            writing.write(log.content[done:upto])
        done = max(done, upto)
        if reading == "read anew":
            seen.cursor = {}
        if reading != "none":
            read(file, log.name, seen)
        if rotate is not None and done and log.content[:done].endswith(b"\n"):
            rotate(file)
    return seen


@given(data=st.data())
@FEWER
def test_a_corrupt_line_costs_only_itself(log: RotatedLog, data: st.DataObject) -> None:
    """A line of an ad or of an allocation with steps is a part of its job: at most that job is lost, or altered. Those
    after a line that may be cut off in a user's text are held as suspect, and shown."""
    lines = log.content.split(b"\n")[:-1]
    at = data.draw(st.integers(1 if log.name.startswith("slurm/sacct") else 0, len(lines) - 1))
    lines[at] = data.draw(st.sampled_from((b"\0" * 40, b"\xff\xfe garbage", b"?", bytes(range(1, 9)) * 200)))
    with tempfile.TemporaryDirectory() as place:
        seen = whole(Path(place), log.name, b"\n".join(lines) + b"\n")
    # One whose slave lines are doubtful is held with and without them.
    held = [each.suspect for each in seen.unreadable if each.suspect is not None]
    found = shown(seen)
    others = {key: job for key, job in shown(log.expected).items() if found.get(key) != job and job not in held}
    assert len({job.local_id for job in others.values()}) <= 1, (at, sorted(others))
