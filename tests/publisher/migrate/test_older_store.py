"""Stores from before assumed deliveries were marked."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.publisher.store.test_upgrade import old_site


def test_in_a_store_of_an_older_program_they_are_marked(fixtures: Path, tmp_path: Path) -> None:
    site = old_site(fixtures, "0001", tmp_path)
    with sqlite3.connect(site.store_file) as connection:
        one = "run_id = (SELECT min(run_id) FROM deliveries WHERE state = 3 AND target_id = 1) AND target_id = 1"
        connection.execute(f"UPDATE deliveries SET batch_id = NULL, sent_digest = NULL WHERE {one}")
    connection.close()
    site.collect()
    assert [site.publisher.status().targets[name].assumed for name in ("sgas", "apel", "sums")] == [1, 0, 0]
