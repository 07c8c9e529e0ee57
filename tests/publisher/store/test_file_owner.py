"""Root does not make files that the service cannot open."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from publisher.errors import StoreError
from publisher.store.database import open_store
from publisher.store.file_owner import as_user, name_of, owner_of, require_owner
from tests.publisher.site import ListSource, Site, make_jobs

_NOBODY = 65_534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of another user than root."""
    if os.geteuid() == 0:
        os.chown(tmp_path, _NOBODY, -1)
    return tmp_path


@pytest.mark.parametrize("below", ["store.db", "new/store.db"])
def test_root_may_not_work_in_the_store_of_another_user(folder: Path, below: str) -> None:
    with pytest.raises(StoreError) as caught:
        require_owner(folder / below, 0)
    assert caught.value.exit_code == 5
    assert as_user(name_of(folder.stat().st_uid)) in str(caught.value)
    assert not list(folder.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_check_of_root_makes_nothing_in_the_store_of_another_user(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [])
    site.sources["ce1"].add(*make_jobs(2))
    site.table["targets"] = {"queue": {"type": "directory", "path": "out", "records": "ogf-ur"}}
    site.reopen()
    site.collect()
    site.table["spool"] = {"lines": {"format": "json-lines", "path": "lines"}}
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, _NOBODY, -1)
    there = set(tmp_path.rglob("*"))
    site.reopen()
    assert {"queue: directory"} <= {found.subject for found in site.publisher.check()}
    with pytest.raises(StoreError):
        site.publisher.spool()
    site.publisher.close()
    made = set(tmp_path.rglob("*")) - there
    assert {path.name for path in made if path.stat().st_uid == 0} == set()
    assert not {"out", "lines"} & {path.name for path in made}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_a_user_is_told_whose_a_store_is_that_cannot_be_opened() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)  # the folders of tests are closed to others
        folder.chmod(0o755)
        url = f"sqlite:///{folder}/store.db"
        open_store(url).close()
        try:
            os.seteuid(_NOBODY)
            with pytest.raises(StoreError) as caught:
                open_store(url)
            with pytest.raises(StoreError) as caught_in_folder:
                open_store(f"sqlite:///{folder}/other.db")
        finally:
            os.seteuid(0)
    me = name_of(_NOBODY)
    assert f"store.db cannot be opened: it belongs to the user {name_of(0)}" in str(caught.value)
    assert f"chown {me} {folder}/store.db*" in str(caught.value)
    assert f"Check that {me} owns the folder {folder}" in str(caught_in_folder.value)


def test_another_user_may_and_root_in_its_own_place(folder: Path) -> None:
    require_owner(folder / "store.db", folder.stat().st_uid)
    if owner_of(Path("/store.db")) == 0:
        require_owner(Path("/store.db"), 0)


def test_a_user_without_a_name_has_its_number() -> None:
    assert name_of(3_999_999_999) == "3999999999"
    assert owner_of(Path("/")) == Path("/").stat().st_uid
