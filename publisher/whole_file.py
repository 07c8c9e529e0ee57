"""A file that is written whole or not at all, under a name that somebody gave, never through a symbolic link.

The folder may be one that others can write to, such as /tmp: the content goes to a new file of a name that nobody can
foresee, which then takes the place of the one that is there.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o666
"""Less the umask: private, where the program runs as a command."""


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write a file, in place of one that is there. Raises OSError, also for what is neither a file nor a device.

    `mode`: the permissions, whatever the umask. Without it, those of the file that is there, if it is ours.
    """
    kept = _kept_mode(path)
    if kept is not None and stat.S_ISCHR(kept):  # /dev/null, a terminal: written to, never replaced
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY), "wb") as device:
            device.write(content)
        return
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    descriptor = os.open(partial, _NEW, _MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None or kept is not None:
                os.fchmod(descriptor, stat.S_IMODE(kept or 0) if mode is None else mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def require_own_folder(folder: Path) -> None:
    """Make a private folder. Raises OSError where it cannot be made, or a symbolic link stands in its place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, f"{folder.name} is a symbolic link")


def _kept_mode(path: Path) -> int | None:
    """Type and permissions of what is there and ours, or is a device; None where they are not kept. Raises OSError."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file that it leads to")
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise OSError(errno.EINVAL, "it is neither a file nor a device")
    return found.st_mode if stat.S_ISCHR(found.st_mode) or found.st_uid == os.geteuid() else None
