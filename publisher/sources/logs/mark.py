"""The mark of a file of a log: its identity, how far it was read, and whether another file has the same content.

A file is identified by device and inode, and by digests of its plain content: of its first 4 KiB, and of the bytes
before the place where reading stopped. Files that have no more than the same header, or the same first bytes of a line,
are identified by device and inode only (`Mark.is_certain`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from publisher.errors import SourceError
from publisher.sources.logs.compression import DamagedError
from publisher.sources.logs.open_log import OpenLog, open_log

HEAD_BYTES: Final = 4096
# Two logs may begin with the same 4 KiB of header: by these bytes, another file is not continued in its middle.
TAIL_BYTES: Final = 512
_LEAD_BYTES: Final = 256
_RECORD: Final = re.compile(rb"^(?!#)(?:[^\d\n]*\d){8}[^\n]*\n", re.MULTILINE)
"""A complete line with a time, as records have: headers have names, and at most a version."""
_json_of = json.JSONEncoder(separators=(",", ":")).encode
# Archive programs and file systems keep times in these units: compared exactly, a complete copy would be reported as
# not read to its end.
_KEPT_TO_NS: Final = (1, 100, 1_000, 1_000_000, 1_000_000_000)


Key = tuple[int, int]
"""Device and inode."""


class Mark(msgspec.Struct, array_like=True, eq=False):
    """How far a file was read: `offset` plain bytes and `line` complete lines. One mark is equal to itself only: a file
    may have another from an earlier reading.

    `size` and `mtime_ns` are those of the file when its present end was reached, -1 before. `lead`, `head`, and `tail`
    are digests of the first 256 bytes, of the first `head_bytes`, and of the last `tail_bytes` before the offset.
    `unfinished`: bytes of an incomplete last line after the offset when the file was read. `grew`: it was continued at
    least once. `moved`: it was found under a name that does not belong to the log. `vanished`: it disappeared, and no
    other file was in its place. `has_record`: a complete line of the beginning is part of a record.
    """

    path: str
    device: int
    inode: int
    size: int = -1
    mtime_ns: int = -1
    lead: str = ""
    head_bytes: int = 0
    head: str = ""
    offset: int = 0
    line: int = 0
    tail_bytes: int = 0
    tail: str = ""
    unfinished: int = 0
    grew: bool = False
    moved: bool = False
    vanished: bool = False
    has_record: bool = False

    @classmethod
    def of(cls, stored: Any) -> Mark:
        """The mark that was stored: its text, or its values. Raises `ValueError` and `msgspec.ValidationError`."""
        return msgspec.convert(json.loads(stored) if isinstance(stored, str) else stored, cls)

    @property
    def text(self) -> str:
        """The form that is stored: JSON, since a path may be no UTF-8."""
        return _json_of(msgspec.structs.astuple(self))

    @property
    def key(self) -> Key:
        """Device and inode."""
        return self.device, self.inode

    @property
    def is_settled(self) -> bool:
        """Whether a file was read to its end, ended with a complete line, and has a name of the log: all files but a
        few, where a log has one for each day or job."""
        return self.size >= 0 and not self.unfinished and not self.moved

    @property
    def end(self) -> int:
        """The plain bytes that were read: complete lines, and the beginning of the incomplete one."""
        return self.offset + self.unfinished

    @property
    def is_empty(self) -> bool:
        """Whether the file was empty when it was read."""
        return not self.head_bytes

    @property
    def was_refused(self) -> bool:
        """Whether nothing of the file was read, since it is not what it should be."""
        return self.size < 0 and not self.offset

    @property
    def is_certain(self) -> bool:
        """Whether enough of the content is known to distinguish it from other files, which may begin with the same
        header, or with a line of which only a part was written to this one.
        """
        return bool(self.lead) or self.has_record

    @property
    def identity(self) -> str:
        """Device, inode, and digest of the beginning, as a text."""
        return f"{self.device}:{self.inode}:{self.head}"

    def is_at(self, path: str) -> bool:
        """Whether the file at a path is this one by device and inode; True if that cannot be found out."""
        try:
            file_status = os.stat(path)  # noqa: PTH116 - of each file of a log
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return (file_status.st_dev, file_status.st_ino) == self.key

    def is_continued_by(self, head: bytes, log: OpenLog) -> bool:
        """Whether a file, given its first 4 KiB, has all that was read of this one; if so, the log is positioned after
        it.
        """
        same_head = 0 < self.head_bytes <= len(head) and digest(head[: self.head_bytes]) == self.head
        if not same_head or self.tail_bytes > self.offset or not log.seek(self.offset - self.tail_bytes):
            return False
        return digest(log.read(self.tail_bytes)) == self.tail if self.tail_bytes else True

    def is_continued_at(self, path: Path) -> bool:
        """The same for the file at a path; False if it cannot be read."""
        try:
            with open_log(path) as log:
                return self.is_continued_by(log.read(HEAD_BYTES), log)
        except (SourceError, OSError, DamagedError):
            return False

    def is_outgrown_at(self, path: Path) -> bool:
        """Whether the file at a path has all that was read of this one, and more."""
        try:
            with open_log(path) as log:
                if not self.is_continued_by(log.read(HEAD_BYTES), log):
                    return False
                more = self.end + 1 - self.offset
                while more and (data := log.read(more)):
                    more -= len(data)
                return not more
        except (SourceError, OSError, DamagedError):
            return False

    def has_mtime(self, mtime_ns: int) -> bool:
        """Whether a time of last change is this file's, as copies keep it: complete, or cut to a unit of up to 1 s."""
        return self.mtime_ns >= 0 and any(mtime_ns == self.mtime_ns - self.mtime_ns % unit for unit in _KEPT_TO_NS)


def digest(data: bytes) -> str:
    """The digest of content that is compared."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def has_record(head: bytes) -> bool:
    """Whether a complete line of the beginning of a file is part of a record."""
    return _RECORD.search(head) is not None


def lead_of(head: bytes) -> str:
    """The key of the contents to compare with; empty for a file that was too short for one."""
    return hashlib.blake2b(head[:_LEAD_BYTES], digest_size=6).hexdigest() if len(head) >= _LEAD_BYTES else ""
