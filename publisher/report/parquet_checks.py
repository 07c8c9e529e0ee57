"""Check numbers in a Parquet file: of the bytes of each column, and of all that is beside them.

They stand before the footer, where no reader of Parquet looks. So the file has them wherever it is copied to, other
programs read it as any other, and who needs few of its columns compares few of its bytes. From the end backwards: the
footer with its length and the mark of the format; `_MARK`; the CRC-32 of the table of checks and the footer together;
the length of that table; the table, as JSON: by the name of a column its ranges, each with offset, length, and CRC-32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO, Final
from zlib import crc32

import msgspec
import pyarrow.parquet as pq

from publisher.report.archive import VERSION_KEY

_MARK: Final = b"UPCHECK1"
_WITHOUT: Final = VERSION_KEY + b"\x18\x011"
"""In the footer of archives of version 1, which have no checks: the key and the value of their version. All others are
damaged: the mark alone could be what the damage took away."""
_BESIDE: Final = ""
"""In the place of the name of a column: the bytes of none."""
_END: Final = struct.Struct("<I4s")
_CHECKED: Final = struct.Struct("<II8s")
_AT_ONCE: Final = 1 << 20


class DamagedParquetError(Exception):
    """A file is not what was written."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(f"{file.name} is damaged, or of another program")


class _Range(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a file, and their check number."""

    offset: int
    length: int
    check: int


_Table = dict[str, list[_Range]]


def seal(path: Path, file: BinaryIO) -> int:
    """Add the checks to a Parquet file that was written, and return the number that decides whether it is this file.

    `file`: open for writing to `path`.
    """
    file.flush()
    with path.open("rb") as read:
        footer_at, footer = _footer(read)
        table = msgspec.json.encode(_ranges(path, read, footer_at))
    check = crc32(footer, crc32(table))
    file.seek(footer_at)
    file.writelines((table, _CHECKED.pack(len(table), check, _MARK), footer))
    return check


def require_sound(path: Path, columns: Iterable[str], check: int | None = None) -> None:
    """Compare a file with its checks, of these columns. `check`: that of `seal`; None: any, and archives of version 1.

    Raises `DamagedParquetError` for a file that is not what was written, and OSError.
    """
    with path.open("rb", buffering=0) as file:
        table, own = _checks(file)
        if check is not None and check != own:
            raise DamagedParquetError(file)
        for name in (_BESIDE, *columns):
            for part in table.get(name, ()):
                if _check_of(file, part.offset, part.length) != part.check:
                    raise DamagedParquetError(file)


def _checks(file: BinaryIO) -> tuple[Mapping[str, list[_Range]], int | None]:
    """The table of a file, and the number that decides whether it is this file; of one without checks, nothing."""
    footer_at, footer = _footer(file)
    table_end = footer_at - _CHECKED.size
    length, check, mark = _CHECKED.unpack(_bytes(file, table_end, _CHECKED.size))
    if mark != _MARK:
        if _WITHOUT not in footer:
            raise DamagedParquetError(file)
        return {}, None
    table = _bytes(file, table_end - length, length)
    if crc32(footer, crc32(table)) != check:
        raise DamagedParquetError(file)
    return msgspec.json.decode(table, type=_Table), check


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """Where the footer begins, and its bytes, up to the end of the file."""
    size = file.seek(0, SEEK_END)
    length, _ = _END.unpack(_bytes(file, size - _END.size, _END.size))
    begin = size - _END.size - length
    return begin, _bytes(file, begin, size - begin)


def _bytes(file: BinaryIO, offset: int, length: int) -> bytes:
    """These bytes. Raises `DamagedParquetError` if the file does not have them."""
    if offset < 0:
        raise DamagedParquetError(file)
    file.seek(offset)
    content = file.read(length)
    if len(content) != length:
        raise DamagedParquetError(file)
    return content


def _check_of(file: BinaryIO, offset: int, length: int) -> int:
    check = 0
    for begin in range(offset, offset + length, _AT_ONCE):
        check = crc32(_bytes(file, begin, min(_AT_ONCE, offset + length - begin)), check)
    return check


def _ranges(path: Path, file: BinaryIO, footer_at: int) -> _Table:
    """The bytes before the footer, each once."""
    table: _Table = {_BESIDE: []}
    end = 0
    for offset, length, name in [*sorted(_columns(path)), (footer_at, 0, _BESIDE)]:
        if offset > end:
            table[_BESIDE].append(_Range(end, offset - end, _check_of(file, end, offset - end)))
        if length:
            table.setdefault(name, []).append(_Range(offset, length, _check_of(file, offset, length)))
        end = offset + length
    return table


def _columns(path: Path) -> Iterator[tuple[int, int, str]]:
    """Offset, length, and column of each range of bytes of a column."""
    read_metadata: Any = pq.read_metadata  # pyarrow has no type hints for it
    metadata = read_metadata(path)
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            offset = column.data_page_offset
            if column.has_dictionary_page:
                offset = min(offset, column.dictionary_page_offset)
            yield offset, column.total_compressed_size, column.path_in_schema
