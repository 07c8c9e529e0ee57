"""Messages as files of a directory, each written completely or not at all, and read back; and SSM's queues.

A queue is one of python-dirq's QueueSimple: folders named by 8 hexadecimal digits with files named by 14, one message
each. A link NAME.lck next to a file means that a program works on it, and NAME.tmp is an unfinished file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

from publisher.errors import PublisherError, UsageError
from publisher.whole_file import write_partial

LARGEST_BYTES: Final = 64 * 2**20
"""The largest message that is read back; services accept far less."""

_LOCK: Final = ".lck"
_TEMPORARY: Final = ".tmp"
_is_folder = re.compile(r"[0-9a-f]{8}").fullmatch
_is_element = re.compile(r"[0-9a-f]{14}").fullmatch
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def made(path: Path) -> Iterator[int]:
    """The directory, opened; made first where it is not there. Raises `OSError`."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    with opened(path) as descriptor:
        yield descriptor


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """The directory, opened. Raises `OSError`."""
    descriptor = os.open(path, _OPEN_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_message(directory: int, name: str) -> bytes | str:
    """The bytes of a message, at most one more than a message may have, or why they cannot be read."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return "is not a regular file"
            return stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def exists(directory: int, name: str) -> bool:
    """Whether a file or folder has this name."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def write(directory: int, name: str, content: bytes) -> None:
    """Write `content` to `name`, completely or not at all. Raises `OSError`, also if that is not a regular file."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise FileExistsError(errno.EEXIST, f"{name} is a link or not a regular file")
    temporary = name + _TEMPORARY

    def replace() -> None:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)

    write_partial(temporary, [content], replace, folder=directory)
    os.fsync(directory)


def write_once(directory: int, stem: str, suffix: str, content: bytes) -> str:
    """Write `content` as STEM SUFFIX, or STEM.2 SUFFIX and so on if there are files with these names; return the name.

    The file appears whole, and none that exists is changed, also if another process writes at the same time: a link is
    made only where there is no file. Raises `OSError`.
    """
    digest = hashlib.sha256(content).hexdigest()[:16]
    temporary = f".{stem}.{digest}{_TEMPORARY}"

    name = ""

    def link() -> None:
        nonlocal name
        for number in count(1):
            name = f"{stem}{suffix}" if number == 1 else f"{stem}.{number}{suffix}"
            with contextlib.suppress(FileExistsError):
                os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
                break
        os.unlink(temporary, dir_fd=directory)

    write_partial(temporary, [content], link, folder=directory)
    os.fsync(directory)
    return name


def is_of_queue(name: str) -> bool:
    """Whether a file is a lock or unfinished, and not a message."""
    return name.endswith((_LOCK, _TEMPORARY))


def messages_of(directory: int) -> Iterator[str]:
    """The names of the files, in the order of their writing, without unfinished and hidden ones."""
    names = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and not is_of_queue(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    names.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
    yield from (name for _, name in sorted(names))


def elements(queue: int) -> Iterator[str]:
    """The names FOLDER/ELEMENT of the messages in a queue, oldest first."""
    for folder in sorted(filter(_is_folder, os.listdir(queue))):
        with contextlib.suppress(FileNotFoundError):  # emptied and removed meanwhile
            with _folder(queue, folder) as descriptor:
                names = sorted(filter(_is_element, os.listdir(descriptor)))  # noqa: PTH208 - as above
            yield from (f"{folder}/{name}" for name in names)


def elements_of(queue: Path) -> Iterator[str]:
    """The same, for the queue at a path. Raises `UsageError` if it cannot be read."""
    try:
        with opened(queue) as descriptor:
            yield from elements(descriptor)
    except OSError as error:
        hint = "Name SSM's outgoing folder, usually /var/spool/apel/outgoing"
        raise UsageError(f"{queue} cannot be read: {error.strerror}", hint=hint) from error


def read_element(queue: Path, name: str) -> bytes:
    """Read a message. Raises `PublisherError` if it cannot be read, is too large, or is not a regular file."""
    try:
        with opened(queue) as descriptor:
            content = read_message(descriptor, name)
    except OSError as error:
        content = f"cannot be read: {error.strerror}"
    if isinstance(content, str):
        raise PublisherError(f"{queue / name}: {content}")
    if len(content) > LARGEST_BYTES:
        raise PublisherError(f"{queue / name} has more than {LARGEST_BYTES:,} bytes")
    return content


def write_element(queue: int, batch_id: str, content: bytes, now_s: int) -> str:
    """Write an element, in place of an earlier one of the same batch. Returns DIRECTORY/ELEMENT.

    After others it is written after them, for what comes last counts; the earlier one is removed then.
    """
    element = hashlib.sha256(batch_id.encode()).hexdigest()[:14]
    directories = sorted(name for name in os.listdir(queue) if _is_folder(name))
    place = next((name for name in reversed(directories) if exists(queue, f"{name}/{element}")), None)
    earlier = place
    if place is None or place != directories[-1]:
        last = int(directories[-1], 16) if directories else 0
        place = f"{max(now_s, last + 1):08x}"
        with contextlib.suppress(FileExistsError):  # another producer of this queue
            os.mkdir(place, 0o700, dir_fd=queue)
        os.fsync(queue)
    with _folder(queue, place) as descriptor:
        write(descriptor, element, content)
    if earlier is not None and earlier != place:
        with contextlib.suppress(OSError), _folder(queue, earlier) as descriptor:
            _remove(descriptor, element)
    return f"{place}/{element}"


@contextlib.contextmanager
def _folder(queue: int, name: str) -> Iterator[int]:
    descriptor = os.open(name, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=queue)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(folder: int, element: str) -> None:
    """Remove an element, as SSM does. Raises `OSError` if SSM works on it: it sends it once more, or has sent it."""
    lock = element + _LOCK
    os.link(element, lock, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.unlink(element, dir_fd=folder)
    os.unlink(lock, dir_fd=folder)


@contextlib.contextmanager
def locked(queue: Path, name: str) -> Iterator[bool]:
    """Whether this element is ours inside the block; False if SSM, or another process of ours, works on it."""
    element = queue / name
    lock = element.with_name(element.name + _LOCK)
    try:
        os.link(element, lock, follow_symlinks=False)
    except FileExistsError:
        yield False
        return
    except FileNotFoundError:  # SSM has sent it in the meantime
        yield False
        return
    except OSError as error:
        raise PublisherError(
            f"{element} cannot be locked: {error.strerror}", hint="Run this as the user of SSM, usually root or apel"
        ) from error
    try:
        yield True
    finally:
        with contextlib.suppress(FileNotFoundError):
            lock.unlink()


def set_aside(queue: Path, name: str) -> Path:
    """Move a message out of the queue into the folder next to it that keeps messages that were taken over."""
    kept = queue.with_name(queue.name + ".taken-over")
    folder, _, element = name.partition("/")
    try:
        (kept / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        (queue / name).replace(kept / folder / element)
    except OSError as error:
        raise PublisherError(f"{queue / name} cannot be moved to {kept}: {error.strerror}") from error
    with contextlib.suppress(OSError):  # the lock is still there; the folder goes with the last element
        (queue / folder).rmdir()
    return kept / folder / element
