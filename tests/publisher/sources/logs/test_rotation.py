"""Which files belong to a log, and in which order they were written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from publisher.errors import SourceError, SourceMissingError
from publisher.sources.logs.rotation import LogFiles


def names(path: Path, pattern: str | None = None) -> list[str]:
    return [Path(file).name for file in LogFiles(path, re.compile(pattern) if pattern else None).present()]


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


@pytest.mark.parametrize("path", ["nothing", "no/folder/acct"])
def test_nothing_is_there(tmp_path: Path, path: str) -> None:
    with pytest.raises(SourceMissingError, match="there is no such file"):
        LogFiles(tmp_path / path).present()


def test_a_name_too_long_is_an_error_of_the_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        LogFiles(tmp_path / ("x" * 5000)).present()


@pytest.mark.parametrize(
    "name",
    ["acct-20261122-1795354333", "acct-20261122.1", "acct.1795354333", "acct-2026-11-22T00:00:01.gz", "acct-202611"],
)
def test_dates_as_logrotate_writes_them(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "acct", name)
    assert names(tmp_path / "acct") == [name, "acct"]


def test_a_long_name_of_digits_takes_no_time(tmp_path: Path) -> None:
    touch(tmp_path, "acct", "acct-20261122" + "1" * 200 + "x")
    assert names(tmp_path / "acct") == ["acct"]


@pytest.mark.parametrize("pattern", ["pbs*", "pbs[0-9]*", "pbs?"])
def test_a_pattern_finds_all_that_matches(tmp_path: Path, pattern: str) -> None:
    """In a folder the names decide which files belong to a log; a pattern decides this itself."""
    touch(tmp_path, "pbs1", "pbs2", "acct", "pbs1~")
    assert names(tmp_path / pattern, r"\d{8}") == ["pbs1", "pbs2"]


def test_a_pattern_that_nothing_matches(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="no file matches this pattern"):
        LogFiles(tmp_path / "nothing*").present()


def test_further_folders(tmp_path: Path) -> None:
    log, old, later = tmp_path / "log", tmp_path / "old", tmp_path / "later"
    log.mkdir()
    old.mkdir()
    touch(log, "acct", "acct.1", "20261123", "pbs1")
    touch(old, "acct", "acct-20261122.gz", "other", "20261122", "pbs2")

    def found(path: Path, pattern: str | None = None) -> list[str]:
        files = LogFiles(path, re.compile(pattern) if pattern else None, [old, later]).present()
        return [str(Path(file).relative_to(tmp_path)) for file in files]

    assert found(log / "acct") == ["old/acct-20261122.gz", "old/acct", "log/acct.1", "log/acct"]
    assert found(log, r"\d{8}") == ["old/20261122", "log/20261123"]
    assert found(log / "pbs*") == ["old/pbs2", "log/pbs1"]
