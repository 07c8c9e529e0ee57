"""Read files of what a service has: CSV or JSON, from a portal, a sync test, or an administrator's query.

Each row is a group of jobs (month, number of jobs, times, and other fields) or, if it has a record id or APEL's
LocalJobId, one record. A row with the columns of APEL's `VSyncRecords` and no other is a sync count: that table repeats
what the site itself claimed, and says nothing of its jobs. In
the names of columns, case, blanks, and punctuation are ignored. Unknown columns are named in a note and not used. CSV
is read row by row; JSON as a whole, up to `MOST_JSON_BYTES`. Numbers and times are decimal ASCII digits within bounds,
and fields and lines have a maximum length: anything else is an error that names the row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final, TextIO, get_args

import msgspec

from formats.base import Format
from formats.calendar import Month
from formats.columns import Value, comparable, local_key
from formats.score import read_score
from publisher.errors import UsageError
from publisher.reconcile.evidence import EvidenceDatabase, EvidenceGroup, EvidenceRecord, EvidenceSums, GroupKind

MOST_JSON_BYTES: Final = 256 * 2**20
_MOST_FIELD_CHARACTERS: Final = 1 << 20
_MOST_LINE_CHARACTERS: Final = 8 << 20
_HOUR_S: Final = 3600.0

_TEXTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("site", "sitename", "executingsite", "resourcecentre", "resourcecenter"), "site"),
    **dict.fromkeys(("submithost", "ce", "ceid", "computingelement"), "submit_host"),
    **dict.fromkeys(("vo", "voname", "virtualorganisation", "virtualorganization"), "vo"),
    "vogroup": "vo_group",
    "vorole": "vo_role",
    **dict.fromkeys(("globalusername", "userdn", "dn", "user"), "user"),
    **dict.fromkeys(("infrastructuretype", "infrastructure"), "infrastructure"),
    **dict.fromkeys(("serviceleveltype", "benchmark"), "benchmark"),
}
"""Fields of groups and records."""
_RECORD_TEXTS: Final[Mapping[str, str]] = {
    "machinename": "machine",
    "queue": "queue",
    **dict.fromkeys(("localuserid", "localuser"), "local_user"),
    "infrastructuredescription": "description",
    **dict.fromkeys(("projectname", "project"), "project"),
}
"""Fields of records alone."""
_COUNTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("nodecount", "nodes"), "nodes"),
    **dict.fromkeys(("processors", "cores"), "processors"),
}
_RECORD_COUNTS: Final[Mapping[str, str]] = {"memoryreal": "memory_kib", "memoryvirtual": "memory_virtual_kib"}
_SCORE: Final = frozenset({"servicelevel", "score"})
_START: Final = frozenset({"starttime", "start"})
_JOBS: Final = frozenset({"numberofjobs", "njobs", "jobs", "numjobs", "jobcount"})
_SYNC_JOBS: Final = frozenset({"syncjobs", "jobsbysync", "sitejobs"})
_WALL: Final[Mapping[str, float]] = {
    **dict.fromkeys(("wallduration", "wall", "walls", "wallseconds"), 1.0),
    **dict.fromkeys(("wallhours", "wallh", "wallclockhours", "walldurationhours"), _HOUR_S),
}
_CPU: Final[Mapping[str, float]] = {
    **dict.fromkeys(("cpuduration", "cpu", "cpus", "cpuseconds"), 1.0),
    **dict.fromkeys(("cpuhours", "cpuh", "cpudurationhours"), _HOUR_S),
}
_NORMALISED_WALL: Final[Mapping[str, float]] = {"normalisedwallduration": 1.0}
_NORMALISED_CPU: Final[Mapping[str, float]] = {"normalisedcpuduration": 1.0}
_DURATIONS: Final = (_WALL, _CPU, _NORMALISED_WALL, _NORMALISED_CPU)
_ENDS: Final = {"earliest": frozenset({"earliestendtime"}), "latest": frozenset({"latestendtime"})}
_RECORD_ID: Final = frozenset({"recordid", "recordidentity"})
_END: Final = frozenset({"endtime", "end"})
_MONTH, _YEAR, _LOCAL_ID = "month", "year", "localjobid"
_SYNC_TABLE: Final = frozenset({"site", "submithost", "numberofjobs", _MONTH, _YEAR})
"""The columns of APEL's `VSyncRecords`, without `UpdateTime`."""
_KNOWN: Final = (
    frozenset({
        _MONTH, _YEAR, _LOCAL_ID, *_TEXTS, *_RECORD_TEXTS, *_COUNTS, *_RECORD_COUNTS, *_WALL, *_CPU, *_NORMALISED_WALL,
        *_NORMALISED_CPU,
    })
    | _SCORE | _START | frozenset().union(*_ENDS.values()) | _JOBS | _SYNC_JOBS | _RECORD_ID | _END
)  # fmt: skip
_NOT_COMPARED: Final = frozenset(
    {"updatetime", "fqan", "submithosttype", "endyear", "endmonth", "createtime", "globaljobid"}
)
"""The other columns of APEL's tables, and of SGAS' records: none, or nothing that the others do not have."""

_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_YEAR_MONTH: Final = re.compile(r"(\d{4})[-/ .]?(\d{1,2})(?:[-/ .]01)?")
_NUMBER: Final = re.compile(r"[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][-+]?[0-9]{1,2})?")
_INSTANT: Final = re.compile(r"[0-9]{1,11}")
_INSTANTS: Final = range(253_402_300_800)
"""From 1970 to the end of the year 9999."""
# Groups of three digits only: `1,5` of a portal with decimal commas must be an error, not fifteen.
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_SYNC_NOTE: Final = (
    "its rows have the columns of VSyncRecords and no other: they are compared with the sync counts. They repeat what "
    "was claimed, and confirm no job"
)
_COLUMNS: Final = "Columns are record_id, or month and jobs with site, submit_host, vo, wall_s, cpu_s"
_NOT_IN_NAME: Final = re.compile(r"[^a-z0-9]")


class EvidenceFile(msgspec.Struct, frozen=True):
    """Content of a file: groups, and the number of records, which are in the temporary database."""

    groups: list[EvidenceGroup]
    records: int
    notes: list[str]

    @property
    def months(self) -> list[Month]:
        """The months of the groups, in order."""
        return sorted({group.month for group in self.groups})


def read_files(
    paths: Sequence[Path], target: str, form: Format, sites: Collection[str], database: EvidenceDatabase
) -> EvidenceFile:
    """Read the files about a target as one. Of several records with one key the last counts.

    Raises `UsageError` as `read_file`, and for files whose groups would be counted twice, or have other columns than
    those of another file.
    """
    groups_by_path: dict[Path, list[EvidenceGroup]] = {}
    records, notes = 0, list[str]()
    for path in paths:
        evidence_file = read_file(path, target, form, sites, database)
        for earlier, others in groups_by_path.items():
            _require_different(earlier, others, path, evidence_file.groups)
        groups_by_path[path] = evidence_file.groups
        records += evidence_file.records
        notes += evidence_file.notes if len(paths) == 1 else [f"{path}: {note}" for note in evidence_file.notes]
    every = [group for found_groups in groups_by_path.values() for group in found_groups]
    if records and any(group.kind == "jobs" for group in every):
        raise UsageError(
            f"the evidence of {target} has both records and groups of jobs", hint="Give the one or the other"
        )
    return EvidenceFile(every, records, notes)


def _require_different(
    earlier: Path, others: Sequence[EvidenceGroup], path: Path, found: Sequence[EvidenceGroup]
) -> None:
    """Raise `UsageError` if groups of both files cannot be added up: the same jobs would count twice."""
    for kind in get_args(GroupKind):
        columns = [{frozenset(one.fields) for one in each if one.kind == kind} for each in (others, found)]
        if all(columns) and columns[0] != columns[1]:
            raise UsageError(
                f"{earlier} and {path} have groups with different columns",
                hint="Give the one or the other, or both with the same columns",
            )
    known = {(other.kind, other.month, *sorted(other.fields.items())) for other in others}
    for one in found:
        if (one.kind, one.month, *sorted(one.fields.items())) in known:
            raise UsageError(
                f"{earlier} and {path} have the same group of {one.month}: its jobs would count twice",
                hint="Give it in one file, or add the column that distinguishes the groups, such as submit_host",
            )


def read_file(
    path: Path, target: str, form: Format, sites: Collection[str], database: EvidenceDatabase
) -> EvidenceFile:
    """Read a file about a target that is sent this format. Rows of other sites than these (folded) are left out.

    Raises `UsageError` naming file, row and column for what cannot be read.
    """
    try:
        with path.open("rb") as stream:
            beginning = stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
        if beginning[:1] in {b"{", b"["}:
            return _FileReader(path, target, sites, database).read(_json_rows(path, form))
        with path.open(encoding="utf-8-sig", newline="") as text:
            return _FileReader(path, target, sites, database).read(_csv_rows(path, text))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8", hint="Save it as CSV in UTF-8, or as JSON") from error


Row = Mapping[str, Any]


def _csv_rows(path: Path, text: TextIO) -> Iterator[tuple[str, Row]]:
    lines = _lines(path, text)
    head = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    delimiter = max(",;\t", key=head.count)
    number = 0
    try:
        (names,) = _split([head], delimiter) if head else ([],)
        for number, row in enumerate(_split(lines, delimiter), 1):
            if any(row[len(names) :]):
                raise UsageError(
                    f"{path}, row {number}: {len(row)} columns, and the header has {len(names)}",
                    hint="Put quotes around values with the separator in them",
                )
            if any(row):
                yield f"row {number}", dict(zip(names, row, strict=False))
    except csv.Error as error:
        raise UsageError(f"{path}, after row {number}: cannot be read as CSV: {error}") from error


def _split(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The rows of CSV. Raises `csv.Error`, for a field that is too long among others."""
    csv.field_size_limit(_MOST_FIELD_CHARACTERS)  # of the whole process, and others may have set it
    return csv.reader(lines, delimiter=delimiter, strict=True)


def _lines(path: Path, text: TextIO) -> Iterator[str]:
    """The lines of a file. Raises `UsageError` for one that is too long to be a row."""
    for number in count(1):
        line = text.readline(_MOST_LINE_CHARACTERS)
        if not line:
            return
        if len(line) >= _MOST_LINE_CHARACTERS:
            raise UsageError(f"{path}, line {number}: longer than {_MOST_LINE_CHARACTERS:,} characters")
        yield line


def _json_rows(path: Path, form: Format) -> Iterator[tuple[str, Row]]:
    if path.stat().st_size > MOST_JSON_BYTES:
        raise UsageError(f"{path} has more than {MOST_JSON_BYTES} bytes of JSON", hint="Give it as CSV")
    try:
        document = msgspec.json.decode(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    for number, row in enumerate(_listed(path, document, form), 1):
        if not isinstance(row, dict):
            raise UsageError(f"{path}, row {number}: not a JSON object")
        fields = row.get("fields")
        yield f"row {number}", fields if isinstance(fields, dict) else row


def _listed(path: Path, document: Any, form: Format) -> list[Any]:
    """The rows of a document: a list, a list under one of the usual names, or the holdings of the simulator."""
    if isinstance(document, list):
        return document
    if isinstance(document, dict):
        if isinstance(holdings := document.get(form.service.lower()), dict):
            return _holdings(holdings, form)
        for name in ("rows", "records", "groups", "summaries", "data"):
            if isinstance(document.get(name), list):
                return list(document[name])
    raise UsageError(f"{path} has no list of rows", hint="Give a list of objects, or an object with `rows`")


def _holdings(holdings: dict[str, Any], form: Format) -> list[Any]:
    """What a service of the simulator has, of the kind that a target is sent: of its tables, or its records by their
    ids."""
    if "record_ids" not in holdings:
        return [{"record_id": name} for name in holdings]
    if form.record_id is not None:
        rows: list[Any] = [{"record_id": name} for name in holdings["record_ids"]]
    elif form.shape == "record":
        rows = list(holdings.get("jobs", []))
    else:
        rows = [*holdings.get("summaries", []), *holdings.get("normalised", [])]
    return rows + [{"fields": _as_sync(row["fields"])} for row in holdings.get("sync", [])]


def _as_sync(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"syncJobs" if name == "NumberOfJobs" else name: value for name, value in fields.items()}


class _FileReader:
    """Reads the rows of one file."""

    def __init__(self, path: Path, target: str, sites: Collection[str], database: EvidenceDatabase) -> None:
        self._path = path
        self._target = target
        self._sites = sites
        self._database = database
        self._unused: dict[str, None] = {}
        self._elsewhere = 0
        self._records = 0
        self._groups: list[EvidenceGroup] = []
        self._names: dict[str, str] = {}
        self._has_sync_table = False

    def read(self, rows: Iterator[tuple[str, Row]]) -> EvidenceFile:
        self._database.add_records(self._target, self._evidence(rows))
        notes = [_SYNC_NOTE] if self._has_sync_table else []
        if self._unused:
            notes.append(f"unknown columns, not used: {', '.join(self._unused)}")
        if self._elsewhere:
            notes.append(f"{self._elsewhere} rows are of other sites")
        if not self._records and not self._groups:
            raise UsageError(f"{self._path} has no row about this site", hint=_COLUMNS)
        return EvidenceFile(self._groups, self._records, notes)

    def _evidence(self, rows: Iterator[tuple[str, Row]]) -> Iterator[EvidenceRecord]:
        for place, given in rows:
            row = self._row(place, given)
            if record_id := self._first(row, _RECORD_ID):
                self._records += 1
                yield self._record(place, row, str(record_id))
            elif (site := _site_of(row)) and str(comparable(site)) not in self._sites:
                self._elsewhere += 1
            elif self._is_job(row):
                self._records += 1
                yield self._job(place, row)
            else:
                self._groups += self._group(place, row)

    def _row(self, place: str, given: Row) -> dict[str, Any]:
        row = {}
        for name, value in given.items():
            if isinstance(value, list | dict):
                raise UsageError(f"{self._path}, {place}, {name[:40]}: neither text nor a number")
            if name not in self._names:
                self._names[name] = plain = _NOT_IN_NAME.sub("", name.lower())
                if plain not in _KNOWN | _NOT_COMPARED:
                    self._unused[name] = None
            row[self._names[name]] = value.strip() if isinstance(value, str) else value
        return row

    @staticmethod
    def _is_job(row: Row) -> bool:
        return _LOCAL_ID in row and not any(name in row for name in _JOBS)

    def _record(self, place: str, row: Row, record_id: str) -> EvidenceRecord:
        end = self._instant(place, "end", self._first(row, _END))
        (wall_s, _), (cpu_s, _) = self._duration(place, row, _WALL), self._duration(place, row, _CPU)
        return EvidenceRecord(record_id, end, wall_s, cpu_s, self._columns(place, row))

    def _job(self, place: str, row: Row) -> EvidenceRecord:
        """A row of APEL's job records, with its key at APEL."""
        record = self._record(place, row, "")
        local_id = str(row[_LOCAL_ID])
        key = local_key(_site_of(row), local_id, record.end)
        return msgspec.structs.replace(record, key=key, local_id=local_id)

    def _columns(self, place: str, row: Row) -> dict[str, Value]:
        """The other columns of a record, as they are; a number that the service does not have is a missing text."""
        columns: dict[str, Value] = {}
        for name, value in row.items():
            if (column := _TEXTS.get(name) or _RECORD_TEXTS.get(name)) is not None:
                columns[column] = "" if value is None else str(value)
            elif (column := _COUNTS.get(name) or _RECORD_COUNTS.get(name)) is not None:
                columns[column] = "" if _is_null(value) else self._whole(place, name, value)
            elif name in _START:
                start = None if _is_null(value) else self._instant(place, "start", value)
                columns["start"] = "" if start is None else start
        return columns | self._score(place, row)

    def _score(self, place: str, row: Row) -> dict[str, Value]:
        """The benchmark's score in thousandths, and its type where it is in the same text."""
        value = self._first(row, _SCORE)
        if value is None or _is_null(value):
            return {}
        if not str(value).startswith("{"):
            number, _ = self._number(place, "score", value)
            return {"score_milli": round(number * 1000)}
        score = read_score(str(value), None)
        if score is None:
            raise UsageError(f"{self._path}, {place}, score: {str(value)[:40]!r} is not a score")
        return {"benchmark": score[0], "score_milli": round(score[1] * 1000)}

    def _group(self, place: str, row: Row) -> Iterator[EvidenceGroup]:
        month = self._month(place, row)
        fields: dict[str, Value] = {}
        for name, value in row.items():
            if (dimension := _TEXTS.get(name)) is not None:
                fields[dimension] = comparable(None if value is None else str(value))
            elif (dimension := _COUNTS.get(name)) is not None and not _is_empty(value):
                fields[dimension] = self._whole(place, name, value)
        fields |= {name: comparable(value) for name, value in self._score(place, row).items()}
        jobs, by_sync = self._first(row, _JOBS), self._first(row, _SYNC_JOBS)
        if jobs is None and by_sync is None:
            raise UsageError(f"{self._path}, {place}: neither a record id nor a number of jobs", hint=_COLUMNS)
        if _SYNC_TABLE <= row.keys() <= _SYNC_TABLE | _NOT_COMPARED:
            self._has_sync_table, jobs, by_sync = True, None, jobs
        if jobs is not None:
            number = self._whole(place, "jobs", jobs)
            durations = [self._duration(place, row, units) for units in _DURATIONS]
            wall_s, cpu_s, normalised_wall_s, normalised_cpu_s = (seconds for seconds, _ in durations)
            ends = {name: self._instant(place, name, self._first(row, names)) for name, names in _ENDS.items()}
            sums = EvidenceSums(wall_s, cpu_s, normalised_wall_s, normalised_cpu_s, ends["earliest"], ends["latest"])
            within_s = max(1.0, *(within_s for _, within_s in durations))
            yield EvidenceGroup("jobs", month, fields, number, sums, within_s)
        if by_sync is not None:
            number = self._whole(place, "sync jobs", by_sync)
            of_sync = {name: value for name, value in fields.items() if name in {"site", "submit_host"}}
            yield EvidenceGroup("sync", month, of_sync, number)

    def _month(self, place: str, row: Row) -> Month:
        month, year = str(row.get(_MONTH) or ""), str(row.get(_YEAR) or "")
        whole = _YEAR_MONTH.fullmatch(month) if not year else None
        name = month[:3].lower()
        try:
            if whole is not None:
                parsed = Month(int(whole[1]), int(whole[2]))
            elif name in _NAMES:
                parsed = Month(int(year or month.rsplit(maxsplit=1)[-1]), _NAMES.index(name) + 1)
            else:
                parsed = Month(int(year), int(month))
        except ValueError:
            parsed = Month(0, 0)
        if not (1 <= parsed.month <= 12 and 1970 <= parsed.year <= 9999):
            raise UsageError(
                f"{self._path}, {place}: month {month!r} and year {year!r} are not a month", hint="Write it as 2026-11"
            )
        return parsed

    def _duration(self, place: str, row: Row, units: Mapping[str, float]) -> tuple[float | None, float]:
        """Seconds of a duration, and the rounding of its last digit in seconds."""
        for name, unit_s in units.items():
            if not _is_null(row.get(name)):
                if (score := read_score(str(row[name]), None)) is not None:
                    return score[1], 0.5  # `{HEPscore23: 100}`, a normalised duration of version 0.4
                value, last_digit = self._number(place, name, row[name])
                # Half of the last digit: hours with one decimal are right within 180 s, and a smaller tolerance would
                # show rounding as differences.
                return value * unit_s, unit_s * last_digit / 2
        return None, 0.0

    def _whole(self, place: str, name: str, value: Any) -> int:
        number, _ = self._number(place, name, value)
        if not number.is_integer():
            raise UsageError(f"{self._path}, {place}, {name}: {value!r} is not a whole number")
        return int(number)

    def _number(self, place: str, name: str, value: Any) -> tuple[float, float]:
        """A number, and the value of one unit of its last digit."""
        text = str(value).strip()
        if _THOUSANDS.fullmatch(text):
            text = text.replace(",", "")
        number = float(text) if _NUMBER.fullmatch(text) else -1.0
        if not 0 <= number < 1e18:
            raise UsageError(f"{self._path}, {place}, {name}: {text[:40]!r} is not a number, or is out of bounds")
        decimals = text.partition(".")[2]
        return number, 10.0 ** -len(decimals) if decimals.isdigit() else 1.0 if text.isdigit() else 0.0

    def _instant(self, place: str, field: str, value: Any) -> int | None:
        if _is_empty(value):
            return None
        text = str(value)
        try:
            if _INSTANT.fullmatch(text):
                end = int(text)
            else:
                instant = datetime.fromisoformat(text)
                end = int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError):
            end = -1
        if end not in _INSTANTS:
            raise UsageError(f"{self._path}, {place}, {field}: {text[:40]!r} is not a time", hint="Write ISO 8601")
        return end

    @staticmethod
    def _first(row: Row, names: frozenset[str]) -> Any:
        return next((row[name] for name in row if name in names and not _is_empty(row[name])), None)


def _site_of(row: Row) -> str:
    return str(next((row[name] for name in row if _TEXTS.get(name) == "site"), None) or "")


def _is_empty(value: Any) -> bool:
    return value is None or value == ""


def _is_null(value: Any) -> bool:
    """Whether there is no value; MariaDB writes NULL into its exports."""
    return _is_empty(value) or (isinstance(value, str) and value.lower() in {"null", "none", r"\n"})
