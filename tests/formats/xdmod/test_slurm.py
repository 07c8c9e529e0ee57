"""Lines for Open XDMoD's Slurm shredder: each value as it takes it, and what is held."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from formats.job import Host, Job
from formats.rule_codes import CannotRenderError
from formats.view import View
from formats.xdmod.slurm import XdmodSlurmFormat, file_of, read_columns, record_id_of
from tests.strategies import jobs

END = 1_795_176_060
"""2026-11-20T12:01:00Z."""


def job(**facts: Any) -> Job:
    usual: dict[str, Any] = {
        "record_id": "slurm:c1:1234:1", "system": "slurm", "status": "completed", "local_id": "1234",
        "cluster": "c1", "queue": "long", "account": "atlas", "local_group": "grp", "local_user": "zoe",
        "submit": END - 7260, "eligible": END - 7260, "start": END - 7200, "end": END, "wall_ms": 7_200_000,
        "cores": 8, "nodes": 1, "hosts": (Host("wn1.example.org"),), "name": "job|with|bars", "gpus": 2,
    }  # fmt: skip
    return Job(**(usual | facts))


def line(given: Job, **view: Any) -> str:
    return XdmodSlurmFormat(View(site="S", **view)).record(given, 0).body.decode()


def fields(given: Job, **view: Any) -> list[str]:
    written = line(given, **view)
    assert written.endswith("\n")
    assert written.count("\n") == 1
    parts = written.removesuffix("\n").split("|", 25)
    assert len(parts) == 26
    return parts


def test_a_line_has_the_fields_of_the_shredder() -> None:
    assert line(job()) == (
        "1234|1234|c1|long||atlas|grp||zoe||2026-11-20T10:00:00|2026-11-20T10:00:00|2026-11-20T10:01:00|"
        "2026-11-20T12:01:00|02:00:00|0:0|COMPLETED|1|8|8||slurm:c1:1234:1|cpu=8,node=1,gres/gpu=2||wn1.example.org|"
        "job|with|bars\n"
    )


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"local_id": "77003", "array_id": "77", "array_task": 3}, ("77_3", "77003")),
        ({"local_id": "12.0"}, ("12_0", "12")),
        ({"local_id": "12.7.ce1.example.org"}, ("12_7", "12")),
        ({"local_id": "1234.server.example.org"}, ("1234", "1234")),
        ({"local_id": "55[4].server", "array_id": "55[].server", "array_task": 4}, ("55_4", "55")),
        ({"local_id": "55[4]"}, ("55_4", "55")),
        ({"local_id": "9.3", "array_id": "9", "array_task": 3}, ("9_3", "9")),
        ({"local_id": "4294967295"}, ("4294967295", "4294967295")),
    ],
)
def test_ids_are_numbers_with_an_index(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    assert tuple(fields(job(**facts))[:2]) == expected


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"local_id": "4294967296"}, "is not in 0..4294967295"),
        ({"local_id": "12.2147483648"}, "is not in 0..2147483647"),
        ({"local_id": "a1b2"}, "is not a job number"),
        ({"local_id": None}, "JobID: missing"),
        ({"local_id": "12.0\n13|14"}, "is not a job number"),
        ({"cluster": "a-cluster-with-a-longer-name"}, "compares only 20 characters"),
        ({"cluster": None}, "no cluster"),
        ({"cores": None, "slots": None}, "NCPUS"),
        ({"wall_ms": None}, "Elapsed"),
        ({"start": None}, "Start"),
        ({"end": END - 8000}, "before"),
        ({"submit": 2**32}, "is not in 1.."),
        ({"status": "running"}, "running"),
    ],
)
def test_what_xdmod_would_confuse_is_held(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(CannotRenderError, match=said):
        line(job(**facts))


def test_texts_of_users_stay_in_their_field() -> None:
    evil = "a|b\nc\rd\x00e\u2028f\x1b[31m\U0001f600\udc80"
    given = job(name=evil, local_user=evil, account=evil, queue=evil, local_group=evil, hosts=(Host("a,[1-9]|b"),))
    parts = fields(given)
    assert parts[8] == parts[5] == parts[3] == parts[6] == "a_b_c_d_e_f_[31m__"
    assert parts[25] == "a|b_c_d_e_f_[31m__"
    assert parts[24] == "a__1-9__b"
    assert fields(job(name="ü" * 200))[25] == "ü" * 127


def test_missing_texts_are_unknown() -> None:
    parts = fields(job(name=None, local_user=None, account=None, queue=None, local_group=None, hosts=(), eligible=None))
    assert [parts[place] for place in (3, 5, 6, 8, 11, 24, 25)] == ["Unknown"] * 7


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"status": "failed"}, "FAILED"),
        ({"status": "aborted"}, "FAILED"),
        ({"status": "cancelled"}, "CANCELLED"),
        ({"status": "failed", "end_reason": "TIMEOUT"}, "TIMEOUT"),
        ({"status": "cancelled", "end_reason": "CANCELLED by 5"}, "CANCELLED"),
        ({"status": "aborted", "end_reason": "LAUNCH_FAILED"}, "FAILED"),
    ],
)
def test_states_are_those_that_the_shredder_takes(facts: dict[str, Any], state: str) -> None:
    assert fields(job(**facts))[16] == state


def test_a_wall_time_that_differs_is_noted_or_moves_the_start() -> None:
    given = job(wall_ms=3_600_000)
    (note,) = XdmodSlurmFormat(View(site="S")).record(given, 0).notes
    assert (note.field, note.before, note.after) == ("Elapsed", "3600", "7200")
    parts = fields(given, start_from="wall")
    assert parts[12:15] == ["2026-11-20T11:01:00", "2026-11-20T12:01:00", "01:00:00"]
    assert XdmodSlurmFormat(View(site="S")).record(job(wall_ms=7_199_400), 0).notes == ()


def test_a_line_is_found_and_read_again() -> None:
    given = job(record_id="a|b %\n\u00fc")
    written = line(given).encode()
    assert record_id_of(written) == "a|b %\n\u00fc"
    assert file_of(written) == "c1-2026-11-20"
    (read,) = read_columns(written)
    assert (read.record_id, read.end, read.wall_ms, read.columns["processors"]) == (given.record_id, END, 7_200_000, 8)
    with pytest.raises(ValueError, match="is not complete"):
        read_columns(written[:-1])
    with pytest.raises(ValueError, match="has 2 fields"):
        read_columns(b"1|2\n")


@given(jobs())
def test_any_job_gives_one_line_or_a_reason(given: Job) -> None:
    try:
        written = line(given, machine_name="r1")
    except CannotRenderError:
        return
    assert written.count("\n") == 1
    assert record_id_of(written.encode()) == given.record_id
    (read,) = read_columns(written.encode())
    assert read.end == given.end


def test_there_is_one_version() -> None:
    with pytest.raises(ValueError, match="has no version"):
        XdmodSlurmFormat(View(site="S", version="2"))


def test_a_file_is_recognised_and_its_short_lines_are_errors() -> None:
    from formats.check.message import inspect_message

    found = inspect_message((line(job()) + line(job(local_id="12.0"))).encode())
    assert (found.format, [record.id for record in found.records], found.violations) == (
        "xdmod-slurm",
        ["1234", "12_0"],
        (),
    )
    (violation,) = inspect_message(line(job()).encode() + b"1|2\n").violations
    assert (violation.level, violation.record) == ("error", 2)
