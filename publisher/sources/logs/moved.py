"""Finding a file of a log that is no longer in its place, under any name: by its inode, else by its content."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from publisher.errors import SourceError
from publisher.sources.base import Unreadable
from publisher.sources.logs.mark import Key, Mark
from publisher.sources.logs.rotation import LogFiles, by_inode, newest_first, written_after

_LATE_S: Final = 86_400
"""The longest time between the end of a job and its line in a log."""


@dataclass(frozen=True)
class Copies:
    """Files that contain what was read of a file, and those rotated after it.

    `is_whole`: they are known to contain everything written to it. For a copy that ends where reading stopped, that is
    known only if its time of last change is that of the file when it was read: otherwise lines may have been added to
    the file after the copy was made.
    """

    paths: list[Path]
    is_whole: bool


NO_COPIES: Final = Copies([], is_whole=False)


def copies_of(
    mark: Mark, log: LogFiles, *, is_continued: bool, was_read: Callable[[Key], bool] = lambda _key: False
) -> Copies:
    """Where the content of a file is that is no longer in its place: the file itself, else a copy of it, and the files
    that were rotated after it in the same way.

    `is_continued`: another file of the log is known to have its content; then only the file itself is searched, since
    it may have grown after that copy was made. Raises `SourceError` if the file itself exists and cannot be read.

    An inode is used again when its file is gone, and files may begin with the same header, or the same first bytes of a
    line: if too little was read of the file to be certain, all of any file with a similar name is read, which changes
    nothing, but only a copy with its time of last change is known to be one. A file that was empty has no content to
    compare: the file with its inode counts, else one with a similar name that, by its device and inode, was not read
    before (`was_read`).
    """
    place = Path(mark.path)
    folders = log.folders(place)
    for path in by_inode(folders, mark.device, mark.inode):
        if not os.access(path, os.R_OK):
            raise SourceError(f"{path}: permission denied", hint="Let the user of the publisher read the file")
        if mark.is_continued_at(path) or (mark.is_empty and path != place):
            return Copies([path, *_alike(path, place, log)], is_whole=True)
    if is_continued:
        return NO_COPIES
    if mark.is_certain and mark.is_continued_at(place):
        return Copies([place], is_whole=True)
    return _by_content(mark, log, was_read)


def _by_content(mark: Mark, log: LogFiles, was_read: Callable[[Key], bool]) -> Copies:
    place = Path(mark.path)
    files = newest_first(log.folders(place), mark.mtime_ns)
    named = [path for path in files if log.is_named_like(place, path)]
    if mark.is_certain:
        others = [path for path in files if path not in named]
        copies = [path for path in (*named, *others) if mark.is_continued_at(path)]
        if not copies:
            return NO_COPIES
        copy = next((path for path in copies if mark.is_outgrown_at(path)), None)
        copy = copy or next((path for path in copies if _has_mtime(mark, path)), copies[0])
        return Copies([copy, *_alike(copy, place, log)], is_whole=_is_whole(mark, copy))
    if mark.is_empty:
        paths = [path for path in named[::-1] if path != place and not ((key := _key(path)) and was_read(key))]
        return Copies(paths, is_whole=bool(paths))
    paths = [path for path in named[::-1] if mark.is_continued_at(path)]
    return Copies(paths, is_whole=any(_has_mtime(mark, path) for path in paths))


def _key(path: Path) -> Key | None:
    try:
        file_status = path.stat()
    except OSError:
        return None
    return file_status.st_dev, file_status.st_ino


def _is_whole(mark: Mark, copy: Path) -> bool:
    return _has_mtime(mark, copy) or mark.is_outgrown_at(copy)


def _has_mtime(mark: Mark, copy: Path) -> bool:
    try:
        return mark.has_mtime(copy.stat().st_mtime_ns)
    except OSError:
        return False


def _alike(copy: Path, place: Path, log: LogFiles) -> list[Path]:
    return [path for path in written_after(copy) if path != place and log.is_named_like(place, path)]


def not_read(mark: Mark, log: LogFiles | None, copies: list[Path], *, was_cut: bool) -> Unreadable:
    """The report of a file of which an unknown rest was not read: it has other content now, or it is gone.

    `copies`: files that contain what was read of it, none of which is known to be complete.
    """
    folders = log.folders(Path(mark.path)) if log is not None else [Path(mark.path).parent]
    what = "was cut or overwritten" if was_cut else "was moved, removed or replaced"
    where = ", ".join(map(str, folders))
    problem = (
        f"the copy {copies[0]} has no more than these and was changed later: it may have been made before more lines "
        f"were added. No other was found in {where}"
        if copies
        else f"no file that begins with these was found in {where}"
    )
    reason = (
        f"the file (inode {mark.inode}) {what} after {mark.offset} bytes of it were read, and {problem}: lines that "
        "were added after the last reading were not read"
    )
    begin = max(0, mark.mtime_ns // 1_000_000_000 - _LATE_S)
    return Unreadable(mark.path, None, mark.offset, reason, b"", begin, mark.identity)
