"""The sample: ARC's database of 200 jobs and what ARC 6.17's own publisher made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from formats.job import Job
from publisher.config import schema
from publisher.sources import make_source
from tests.agreement.facts import Facts, facts_of
from tests.agreement.fields import Fields, records_of_text, records_of_xml

PUBLISHED = frozenset({"completed", "failed"})
"""What ARC publishes."""


@pytest.fixture(scope="session")
def database(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sample, in a folder in which SQLite may write."""
    copy = tmp_path_factory.mktemp("arc") / "accounting.db"
    shutil.copyfile(shared / "samples" / "arc" / "accounting-200.db", copy)
    return copy


@pytest.fixture(scope="session")
def jobs(database: Path) -> list[Job]:
    """The sample's finished runs, as our source reads them."""
    source = make_source("ce1", schema.SourceSettings(type="arc", path=database))
    pages = list(source.pages({}))
    assert sum(page.read for page in pages) == 200
    assert not [one for page in pages for one in page.unreadable]
    return [job for page in pages for job in page.jobs if job.status in PUBLISHED]


@pytest.fixture(scope="session")
def facts(database: Path) -> dict[str, Facts]:
    """What the database says of them, by job id."""
    return facts_of(database)


@pytest.fixture(scope="session")
def arc_payloads(shared: Path) -> dict[str, list[bytes]]:
    """What ARC sent, by kind."""
    folder = shared / "samples" / "arc" / "jura-6.17"
    return {
        kind: [path.read_bytes() for path in sorted((folder / kind).glob("*.payload"))]
        for kind in ("sgas", "cars", "summaries", "sync")
    }


@pytest.fixture(scope="session")
def arc_records(arc_payloads: dict[str, list[bytes]]) -> dict[str, dict[str, Fields]]:
    """ARC's records by format and record id. After CARs ARC sends sync counts, which are not XML."""
    return {
        name: {
            record_id: fields
            for payload in arc_payloads[kind]
            if payload.startswith(b"<")
            for record_id, fields in records_of_xml(payload).items()
        }
        for name, kind in (("ogf-ur", "sgas"), ("emi-car", "cars"))
    }


@pytest.fixture(scope="session")
def arc_text(arc_payloads: dict[str, list[bytes]]) -> dict[str, list[dict[str, str]]]:
    """ARC's summaries and sync counts by the header line of their messages."""
    found: dict[str, list[dict[str, str]]] = {}
    for kind in ("summaries", "sync"):
        for payload in arc_payloads[kind]:
            header, records = records_of_text(payload)
            found.setdefault(header, records)
            assert found[header] == records, "ARC counts the same in every run"
    return found
