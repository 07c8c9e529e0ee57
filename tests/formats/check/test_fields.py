"""Records field by field."""

from __future__ import annotations

import msgspec
import pytest

from formats.check.fields import Fields, changed_fields, fields_of
from formats.job import Job
from formats.registry import record_format
from formats.view import View
from tests.formats.golden_jobs import ARC, CREATED


def fields(name: str, job: Job, created: int = CREATED) -> Fields:
    renderer = record_format(name, View(site="EXAMPLE-SITE"))
    return fields_of(name, renderer.message([renderer.record(job, created).body]))


@pytest.mark.parametrize("name", ["ogf-ur", "emi-car", "apel-job"])
def test_the_same_run_has_the_same_fields_whenever_it_was_stored(name: str) -> None:
    assert fields(name, ARC) == fields(name, ARC, CREATED + 1)


def test_fields_have_the_names_that_distinguish_them() -> None:
    found = fields("ogf-ur", ARC)
    assert found["Memory[KB,max,physical]"] == ("4812380",)
    assert found["RecordIdentity@recordId"] == (ARC.record_id,)
    assert found["Host"] == ("wn171.example.org", "wn170.example.org")
    assert found["UserIdentity/VO[voms]/Name"] == ("atlas",)
    assert fields("emi-car", ARC)["Infrastructure@type"] == ("grid",)
    assert fields("apel-job", ARC)["Queue"] == ("main",)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ogf-ur", [("Queue", "main", "long"), ("ProjectName", "proj-28", None)]),
        ("emi-car", [("UserIdentity/GroupAttribute[ProjectName]", "proj-28", None), ("Queue", "main", "long")]),
        ("apel-job", [("Queue", "main", "long")]),
    ],
)
def test_what_changed(name: str, changes: list[tuple[str, str | None, str | None]]) -> None:
    after = msgspec.structs.replace(ARC, queue="long", project=None)
    assert list(changed_fields(fields(name, ARC), fields(name, after))) == changes
