"""The files of a log: the live file and its rotated copies, all files of a folder, or those of a pattern.

Rotated copies of the configured file belong to it, so that lines written just before a rotation are not lost:
`accounting.1`, `accounting-20261121.gz`, `accounting-20261122-1795354333`, `accounting-20261122.1`,
`accounting.2026-11-21_1200.zst`, `accounting.old`, and for a name with an extension `acct-20261121.log`; in the folder
of the log, and in further configured folders. Files are in the order in which they were written.

A copy with any other name is not in the list; `by_inode`, `newest_first`, and `written_after` give the files among
which a file that was read before and is no longer in its place is searched.
"""

from __future__ import annotations

import glob
import heapq
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from publisher.errors import SourceError, SourceMissingError
from publisher.sources.logs.compression import SUFFIXES
from publisher.text import counted

MOST_LISTED: Final = 20_000
"""The most files of a folder that are considered in the search for a copy with an unexpected name."""
MOST_OPENED: Final = 256
"""The most of these, the newest, whose content may be read."""

_DATE: Final = r"(?:(?:19|20)\d\d-?[01]\d(?:-?[0-3]\d\d{0,6}(?:[-_T.:]\d{1,10})*)?|1\d{9})"
_DAY_OR_MONTH: Final = frozenset({6, 8})
"""The number of digits in the name of a file that is the log of a day or a month, and grows until the next one
begins.
"""
_DATED: Final = re.compile(rf"(?P<stem>.*?)[._-]?(?P<date>{_DATE})(?P<ending>\.[A-Za-z]\w*)?", re.DOTALL)
_NUMBERED: Final = re.compile(r"(?P<stem>.+?)[._-](?P<number>\d{1,5}|old)(?P<ending>\.[A-Za-z]\w*)?", re.DOTALL)
_TEMPORARY: Final = re.compile(r"\..*|.*~|.*\.(?:tmp|swp|part|lock)", re.DOTALL)


class LogFiles:
    """The files of a log: see the module.

    `names` says which files of a folder count (matched against the full name without its compression suffix); a file
    that is named itself always counts, and so does each that a pattern matches. `expected`: those names in words, for
    the message if a folder has none. `rotated_to`: further folders to which the log is rotated. Nothing is opened.
    """

    def __init__(
        self, path: Path, names: re.Pattern[str] | None = None, rotated_to: Collection[Path] = (), expected: str = ""
    ) -> None:
        self.path = path
        self.rotated_to = tuple(rotated_to)
        self._names = names
        self._expected = expected or "file of this log"

    def present(self) -> list[str]:
        """The paths of the files to read, in the order of their writing: texts, since there may be many. A compressed
        copy next to its own plain file is omitted.

        Raises `SourceMissingError` if there is no file, `SourceError` if a folder cannot be listed.
        """
        try:
            paths = [str(file) for files in (self._here(), self._elsewhere()) for file in files]
        except PermissionError as error:
            raise SourceError(
                f"{error.filename or self.path}: permission denied",
                hint="Let the user of the publisher list the folder",
            ) from error
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}", hint="Correct `path` of the source") from error
        if not paths:
            raise self._nothing()
        packed = {file for file in paths if file.endswith(SUFFIXES)}
        plain = set(paths) - packed if packed else set()
        further = {str(folder) for folder in self.rotated_to}
        # Both are there while a copy is being compressed: its end is not written yet, and would be reported as damaged.
        kept = [file for file in paths if file not in packed or os.path.splitext(file)[0] not in plain]  # noqa: PTH122

        # In the order of their writing: the start of a job is often in the file before that of its end.
        return sorted(kept, key=partial(_order, further))

    def growing(self, known: Iterable[tuple[str, bool]]) -> set[str]:
        """Of the files that were read, the paths of those whose writer may have continued afterwards, by their names.

        That is the configured file; in a folder and for a pattern, the one without a number or date, and the newest
        day. `known`: the path of each, and whether it was seen to grow.
        """
        is_folder = self._is_folder()
        if not is_folder and not self._is_pattern():
            return {path for path, _ in known if path == str(self.path)}
        here = str(self.path)
        last: dict[tuple[str, str], tuple[int, str, str, bool]] = {}
        several: set[tuple[str, str]] = set()
        for path, grew in known:
            folder, name = os.path.split(path)
            if folder == here and _counts(name, self._names) if is_folder else fnmatchcase(path, here):
                _, log, kind, date, _ = _written(folder, name)
                written = kind, date, path, grew
                if (folder, log) in last:
                    several.add((folder, log))
                    written = max(written, last[folder, log])
                last[folder, log] = written
        paths: set[str] = set()
        for log_of, (kind, date, path, grew) in last.items():
            is_log = kind == _LIVE and (self._names is not None or log_of in several or grew)
            if is_log or (kind == _DATED_COPY and len(date) in _DAY_OR_MONTH):
                paths.add(path)
        return paths

    def live_names(self) -> Callable[[str], bool]:
        """Tells of a path whether it is the name of a log that is written, not of a rotated copy, which has a number or
        date."""
        if not self._is_folder() and not self._is_pattern():
            return str(self.path).__eq__
        return lambda path: _written(*os.path.split(path))[2] == _LIVE

    def folders(self, path: Path) -> list[Path]:
        """The folders that may contain a copy of a file of the log."""
        return list(dict.fromkeys([path.parent, *self.rotated_to]))

    def is_named_like(self, path: Path, copy: Path) -> bool:
        """Whether the name of a file could be that of a copy of this one."""
        return _without_compression(path.name) in copy.name or (
            self._names is not None and _counts(copy.name, self._names) and self._is_folder()
        )

    def _is_folder(self) -> bool:
        return self.path.is_dir()

    def _is_pattern(self) -> bool:
        return glob.has_magic(str(self.path)) and not self.path.exists()

    def _here(self) -> Iterator[Path]:
        if self._is_folder():
            with os.scandir(self.path) as entries:
                yield from (self.path / entry.name for entry in entries if self._is_of_folder(entry))
        elif self._is_pattern():
            matches = (Path(match) for match in glob.iglob(str(self.path), recursive=True))  # noqa: PTH207 - takes absolute ones
            yield from (file for file in matches if _counts(file.name, None) and not file.is_dir())
        elif self.path.parent.is_dir():
            rotated = (file for file in self.path.parent.iterdir() if _is_rotated(file.name, self.path.name))
            yield from (file for file in rotated if not file.is_dir())
            if self.path.is_symlink() or self.path.exists():
                yield self.path

    def _is_of_folder(self, entry: os.DirEntry[str]) -> bool:
        is_folder = (
            Path(entry.path).is_dir if entry.is_symlink() else entry.is_dir
        )  # a link may lead nowhere, or to itself
        return _counts(entry.name, self._names) and not is_folder()

    def _elsewhere(self) -> Iterator[Path]:
        """The files of the log in the further folders; a folder that does not exist yet has none."""
        for folder in self.rotated_to:
            for file in folder.iterdir() if folder.is_dir() else ():
                if self._is_folder():
                    counts = _counts(file.name, self._names)
                elif self._is_pattern():
                    counts = _counts(file.name, None) and fnmatchcase(file.name, self.path.name)
                else:
                    counts = file.name == self.path.name or _is_rotated(file.name, self.path.name)
                if counts and not file.is_dir():
                    yield file

    def _nothing(self) -> SourceMissingError:
        if self.path.is_dir():
            others = sum(1 for _ in islice(self.path.iterdir(), MOST_LISTED))
            lacks = f"has no {self._expected}"
            return SourceMissingError(
                f"the folder {self.path} {lacks}; it has {counted(others, 'other file')}"
                if others
                else f"the folder {self.path} is empty: it {lacks}",
                hint="Set `path` of the source to the folder in which the batch system writes this log, or to the file",
            )
        if self._is_pattern():
            return SourceMissingError(f"{self.path}: no file matches this pattern", hint="Correct `path` of the source")
        return SourceMissingError(f"{self.path}: there is no such file", hint="Check `path` of the source")


def by_inode(folders: Iterable[Path], device: int, inode: int) -> list[Path]:
    """The files of these folders with this inode, under any name. A folder that cannot be listed has none."""
    paths = []
    for entry in _entries(folders):
        if entry.inode() == inode:
            status = _status(entry)
            if status is not None and (status.st_dev, status.st_ino) == (device, inode):
                paths.append(Path(entry.path))
    return paths


def newest_first(folders: Iterable[Path], changed_since_ns: int) -> list[Path]:
    """Files of these folders that were changed then or later, except temporary ones, newest first.

    Whole seconds are compared, since compressed copies keep no fractions. Bounded: see `MOST_LISTED`, `MOST_OPENED`.
    """
    since_s = changed_since_ns // 1_000_000_000
    dated: list[tuple[int, str]] = []
    for entry in islice(_entries(folders), MOST_LISTED):
        if _TEMPORARY.fullmatch(entry.name):
            continue
        status = _status(entry)
        if status is not None and status.st_size and status.st_mtime_ns // 1_000_000_000 >= since_s:
            dated.append((status.st_mtime_ns, entry.path))
    return [Path(path) for _, path in heapq.nlargest(MOST_OPENED, dated)]


def written_after(copy: Path) -> list[Path]:
    """The files next to this one with a name of the same form (only its digits differ), changed later; oldest first.

    A log that was rotated several times between two readings left copies that were never read under their own name.
    """
    form = re.compile(re.sub(r"\d+", r"\\d+", re.escape(_without_compression(copy.name))))
    if r"\d+" not in form.pattern:
        return []
    try:
        changed_ns = copy.stat().st_mtime_ns
    except OSError:
        return []
    others = reversed(newest_first([copy.parent], changed_ns))
    return [file for file in others if file != copy and form.fullmatch(_without_compression(file.name))]


def _entries(folders: Iterable[Path]) -> Iterator[os.DirEntry[str]]:
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                yield from entries
        except OSError:
            continue  # the source's own folder was listed, and its error raised, before; others may not exist yet


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The status of a regular file; None: it is not one."""
    try:
        return entry.stat(follow_symlinks=False) if entry.is_file(follow_symlinks=False) else None
    except OSError:
        return None


def _counts(name: str, names: re.Pattern[str] | None) -> bool:
    if names is not None:
        return names.fullmatch(_without_compression(name)) is not None
    return _TEMPORARY.fullmatch(name) is None


def _without_compression(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def _is_rotated(name: str, live: str) -> bool:
    if name == live:
        return False
    name = _without_compression(name)
    if name == live:
        return True
    for pattern in (_NUMBERED, _DATED):
        if match := pattern.fullmatch(name):
            ending = match["ending"] or ""
            if live in (match["stem"] + ending, match["stem"]):
                return True
    return False


def _order(further: Collection[str], file: str) -> str:
    """Sort key of a file: that of `_written`, after those in further folders. A text, since there may be many."""
    folder, name = os.path.split(file)
    _, log, kind, date, number = _written(folder, name)
    return f"{folder not in further:d}{folder}\0{log}\0{kind}{date}\0{_NUMBERS + number:05}"


_NUMBERS: Final = 99_999
"""The most that a number in a name can be."""
_NUMBERED_COPY: Final = 0
_DATED_COPY: Final = 1
_LIVE: Final = 2


def _written(folder: str, name: str) -> tuple[str, str, int, str, int]:
    """Sort key: folder, log, then numbered copies (highest number first), dated ones, and the live file last."""
    name = _without_compression(name)
    if match := _DATED.fullmatch(name):
        return folder, match["stem"] + (match["ending"] or ""), _DATED_COPY, re.sub(r"\D", "", match["date"]), 0
    if match := _NUMBERED.fullmatch(name):
        number = 0 if match["number"] == "old" else int(match["number"])
        return folder, match["stem"] + (match["ending"] or ""), _NUMBERED_COPY, "", -number
    return folder, name, _LIVE, "", 0
