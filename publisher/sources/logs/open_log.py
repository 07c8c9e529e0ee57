"""Opening a log file: regular files only, never for writing, never waiting for a writer.

A FIFO, socket, or device is refused before it is opened, and again after opening, in case the file was replaced in
between.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from publisher.errors import SourceError, SourceFormatError, SourceMissingError
from publisher.sources.logs.compression import PlainStream, compression_of, plain

_SKIP_BYTES: Final = 1 << 20
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO (named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class OpenLog:
    """An open log as its plain bytes, compressed or not.

    `size` and `mtime_ns` are the file's own when it was opened.
    """

    def __init__(self, raw: BinaryIO, found: os.stat_result) -> None:
        self.device, self.inode = found.st_dev, found.st_ino
        self.size, self.mtime_ns = found.st_size, found.st_mtime_ns
        self._raw = raw
        self._compression = compression_of(raw.read(6))
        self._pending = b""
        self._at = 0
        self._plain: BinaryIO | PlainStream = raw
        self._rewind()

    @property
    def compressed(self) -> bool:
        """Whether the file is compressed, and so does not grow."""
        return self._compression is not None

    def read(self, size: int) -> bytes:
        """Up to `size` plain bytes from the present position. Raises `DamagedError` in a compressed file."""
        data, self._pending = (self._pending, b"") if self._pending else (self._plain.read(size), b"")
        if len(data) > size:
            data, self._pending = data[:size], data[size:]
        self._at += len(data)
        return data

    def before(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes before an offset, without a change of the position; of a compressed file none: it does not
        grow."""
        begin = max(0, offset - size)
        return b"" if self.compressed else os.pread(self._raw.fileno(), offset - begin, begin)

    def unread(self, data: bytes) -> None:
        """Give the last bytes read back."""
        self._pending = data + self._pending
        self._at -= len(data)

    def seek(self, offset: int) -> bool:
        """Move to a plain offset; False if the log is shorter."""
        if self._compression is None:
            self._pending = b""
            self._raw.seek(offset)
            self._at = offset
            return offset <= os.fstat(self._raw.fileno()).st_size
        if offset < self._at:
            self._rewind()
        while self._at < offset:
            if not self.read(min(_SKIP_BYTES, offset - self._at)):
                return False
        return True

    def _rewind(self) -> None:
        self._raw.seek(0)
        self._pending, self._at = b"", 0
        self._plain = self._raw if self._compression is None else plain(self._raw, self._compression)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._plain.close()
        self._raw.close()


def open_log(path: Path) -> OpenLog:
    """Open a log for reading. Raises `SourceError`s that say what is at the path instead, or why it cannot be read."""
    try:
        _refuse_irregular(path, path.stat().st_mode)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise _explained(path, error) from error
    raw = os.fdopen(descriptor, "rb")
    try:
        file_status = os.fstat(descriptor)
        _refuse_irregular(path, file_status.st_mode)
        return OpenLog(raw, file_status)
    except BaseException:
        raw.close()
        raise


def _refuse_irregular(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((name for test, name in _KINDS if test(mode)), "not a regular file")
    raise SourceFormatError(f"{path}: this is {kind}, not a file", hint="Name the log file itself")


def _explained(path: Path, error: OSError) -> SourceError:
    if error.errno == errno.ENOENT:
        return SourceMissingError(f"{path} does not exist", hint="Check `path` of the source")
    if error.errno in (errno.EACCES, errno.EPERM):
        return SourceError(f"{path}: permission denied", hint="Let the user of the publisher read the file")
    if error.errno == errno.ELOOP:
        return SourceError(f"{path}: the symbolic links form a loop", hint="Correct the link")
    return SourceError(f"{path}: {error.strerror or error}")
