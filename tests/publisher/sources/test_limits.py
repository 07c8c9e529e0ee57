"""How long the texts of a run may be: identities are never cut, other texts are, with a note."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from formats.job import Host, Job, Transfer
from publisher.config import schema
from publisher.sources import make_source
from publisher.sources.limits import (
    EXTRA_CHARACTERS,
    EXTRAS,
    IDENTITIES,
    IDENTITY_CHARACTERS,
    SHORTENED,
    TEXT_CHARACTERS,
    TEXTS,
    LimitError,
    bounded,
)
from tests.generators import arc_database
from tests.publisher.sources.arc import arc_reading
from tests.publisher.sources.log_reading import Seen, read_on
from tests.security.test_hostile_text import KINDS, HostileLog

JOB = Job(record_id="ur-x", system="gridengine", status="completed", extras={"a": "b"})
LONG = "x" * (IDENTITY_CHARACTERS + 1)
NOT_TEXT = {
    "system", "status", "run", "array_task", "fqans", "hosts", "nodes", "cores", "slots", "gpus", "submit", "eligible",
    "lrms_submit", "start", "end", "execution_start", "execution_end", "events", "wall_ms", "cpu_ms", "cpu_user_ms",
    "cpu_system_ms", "memory_rss_kib", "memory_virtual_kib", "swap_kib", "scratch_bytes", "energy_j", "stage_in_ms",
    "stage_out_ms", "stage_in_bytes", "stage_out_bytes", "transfers", "charge", "process_ids", "exit_code",
    "exit_signal", "benchmarks", "extras", "site", "slave", "core_numbers", "runtime_environments",
    "token_groups",
}  # fmt: skip


def test_every_text_of_a_run_has_a_limit() -> None:
    assert {*IDENTITIES, *TEXTS} == set(Job.__struct_fields__) - NOT_TEXT


@pytest.mark.parametrize("field", IDENTITIES)
def test_an_identity_is_never_cut(field: str) -> None:
    assert bounded(msgspec.structs.replace(JOB, **{field: LONG[1:]}))
    with pytest.raises(LimitError, match=f"{field} has 4097 characters; at most 4096"):
        bounded(msgspec.structs.replace(JOB, **{field: LONG}))


@pytest.mark.parametrize(
    ("field", "value"), [("fqans", ("/vo", LONG)), ("token_groups", ("/vo", LONG)), ("hosts", (Host("n1"), Host(LONG)))]
)
def test_nor_one_of_several(field: str, value: object) -> None:
    with pytest.raises(LimitError):
        bounded(msgspec.structs.replace(JOB, **{field: value}))


def test_a_run_within_the_limits_is_the_same() -> None:
    texts = dict.fromkeys(TEXTS, "x" * TEXT_CHARACTERS)
    job = msgspec.structs.replace(JOB, **texts, extras={"a": "x" * EXTRA_CHARACTERS})
    assert bounded(job) is job


@pytest.mark.parametrize("field", TEXTS)
def test_other_texts_are_cut_with_a_note(field: str) -> None:
    job = bounded(msgspec.structs.replace(JOB, **{field: "x" * 70_000}))
    assert getattr(job, field) == "x" * TEXT_CHARACTERS
    assert job.extras == {"a": "b", SHORTENED: f"{field} (70000 characters)"}


def test_so_are_those_in_lists_and_beside() -> None:
    job = bounded(
        msgspec.structs.replace(
            JOB,
            runtime_environments=("a", "e" * 70_000),
            transfers=(Transfer("upload", "u" * 70_000),),
            extras={"k" * 2_000: 1, "long": "v" * 70_000, "act_lines": "ours" * 70_000},
        )
    )
    assert [len(each) for each in job.runtime_environments] == [1, TEXT_CHARACTERS]
    assert len(job.transfers[0].url) == TEXT_CHARACTERS
    assert [len(key) for key in job.extras] == [1_024, 4, 9, 9]
    assert len(str(job.extras["long"])) == EXTRA_CHARACTERS
    assert len(str(job.extras["act_lines"])) == 280_000
    assert str(job.extras[SHORTENED]).count("(70000 characters)") == 3


def test_their_number_is_bounded_too() -> None:
    job = bounded(msgspec.structs.replace(JOB, extras={str(number): number for number in range(5_000)}))
    assert len(job.extras) == EXTRAS + 1
    assert job.extras[SHORTENED] == f"{5_000 - EXTRAS} more values are omitted"


TOO_LONG = b"x" * 400_000
FIELDS = [(log, field) for log in KINDS for field in log.fields]


@pytest.mark.parametrize(
    ("log", "field"), [pytest.param(*each, id=f"{type(each[0]).__name__}-{each[1]}") for each in FIELDS]
)
def test_no_source_lets_a_long_text_in(log: HostileLog, field: str, tmp_path: Path) -> None:
    seen = log.read(tmp_path / "log", log.content(field, TOO_LONG))
    others = [job for job in seen.jobs.values() if job.local_user != "u8"]
    assert len([job for job in others if not job.slave]) == 4, "those of others are all there"
    (own,) = [job for job in seen.jobs.values() if job.local_user == "u8"] or [None]
    if own is None:
        assert any(str(IDENTITY_CHARACTERS) in each.reason or "longer than" in each.reason for each in seen.unreadable)
        return
    stored = msgspec.json.encode(own)
    assert len(stored) < EXTRA_CHARACTERS + TEXT_CHARACTERS + 8_192
    if b"x" * 1_000 in stored:  # a source may stop counting where it knows that a text is too long
        assert re.search(r"\([234]\d{5} characters\)", str(own.extras[SHORTENED]))


def test_a_name_of_400_kb_in_arcs_database(tmp_path: Path) -> None:
    path = tmp_path / "accounting.db"
    arc_database.create(path, 3)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO Users (ID, Name) VALUES (99, ?)", ("/CN=" + "x" * 400_000,))
        database.execute("UPDATE AAR SET UserID = 99 WHERE RecordID = 1")
        database.execute(
            "UPDATE JobExtraInfo SET InfoValue = ? WHERE RecordID = 2 AND InfoKey = 'jobname'", (LONG * 9,)
        )
    found = arc_reading.Read(arc_reading.source(path))
    assert len(found.jobs) == 2
    assert [each.offset for each in found.unreadable] == [1]
    assert "400004 characters" in found.unreadable[0].reason
    (cut,) = [job for job in found.jobs.values() if SHORTENED in job.extras]
    assert cut.extras[SHORTENED] == f"name ({len(LONG) * 9} characters)"


def test_long_lists_that_are_the_administrators_are_read(tmp_path: Path) -> None:
    """A job on thousands of nodes has a long line, and no text that is too long."""
    hosts = "+".join(f"node{number:05}.cluster.example/0-15" for number in range(5_000))
    text = "user=a group=g jobname=n queue=q ctime=1 qtime=1 etime=1 start=1 owner=a@h"
    text += f" exec_host={hosts} session=1 end=9 Exit_status=0"
    path = tmp_path / "20261101"
    path.write_text(f"11/01/2026 00:00:00;E;1.s;{text}\n", encoding="utf-8")
    settings = schema.SourceSettings(type="torque", path=path, timezone="UTC")
    seen = read_on(make_source("ce1", settings), Seen())
    (job,) = seen.jobs.values()
    assert (job.nodes, job.cores, SHORTENED in job.extras) == (5_000, 80_000, False)
    assert json.dumps(seen.cursor)
