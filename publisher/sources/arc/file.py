"""The file of ARC's accounting database: where it is, and whether this user can read it while A-REX writes it.

SQLite's readers of a database in WAL mode share a small file with the writer (`-shm`). While the writer (A-REX) is up,
that file exists, and permission to read it is enough. After the writer has stopped in good order the file is gone, and
SQLite creates it again: for that the reader needs permission to write in the folder. A reader without it gets an error
from here. SQLite's `immutable` is never used: it gives wrong answers as soon as a writer comes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from publisher.errors import SourceError, SourceFormatError, SourceMissingError

VERSION_2: Final = "accounting_v2.db"
"""The file to which ARC 7 writes. It leaves accounting.db as it was; only `arcctl` copies jobs from there."""

_MAGIC: Final = b"SQLite format 3\x00"
_PLACES: Final = tuple(f"{folder}{name}" for folder in ("", "accounting/") for name in ("accounting.db", VERSION_2))

PERMISSION_HINT: Final = (
    "Let the publisher's user read accounting.db, accounting.db-wal and accounting.db-shm, and write in their folder, "
    "for instance by a group of both: chgrp GROUP FOLDER; chmod 2770 FOLDER; chmod g+rw FOLDER/accounting.db*"
)


def find_database(path: Path) -> Path:
    """The database at a path: the file itself, or the one in the folder (control directory or its accounting/).

    Raises `SourceMissingError`, or `SourceError` if this user has no permission, or if there are several.
    """
    if not stat.S_ISDIR(_mode(path)):
        return path
    databases = [path / place for place in _PLACES if _is_there(path / place)]
    if not databases:
        raise SourceMissingError(
            f"the folder {path} has neither accounting.db nor {VERSION_2}",
            hint="Give the path of ARC's database: accounting/accounting.db (ARC 6) or "
            f"accounting/{VERSION_2} (ARC 7) in A-REX's controldir",
        )
    if len(databases) > 1:
        raise SourceError(
            f"the folder {path} has several databases: {', '.join(map(str, databases))}",
            hint="Give the path of one file. ARC 7 writes accounting_v2.db; a second source reads the rest of "
            "accounting.db. A job that is in both is one record",
        )
    return databases[0]


def _is_there(path: Path) -> bool:
    try:
        _mode(path)
    except SourceMissingError:
        return False
    return True


def require_database_file(path: Path) -> None:
    """Raises `SourceMissingError`, `SourceError`, or `SourceFormatError` unless the path is a readable SQLite file."""
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
            hint="A-REX creates its tables at its first job; if it has had jobs, give the path of another file",
        )
    if start != _MAGIC:
        raise SourceFormatError(
            f"{path} is not a SQLite database", hint="Give the path of ARC's accounting.db, or another type of source"
        )


def explain_unopened(path: Path, error: str) -> SourceError:
    """Why SQLite could not open a file that exists and is a database."""
    if _shm_missing_and_unmakeable(path):
        return SourceError(
            f"{path} cannot be opened: its writer has stopped, {path.name}-shm is gone, and this user may not write in "
            f"{path.parent} to create it again",
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
            f"{path} does not exist",
            hint="ARC 6.4 and later keep accounting/accounting.db in A-REX's controldir (see arc.conf)",
        ) from None
    except OSError as error:
        raise _denied(path, error) from error


def _denied(path: Path, error: OSError) -> SourceError:
    reason = error.strerror or str(error)
    hint = PERMISSION_HINT if isinstance(error, PermissionError) else "Give the path of ARC's accounting.db"
    return SourceError(f"{path} cannot be read: {reason}", hint=hint)
