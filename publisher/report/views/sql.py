"""View `sql`: one SELECT of a person over the tables `runs`, `nodes`, and `deliveries`.

The tables are documented and stay as they are: names with units, NULL where nothing is known. A statement that is
anything else than one SELECT of them is refused (`publisher.report.one_select`), and memory, temporary space, time,
and rows are bounded.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from threading import Timer
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
from sqlalchemy import select

from publisher.errors import UsageError
from publisher.report.archive import COLUMNS
from publisher.report.column_files import RUN_ID
from publisher.report.one_select import tables_read
from publisher.report.report import Cell, Column, Kind, Report
from publisher.report.request import FIRST_INSTANT, LIMIT_INSTANT, ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import SQL
from publisher.store import dialect, schema

_LIMIT_S: Final = 60.0
_MORE_MEMORY: Final = 512 << 20
"""How much a statement may take beyond what the process has: a function can make a text of any length in a row."""
_MOST_ROWS: Final = 100_000
_PAGE: Final = 50_000
_MS: Final = "* CAST(0.001 AS DECIMAL(4, 3))"


def _instant(column: str) -> str:
    """The UTC timestamp of epoch seconds; NULL for one that cannot be written."""
    return (
        f'CASE WHEN "{column}" >= {FIRST_INSTANT} AND "{column}" < {LIMIT_INSTANT} '
        f'THEN make_timestamp("{column}" * 1000000) END'
    )


def _unless(bit: int, column: str) -> str:
    """A column whose 0 means nothing where `incomplete` has a bit."""
    return f"CASE WHEN coalesce(incomplete, 0) & {bit} = 0 OR {column} <> 0 THEN {column} END"


RUNS: Final = {
    "run_id": RUN_ID,
    "source": "source",
    "cluster": "cluster",
    "job_id": "local_id",
    "job_name": "name",
    "global_id": "global_id",
    "array_id": "array_id",
    "array_task": "TRY_CAST(task AS BIGINT)",
    "user_name": '"user"',
    "group_name": '"group"',
    "dn": "dn",
    "vo": "vo",
    "project": "project",
    "account": "account",
    "department": "department",
    "queue": "queue",
    "parallel_environment": "pe",
    "status": "status",
    "ending": "ending",
    "reservation": "reservation",
    "resources": "complex",
    "hosts": "json_extract_string(placed, '$[*].name')",
    "submitted_at": _instant("submit"),
    "eligible_at": _instant("eligible"),
    "started_at": _instant("start"),
    "ended_at": _instant("end"),
    "wait_s": 'CASE WHEN submit <= "start" THEN "start" - submit END',
    "wall_s": f"wall_ms {_MS}",
    "cores": "slots",
    "core_s": f"CAST(slots AS HUGEINT) * wall_ms {_MS}",
    "gpus": "gpus",
    "cpu_s": f"{_unless(1, 'cpu_ms')} {_MS}",
    "cpu_user_s": f"{_unless(1, 'user_ms')} {_MS}",
    "cpu_system_s": f"{_unless(1, 'system_ms')} {_MS}",
    "memory_max_kib": _unless(2, "memory_kib"),
    "virtual_max_kib": _unless(4, "virtual_kib"),
    "memory_asked_kib": "memory_asked_kib",
    "stage_in_bytes": _unless(8, "stage_in_bytes"),
    "stage_out_bytes": _unless(8, "stage_out_bytes"),
}
"""The columns of the table `runs`, as SQL of `entries`."""
_DECIMALS: Final = {name: f"TRY_CAST({text} AS DECIMAL(38, 3))" for name, text in RUNS.items() if text.endswith(_MS)}
_NODES: Final = {
    "cluster": pa.string(), "name": pa.string(), "type": pa.string(), "cores": pa.int64(), "memory_gib": pa.int64(),
    "gpus": pa.int64(), "since": pa.int64(), "until": pa.int64(),
}  # fmt: skip
_DELIVERIES: Final = {
    "run_id": pa.int64(), "target": pa.string(), "state": pa.string(), "reason": pa.string(),
    "revision": pa.int64(), "changed": pa.int64(), "confirmed": pa.int64(),
}  # fmt: skip
NODES: Final = {
    **{name: f'"{name}"' for name in ("cluster", "name", "type", "cores", "memory_gib", "gpus")},
    "in_service_since": _instant("since"),
    "in_service_until": _instant("until"),
}
"""The columns of the table `nodes`: a row for each node of the configuration."""
DELIVERIES: Final = {
    **{name: f'"{name}"' for name in ("run_id", "target", "state", "reason", "revision")},
    "changed_at": _instant("changed"),
    "confirmed_at": _instant("confirmed"),
}
"""The columns of the table `deliveries`: a row for each run and target that selects it."""
TABLES: Final = {"runs": RUNS, "nodes": NODES, "deliveries": DELIVERIES}


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    read = tables_read(request.statement, TABLES)
    everything = msgspec.structs.replace(request, start=FIRST_INSTANT, stop=LIMIT_INSTANT - 1)
    if "deliveries" in read and request.archive is not None:
        raise UsageError("an archive has no deliveries", hint="Omit --archive, or select from runs and nodes")
    with _connected(context, everything, read) as connection:
        columns, rows = answered(connection, request.statement)
    more = len(rows) > _MOST_ROWS
    note = f"Only the first {_MOST_ROWS:,} rows are shown: select fewer, or let SQL sum them up."
    return Report(
        view=SQL.name,
        title="SQL",
        site=context.config.site.name,
        start=FIRST_INSTANT,
        stop=context.now,
        columns=columns,
        rows=tuple(rows[:_MOST_ROWS]),
        notes=(note,) if more else (),
        nothing=None if rows else "the statement has no rows",
        sql=f"{request.statement};\n",
    )


@contextmanager
def _connected(context: ReportContext, request: ReportRequest, read: set[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the tables that a statement reads."""
    columns = (*COLUMNS, RUN_ID) if "runs" in read else (RUN_ID, "end")
    start = None if "runs" in read else LIMIT_INSTANT  # without them, no run is needed
    with context.tables(request, columns=columns, start=start) as connection:
        if "runs" in read:
            own = {**RUNS, **_DECIMALS}
            connection.execute(f"CREATE VIEW runs AS SELECT {_selected(own)} FROM entries")  # noqa: S608 - ours
        if "nodes" in read:
            _fill(connection, "nodes", _NODES, _nodes(context), NODES)
        if "deliveries" in read:
            _fill(connection, "deliveries", _DELIVERIES, _deliveries(context), DELIVERIES)
        yield connection


def _selected(columns: dict[str, str]) -> str:
    return ", ".join(f'{text} AS "{name}"' for name, text in columns.items())


def _fill(
    connection: duckdb.DuckDBPyConnection, table: str, types: dict[str, Any], rows: Iterator[tuple[Any, ...]],
    columns: dict[str, str],
) -> None:  # fmt: skip
    """Make a table of rows, some at a time."""
    fields = pa.schema(list(types.items()))

    def batches() -> Iterator[Any]:
        page: list[tuple[Any, ...]] = []
        for row in rows:
            page.append(row)
            if len(page) == _PAGE:
                yield pa.record_batch([list(column) for column in zip(*page, strict=True)], schema=fields)
                page = []
        if page:
            yield pa.record_batch([list(column) for column in zip(*page, strict=True)], schema=fields)

    reader: Any = pa.RecordBatchReader
    connection.register("filled", reader.from_batches(fields, batches()))
    connection.execute(f"CREATE TABLE {table} AS SELECT {_selected(columns)} FROM filled")  # noqa: S608 - ours
    connection.unregister("filled")


def _nodes(context: ReportContext) -> Iterator[tuple[Any, ...]]:
    for node in context.config.nodes:
        for name in node.names:
            times = (_seconds(node.since), _seconds(node.until))
            yield node.cluster, name, node.type, node.cores, node.memory_gib, node.gpus, *times


def _seconds(at: datetime | int | None) -> int | None:
    return int(at.timestamp()) if isinstance(at, datetime) else at


def _deliveries(context: ReportContext) -> Iterator[tuple[Any, ...]]:
    own, targets = schema.deliveries.c, schema.targets.c
    query = select(
        own.run_id, targets.name, own.state, own.reason, own.revision, own.changed_at, own.confirmed_at
    ).join(schema.targets, targets.id == own.target_id)
    with context.store.read() as connection, closing(dialect.streamed(connection, query, _PAGE)) as pages:
        for run_id, target, state, *rest in chain.from_iterable(pages):
            yield run_id, target, schema.State(state).name.lower(), *rest


def answered(
    connection: duckdb.DuckDBPyConnection, statement: str, limit_s: float = _LIMIT_S
) -> tuple[tuple[Column, ...], list[tuple[Cell, ...]]]:
    """The columns and rows of a statement. Raises `UsageError` if DuckDB refuses it, or if it takes too long.

    Meanwhile the memory of the whole process is limited.
    """
    limit = Timer(limit_s, connection.interrupt)
    limit.daemon = True
    limit.start()
    try:
        with more_memory_at_most(_MORE_MEMORY):
            return _answered(connection, statement)
    except duckdb.InterruptException:
        raise UsageError(
            f"the statement took longer than {limit_s:g} seconds", hint="Select fewer jobs, or fewer columns"
        ) from None
    except (duckdb.Error, MemoryError) as error:
        raise UsageError(
            f"the statement cannot be run: {(str(error) or 'it takes too much memory').splitlines()[0]}",
            hint="The documentation of reports lists the tables and their columns, and the limits",
        ) from None
    finally:
        limit.cancel()


def _answered(
    connection: duckdb.DuckDBPyConnection, statement: str
) -> tuple[tuple[Column, ...], list[tuple[Cell, ...]]]:
    found = connection.execute(statement)
    described = [(str(name), str(kind)) for name, kind, *_ in found.description or ()]
    if zoned := [name for name, kind in described if "WITH TIME ZONE" in kind]:
        raise UsageError(f"{zoned[0]} has a time zone", hint="All times are UTC: cast it, CAST(... AS TIMESTAMP)")
    kinds = [(name, _kind(kind)) for name, kind in described]
    fetched = found.fetchmany(_MOST_ROWS + 1)
    names: dict[str, int] = {}
    columns = []
    for name, kind in kinds:
        names[name] = names.get(name, 0) + 1
        columns.append(Column(name if names[name] == 1 else f"{name}_{names[name]}", kind))
    rows = [tuple(map(_cell, row, (kind for _, kind in kinds))) for row in fetched]
    return tuple(columns), rows


@contextmanager
def more_memory_at_most(more_bytes: int) -> Iterator[None]:
    """Limit what this process may take beyond what it has; where the system does not tell, nothing is limited."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        yield
        return
    most = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most if soft == resource.RLIM_INFINITY else min(soft, most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _kind(type_name: str) -> Kind:
    if type_name.startswith(("TIMESTAMP", "DATETIME")):
        return "instant"
    if type_name in {"DOUBLE", "FLOAT"} or type_name.startswith("DECIMAL"):
        return "number"
    return "count" if type_name.endswith(("INT", "INTEGER", "BIGINT")) else "text"


def _cell(value: Any, kind: Kind) -> Cell:
    """A value of DuckDB as a cell: instants as epoch seconds, lists and structures as JSON."""
    if kind == "instant" and isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, Decimal) and kind == "number":
        number = float(value)
        return number if Decimal(repr(number)) == value else value  # a text in JSON, rather than another number
    if value is None or isinstance(value, str) or (kind != "text" and isinstance(value, int | float | Decimal)):
        return value
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple | dict | bool):
        return json.dumps(value, default=str, ensure_ascii=False)
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, date) else str(value)
