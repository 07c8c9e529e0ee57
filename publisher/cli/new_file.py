"""Writing a configuration: whole or not at all, private, and never over one that is there unless that is wanted."""

from __future__ import annotations

import os
from pathlib import Path

from publisher.errors import UsageError
from publisher.whole_file import write_whole


def require_free(path: Path, *, force: bool) -> None:
    """Raise `UsageError` where there is a file that is not to be replaced."""
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} is there already", hint="Edit it, or replace it with --force")


def write_new(path: Path, text: str, *, force: bool) -> None:
    """Write a file. Raises `UsageError` where it is there already or cannot be written."""
    require_free(path, force=force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
