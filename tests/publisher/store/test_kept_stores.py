"""Stores of earlier versions, as sites have them: they are migrated, nothing in them changes, nothing is sent again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.simulator import Simulator
from tests.conftest import ROOT
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


def _kept(site: KeptSite) -> dict[str, list[tuple[Any, ...]]]:
    return {table: sorted(site.rows(f"SELECT {names} FROM {table}"), key=repr) for table, names in _KEPT.items()}


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
    tmp_path: Path, simulator: Simulator, fixture: Path, database: str, request: pytest.FixtureRequest
) -> None:
    server: PostgresqlServer | None = None if database == "sqlite" else request.getfixturevalue("postgresql")
    site = KeptSite(tmp_path, fixture, simulator, server)
    before, files = _kept(site), _files(tmp_path)
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
    assert not list(tmp_path.glob("jobs/*")) + list(tmp_path.glob("reports/*"))
    assert _kept(site) == before
    assert _files(tmp_path) == files
    assert site.counts() == json.loads((fixture / "status.json").read_text("utf-8"))
    with site.publisher() as publisher:
        assert {finding.level for finding in publisher.maintenance.check()} == {"green"}
