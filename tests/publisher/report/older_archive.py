"""Files of archives as the first version of the program wrote them: without checks, and without columns that came
later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from publisher.report.archive import VERSION_KEY


def make_older(archive: Path, *columns: str) -> None:
    """Take these columns out of all files of an archive, and the checks."""
    parquet: Any = pq
    for file in archive.glob("*/runs.parquet"):
        table = parquet.read_table(file, partitioning=None).drop_columns(list(columns))
        parquet.write_table(table.replace_schema_metadata({VERSION_KEY: "1"}), file)
