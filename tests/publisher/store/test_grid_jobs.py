"""Entries of grid logs in the store: all their values are read back, except those of an erased person."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.grid_identity import GridLogEntry
from publisher.store import grid_jobs, registry
from publisher.store.admin import erase
from publisher.store.schema import erased as erased_table
from tests.publisher.site import NOW, Site

pytestmark = pytest.mark.either_store

WHOLE = GridLogEntry(
    NOW, "slurm/20261120/4711", "/CN=Ada", ("/atlas", "/atlas/no"), "ce1", "5f3c", "https://issuer.example/"
)
BARE = GridLogEntry(NOW, "4711.server", None, (), None, "77aa")


def test_an_entry_comes_back_as_it_was(tmp_path: Path) -> None:
    with Site(tmp_path, [], []).publisher.store.write() as connection:
        source = registry.source(connection, "ce1", "slurm")
        grid_jobs.keep(connection, source.id, [WHOLE, BARE])
        grid_jobs.keep(connection, source.id, [WHOLE])
        found = grid_jobs.entries_by_key(connection, source.id, ["4711", "12"])
    assert {key: set(entries) for key, entries in found.items()} == {"4711": {WHOLE, BARE}}


@pytest.mark.parametrize("name", ["/CN=Ada", "5f3c"])
def test_an_entry_of_an_erased_person_is_kept_under_the_pseudonym(tmp_path: Path, name: str) -> None:
    with Site(tmp_path, [], []).publisher.store.write() as connection:
        source = registry.source(connection, "ce1", "slurm")
        person = erase.person_hash(name, b"salt")
        row = {"pseudonym": "erased-1", "salt": b"salt", "person": person, "erased_at": NOW}
        connection.execute(erased_table.insert().values(row))
        grid_jobs.keep(connection, source.id, [WHOLE])
        ((found,),) = grid_jobs.entries_by_key(connection, source.id, ["4711"]).values()
    assert name not in {found.user_dn, found.token_subject}
    assert "erased-1" in {found.user_dn, found.token_subject}
