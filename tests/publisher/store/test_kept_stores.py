"""Stores of earlier versions, as sites have them: they are migrated, nothing in them changes, nothing is sent again."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.config.file import parse
from publisher.simulator import Simulator
from tests.conftest import ROOT
from tests.publisher.store.kept_services import KeptServices, kept_services
from tests.publisher.store.kept_store import KeptSite
from tests.publisher.store.server import PostgresqlServer

_VERSIONS: Final = sorted(path for path in (ROOT / "fixtures" / "stores").iterdir() if path.is_dir())
_KEPT: Final = {
    "runs": (
        "id, record_id, record_key, local_id, global_key, digest, mark, stored_at, end_time, wall_ms, cpu_ms, class_id"
    ),
    "classes": "id, source_id, digest",
    "versions": "run_id, digest, stored_at",
    "deliveries": (
        "target_id, run_id, end_time, changed_at, confirmed_at, batch_id, state, revision, sent_digest, reason, "
        "reason_parameters"
    ),
    "groups": "target_id, kind, month, key, state, digest, jobs, body, batch_id, confirmed_at",
    "batches": "id, uid, target_id, state, format, records, bytes, latest_end, receipt",
    "counters": "target_id, state, jobs",
    "purged_runs": "run, digest",
    "purged_months": "month, runs",
    "purged_deliveries": "target_id, month, state, jobs",
    "purged_sync_counts": "target_id, month, key, body",
    "erased": "pseudonym, salt, person",
    "audit": "at, who, action, subject, detail",
    "unreadable": "source_id, file, line, reason, raw, digest",
    "sent_mark": "store, messages, sent_at",
}
"""What a migration and a run with nothing new leave as it is, by table."""
_KEPT_SINCE_0014: Final = {
    "energies": "run_id, energy_mj, method",
    "closings": "id, month, closed_at, successor, settings, digest",
    "closed_statements": "number, closing_id, cancels, label, body",
    "closed_lines": "closing_id, line, body",
    "closed_runs": "closing_id, run, line, issued_in, usage",
    "closed_texts": "token, salt, content",
    "number_series": "series, last",
}


@pytest.fixture
def services() -> Iterator[KeptServices]:
    with kept_services() as services:
        yield services


def _kept(site: KeptSite, version: str) -> dict[str, list[tuple[Any, ...]]]:
    kept = _KEPT | (_KEPT_SINCE_0014 if version >= "0014" else {})
    return {table: sorted(site.rows(f"SELECT {names} FROM {table}"), key=repr) for table, names in kept.items()}


def _files(folder: Path) -> dict[str, str]:
    """What is in the files of the spooling contexts; the lines of a file in any order."""
    return {
        f"{name}/{file.name}": "\n".join(sorted(file.read_text("utf-8").splitlines()))
        for name in ("spool", "objects")
        for file in sorted((folder / name).iterdir())
        if not file.name.startswith(".")
    }


@pytest.mark.every_case
@pytest.mark.parametrize("fixture", _VERSIONS, ids=lambda path: path.name)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.extra("postgresql"))])
def test_a_store_of_an_earlier_version_keeps_its_ledger_and_sends_nothing(
    tmp_path: Path,
    simulator: Simulator,
    services: KeptServices,
    fixture: Path,
    database: str,
    request: pytest.FixtureRequest,
) -> None:
    server: PostgresqlServer | None = None if database == "sqlite" else request.getfixturevalue("postgresql")
    site = KeptSite(tmp_path, fixture, simulator, services, server)
    before, files = _kept(site, fixture.name), _files(tmp_path)
    assert all(before.values())
    for later_s in (60, 3600):
        site.now += later_s
        with site.publisher() as publisher:
            done = publisher.run()
            assert all(delivery.error is None for delivery in done.targets.values())
            assert not publisher.context_errors()
    assert not site.answers
    assert not simulator.sgas.holdings()
    assert not simulator.ams.messages()
    assert not services.written()
    assert not [path for name in ("jobs", "reports", "xdmod") for path in tmp_path.glob(f"{name}/*")]
    assert _kept(site, fixture.name) == before
    assert _files(tmp_path) == files
    cursors = [cursor for (cursor,) in site.rows("SELECT cursor FROM sources")]
    assert site.rows("SELECT mark FROM file_marks")
    assert not any('"files"' in cursor for cursor in cursors), "marks are rows of their own"
    assert site.counts() == json.loads((fixture / "status.json").read_text("utf-8"))
    with site.publisher() as publisher:
        assert {finding.level for finding in publisher.maintenance.check()} == {"green"}


@pytest.mark.extra("reports")
@pytest.mark.parametrize("fixture", [path for path in _VERSIONS if path.name >= "0014"], ids=lambda path: path.name)
def test_closed_months_of_an_earlier_version_are_read_and_have_no_corrections(
    tmp_path: Path, simulator: Simulator, services: KeptServices, fixture: Path
) -> None:
    site = KeptSite(tmp_path, fixture, simulator, services)
    with site.publisher() as publisher:
        months = publisher.closed_months()
    assert {str(month.changes.month): str(month.total) for month in months} == {
        "2026-08": "0.97", "2026-09": "3.97", "2026-10": "8.19",
    }  # fmt: skip
    assert not any(month.changes.corrections for month in months)
    issued = [statement for month in months for statement in month.statements]
    assert sum(bool(statement.cancelled_by) for statement in issued) == 8
    assert any(statement.statement.corrections for statement in issued)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "fixtures" / "stores").glob("*/every-setting.toml")), ids=lambda path: path.parent.name
)
def test_a_configuration_of_an_earlier_version_with_every_setting_is_read(tmp_path: Path, file: Path) -> None:
    config = parse(tomllib.loads(file.read_text("utf-8")), tmp_path / "publisher.toml")
    assert len(config.targets) > 5
