"""Which files a log is made of: the live file, its rotated copies, all files of a folder, or those of a pattern.

Rotated copies of the file that the configuration names belong to it, so that what was written just before a rotation is
not lost: `accounting.1`, `accounting-20261121.gz`, `accounting.2026-11-21_1200.zst`, `accounting.old`, and for a name
with an ending `acct-20261121.log`. Files come in the order in which they were written.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Final

from publisher.errors import SourceError, SourceMissingError
from publisher.sources.compression import SUFFIXES

_DATE: Final = r"(?:19|20)\d\d-?[01]\d(?:-?[0-3]\d(?:[-_T.]?\d{2,6})?)?"
_DATED: Final = re.compile(rf"(?P<stem>.*?)[._-]?(?P<date>{_DATE})(?P<ending>\.[A-Za-z]\w*)?", re.DOTALL)
_NUMBERED: Final = re.compile(r"(?P<stem>.+?)[._-](?P<number>\d{1,5}|old)(?P<ending>\.[A-Za-z]\w*)?", re.DOTALL)
_TEMPORARY: Final = re.compile(r"\..*|.*~|.*\.(?:tmp|swp|part|lock)", re.DOTALL)


def log_files(path: Path, names: re.Pattern[str] | None = None) -> list[Path]:
    """The files to read, in the order of their writing.

    `names` says which files of a folder or pattern count (matched against the whole name without its compression
    suffix); a file that is named itself always counts. A compressed copy beside its own plain file is left out.
    Nothing is opened. Raises `SourceMissingError` if there is nothing, `SourceError` if a folder cannot be listed.
    """
    try:
        found = _listed(path, names)
    except PermissionError as error:
        raise SourceError(
            f"{error.filename or path}: permission denied", hint="Let the user of the publisher list the folder"
        ) from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}", hint="Look at the path of the source") from error
    if not found and path.is_dir():
        raise SourceMissingError(f"{path}: no file of this folder belongs to the log", hint="Name the log file itself")
    if not found:
        raise SourceMissingError(f"{path}: there is no such file", hint="Look at the path of the source")
    plain = {file for file in found if file.suffix not in SUFFIXES}
    kept = [file for file in found if file.suffix not in SUFFIXES or file.with_suffix("") not in plain]
    return sorted(kept, key=_written)


def _listed(path: Path, names: re.Pattern[str] | None) -> list[Path]:
    if path.is_dir():
        return [file for file in path.iterdir() if _counts(file, names) and not file.is_dir()]
    if glob.has_magic(str(path)) and not path.exists():
        matches = (Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207 - takes absolute ones
        return [file for file in matches if _counts(file, names) and not file.is_dir()]
    if not path.parent.is_dir():
        return []
    rotated = [file for file in path.parent.iterdir() if _is_rotated(file.name, path.name)]
    rotated = [file for file in rotated if not file.is_dir()]
    return [*rotated, path] if path.is_symlink() or path.exists() else rotated


def _counts(file: Path, names: re.Pattern[str] | None) -> bool:
    if names is not None:
        return names.fullmatch(_without_compression(file.name)) is not None
    return _TEMPORARY.fullmatch(file.name) is None


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


def _written(file: Path) -> tuple[str, str, int, str, int]:
    """Sort key: folder, log, then numbered copies (highest number first), dated ones, and the live file last."""
    folder, name = str(file.parent), _without_compression(file.name)
    if match := _DATED.fullmatch(name):
        return folder, match["stem"] + (match["ending"] or ""), 1, re.sub(r"\D", "", match["date"]), 0
    if match := _NUMBERED.fullmatch(name):
        number = 0 if match["number"] == "old" else int(match["number"])
        return folder, match["stem"] + (match["ending"] or ""), 0, "", -number
    return folder, name, 2, "", 0
