"""The runs that match a request as SQL: `matching` selects from the relation `entries` (`publisher.report.tables`).

Patterns are those of file names, and mean what they mean everywhere (`publisher.messages.entries.word_test`): Python
decides which of the distinct values match, and DuckDB joins them. So nobody's pattern is part of a statement.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, Generic, NamedTuple, TypeVar

import duckdb
import msgspec
import numpy as np
import pyarrow as pa

from formats.calendar import Month
from formats.utilization.measure import KEYS
from publisher.errors import UsageError
from publisher.job_ids import JobIds, JobPattern
from publisher.messages.entries import word_test
from publisher.report.archive import hosts_of
from publisher.report.calendar import periods, zone_of
from publisher.report.dask import PartialReport, gather
from publisher.report.integers import UNKNOWN, Ints
from publisher.report.met import Met
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading, arrow_batches, fill, tables_of_archive
from publisher.report.view_option import PERIODS, Interval, PeriodName

OF_JOB: Final = ("local_id", "name", "global_id", "array_id", "task", "cluster", "dqs_job_name")
"""The columns of `JobIds`, in its order."""
SHOWN_ID: Final = "coalesce(nullif(local_id, ''), nullif(name, ''), nullif(global_id, ''))"
"""`JobIds.shown`, or NULL."""
_NAMES: Final = ("local_id", "name", "global_id", "array_id", "dqs_job_name")
_TIMES: Final = frozenset({"start", "stop", "end"})
_JOINED: Final = frozenset({"complex", "reservation"})
"""Columns of words joined by commas: the resources of a run; the id of its reservation, and its name."""
_ROWS: Final = 16_384
"""The most runs of a batch."""
_PLACED: Final = "placed"
_MOST_PLACED_BYTES: Final = 8 << 20
"""Of the texts of the hosts of a batch: common runs have a tenth of it."""
_MOST_SHOWN: Final = 11
"""One more than a message shows, so that it says that there are more."""
FIRST_HOST: Final = (
    "coalesce(nullif(json_extract_string(placed, '$[0].name'), ''), json_extract_string(nullif(regexp_extract("
    "array_to_string(json_extract(placed, '$[*].name'), chr(1)), '\"[^\\x01]+\"'), ''), '$'))"
)
"""The first host of a run that has a name."""


def columns_of(request: ReportRequest, *own: str) -> frozenset[str]:
    """The columns of `entries` that a view needs: its own, those of the filters and keys, and the times."""
    keys = {key for key in (*request.filters, *request.by) if key in KEYS}
    columns = {"placed" if key == "host" else key for key in keys - {"job"}}
    return frozenset({*own, *columns, *_TIMES, *(OF_JOB if "job" in keys else ())})


class Matching:
    """The temporary views `inside` (the entries of the interval) and `matching` (those that match all patterns)."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, request: ReportRequest, interval: Interval,
        nameless: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """`nameless`: keys of which matching runs have no value."""
        for key in request.filters:
            if key not in KEYS:
                raise UsageError(f"jobs cannot be selected by {key!r}; choose one of: {', '.join(KEYS)}")
        self._connection = connection
        self._request = request
        self._made: list[str] = []
        self._met = Met()
        counted = request.interval or interval
        self._view("inside", f"SELECT * FROM entries WHERE {_inside(counted, request.start, request.stop)}")  # noqa: S608 - numbers
        asked = self._is_job(request.filters["job"]) if "job" in request.filters else ""
        conditions = [self._matches(key, text) for key, text in request.filters.items() if key != "job"]
        conditions += [f"{label} = ''" for label in map(_word, nameless)]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        self._view("matching", f"SELECT * FROM inside{asked}{where}")  # noqa: S608 - names of ours

    def text(self, *statements: str) -> str:
        """The SQL of a report: the views, and its statements."""
        return "".join(f"{statement};\n" for statement in (*self._made, *statements))

    def note(self, *lines: str) -> None:
        """Add statements, or lines that begin with `--`, to `text`."""
        self._made += lines

    def define(self, name: str, query: str) -> None:
        """Make a temporary view, which is part of `text`."""
        self._view(name, query)

    def tabulate(self, name: str, table: Any, comment: str) -> None:
        """Make a temporary table of one of Arrow. `comment`: what it is, for `text`."""
        fill(self._connection, name, table, temporary=True)
        self._made.append(f"-- {name}: {_comment(comment)}")

    def rows(self, statement: str, *, explained: bool = False) -> list[Any]:
        """The rows of a statement. `explained`: it becomes part of `text`."""
        rows = self._connection.execute(statement).fetchall()
        self._made += [statement] if explained else []
        return rows

    def count(self, left_out: str) -> int:
        """Count the matching runs by SQL; returns how many of them `left_out` is true of."""
        counts = f'count(*), count(*) FILTER ("stop" < "start"), count(*) FILTER ({left_out})'
        ((runs, backward, others),) = self.rows(f"SELECT {counts} FROM matching")  # noqa: S608 - names of ours
        self.note_counts(runs, backward)
        return int(others)

    def note_counts(self, runs: int, backward: int = 0, lacking: Mapping[int, int] = {}) -> None:
        """Count matching runs that SQL counted: see `Met`."""
        self._met.add(Met(runs, runs, backward, lacking=dict(lacking)))

    @property
    def filtered(self) -> bool:
        """Whether there may be runs in the interval that do not match."""
        return bool(self._request.filters)

    def batches(self, columns: Collection[str], runs: str = "matching") -> Iterator[RunBatch]:
        """The matching runs with these columns, which include the times, many at a time: see `met` for their counts.

        `runs`: the relation, as of `grouped`.
        """
        statement = f"SELECT {', '.join(map(_quoted, sorted(columns)))} FROM {runs}"  # noqa: S608 - names of ours
        self._made.append(statement)
        for batch in map(RunBatch, _cut(arrow_batches(self._connection, statement, {}, _ROWS))):
            self._met.count(batch.numbers("start"), batch.numbers("stop"))
            if "incomplete" in columns:
                self._met.count_lacking(batch.numbers("incomplete"))
            yield batch

    def grouped(self, key: str) -> tuple[list[str], str]:
        """The labels of the groups of a key, and the relation of the matching runs with the `group_number` of each."""
        column = "placed" if key == "host" else key
        words = f'SELECT DISTINCT "{column}" FROM matching'  # noqa: S608 - a name of ours
        labels = f'SELECT "{column}", {_word(key)} AS label FROM ({words})'  # noqa: S608 - as above
        number = "dense_rank() OVER (ORDER BY label) - 1 AS group_number"
        self._made.append(f"CREATE TEMP TABLE groups AS SELECT *, {number} FROM ({labels})")  # noqa: S608 - as above
        self._connection.execute(self._made[-1])
        groups = self.rows("SELECT DISTINCT label, group_number FROM groups ORDER BY group_number")
        same = f'matching."{column}" IS NOT DISTINCT FROM groups."{column}"'
        joined = f"(SELECT matching.*, group_number FROM matching JOIN groups ON {same})"  # noqa: S608 - as above
        return [label for label, _ in groups], joined

    def collected(self, name: str, columns: Mapping[str, str]) -> RowTable:
        """A new table, of columns with types, for rows that are collected while batches are read."""
        return RowTable(self._connection, name, columns)

    def met(self, ended: Callable[[], str]) -> Met:
        """The counts of the runs that were read, with the SQL that read them; if none matches, why. `ended` says from
        when to when the existing runs ended, as the end of a sentence."""
        met, met.sql = self._met, self.text()
        if not met.matched:
            met.runs = self.rows("SELECT count(*) FROM inside")[0][0]
            if not met.runs:
                met.ended = ended()
            else:
                met.there = {key: set(self._there(key)) for key in self._request.filters}
        return met

    def _view(self, name: str, query: str) -> None:
        self._made.append(f"CREATE TEMP VIEW {name} AS {query}")
        self._connection.execute(self._made[-1])

    def _matches(self, key: str, text: str) -> str:
        test, column = word_test(key, text), column_of(key)
        query = f"SELECT DISTINCT {column} AS value FROM inside WHERE {column} IS NOT NULL"  # noqa: S608 - names of ours
        self._tabulate_asked(key, ("value",), query, lambda value: any(map(test, words_of(key, value))), text)
        return f"{column} IN (SELECT value FROM asked_{key})"  # noqa: S608 - names of ours

    def _is_job(self, text: str) -> str:
        """The SQL of a join with the jobs that match: without a subquery for each, which DuckDB finds all jobs for."""
        asked = JobPattern(text)
        own = ", ".join(f'"{name}"' for name in OF_JOB)
        contains = " OR ".join(f'contains("{name}", $literal)' for name in _NAMES)
        query = f"SELECT DISTINCT {own} FROM inside WHERE {contains}"  # noqa: S608 - as above
        literal = asked.literal.encode("utf-8", "replace").decode()  # no run has what is not Unicode
        self._tabulate_asked("job", OF_JOB, query, lambda *ids: asked(job_ids(*ids)), text, literal=literal)
        same = " AND ".join(f'asked_job."{name}" IS NOT DISTINCT FROM inside."{name}"' for name in OF_JOB)
        return f" SEMI JOIN asked_job ON {same}"

    def _tabulate_asked(
        self, key: str, columns: Sequence[str], query: str, test: Callable[..., bool], text: str, **given: str
    ) -> None:
        """Make the table `asked_KEY` of the rows of texts that pass a test, of which there may be as many as jobs."""
        table = self.collected(f"asked_{key}", dict.fromkeys(columns, "VARCHAR"))
        for batch in arrow_batches(self._connection, query, given, _ROWS):
            texts = (batch.column(name).to_pylist() for name in columns)
            table.insert(batch.filter(pa.array(map(test, *texts), pa.bool_(), size=batch.num_rows)))
        self._made.append(f"-- asked_{key}: {'the jobs' if key == 'job' else 'the values'} that match {_comment(text)}")

    def _distinct(self, column: str, most: int | None = None) -> Iterator[str]:
        limit = "" if most is None else f" ORDER BY ALL LIMIT {most}"
        query = f"SELECT DISTINCT {column} AS value FROM inside WHERE {column} IS NOT NULL{limit}"  # noqa: S608 - as above
        for batch in arrow_batches(self._connection, query, {}, _ROWS):
            yield from batch.column("value").to_pylist()

    def _there(self, key: str) -> Iterator[str]:
        if key == "job":
            yield from self._distinct(SHOWN_ID, most=_MOST_SHOWN)
        else:
            # A value of several words may begin with the first of another: all are read where there are such.
            most = None if key in {"host", *_JOINED} else _MOST_SHOWN
            for value in self._distinct(column_of(key), most=most):
                yield from words_of(key, value)


class RowTable:
    """Rows that are collected while batches are read, as a table of DuckDB, which spills them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str]) -> None:
        """`columns`: types by name."""
        self.name = name
        self._columns = tuple(columns)
        self._cursor = connection.cursor()  # the connection itself is reading batches
        typed = ", ".join(f"{_quoted(column)} {kind}" for column, kind in columns.items())
        self._cursor.execute(f"CREATE TABLE {name} ({typed})")

    def add(self, *columns: Ints) -> None:
        """Add rows as columns of whole numbers; `UNKNOWN` becomes NULL."""
        self.insert(pa.table([pa.array(column, mask=column == UNKNOWN) for column in columns], self._columns))

    def insert(self, rows: Any) -> None:
        """Add rows of Arrow, which have the columns of the table in its order."""
        self._cursor.register("added", rows)
        self._cursor.execute(f"INSERT INTO {self.name} SELECT * FROM added")  # noqa: S608 - a name of ours
        self._cursor.unregister("added")

    def query(self, statement: str) -> list[Any]:
        """The rows of a statement over tables."""
        return self._cursor.execute(statement).fetchall()

    def batches(self, statement: str) -> Iterator[RunBatch]:
        """The rows of a statement over tables, many at a time."""
        return map(RunBatch, arrow_batches(self._cursor, statement, {}, _ROWS))


class Words(NamedTuple):
    """A column of words: for each run the place of its word in `words`. The word is empty where nothing is known."""

    codes: Ints
    words: list[str]


class RunBatch:
    """Some runs as columns."""

    def __init__(self, batch: Any) -> None:
        self.rows: int = batch.num_rows
        self._batch = batch

    def numbers(self, name: str, unknown: int = UNKNOWN) -> Ints:
        """A column of numbers; `unknown` where nothing is known."""
        column = self._batch.column(name)
        if column.null_count:
            column = column.fill_null(unknown)
        numbers: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return numbers

    def texts(self, name: str) -> list[str | None]:
        """A column of texts that hardly ever repeat."""
        texts: list[str | None] = self._batch.column(name).to_pylist()
        return texts

    def words(self, name: str) -> Words:
        """A column of words."""
        encoded = self._batch.column(name).dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return Words(codes, [text or "" for text in encoded.dictionary.to_pylist()])


_Part = TypeVar("_Part")
_Sum = TypeVar("_Sum", bound=PartialReport)


class Computed(NamedTuple, Generic[_Part]):
    """What was computed of some runs, and their counts."""

    made: _Part
    met: Met

    def add(self: Computed[_Sum], other: Computed[_Sum], /) -> None:
        """Add what was computed of other runs."""
        self.made.add(other.made)
        self.met.add(other.met)


def computed(
    context: ReportContext, request: ReportRequest, reading: EntryReading, interval: Interval,
    part: Callable[[Matching], _Part],
) -> Computed[_Part]:  # fmt: skip
    """The result of `part` for the runs that match a request; those outside of its interval are not looked at."""
    stop = request.stop if (request.interval or interval) == "ended" else None
    reading = msgspec.structs.replace(reading, start=request.start, stop=stop)
    with context.tables(request, reading) as connection:
        matching = Matching(connection, request, interval)
        return Computed(part(matching), matching.met(partial(context.existing, request)))


def known_keys(context: ReportContext, request: ReportRequest, keys: Sequence[str]) -> frozenset[str]:
    """Which of these keys any run has that matches a request and ended in its interval."""
    columns = columns_of(msgspec.structs.replace(request, by=tuple(keys)))
    named = (f"count(*) FILTER ({label} <> '')" for label in map(_word, keys))
    with context.tables(request, EntryReading(columns, request.start, request.stop)) as connection:
        (counts,) = Matching(connection, request, "ended").rows(f"SELECT {', '.join(named)} FROM matching")  # noqa: S608 - names of ours
    return frozenset(key for key, count in zip(keys, counts, strict=True) if count)


def summed(
    context: ReportContext, request: ReportRequest, reading: EntryReading, interval: Interval,
    part: Callable[[Matching], _Sum],
) -> Computed[_Sum]:  # fmt: skip
    """As `computed`, for sums: with a cluster, its workers compute the months, and the results are added.

    `part` is sent to the workers.
    """
    if request.dask is None:
        return computed(context, request, reading, interval, part)
    return gather(request, partial(_of_month, reading, interval, part))


def _of_month(
    reading: EntryReading, interval: Interval, part: Callable[[Matching], _Sum], request: ReportRequest,
    month: Month | None,
) -> Computed[_Sum]:  # fmt: skip
    """The result of `part` for a month of an archive."""
    assert request.archive is not None  # clusters read archives
    reading = msgspec.structs.replace(reading, start=request.start).selecting(request.filters)
    with tables_of_archive(request.archive, reading, only=month) as connection:
        matching = Matching(connection, request, interval)
        return Computed(part(matching), matching.met(lambda: ""))


def _cut(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches of runs, cut where the texts of their hosts are long: what is made of these takes ten times as much."""
    import pyarrow.compute as pc  # noqa: PLC0415 - it has no type hints

    compute: Any = pc
    for batch in batches:
        if _PLACED not in batch.schema.names:
            yield batch
            continue
        sizes = compute.binary_length(batch.column(_PLACED)).fill_null(0).to_numpy(zero_copy_only=False)
        parts = np.cumsum(sizes, dtype=np.int64) // _MOST_PLACED_BYTES
        cuts = np.flatnonzero(np.diff(parts)) + 1
        for begin, stop in pairwise([0, *cuts.tolist(), batch.num_rows]):
            yield batch.slice(begin, stop - begin)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _comment(text: str) -> str:
    return re.sub(r"[^ -~]", "?", text)


def _inside(counted: Interval, start: int, stop: int) -> str:
    # A run that ended before the interval belongs to none of its instants, whatever its other times say: its file may
    # not be read.
    ended = f' AND ("end" IS NULL OR "end" >= {start})'
    if counted == "overlapping":
        return f'"start" < {stop} AND ("stop" > {start} OR ("start" = "stop" AND "stop" >= {start})){ended}'
    at = '"start"' if counted == "started" else 'coalesce("end", "stop")'
    return f"{at} >= {start} AND {at} < {stop}{ended}"


def column_of(key: str) -> str:
    """The text of `entries` from which the words of a key are read."""
    if key == "host":
        return "placed"
    return 'CAST("slots" AS VARCHAR)' if key == "slots" else f'"{key}"'


def words_of(key: str, text: str) -> tuple[str, ...]:
    """The words of a key in a text of `column_of`."""
    if key == "host":
        return tuple(host.name for host in hosts_of(text) if host.name)
    return tuple(text.split(",") if key in _JOINED else [text]) if text else ()


def job_ids(
    local_id: str | None, name: str | None, global_id: str | None, array_id: str | None, task: str | None,
    cluster: str | None, dqs_job_name: str | None,
) -> JobIds:  # fmt: skip
    """The ids of a run with these values of `OF_JOB`."""
    return JobIds(local_id, name, global_id, array_id, None if task is None else int(task), cluster, dqs_job_name)


def key_label(request: ReportRequest, key: str, at: str | None = None) -> str:
    """The SQL of the label of a key: the word of a run, empty if it has none, or the name of a period.

    A run on several hosts counts under its first, one with several resources under all together, one in a reservation
    that has an id and a name under the id. `at`: the SQL of the instant that decides to which period a run belongs, by
    default its end, or its start if runs are counted that started.
    """
    if key not in PERIODS:
        return _word(key)
    ended = '"start"' if request.interval == "started" else 'coalesce("end", "stop")'
    return _period(request, key, at or ended)


def _word(key: str) -> str:
    if key == "host":
        return f"coalesce({FIRST_HOST}, '')"
    if key == "complex":
        return "coalesce(array_to_string(list_sort(list_distinct(string_split(complex, ','))), ','), '')"
    if key == "reservation":
        return "coalesce(split_part(reservation, ',', 1), '')"
    return f"coalesce({column_of(key)}, '')"


def _period(request: ReportRequest, kind: PeriodName, at: str) -> str:
    """The name of the period of an instant, which counts as the first or last of the interval if it is outside.

    The interval is divided into pieces so short that none has parts of more than two periods: SQL looks up the piece,
    and compares the instant with its bound. A search through all periods, as a nested CASE, took memory for each.
    """
    cut = periods(request.start, request.stop, kind, zone_of(request.timezone))
    begins = [period.start for period in cut[1:]]
    piece_s = min((after - begin for begin, after in pairwise(begins)), default=request.stop - request.start)
    pieces = range(request.start, request.stop, piece_s)
    first = [bisect_right(begins, begin) for begin in pieces]
    bounds = [begins[place] if place < len(begins) else request.stop for place in first]
    inside = f"least(greatest({at}, {request.start}), {request.stop - 1})"
    piece = f"[({inside} - {request.start}) // {piece_s} + 1]"
    names = [period.name for period in cut]
    return f"{names}[{[place + 1 for place in first]}{piece} + CAST({inside} >= {bounds}{piece} AS INTEGER)]"
