"""Compressed logs: recognised by their first bytes, decompressed in constant memory.

A rotated log keeps its content when it is compressed, so all other modules work on plain bytes. Damage in a compressed
file is one kind of error, independent of the library.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from typing import BinaryIO, Final, cast

SUFFIXES: Final = (".gz", ".bz2", ".xz", ".zst")
"""Suffixes of compressed copies. The content decides what a file is; names only show what is a copy of what."""

_MAGIC: Final = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_ZSTD_PIECE: Final = 256
"""Compressed bytes read at a time; their decompressed size bounds the memory used."""


class DamagedError(Exception):
    """A compressed file is cut short or damaged inside."""


def compression_of(head: bytes) -> str | None:
    """The compression that the first six bytes of a file show; None: a plain file."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


def plain(raw: BinaryIO, compression: str) -> PlainStream:
    """The plain bytes of an open compressed file, which is at its beginning and is closed with the stream."""
    stream: io.BufferedReader
    if compression == "gzip":
        stream = cast("io.BufferedReader", gzip.GzipFile(fileobj=raw, mode="rb"))
    elif compression == "bzip2":
        stream = cast("io.BufferedReader", bz2.BZ2File(raw, "rb"))
    elif compression == "xz":
        stream = cast("io.BufferedReader", lzma.LZMAFile(raw, "rb"))  # noqa: SIM115 - PlainStream closes it
    else:
        stream = io.BufferedReader(_ZstdStream(raw))
    return PlainStream(stream, raw, compression)


class PlainStream:
    """Forward reading of the plain bytes of a compressed file."""

    def __init__(self, stream: io.BufferedReader, raw: BinaryIO, compression: str) -> None:
        self._stream = stream
        self._raw = raw
        self._compression = compression
        self._damage: DamagedError | None = None

    def read(self, size: int) -> bytes:
        """`size` plain bytes, fewer only before the end or before damage. At damage it raises `DamagedError`."""
        if self._damage is not None:
            raise self._damage
        pieces: list[bytes] = []
        missing = size
        try:
            while missing and (piece := self._piece(missing)):
                pieces.append(piece)
                missing -= len(piece)
        except DamagedError as error:
            self._damage = error
            if not pieces:
                raise
        return b"".join(pieces)

    def _piece(self, size: int) -> bytes:
        try:
            return self._stream.read1(size)
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, ValueError) as error:
            raise DamagedError(f"{self._compression}: {error}") from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise DamagedError(f"{self._compression}: {error}") from error

    def close(self) -> None:
        """Close the stream and the file below it."""
        self._stream.close()
        self._raw.close()


class _ZstdStream(io.RawIOBase):
    """Zstandard frames, one after the other; a frame that is cut short raises EOFError, as in the other formats."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard  # noqa: PLC0415 - only sites with .zst logs pay for it

        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj
        self._frame = self._new_frame()
        self._raw = raw
        self._in_frame = False
        self._pending = memoryview(b"")
        self._input = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # the buffer protocol has no name in 3.11
        while not self._pending:
            piece = self._input or self._raw.read(_ZSTD_PIECE)
            self._input = b""
            if not piece:
                if self._in_frame:
                    raise EOFError("compressed file ended before the end of a frame")
                return 0
            self._in_frame = True
            try:
                self._pending = memoryview(self._frame.decompress(piece))
            except self._error as error:
                raise EOFError(str(error)) from error
            if self._frame.eof:
                self._input = self._frame.unused_data
                self._frame = self._new_frame()
                self._in_frame = False
        count = min(len(buffer), len(self._pending))
        buffer[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count
