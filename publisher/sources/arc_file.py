"""The file of ARC's accounting database: where it is, and whether this user can read it beside its writer.

SQLite's readers of a database in WAL mode share a small file with the writer (`-shm`). While the writer (A-REX) is up,
that file is there and being allowed to read it is enough. When the writer has stopped in good order, it is gone, and
SQLite makes it anew: for that the reader must be allowed to write in the folder. A reader that may not is told so here;
SQLite's `immutable` is never used, because it gives wrong answers as soon as a writer comes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from publisher.errors import SourceError, SourceFormatError, SourceMissingError

_MAGIC: Final = b"SQLite format 3\x00"
_PLACES: Final = ("accounting.db", "accounting/accounting.db")

PERMISSION_HINT: Final = (
    "Let the publisher's user read accounting.db, accounting.db-wal and accounting.db-shm, and write in their folder, "
    "for instance by a group of both: chgrp GROUP FOLDER; chmod 2770 FOLDER; chmod g+rw FOLDER/accounting.db*"
)


def find_database(path: Path) -> Path:
    """The database at a path: the file itself, or in the folder (control directory or its accounting/) given.

    Raises `SourceMissingError`, or `SourceError` where this user may not look.
    """
    mode = _mode(path)
    if not stat.S_ISDIR(mode):
        return path
    for place in _PLACES:
        try:
            _mode(path / place)
        except SourceMissingError:
            continue
        return path / place
    raise SourceMissingError(
        f"there is no accounting.db in the folder {path}",
        hint="Give the path of ARC's accounting.db: accounting/accounting.db in A-REX's controldir",
    )


def require_database_file(path: Path) -> None:
    """Raises `SourceMissingError`, `SourceError` or `SourceFormatError` unless a SQLite file is there to be read."""
    if not stat.S_ISREG(_mode(path)):
        raise SourceFormatError(f"{path} is not a regular file", hint="Give the path of ARC's accounting.db")
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        raise _denied(path, error) from error
    if not start:
        raise SourceFormatError(
            f"{path} is empty",
            hint="A-REX makes its tables at its first job; if it has had jobs, look for another file",
        )
    if start != _MAGIC:
        raise SourceFormatError(
            f"{path} is not a SQLite database", hint="Give the path of ARC's accounting.db, or another type of source"
        )


def explain_unopened(path: Path, error: str) -> SourceError:
    """Why SQLite could not open a file that is there and is a database."""
    if _shm_missing_and_unmakeable(path):
        return SourceError(
            f"{path} cannot be opened: its writer has stopped, {path.name}-shm is gone, and this user may not write in "
            f"{path.parent} to make it anew",
            hint=PERMISSION_HINT,
        )
    return SourceError(f"{path} cannot be opened: {error}", hint=PERMISSION_HINT)


def _shm_missing_and_unmakeable(path: Path) -> bool:
    shared = path.with_name(f"{path.name}-shm")
    return _in_wal_mode(path) and not shared.exists() and not os.access(path.parent, os.W_OK)


def _in_wal_mode(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(20)[18:20] == b"\x02\x02"


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise SourceMissingError(
            f"there is nothing at {path}",
            hint="ARC 6.4 and later keep accounting/accounting.db in A-REX's controldir (arexctl or arc.conf tell it)",
        ) from None
    except OSError as error:
        raise _denied(path, error) from error


def _denied(path: Path, error: OSError) -> SourceError:
    reason = error.strerror or str(error)
    hint = PERMISSION_HINT if isinstance(error, PermissionError) else "Give the path of ARC's accounting.db"
    return SourceError(f"{path} cannot be read: {reason}", hint=hint)
