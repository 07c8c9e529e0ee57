"""A Parquet file with checks is read by every program, and is not believed with one byte that was not written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.report.archive import VERSION_KEY
from publisher.report.parquet_checks import DamagedParquetError, require_sound, seal
from publisher.whole_file import new_file

COLUMNS = ("number", "word")
ROWS = 3_000


def table(first: int = 0) -> Any:
    words = pa.array([f"word {number % 7}" for number in range(ROWS)]).dictionary_encode()
    schema = pa.schema({"number": pa.int64(), "word": words.type}, metadata={VERSION_KEY: b"2"})
    return pa.table([pa.array(range(first, first + ROWS)), words], schema=schema)


def written(path: Path, rows: Any, *, sealed: bool = True) -> int | None:
    write: Any = pq.write_table
    with new_file(path) as file:
        write(rows, file, row_group_size=1_000, compression="none")
        return seal(path, file) if sealed else None


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checks") / "runs.parquet"
    written(path, table())
    return path


def test_other_programs_read_it(file: Path) -> None:
    read: Any = pq.read_table
    assert read(file).to_pydict() == table().to_pydict()
    with duckdb.connect(":memory:") as connection:
        found = connection.execute("SELECT sum(number), count(DISTINCT word) FROM read_parquet($1)", [str(file)])
        assert found.fetchall() == [(ROWS * (ROWS - 1) // 2, 7)]


def test_it_is_sound_wherever_it_is(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(file.read_bytes())
    require_sound(copy, COLUMNS)


@settings(max_examples=200)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_one_bit(file: Path, part: float, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[int(part * len(content))] ^= 1 << bit
    damaged = file.with_name("bit")
    damaged.write_bytes(content)
    with pytest.raises(DamagedParquetError, match="bit is damaged"):
        require_sound(damaged, COLUMNS)


@settings(max_examples=50)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 4_096))
def test_a_range_of_zeros_or_an_end_that_is_lacking(file: Path, part: float, length: int) -> None:
    content = file.read_bytes()
    begin = int(part * len(content))
    for number, wrong in enumerate((content[:begin], content[:begin] + bytes(length) + content[begin + length :])):
        if wrong != content:
            damaged = file.with_name(f"range-{number}")
            damaged.write_bytes(wrong)
            with pytest.raises(DamagedParquetError):
                require_sound(damaged, COLUMNS)


def test_only_the_columns_that_are_asked_for_are_read(file: Path, tmp_path: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(b"word 3")] ^= 1
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content)
    require_sound(damaged, ["number", "no such column"])
    with pytest.raises(DamagedParquetError):
        require_sound(damaged, ["word"])


def test_another_file_is_not_taken_for_it(tmp_path: Path) -> None:
    checks = [written(tmp_path / str(first), table(first)) for first in (0, 1)]
    require_sound(tmp_path / "0", COLUMNS, checks[0])
    with pytest.raises(DamagedParquetError):
        require_sound(tmp_path / "0", COLUMNS, checks[1])


def test_a_file_of_an_older_version_has_none_and_a_new_one_must(tmp_path: Path) -> None:
    written(tmp_path / "older", table().replace_schema_metadata({VERSION_KEY: b"1"}), sealed=False)
    require_sound(tmp_path / "older", COLUMNS)
    written(tmp_path / "newer", table(), sealed=False)
    with pytest.raises(DamagedParquetError):
        require_sound(tmp_path / "newer", COLUMNS)
