"""Files that are written whole or not at all, never through a symbolic link: the content goes to a new file, which gets
its name when it is complete.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE: Final = 0o600
BY_UMASK: Final = 0o666
"""Less the umask: private, where the program runs as a command."""


@contextmanager
def new_file(
    path: str | Path,
    place: Callable[[], object] | None = None,
    *,
    folder: int | None = None,
    mode: int = _PRIVATE,
    exact_mode: int | None = None,
    synced: bool = True,
) -> Iterator[BinaryIO]:
    """A new file to write to. At the end of the block it is on disk, and `place` gives it its own name: a rename
    replaces a file that has that name, a link does not. If anything fails, no file stays. Raises OSError.

    `folder`: the open folder that `path` is relative to. `mode`: the permissions, less the umask; `exact_mode`:
    whatever the umask.
    """
    with suppress(FileNotFoundError):
        os.unlink(path, dir_fd=folder)  # left behind by a crash
    descriptor = os.open(path, _NEW, mode, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if exact_mode is not None:
                os.fchmod(descriptor, exact_mode)
            yield file
            file.flush()
            if synced:  # before it has its name: after a power failure a name must not lead to an empty file
                os.fsync(descriptor)
        if place is not None:
            place()
    except BaseException:
        with suppress(OSError):
            os.unlink(path, dir_fd=folder)
        raise


def write_partial(
    partial: str | Path,
    content: Iterable[bytes],
    place: Callable[[], object],
    *,
    folder: int | None = None,
    mode: int = _PRIVATE,
    exact_mode: int | None = None,
    synced: bool = True,
) -> None:
    """Write this content to a `new_file`."""
    with new_file(partial, place, folder=folder, mode=mode, exact_mode=exact_mode, synced=synced) as file:
        file.writelines(content)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write a file, in place of one that is there. Raises OSError, also for what is neither a file nor a device.

    `mode`: the permissions, whatever the umask. Without it, those of the file that is there, if it is ours.
    """
    write_all_whole({path: content}, mode=mode)


def write_all_whole(contents: Mapping[Path, bytes], *, mode: int | None = None) -> None:
    """Write files as `write_whole`. All are on disk before the first gets its name: on a full disk, those of before
    stay, all of them."""
    kept_modes = {path: _kept_mode(path) for path in contents}
    partials: dict[Path, Path] = {}
    try:
        for path, kept in kept_modes.items():
            if kept is not None and stat.S_ISCHR(kept):  # /dev/null, a terminal: written to, never replaced
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY), "wb") as device:
                    device.write(contents[path])
                continue
            exact_mode = stat.S_IMODE(kept) if mode is None and kept is not None else mode
            # The folder may be one that others can write to, such as /tmp: nobody can foresee the name.
            partials[path] = path.with_name(f".{secrets.token_hex(8)}.partial")
            with new_file(partials[path], mode=BY_UMASK, exact_mode=exact_mode) as file:
                file.write(contents[path])
        for path, partial in partials.items():
            partial.replace(path)
    except BaseException:
        for partial in partials.values():
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
        file_status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(file_status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file that it leads to")
    if stat.S_ISDIR(file_status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not (stat.S_ISREG(file_status.st_mode) or stat.S_ISCHR(file_status.st_mode)):
        raise OSError(errno.EINVAL, "it is neither a file nor a device")
    return file_status.st_mode if stat.S_ISCHR(file_status.st_mode) or file_status.st_uid == os.geteuid() else None
