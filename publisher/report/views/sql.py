"""View `sql`: one SELECT of a person over the tables `runs`, `nodes`, and `deliveries`.

The tables are documented and stay as they are: names with units, NULL where nothing is known. A statement that is
anything else than one SELECT of them is refused (`publisher.report.one_select`), and memory, temporary space, time,
and rows are bounded. It runs in a child process, which is killed when its time is over.
"""

from __future__ import annotations

import json
import math
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
from sqlalchemy import select

from publisher.errors import UsageError
from publisher.report.archive import COLUMNS
from publisher.report.column_files import RUN_ID
from publisher.report.forked_child import forked, start_limit
from publisher.report.one_select import tables_read
from publisher.report.report import Cell, Column, Kind, Report
from publisher.report.request import FIRST_INSTANT, LIMIT_INSTANT, ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EACH_JOB_MB, EntryReading, OpenTables, fill
from publisher.report.temporary_files import is_of_disk, temporary_folder, writing_to
from publisher.report.view_kind import SQL
from publisher.store import dialect, schema
from publisher.subprocess_worker import EndedError, Send
from publisher.text import numbered

_LIMIT_S: Final = 60.0
_MORE_MEMORY: Final = 512 << 20
"""How much a statement may take beyond what the process has: a function can make a text of any length in a row."""
_MOST_ROWS: Final = 100_000
_PAGE: Final = 50_000
_ROWS: Final = 1_000
"""The rows that a child sends at a time."""
_Sent = str | int | float | list[str] | None
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
_NODES: Final = pa.schema({
    "cluster": pa.string(), "name": pa.string(), "type": pa.string(), "cores": pa.int64(), "memory_gib": pa.int64(),
    "gpus": pa.int64(), "since": pa.int64(), "until": pa.int64(),
})  # fmt: skip
_DELIVERIES: Final = pa.schema({
    "run_id": pa.int64(), "target": pa.string(), "state": pa.string(), "reason": pa.string(),
    "revision": pa.int64(), "changed": pa.int64(), "confirmed": pa.int64(),
})  # fmt: skip
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
    read = _tables_read(request.statement, context.stopping)
    everything = msgspec.structs.replace(request, start=FIRST_INSTANT, stop=LIMIT_INSTANT - 1)
    if "deliveries" in read and request.archive is not None:
        raise UsageError("an archive has no deliveries", hint="Omit --archive, or select from runs and nodes")
    with _opened(context, everything, read) as opened:
        columns, rows = answer_of_child(opened, request.statement, stopping=context.stopping)
    more = len(rows) > _MOST_ROWS
    note = f"Only the first {_MOST_ROWS:,} rows are shown: select fewer, or let SQL sum them up."
    return context.report(
        SQL,
        request,
        start=FIRST_INSTANT,
        stop=context.now,
        columns=columns,
        rows=tuple(rows[:_MOST_ROWS]),
        notes=(note,) if more else (),
        nothing=None if rows else "the statement has no rows",
        sql=f"{request.statement};\n",
    )


def _tables_read(statement: str, stopping: Callable[[], bool]) -> set[str]:
    """As `tables_read`, in a child process: the parser is DuckDB's."""

    def work(send: Send) -> None:
        start_limit(_LIMIT_S)
        send([*tables_read(statement, TABLES)])

    with _explained(_LIMIT_S), forked(work, msgspec.msgpack.Decoder(list[str]), stopping) as names:
        return set(*names)


@contextmanager
def _opened(context: ReportContext, request: ReportRequest, read: set[str]) -> Iterator[OpenTables]:
    """Opens the tables that a statement reads. Folders are made and removed here, because the child may be killed."""
    columns = (*COLUMNS, RUN_ID) if "runs" in read else (RUN_ID, "end")
    start = None if "runs" in read else LIMIT_INSTANT  # without them, no run is needed
    with temporary_folder() as private:
        deliveries = Path(private, "deliveries.arrow")
        if "deliveries" in read:
            with writing_to(private):
                _write(deliveries, _DELIVERIES, _deliveries(context))
        reading = EntryReading(columns, start, buffers_mb=EACH_JOB_MB, temporary=private)
        with context.opened_later(request, reading) as opened:
            yield partial(_connected, opened, read, context, deliveries)


@contextmanager
def _connected(
    opened: OpenTables, read: set[str], context: ReportContext, deliveries: Path
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the tables that a statement reads."""
    with opened() as connection:
        if "runs" in read:
            own = {**RUNS, **_DECIMALS}
            connection.execute(f"CREATE VIEW runs AS SELECT {_selected(own)} FROM entries")  # noqa: S608 - ours
        if "nodes" in read:
            rows = pa.RecordBatchReader.from_batches(_NODES, _batches(_NODES, _nodes(context)))
            fill(connection, "nodes", rows, columns=_selected(NODES))
        if "deliveries" in read:
            with pa.OSFile(str(deliveries)) as file, pa.ipc.open_stream(file) as reader:
                fill(connection, "deliveries", reader, columns=_selected(DELIVERIES))
        yield connection


def _selected(columns: dict[str, str]) -> str:
    return ", ".join(f'{text} AS "{name}"' for name, text in columns.items())


def _batches(fields: Any, rows: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
    """Rows as batches of Arrow."""
    while page := [*islice(rows, _PAGE)]:
        yield pa.record_batch([list(column) for column in zip(*page, strict=True)], schema=fields)


def _write(file: Path, fields: Any, rows: Iterator[tuple[Any, ...]]) -> None:
    """Write rows as a stream of Arrow, some at a time."""
    with file.open("wb") as sink, pa.ipc.new_stream(sink, fields) as stream:
        for batch in _batches(fields, rows):
            stream.write_batch(batch)


def _nodes(context: ReportContext) -> Iterator[tuple[Any, ...]]:
    for node in context.config.nodes:
        for name in node.names:
            yield node.cluster, name, node.type, node.cores, node.memory_gib, node.gpus, node.since, node.until


def _deliveries(context: ReportContext) -> Iterator[tuple[Any, ...]]:
    own, targets = schema.deliveries.c, schema.targets.c
    query = select(
        own.run_id, targets.name, own.state, own.reason, own.revision, own.changed_at, own.confirmed_at
    ).join(schema.targets, targets.id == own.target_id)
    with context.store.read() as connection, closing(dialect.streamed(connection, query, _PAGE)) as pages:
        for run_id, target, state, *rest in chain.from_iterable(pages):
            yield run_id, target, schema.State(state).name.lower(), *rest


class _Answer(msgspec.Struct, array_like=True):
    """What a child sends: the columns first, then rows, some at a time."""

    columns: tuple[Column, ...] = ()
    rows: list[list[_Sent]] = []


def answer_of_child(
    opened: OpenTables, statement: str, limit_s: float = _LIMIT_S, stopping: Callable[[], bool] = lambda: False
) -> tuple[tuple[Column, ...], list[tuple[Cell, ...]]]:
    """The columns and rows of a statement, which a child process runs over the tables that it opens.

    Raises `UsageError` if DuckDB refuses it, or if it takes too long: then the child is killed, whatever it does.
    """

    def work(send: Send) -> None:
        with opened() as connection:
            start_limit(limit_s)
            answered(connection, statement, send)

    columns: tuple[Column, ...] = ()
    rows: list[tuple[Cell, ...]] = []
    with _explained(limit_s), forked(work, msgspec.msgpack.Decoder(_Answer), stopping) as parts:
        for part in parts:
            columns = columns or part.columns
            rows += (tuple(map(_received, row)) for row in part.rows)
    return columns, rows


@contextmanager
def _explained(limit_s: float) -> Iterator[None]:
    """Raise `UsageError` for a child that died."""
    try:
        yield
    except EndedError as error:
        if error.code == -signal.SIGALRM:
            problem = f"the statement took longer than {limit_s:g} seconds"
        else:
            problem = f"the statement ended its process: {error}"
        raise UsageError(problem, hint="Select fewer jobs, or fewer columns") from None


def _sent(cell: Cell) -> _Sent:
    """A cell as MessagePack has it: other numbers as their kind and text."""
    if isinstance(cell, Decimal) or (isinstance(cell, int) and not -(1 << 63) <= cell < 1 << 63):
        return [type(cell).__name__, str(cell)]
    return cell


def _received(cell: _Sent) -> Cell:
    if not isinstance(cell, list):
        return cell
    kind, text = cell
    return Decimal(text) if kind == Decimal.__name__ else int(text)


def answered(connection: duckdb.DuckDBPyConnection, statement: str, give: Callable[[_Answer], object]) -> None:
    """Give the columns and rows of a statement, some at a time. Raises `UsageError` if DuckDB refuses it, and
    what DuckDB raises where it has no room on disk.

    Meanwhile the memory of the whole process is limited.
    """
    try:
        with more_memory_at_most(_MORE_MEMORY):
            _answer(connection, statement, give)
    except (duckdb.Error, MemoryError) as error:
        if isinstance(error, duckdb.Error) and is_of_disk(error):
            raise  # `spilling` says where room is needed
        hint = "The documentation of reports lists the tables and their columns, and the limits"
        if isinstance(error, duckdb.OutOfMemoryException | MemoryError):
            hint = "Select fewer jobs, or fewer columns"
        problem = (str(error) or "it takes too much memory").splitlines()[0]
        raise UsageError(f"the statement cannot be run: {problem}", hint=hint) from None


def _answer(connection: duckdb.DuckDBPyConnection, statement: str, give: Callable[[_Answer], object]) -> None:
    relation = connection.execute(statement)
    described = [(str(name), str(kind)) for name, kind, *_ in relation.description or ()]
    if zoned := [name for name, kind in described if "WITH TIME ZONE" in kind]:
        raise UsageError(f"{zoned[0]} has a time zone", hint="All times are UTC: cast it, CAST(... AS TIMESTAMP)")
    kinds = [_kind(kind) for _, kind in described]
    names = numbered([name for name, _ in described])
    columns = tuple(
        Column(name, kind, tells_apart=kind in {"text", "instant"}, of_sql=True)
        for name, kind in zip(names, kinds, strict=True)
    )
    give(_Answer(columns=columns))
    left = _MOST_ROWS + 1
    while left and (page := relation.fetchmany(min(left, _ROWS))):
        left -= len(page)
        give(_Answer(rows=[[_sent(_cell(*pair)) for pair in zip(row, kinds, strict=True)] for row in page]))


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
    if type_name.endswith("]"):
        return "text"
    if type_name.startswith(("TIMESTAMP", "DATETIME")):
        return "instant"
    if type_name in {"DOUBLE", "FLOAT"} or type_name.startswith("DECIMAL"):
        return "number"
    return "count" if type_name.endswith(("INT", "INTEGER", "BIGINT")) else "text"


_INFINITE: Final = {datetime.max: "Infinity", datetime.min: "-Infinity"}  # noqa: DTZ901 - as DuckDB gives them


def _cell(value: Any, kind: Kind) -> Cell:
    """A value of DuckDB as a cell: instants as epoch seconds, lists and structures as JSON, infinity as text."""
    if kind == "instant" and isinstance(value, datetime):
        infinite = _INFINITE.get(value)
        return infinite or int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, Decimal) and kind == "number":
        number = float(value)
        return number if Decimal(repr(number)) == value else value  # a text in JSON, rather than another number
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if value is None or isinstance(value, str) or (kind != "text" and isinstance(value, int | float | Decimal)):
        return value
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple | dict | bool):
        return json.dumps(_plain(value), default=str, ensure_ascii=False)
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, date) else str(value)


def _plain(value: Any) -> Any:
    """A value as JSON can have it: no number there is `NaN`, `Infinity`, or `-Infinity`, and keys are texts."""
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _text(key): _plain(member) for key, member in value.items()}
    return json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value
