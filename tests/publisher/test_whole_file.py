"""Files with names given by people: written completely or not at all, never through a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.whole_file import require_own_folder, write_all_whole, write_partial, write_whole
from tests.faults.full_disk import files_no_larger_than


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"before")
    for target in (precious, tmp_path / "missing"):
        link = tmp_path / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        with pytest.raises(OSError, match="symbolic link"):
            write_whole(link, b"after")
    assert precious.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "precious"]


def test_another_name_of_the_same_file_keeps_its_content(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"before")
    second.hardlink_to(first)
    write_whole(first, b"after")
    assert (first.read_bytes(), second.read_bytes()) == (b"after", b"before")


def test_the_mode_of_a_file_of_ours_is_kept(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        write_whole(tmp_path / "new", b"")
        (tmp_path / "there").touch()
        (tmp_path / "there").chmod(0o644)
        write_whole(tmp_path / "there", b"after")
        write_whole(tmp_path / "public", b"", mode=0o644)
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"new": 0o600, "there": 0o644, "public": 0o644}


def test_a_device_is_written_to_and_stays_one() -> None:
    write_whole(Path(os.devnull), b"away")
    assert stat.S_ISCHR(Path(os.devnull).lstat().st_mode)
    with pytest.raises(OSError, match="No space left"):
        write_whole(Path("/dev/full"), b"away")


def test_what_is_neither_a_file_nor_a_device_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="neither a file nor a device"):
        write_whole(tmp_path / "fifo", b"")
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, b"")


def test_a_folder_that_is_a_link_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "2026-11").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        require_own_folder(tmp_path / "2026-11")
    require_own_folder(tmp_path / "a" / "b")
    require_own_folder(tmp_path / "a" / "b")


def test_content_that_fails_leaves_the_earlier_file_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")

    def content() -> Iterator[bytes]:
        yield b"af"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_partial(tmp_path / ".part", content(), lambda: (tmp_path / ".part").replace(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first", "second", "new")]
    for path in paths[:2]:
        path.write_bytes(b"before")
    with files_no_larger_than(1 << 12), pytest.raises(OSError, match="File too large"):
        write_all_whole(dict(zip(paths, (b"after", b"x" * (1 << 16), b"after"), strict=True)))
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_all_whole({paths[0]: b"after", tmp_path / "folder": b"after"})
    assert {path.name: path.read_bytes() for path in paths[:2]} == {"first": b"before", "second": b"before"}
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second", "folder"}
    write_all_whole(dict.fromkeys(paths, b"after"))
    assert [path.read_bytes() for path in paths] == [b"after"] * 3


def test_what_a_crash_left_is_replaced_and_never_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"before")
    (tmp_path / ".part").symlink_to("precious")
    write_partial(tmp_path / ".part", [b"af", b"ter"], lambda: (tmp_path / ".part").replace(tmp_path / "file"))
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert contents == {"file": b"after", "precious": b"before"}
    assert stat.S_IMODE((tmp_path / "file").lstat().st_mode) == 0o600
