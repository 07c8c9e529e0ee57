"""Hostile text in every field that a user controls, for every source that reads text but Slurm's.

Each kind of log is written here as its batch system writes it, with what that escapes and what not
(docs/reference/sources). The file holds runs of others before and after the attacker's, and the attacker's own.
Whatever the text is, no other run may be added, changed or lost, and the attacker's own is stored with its facts or
listed as unreadable.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from publisher.grid_identity import GridLogEntry
from publisher.sources import blah as sources_blah
from publisher.sources.base import Unreadable
from publisher.sources.dqs_stat import QueueSample, read_samples
from tests.extent import every
from tests.generators import arc_database
from tests.publisher.sources.arc import arc_reading
from tests.publisher.sources.log_reading import Seen
from tests.security.hostile_logs import ATTACKER, HARMLESS, KINDS, OTHERS, HostileLog
from tests.security.hostile_text import assert_harmless, hostile_texts


def texts_of(log: HostileLog, field: str) -> Iterator[tuple[str, bytes]]:
    texts = hostile_texts(delimiters=log.delimiters, headers=log.headers, records=log.forged())
    writable = [(name, text) for name, text in texts.items() if log.can_be_written(field, text)]
    yield from every(3, writable, log.fields.index(field))


@pytest.mark.parametrize(
    ("log", "field"),
    [pytest.param(log, field, id=f"{type(log).__name__}-{field}") for log in KINDS for field in log.fields],
)
def test_a_hostile_text_harms_no_other_user(log: HostileLog, field: str, tmp_path: Path) -> None:
    baseline = log.read(tmp_path / "before", log.content(field, HARMLESS))
    assert not baseline.unreadable
    own = [record_id for record_id, job in baseline.jobs.items() if job.local_user == f"u{ATTACKER}"]
    own += [record_id for record_id in baseline.jobs if f"/{ATTACKER}.0/" in record_id and record_id not in own]
    assert len(own) == 1
    failed = []
    for name, text in texts_of(log, field):
        attacked = log.read(tmp_path / "after", log.content(field, text))
        try:
            assert_harmless(baseline, attacked, own, log.may_differ)
        except AssertionError as error:
            failed.append(f"{name}: {str(error).splitlines()[0]}")
    assert not failed, "\n".join(failed)


STAT_FIELDS: Final = ("host", "queue", "complex")


@pytest.mark.parametrize("field", STAT_FIELDS)
def test_a_hostile_text_in_a_stat_file_costs_no_sample_of_others(field: str, tmp_path: Path) -> None:
    """Its names are the administrator's; a sample that is lost or forged would change no record, only a report."""

    def content(text: bytes) -> bytes:
        lines = [b"10000000%02d:h%d:q%d:5:4:2:c%d:e\n" % (number, number, number, number) for number in OTHERS]
        own = {"host": b"h8", "queue": b"q8", "complex": b"c8"} | {field: text}
        lines.insert(2, b":".join([b"1000000008", own["host"], own["queue"], b"5:4:2", own["complex"], b"e\n"]))
        return b"".join(lines)

    for name, text in hostile_texts(delimiters=(b":", b",")).items():
        (tmp_path / "stat_file").write_bytes(content(text))
        found = list(read_samples(tmp_path / "stat_file"))
        samples = [each for each in found if isinstance(each, QueueSample)]
        assert {f"h{number}" for number in OTHERS} <= {each.host for each in samples}, name
        assert len(samples) <= len(OTHERS) + 1, name
        assert len(samples) == len(OTHERS) + 1 or len(found) > len(samples), name


ARC_FIELDS: Final = (
    "jobname", "projectname", "localuser", "clienthost", "nodenames", "wninstance", "LocalJobID", "Users", "WLCGVOs",
    "Queues", "mainfqan", "RTEName", "URL", "a key",
)  # fmt: skip


def arc_written(text: bytes) -> str | bytes:
    """As ARC's writer has it: quotes, number signs, percent signs, line ends, NUL and backspace become %XX."""
    escaped = re.sub(rb"['#%\n\r\0\x08]", lambda found: b"%%%02x" % found[0][0], text)
    try:
        return escaped.decode()
    except UnicodeDecodeError:
        return escaped


def arc_change(path: Path, record_id: int, field: str, text: bytes) -> None:
    """Put a text into a field of a job, as text, whatever its bytes are."""
    value = arc_written(text)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        if field in {"Users", "WLCGVOs", "Queues"}:
            column = {"Users": "UserID", "WLCGVOs": "VOID", "Queues": "QueueID"}[field]
            database.execute(f"INSERT INTO {field} (ID, Name) VALUES (9999, CAST(? AS TEXT))", (value,))
            database.execute(f"UPDATE AAR SET {column} = 9999 WHERE RecordID = ?", (record_id,))
        elif field == "LocalJobID":
            database.execute("UPDATE AAR SET LocalJobID = CAST(? AS TEXT) WHERE RecordID = ?", (value, record_id))
        else:
            table, columns = {
                "mainfqan": ("AuthTokenAttributes", ("AttrKey", "AttrValue")),
                "RTEName": ("RunTimeEnvironments", ("RTEName",)),
                "URL": ("DataTransfers", ("URL", "FileSize", "TransferStart", "TransferEnd", "TransferType")),
            }.get(field, ("JobExtraInfo", ("InfoKey", "InfoValue")))
            database.execute(f"DELETE FROM {table} WHERE RecordID = ?", (record_id,))
            values: tuple[object, ...] = (field, value)
            if field == "RTEName":
                values = (value,)
            elif field == "URL":
                values = (value, 1, 1_600_000_000, 1_600_000_010, 10)
            elif field == "a key":
                values = (value, "x")
            marks = ", ".join("CAST(? AS TEXT)" if each is value else "?" for each in values)
            sql = f"INSERT INTO {table} (RecordID, {', '.join(columns)}) VALUES (?, {marks})"
            database.execute(sql, (record_id, *values))


@pytest.mark.parametrize("field", ARC_FIELDS)
def test_a_hostile_text_in_arcs_database_harms_no_other_user(field: str, tmp_path: Path) -> None:
    arc_database.create(tmp_path / "plain.db", 5)
    differs = (
        "name", "project", "local_user", "local_group", "client_host", "hosts", "service_class", "local_id", "user_dn",
        "vo", "queue", "fqans", "runtime_environments", "transfers", "extras",
    )  # fmt: skip

    def read(text: bytes) -> Seen:
        shutil.copy(tmp_path / "plain.db", tmp_path / "accounting.db")
        arc_change(tmp_path / "accounting.db", 3, field, text)
        found = arc_reading.Read(arc_reading.source(tmp_path / "accounting.db"))
        return Seen(found.jobs, found.unreadable)

    baseline = read(HARMLESS)
    own = [list(baseline.jobs)[2]]
    failed = []
    texts = hostile_texts(delimiters=(b"\x1f", b"%", b"'", b":"))
    for name, text in every(3, texts.items(), ARC_FIELDS.index(field)):
        try:
            assert_harmless(baseline, read(text), own, differs)
        except AssertionError as error:
            failed.append(f"{name}: {str(error).splitlines()[0]}")
    assert not failed, "\n".join(failed)


BLAH_FIELDS: Final = ("userDN", "userFQAN", "jobID", "ceID", "clientID")


def blah(escaped: bool, field: str, text: bytes) -> bytes:
    """A line for each job as ARC writes it, which escapes quotes and backslashes, or as others do, which do not."""
    lines = []
    for number in (5, 6, ATTACKER, 9, 10):
        values = {
            "timestamp": b"2026-11-01 00:00:%02d" % number, "userDN": b"/DC=org/CN=u%d" % number,
            "userFQAN": b"/vo%d/Role=NULL/Capability=NULL" % number, "ceID": b"ce.example.org:9619/q",
            "jobID": b"j%d" % number, "lrmsID": b"%d.s" % number, "localUser": b"1001", "clientID": b"c%d" % number,
        }  # fmt: skip
        if number == ATTACKER:
            value = values[field] + text
            values[field] = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') if escaped else value
        lines.append(b" ".join([b'"' + key.encode() + b"=" + value + b'"' for key, value in values.items()]) + b"\n")
    return b"".join(lines)


def entries_of(path: Path, content: bytes) -> tuple[list[GridLogEntry], list[Unreadable]]:
    path.write_bytes(content)
    pages = list(sources_blah.pages(path, {}))
    return [one for page in pages for one in page.entries], [one for page in pages for one in page.unreadable]


@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "as it is"])
@pytest.mark.parametrize("field", BLAH_FIELDS)
def test_a_hostile_text_in_a_grid_log_changes_no_identity(escaped: bool, field: str, tmp_path: Path) -> None:
    before, _ = entries_of(tmp_path / "log", blah(escaped, field, b""))
    others_before = [each for each in before if each.lrms_id != f"{ATTACKER}.s"]
    victim = blah(escaped, field, b"").splitlines()[0].replace(b"u5", b"rival")
    delimiters = (b'"', b'" "', b'" "lrmsID=5.s', b'" "userDN=/CN=rival', b'" "userFQAN=/rival', b"\\")
    texts = hostile_texts(delimiters=delimiters, headers=(b'"lrmsID=5.s"',), records=[victim])
    failed = []
    for name, text in every(3, texts.items(), BLAH_FIELDS.index(field)):
        if not escaped and b'"\n' in text:
            continue  # by its text, it could be the end of a line: see the page
        entries, unreadable = entries_of(tmp_path / "log", blah(escaped, field, text))
        others_after = [each for each in entries if each.lrms_id != f"{ATTACKER}.s"]
        own = [each for each in entries if each.lrms_id == f"{ATTACKER}.s"]
        if others_after != others_before or len(own) > 1 or not (own or unreadable):
            failed.append(name)
    assert not failed, "\n".join(failed)
