"""Columns of records, read quickly, are those that are read slowly."""

from __future__ import annotations

import pytest
from hypothesis import given

from formats.columns import RECORD_COLUMNS, local_key
from formats.job import Job
from formats.registry import record_format
from formats.rule_codes import CannotRenderError
from formats.view import View
from formats.xml.columns import read_columns
from formats.xml.read import CAR, UR, NotAMessageError, read
from publisher.encoded_run import cpu_total_ms
from tests.strategies import jobs


def assert_same(payload: bytes) -> None:
    slow = [(one.job.record_id, one.job.end, one.job.wall_ms, one.job) for one in read(payload)]
    quick = read_columns(payload)
    assert [(one.record_id, one.end, one.wall_ms) for one in quick] == [one[:3] for one in slow]
    assert [one.cpu_ms or 0 for one in quick] == [cpu_total_ms(job) for *_, job in slow]
    for one, (*_, job) in zip(quick, slow, strict=True):
        user_of_ur = (job.local_user or "") + (f":{job.local_group}" if ":" in str(one.columns["local_user"]) else "")
        expected = {
            "machine": job.cluster, "queue": job.queue, "user": job.user_dn, "start": job.start,
            "nodes": job.nodes, "processors": job.cores, "local_user": user_of_ur,
        }  # fmt: skip
        assert {name: one.columns[name] or "" for name in expected} == {
            name: value or "" for name, value in expected.items()
        }
        assert set(one.columns) <= set(RECORD_COLUMNS)
        if job.system == "emi-car":
            assert (one.local_key, one.columns["submit_host"]) == (
                local_key(str(one.columns["site"]), job.local_id or "", job.end),
                job.endpoint_url or "",
            )
            level = next(iter(job.benchmarks), None)
            assert one.columns.get("score_milli") == (None if level is None else round(level.value * 1000))


@pytest.mark.parametrize("name", ["ogf-ur", "emi-car"])
@given(job=jobs())
def test_of_any_run(name: str, job: Job) -> None:
    form = record_format(name, View(site="S"))
    try:
        body = form.record(job, 1_795_200_000).body
    except CannotRenderError:
        return
    assert_same(form.message([body]))


@pytest.mark.parametrize("namespace", [UR, CAR])
@pytest.mark.parametrize(
    "durations",
    [
        "<CpuDuration>PT1S</CpuDuration><CpuDuration>PT9S</CpuDuration>",
        '<CpuDuration u:usageType="all">PT5S</CpuDuration>',
        '<CpuDuration u:usageType="user">PT5S</CpuDuration><CpuDuration u:usageType="system">PT6S</CpuDuration>',
        '<CpuDuration u:usageType="user">PT5S</CpuDuration>',
        "<CpuDuration>3600</CpuDuration>",
        "<WallDuration>x</WallDuration><EndTime>yesterday</EndTime>",
        "<WallDuration/><EndTime/>",
        "",
    ],
)
def test_of_records_of_others(namespace: str, durations: str) -> None:
    identity = '<RecordIdentity u:recordId="r" u:createTime="2026-11-01T00:00:00Z"/>'
    name = "JobUsageRecord" if namespace == UR else "UsageRecord"
    record = f"<{name}>{identity}<Status>completed</Status>{durations}</{name}>"
    payload = f'<UsageRecords xmlns="{namespace}" xmlns:u="{namespace}">{record}</UsageRecords>'
    assert_same(payload.encode())


def test_what_is_not_a_message_is_refused() -> None:
    with pytest.raises(NotAMessageError):
        read_columns(b"<x/>")
