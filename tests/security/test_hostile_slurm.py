"""Hostile texts in each field that a user of Slurm controls: sacct that is run, saved tables, documents, logs.

Users control the name of a job, its comment, its account (where Slurm does not check associations) and its wckey; in
the job completion log also the working directory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.config.schema import SourceSettings as Settings
from publisher.sources.limits import IDENTITY_CHARACTERS
from publisher.sources.slurm.sacct import COLUMNS
from publisher.sources.slurm.source import SlurmSource
from tests.extent import every
from tests.publisher.sources.log_reading import Seen, read_on
from tests.publisher.sources.slurm.test_sacct import T0, Sacct, row, source
from tests.security.hostile_text import assert_harmless, hostile_texts

FIELDS: Final = {"JobName": ("name",), "Comment": ("extras",), "WCKey": ("extras",), "Account": ("account",)}
"""Columns that users write, and where a run keeps them."""

HARMLESS: Final = "plain"


def rows(column: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Jobs of mallory that have these texts, each with steps and between jobs of alice and bob."""
    made: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        own, other = str(2 * number + 100), str(2 * number + 101)
        made += [
            row(own, 10, 60, **{"User": "mallory", "JobName": "own", "Account": "m", "NCPUS": 2, column: text}),
            row(f"{own}.batch", 10, 60, JobName="batch", MaxRSS="4096", TotalCPU="00:20.000"),
            row(f"{own}.0", 10, 60, JobName=text if column == "JobName" else "step", MaxRSS="8192"),
            row(other, 12, 70, User="bob", Account="b", JobName="other", NCPUS=4, State="REQUEUED"),
            row(other, 80, 90, User="bob", Account="b", JobName="other", NCPUS=4),
            row(f"{other}.batch", 80, 90, JobName="batch", MaxRSS="1024", TotalCPU="00:01.000"),
        ]
    running = row("99998", 20, "Unknown", User="alice", Account="a", JobName="running")
    return [*made, running, row("99999", 30, 95, User="bob", Account="b", JobName="last")]


def own_ids(texts: Sequence[str]) -> set[str]:
    """The record ids of mallory's runs."""
    return {f"ur-slurm/c1/{2 * number + 100}/{T0 + 10}" for number in range(len(texts))}


def forged(columns: tuple[str, ...], by: str) -> bytes:
    """A line of a run of another user, in a table of these columns."""
    run = row("7", 10, 90, User="rival", JobName="x", NCPUS=999, Submit=1_793_491_210)
    return by.join(str(run.get(column, "")) for column in columns).encode()


LIVE: Final = hostile_texts(
    delimiters=[b"|", b"\x1f", b"\x1f!#$&*;"],
    headers=["|".join(COLUMNS).encode(), "\x1f".join(COLUMNS).encode(), b"JobID|JobIDRaw|Start|End|State|NCPUS|User"],
    records=[forged(COLUMNS, "|"), forged(COLUMNS, "\x1f")],
)


@pytest.fixture
def sacct(tmp_path: Path) -> Sacct:
    return Sacct(tmp_path)


def written(raw: bytes) -> str:
    """A text as slurmdbd has it: no NUL, and bytes as they are."""
    return raw.replace(b"\0", b"").decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("column", FIELDS)
def test_sacct_that_is_run(sacct: Sacct, column: str) -> None:
    """No run of others changes, and the run of the user is stored with any text."""
    texts = [written(raw) for raw in LIVE.values()]
    sacct.rows(*rows(column, [HARMLESS] * len(texts)))
    baseline = read_on(source(sacct, 1_000), Seen())
    assert (len(baseline.jobs), baseline.unreadable) == (3 * len(texts) + 2, [])
    sacct.rows(*rows(column, texts))
    attacked = read_on(source(sacct, 1_000), Seen())
    assert_harmless(baseline, attacked, own_ids(texts), FIELDS[column])
    assert attacked.jobs.keys() == baseline.jobs.keys()
    assert attacked.unreadable == []


def saved(path: Path, content: bytes) -> Seen:
    """A saved file as it is read."""
    path.write_bytes(content)
    return read_on(SlurmSource("slurm", Settings(type="slurm", path=path, cluster="c1")), Seen())


def table(by: bytes, column: str, text: bytes) -> bytes:
    """What `sacct --parsable2` with all recommended columns prints of mallory's job and of others around it."""
    lines = [by.join(name.encode() for name in COLUMNS)]
    others = rows("JobName", [HARMLESS, HARMLESS])
    for each in [*others[3:6], *rows("JobName", [HARMLESS])[:3], *others[9:]]:
        own = each["JobIDRaw"] == "100"
        lines.append(by.join(text if own and name == column else str(each.get(name, "")).encode() for name in COLUMNS))
    return b"\n".join([*lines, b""])


def harmless(
    read: Callable[[bytes], Seen], runs: int, texts: Iterable[tuple[str, bytes]], may_differ: Sequence[str]
) -> None:
    """Read the input with each of the texts, which have names, and assert that it harms no other user."""
    baseline = read(HARMLESS.encode())
    assert (len(baseline.jobs), baseline.unreadable) == (runs, [])
    wrong: list[str] = []
    for name, raw in texts:
        try:
            assert_harmless(baseline, read(raw), own_ids([""]), may_differ)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


WRITTEN_COLUMNS: Final = ("JobName", "Comment", "WCKey")


@pytest.mark.parametrize("by", [b"|", b"\x1f"])
@pytest.mark.parametrize("column", WRITTEN_COLUMNS)
def test_a_saved_table(tmp_path: Path, column: str, by: bytes) -> None:
    columns = by.join(name.encode() for name in COLUMNS)
    texts = hostile_texts(
        delimiters=[by], headers=[columns, by.join((b"JobID", b"Start", b"End", b"State"))],
        records=[forged(COLUMNS, by.decode())],
    )  # fmt: skip
    tried = every(3, texts.items(), WRITTEN_COLUMNS.index(column))
    harmless(lambda text: saved(tmp_path / "sacct.psv", table(by, column, text)), 7, tried, ("name", "extras"))


LOG: Final = (
    b"JobId=%d UserId=%b(1001) GroupId=g(2001) Name=%b JobState=%b Partition=p TimeLimit=60 "
    b"StartTime=2026-11-01T00:00:%02d EndTime=2026-11-01T00:01:%02d NodeList=n1 NodeCnt=1 ProcCnt=%d WorkDir=%b "
    b"ReservationName= Tres=cpu=1,node=1 Account=a QOS=normal WcKey= Cluster=c1 SubmitTime=2026-11-01T00:00:00 "
    b"EligibleTime=2026-11-01T00:00:00 DerivedExitCode=0:0 ExitCode=0:0 \n"
)


def log(field: str, text: bytes) -> bytes:
    """A job completion log of mallory's job and of others around it."""
    own = {"name": b"own", "folder": b"/home/mallory", field: text}
    return b"".join(
        [
            LOG % (101, b"alice", b"first", b"COMPLETED", 5, 50, 8, b"/home/alice/a dir"),
            LOG % (102, b"bob", b"again", b"PENDING", 6, 51, 4, b"/home/bob"),
            LOG % (100, b"mallory", own["name"], b"COMPLETED", 10, 52, 2, own["folder"]),
            LOG % (102, b"bob", b"again", b"COMPLETED", 58, 53, 4, b"/home/bob"),
            LOG % (103, b"alice", b"new\nline", b"FAILED", 8, 54, 1, b"/home/alice"),
            LOG % (104, b"bob", b"last", b"COMPLETED", 9, 55, 1, b"/home/bob"),
        ]
    )


@pytest.mark.parametrize("field", ["name", "folder"])
def test_a_job_completion_log(tmp_path: Path, field: str) -> None:
    other = LOG % (7, b"rival", b"x", b"COMPLETED", 1, 59, 999, b"/")
    texts = hostile_texts(
        delimiters=[b" ", b"=", b" JobState=", b" ExitCode=0:0\n", b" WorkDir="],
        headers=[b"|".join((b"JobID", b"Start", b"End", b"State")), b"|".join(name.encode() for name in COLUMNS)],
        records=[other.rstrip(), other.rstrip() + b" ", other.partition(b" ReservationName")[0] + b" "],
    )
    if field == "name":
        del texts[
            "beginning of a record: own 2"
        ]  # as far as its name: what follows is then of it (docs/reference/sources/slurm.md)
    harmless(lambda text: saved(tmp_path / "jobcomp", log(field, text)), 6, texts.items(), ("name", "extras"))


def document(fixture: Path, field: str, text: bytes) -> bytes:
    """A document of `sacct --json` in which one job has a text, which is written as json-c does it."""
    found = json.loads(fixture.read_text(encoding="utf-8"))
    del found["jobs"][6:]
    job = found["jobs"][1]
    *path, last = field.split(".")
    for name in path:
        job = job.setdefault(name, {})
    job[last] = text.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    return json.dumps(found, ensure_ascii=False, indent=1).encode("utf-8", "surrogateescape")


DOCUMENT_FIELDS: Final = {
    "name": ("name", "extras"),
    "comment.job": ("extras",),
    "account": ("account",),
    "wckey.wckey": ("extras",),
    "working_directory": (),
}
"""Fields that users write, and where a run keeps them."""


@pytest.mark.parametrize("name", ["sacct-22.05.json", "sacct-24.05.json"])
@pytest.mark.parametrize("field", DOCUMENT_FIELDS)
def test_a_document(fixtures: Path, tmp_path: Path, name: str, field: str) -> None:
    file = fixtures / "slurm" / name
    other = json.loads(file.read_text(encoding="utf-8"))["jobs"][0]
    texts = hostile_texts(
        delimiters=[b'"', b"\\", b"},{"],
        headers=[b'"jobs": [', b'{"meta": {}, "jobs": ['],
        records=[json.dumps({**other, "job_id": 7}).encode(), b'", ' + json.dumps({**other, "job_id": 7})[1:].encode()],
    )
    baseline = saved(tmp_path / "sacct.json", document(file, field, HARMLESS.encode()))
    assert (len(baseline.jobs), baseline.unreadable) == (6, [])
    own = {record_id for record_id, job in baseline.jobs.items() if job.local_id == "102"}
    for _, raw in every(3, texts.items(), list(DOCUMENT_FIELDS).index(field)):
        attacked = saved(tmp_path / "sacct.json", document(file, field, raw))
        assert_harmless(baseline, attacked, own, DOCUMENT_FIELDS[field])
        too_long = field == "account" and len(raw) > IDENTITY_CHARACTERS
        assert [("account has" in each.reason) for each in attacked.unreadable] == [True] * too_long


def test_each_job_of_a_document_that_cannot_be_read_is_listed(tmp_path: Path) -> None:
    """Their places are the same, so what is kept of them must distinguish them, and must be the same at each
    reading."""
    jobs = [{"job_id": number, "state": {"current": "?!"}} for number in (1, 2, 3)]
    first = saved(tmp_path / "sacct.json", json.dumps({"jobs": jobs}).encode())
    again = saved(tmp_path / "sacct.json", json.dumps({"jobs": jobs[:0:-1]}).encode())
    assert len({(piece.file, piece.line, piece.offset, piece.raw) for piece in first.unreadable}) == 3
    assert {piece.raw for piece in again.unreadable} < {piece.raw for piece in first.unreadable}
