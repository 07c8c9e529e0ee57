"""Which files belong to a log, and in which order they were written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from publisher.errors import SourceError, SourceMissingError
from publisher.sources.rotation import log_files


def names(path: Path, pattern: str | None = None) -> list[str]:
    return [file.name for file in log_files(path, re.compile(pattern) if pattern else None)]


def touch(folder: Path, *files: str) -> None:
    for file in files:
        (folder / file).touch()


def test_rotated_copies_belong_to_the_file(tmp_path: Path) -> None:
    touch(tmp_path, "acct", "acct.1", "acct.10.gz", "acct.2", "acct-20261120.xz", "acct.2026-11-21_1200", "acct.jsonl")
    touch(tmp_path, "acct.bak", "account", "acct.lock", "other.1")
    assert names(tmp_path / "acct") == [
        "acct.10.gz",
        "acct.2",
        "acct.1",
        "acct-20261120.xz",
        "acct.2026-11-21_1200",
        "acct",
    ]


def test_the_live_file_is_listed_once(tmp_path: Path) -> None:
    for name in ("acct", "acct-20261120", "acct.1", "acct.gz"):
        touch(tmp_path, name)
        assert names(tmp_path / name).count(name) == 1
        (tmp_path / name).unlink()


def test_names_with_an_ending(tmp_path: Path) -> None:
    touch(tmp_path, "acct.log", "acct-20261120.log", "acct.log.1", "acct.log.old", "acct.1.log")
    assert set(names(tmp_path / "acct.log")) == {path.name for path in tmp_path.iterdir()}
    assert names(tmp_path / "acct.log")[-1] == "acct.log"


def test_a_folder_of_days(tmp_path: Path) -> None:
    touch(tmp_path, "20261102", "20261101.gz", "20261103", "notes", ".hidden", "20261103.swp")
    assert names(tmp_path, r"\d{8}") == ["20261101.gz", "20261102", "20261103"]
    (tmp_path / "20261104").mkdir()
    assert "20261104" not in names(tmp_path, r"\d{8}")


def test_a_pattern(tmp_path: Path) -> None:
    touch(tmp_path, "a.1", "a.2", "b")
    assert names(tmp_path / "a.*") == ["a.2", "a.1"]


def test_a_compressed_copy_beside_its_plain_file_waits(tmp_path: Path) -> None:
    touch(tmp_path, "acct", "acct.1", "acct.1.gz")
    assert names(tmp_path / "acct") == ["acct.1", "acct"]


def test_only_a_rotated_copy_is_there(tmp_path: Path) -> None:
    touch(tmp_path, "acct.1.gz")
    assert names(tmp_path / "acct") == ["acct.1.gz"]


@pytest.mark.parametrize("path", ["nothing", "no/folder/acct", "nothing*"])
def test_nothing_is_there(tmp_path: Path, path: str) -> None:
    with pytest.raises(SourceMissingError, match="there is no such file"):
        log_files(tmp_path / path)


def test_a_name_too_long_is_an_error_of_the_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        log_files(tmp_path / ("x" * 5000))
