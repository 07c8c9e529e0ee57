"""SSM's outgoing queue as it was left behind: python-dirq's QueueSimple, whose elements are unsigned messages.

A queue is folders of 8 hexadecimal digits with files of 14; a link NAME.lck beside one says that somebody is at work on
it.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from formats.read_xml import MAX_BYTES
from publisher.errors import PublisherError, UsageError

_FOLDER: Final = re.compile(r"[0-9a-f]{8}").fullmatch
_ELEMENT: Final = re.compile(r"[0-9a-f]{14}").fullmatch
_LOCK: Final = ".lck"


def elements_of(queue: Path) -> Iterator[str]:
    """The names FOLDER/ELEMENT of the messages in a queue, oldest first. Raises `UsageError`."""
    try:
        folders = sorted(name for name in os.listdir(queue) if _FOLDER(name))  # noqa: PTH208 - names
        for folder in folders:
            elements = sorted(name for name in os.listdir(queue / folder) if _ELEMENT(name))  # noqa: PTH208 - names
            yield from (f"{folder}/{element}" for element in elements)
    except OSError as error:
        hint = "Name the folder that SSM takes messages from, as a rule /var/spool/apel/outgoing"
        raise UsageError(f"{queue} cannot be read: {error.strerror}", hint=hint) from error


def read_element(queue: Path, name: str) -> bytes:
    """The message. Raises `PublisherError` where it cannot be read, is too large or no regular file."""
    try:
        descriptor = os.open(queue / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise PublisherError(f"{queue / name} is no regular file")
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PublisherError(f"{queue / name} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise PublisherError(f"{queue / name} is larger than {MAX_BYTES} bytes, more than is looked at")
    return content


@contextlib.contextmanager
def locked(queue: Path, name: str) -> Iterator[bool]:
    """Whether this element is ours within this; False where SSM, or another of us, has it at work."""
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
            f"{element} cannot be locked: {error.strerror}", hint="Run this as the user of SSM, as a rule root or apel"
        ) from error
    try:
        yield True
    finally:
        with contextlib.suppress(FileNotFoundError):
            lock.unlink()


def set_aside(queue: Path, name: str) -> Path:
    """Move a message out of the queue into the folder beside it that keeps those that were taken over."""
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
