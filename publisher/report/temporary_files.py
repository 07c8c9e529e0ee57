"""Temporary files of reports: private folders, what has no room there, and folders that a killed process left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import duckdb

from publisher.errors import OutputError

MOST_SPILLED: Final = "4GB"
_HINT: Final = f"Free space {{}}, or set TMPDIR to a folder with {MOST_SPILLED}"
_PREFIX: Final = "usage-publisher-report-"
_STALE_S: Final = 86_400
"""Younger folders stay: another process may have made one, and not have its lock yet."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def temporary_folder(prefix: str = _PREFIX) -> Iterator[str]:
    """A private folder for what a report does not keep in memory. Raises `OutputError` where none can be made.

    `prefix`: of its name; what DuckDB spills has its own, by which `is_of_disk` knows it.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=prefix)
    except OSError as error:
        raise OutputError(f"a temporary folder cannot be made: {error}", hint=_HINT.format("there")) from error
    with folder as path:
        lock = _locked(path)
        _remove_stale(Path(path).parent, prefix)
        try:
            yield path
        finally:
            if lock is not None:
                os.close(lock)


@contextmanager
def writing_to(folder: str) -> Iterator[None]:
    """Raise `OutputError` where a file cannot be written in a temporary folder."""
    try:
        yield
    except OSError as error:
        raise not_written(folder, error) from error


def not_written(folder: str | Path, error: OSError) -> OutputError:
    """The error of a temporary folder in which a file cannot be written."""
    parent = Path(folder).parent
    return OutputError(
        f"temporary files cannot be written to {parent}: {error.strerror or error}", hint=_HINT.format(f"in {parent}")
    )


@contextmanager
def spilling(folder: str) -> Iterator[None]:
    """Raise `OutputError` where DuckDB has no room for what does not fit into its memory, or too little memory (then
    `is_of_memory`). `folder`: for such files."""
    try:
        yield
    except duckdb.Error as error:
        if not is_of_room(error, folder):
            raise
        if not is_of_disk(error, folder):
            raise OutputError(
                f"the report needs more memory than it may have: {str(error).splitlines()[0]}",
                hint="Choose a shorter interval, or fewer jobs",
            ) from error
        raise OutputError(
            f"there is no room for what the report sorts: {str(error).splitlines()[0]}",
            hint=_HINT.format(f"in {Path(folder).parent}"),
        ) from error


def is_of_memory(error: OutputError) -> bool:
    """Whether what a report computes did not fit into the memory that it had."""
    cause = error.__cause__
    return isinstance(cause, duckdb.Error) and _lacks_memory(cause) and not is_of_disk(cause)


def is_of_room(error: duckdb.Error, folder: str = _PREFIX) -> bool:
    """Whether DuckDB had no room, in memory or on disk."""
    return _lacks_memory(error) or is_of_disk(error, folder)


def is_of_disk(error: duckdb.Error, folder: str = _PREFIX) -> bool:
    """Whether DuckDB had no room on disk for what does not fit into its memory."""
    text = str(error)
    if _lacks_memory(error):
        return "failed to offload" in text
    return isinstance(error, duckdb.IOException) and folder in text


def _lacks_memory(error: duckdb.Error) -> bool:
    """Whether DuckDB had no memory: a statement that could not be committed for it has another error."""
    return isinstance(error, duckdb.OutOfMemoryException) or (
        isinstance(error, duckdb.TransactionException) and "failed to pin block" in str(error)
    )


def _locked(path: str) -> int | None:
    """The folder, open and locked until it is closed or this process and its children have ended; None: no locks."""
    with suppress(OSError):
        folder = os.open(path, _FOLDER)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(folder)
        else:
            return folder
    return None


def _remove_stale(parent: Path, prefix: str) -> None:
    """Remove such folders of this user that nobody holds: SIGKILL left them."""
    for path in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            status = path.lstat()
            if status.st_uid != os.geteuid() or status.st_mtime > time.time() - _STALE_S:
                continue
            if (lock := _locked(str(path))) is not None:
                try:
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(lock)
