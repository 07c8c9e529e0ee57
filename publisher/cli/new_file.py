"""Writing a configuration: whole or not at all, private, and never over one that is there unless that is wanted."""

from __future__ import annotations

import os
from pathlib import Path

from publisher.errors import UsageError


def require_free(path: Path, *, force: bool) -> None:
    """Raise `UsageError` where there is a file that is not to be replaced."""
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} is there already", hint="Edit it, or replace it with --force")


def write_new(path: Path, text: str, *, force: bool) -> None:
    """Write a file. Raises `UsageError` where it is there already or cannot be written."""
    require_free(path, force=force)
    partial = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
