"""Finding a file of a log that is no longer in its place: under whatever name, by its inode, else by its content."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from publisher.errors import SourceError
from publisher.sources.base import Unreadable
from publisher.sources.log_mark import Mark
from publisher.sources.rotation import LogFiles, by_inode, newest_first, written_after

_LATE_S: Final = 86_400
"""A job may be written to a log so long after its end."""


def copies_of(mark: Mark, log: LogFiles, *, is_continued: bool, known: Collection[tuple[int, int]] = ()) -> list[Path]:
    """Where the content of a file lies that is no longer in its place: the file itself, else a copy of it; with what
    was rotated in the same way after it.

    `is_continued`: another file of the log is known to hold its content; then only the file itself is looked for, since
    it may have grown after that copy was made. Raises `SourceError` if the file itself is there and cannot be read.

    An inode is used again when its file is gone, and files may begin with the same header: if too little was read of
    the file to be certain, what has a name like its own counts, all of it. Reading too much changes nothing. A file
    that was empty has no content to be known by: it is what has its inode, else what has a name like its own and is
    none of `known`, the files (device, inode) that were met before.
    """
    place = Path(mark.path)
    folders = log.folders(place)
    for path in by_inode(folders, mark.device, mark.inode):
        if not os.access(path, os.R_OK):
            raise SourceError(f"{path}: permission denied", hint="Let the user of the publisher read the file")
        if mark.is_continued_at(path) or (mark.is_empty and path != place):
            return [path, *_alike(path, place, log)]
    if is_continued:
        return []
    if mark.is_certain and mark.is_continued_at(place):
        return [place]
    files = newest_first(folders, mark.mtime_ns)
    named = [path for path in files if log.is_named_like(place, path)]
    if mark.is_certain:
        others = [path for path in files if path not in named]
        copy = next((path for path in (*named, *others) if mark.is_continued_at(path)), None)
        return [] if copy is None else [copy, *_alike(copy, place, log)]
    if mark.is_empty:
        return [path for path in named[::-1] if path != place and _key(path) not in known]
    return [path for path in named[::-1] if mark.is_continued_at(path)]


def _key(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _alike(copy: Path, place: Path, log: LogFiles) -> list[Path]:
    return [path for path in written_after(copy) if path != place and log.is_named_like(place, path)]


def not_read(mark: Mark, log: LogFiles | None, *, was_cut: bool) -> Unreadable:
    """The report of a file of which an unknown rest was not read: other content is in its place, or it is gone."""
    folders = log.folders(Path(mark.path)) if log is not None else [Path(mark.path).parent]
    what = "was cut or overwritten" if was_cut else "was moved, removed or replaced"
    reason = (
        f"the file {what} after {mark.offset} bytes of it were read, and no copy of it was found in "
        f"{', '.join(map(str, folders))}: lines that were added between the last reading and then were not read"
    )
    begin = max(0, mark.mtime_ns // 1_000_000_000 - _LATE_S)
    return Unreadable(mark.path, None, mark.offset, reason, b"", unread_from=begin)
