"""Rows: views of `report`, each a command over a store whose columns are up to date. Beside it DuckDB alone, which has
read them as soon as it is imported: the same SQL over the same files, or, of a view that is not SQL, the columns read.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from publisher.report.column_files import CLASS_ID, OF_CLASS
from tests.bench.measure import COMMAND, Bench
from tests.bench.reporting import SIZES, collected_site
from tests.bench.rows import row
from tests.publisher.cli.program import CHARGES_BY_HOUR

_MONTH: Final = ("--month", "2026-10")
_MOST_OFTEN: Final = 1_000_000
_SETTINGS: Final = f"""{CHARGES_BY_HOUR}[[allocations]]
name = "chemistry"
user = "a*"
amount = 1000000
since = "2026-10-01"
until = "2026-11-01"
[[energy.power]]
watts_core = 5
"""
_ENERGY: Final = (
    """CREATE TABLE power AS SELECT DISTINCT source, cluster, queue, 5000000::BIGINT AS core_uw, 0::BIGINT AS gpu_uw,
        0::BIGINT AS gib_uw, false AS whole_nodes FROM entries""",
    """CREATE TABLE placements AS SELECT placed, cluster, slots, 0 AS epoch, false AS whole, 0::BIGINT AS most_uw
        FROM entries LIMIT 0""",
)
"""The tables that the program makes of its settings."""


class MeasuredView(NamedTuple):
    """A view with its options; `columns`: what one that is not SQL reads; `before`: statements that its SQL needs."""

    options: tuple[str, ...]
    columns: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


_PLACED: Final = ("start", "stop", "end", "slots", "placed", "cluster", "core_numbers")
VIEWS: Final = {
    "totals by user": MeasuredView(("totals", "--by", "user")),
    "totals by day and queue": MeasuredView(("totals", "--by", "day,queue")),
    "efficiency by user": MeasuredView(("efficiency", "--by", "user")),
    "efficiency by job": MeasuredView(("efficiency", "--by", "job")),
    "waiting by day and user": MeasuredView(("waiting", "--by", "day,user")),
    "energy by user": MeasuredView(("energy", "--by", "user"), before=_ENERGY),
    "paths": MeasuredView(("paths",)),
    "utilization in 1000 bins": MeasuredView(
        ("utilization", "--bins", "1000"), ("start", "stop", "end", "user_ms", "system_ms", "slots", "incomplete")
    ),
    "occupation by day": MeasuredView(("occupation", "--period", "day"), _PLACED),
    "scarce": MeasuredView(("scarce",), (*_PLACED, "submit", "eligible", "run", "local_id")),
    "charges": MeasuredView(("charges",), ("start", "stop", "end", "slots", "memory_kib", "wall_ms", "user")),
}
"""By the name of the row."""


def site_with_columns(bench: Bench) -> Path:
    """The configuration of a site that has collected, with settings for every view; its columns are up to date."""
    site = collected_site(bench)
    config = bench.folder / "publisher.toml"
    store = (site.parent / "store.db").absolute()
    config.write_text(site.read_text(encoding="utf-8").replace("store.db", str(store)) + _SETTINGS, encoding="utf-8")
    # In a process of its own: the peak of a process includes that of the one that started it.
    bench.cost_of(bench.size, *COMMAND, "--config", config, "report", "totals")
    return config


def _runs(bench: Bench) -> int:
    """How often it is measured: once where a report takes seconds."""
    return 1 if bench.size > _MOST_OFTEN else 3


def _statements(config: Path, view: MeasuredView) -> list[str]:
    """The SQL of a view, or the reading of its columns."""
    if view.columns:
        columns = ", ".join(f'"{name}"' for name in view.columns)
        return [f"SELECT {columns} FROM entries"]
    command = [*COMMAND, "--config", str(config), "report", *view.options, *_MONTH, "--explain"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [one for line in text.split(";\n") if (one := line.strip()) and not one.startswith("--")]


def _entries(folder: Path, statements: list[str]) -> str:
    """The relation `entries`; classes are joined where a statement has a column of them."""
    runs = f"read_parquet('{folder}/0*.parquet')"
    used = " ".join(statements)
    if not any(f'"{name}"' in used for name in ("user", "local_id", *OF_CLASS)):
        return f"CREATE VIEW entries AS SELECT * FROM {runs}"
    instead = "coalesce(runs.\"user\", dn) AS \"user\", coalesce(prefix, '') || nullif(local_id, '') AS local_id"
    return f"""CREATE VIEW entries AS SELECT runs.* REPLACE ({instead}), source, vo, dn
        FROM {runs} AS runs JOIN '{folder}/classes-*.parquet' AS classes USING ({CLASS_ID})"""


def duckdb_alone(bench: Bench) -> None:
    """The same SQL, or the reading of the same columns, by DuckDB with its own settings."""
    config, view = site_with_columns(bench), VIEWS[bench.variant]
    statements = _statements(config, view)
    folder = collected_site(bench).parent / "store.db.columns"
    for _ in range(_runs(bench)):
        with duckdb.connect(":memory:") as connection, bench.timed(bench.size):
            for statement in (_entries(folder, statements), *view.before, *statements[:-1]):
                connection.execute(statement)
            found: Any = connection.execute(statements[-1])
            if view.columns:
                read = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch
                assert sum(batch.num_rows for batch in read(100_000)) > bench.size // 2
            else:
                assert found.fetchall()


def report(bench: Bench) -> None:
    """A report of a month as JSON, the start of the program included."""
    config, view = site_with_columns(bench), VIEWS[bench.variant]
    for _ in range(_runs(bench)):
        bench.command(
            bench.size, "--config", config, "report", *view.options, *_MONTH, "--format", "json", "--output",
            "report.json",
        )  # fmt: skip


for _name, _view in VIEWS.items():
    _beside = "DuckDB alone, columns read" if _view.columns else "DuckDB alone, the same SQL"
    row(f"report {_name}", SIZES, beside=(_beside, duckdb_alone), unit="jobs", variant=_name)(report)
