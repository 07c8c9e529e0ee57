"""What AUDITOR would refuse is found in a message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from formats.auditor.record import AuditorFormat
from formats.check.message import inspect_message
from formats.view import View
from tests.publisher.site import make_job, make_jobs

FORM = AuditorFormat(View(site="EXAMPLE-SITE"))


def message(*changes: dict[str, Any]) -> bytes:
    records = [json.loads(FORM.record(job, 0).body) for job in make_jobs(len(changes))]
    return json.dumps([record | change for record, change in zip(records, changes, strict=True)]).encode()


def test_what_we_render_would_be_taken() -> None:
    inspection = inspect_message(message({}, {}))
    assert (inspection.format, inspection.valid, len(inspection.records)) == ("auditor-record", True, 2)
    assert inspection.records[0].id == make_job(1).record_id


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"record_id": " "}, "record_id"),
        ({"record_id": "x" * 257}, "record_id"),
        ({"meta": {"voms": ["a\0"]}}, "meta/voms"),
        ({"components": [{"name": "Cores", "amount": -1, "scores": []}]}, "Cores"),
        ({"components": [{"name": "Cores", "amount": 1, "scores": [{"name": "s", "value": -1}]}]}, "Cores"),
        ({"start_time": "yesterday"}, "start_time"),
        ({"stop_time": "tomorrow"}, "stop_time"),
        ({"record_id": make_job(2).record_id}, "record_id"),
    ],
)
def test_a_broken_rule_is_named(change: dict[str, Any], field: str) -> None:
    inspection = inspect_message(message(change, {}))
    assert [each.field for each in inspection.violations] == [field]
    assert not inspection.taken


@pytest.mark.parametrize("payload", [b"[1]", b"[", b"[[[", b'[{"record_id": 1}]', b"[" * 100_000])
def test_other_json_is_not_a_message(payload: bytes) -> None:
    assert inspect_message(payload).format == ""
