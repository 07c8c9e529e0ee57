"""SGAS LUTS with nginx before it, as measured (the facts on receivers, 1): one transaction for each POST, one answer
for each record.

Like the service it keeps the first version of a record under its recordId, unless the GlobalJobId shows that it is
another job. Everything is in memory. Which records are refused, with which answers, was measured with LUTS 3.8.1
(`sgas_rows`).

Queries: `query` with sums per machine, user and VO, `customquery/usage-publisher` as docs/reference/targets/sgas.conf
defines it, and `monitor` (facts on receivers, 1). Like LUTS, it answers 500 where LUTS writes its refusal as text
instead of bytes: a query or monitor request without the right, an unknown argument, a custom query that is not defined.

Hours of `query` are rounded as in the view of LUTS: those of each row to 0.01 h, before they are added. Here a row is a
record. The real service aggregates equal records into one row about 20 s after an insert, and this one at once.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from html import escape
from urllib.parse import parse_qs, unquote

import msgspec

from formats.check.sgas_times import duration_s, instant_s
from publisher.simulator.faults import Faults, with_faults
from publisher.simulator.server import Request, Response
from publisher.simulator.sgas_records import NotUsageRecordsError, read
from publisher.simulator.sgas_rows import (
    LONGEST_LOCAL_ID,
    DatabaseRefusedError,
    ProcessingFailedError,
    UsageRecord,
    usage_record,
)

CUSTOM_QUERY = "usage-publisher"
_ARGUMENTS = frozenset({"machine_name", "user_identity", "vo_name", "start_date", "end_date", "time_resolution"})
_CUSTOM_ARGUMENTS = frozenset({"machine_name", "start_date", "end_date"})
_RESOLUTIONS = frozenset({"collapse", "month", "day"})
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class QueryError(ValueError):
    """A query that SGAS refuses, with the status of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Usage(msgspec.Struct):
    """One line of the answer. `cpu_time` and `wall_time` are hours, wall multiplied by processors."""

    machine_name: str
    user_identity: str | None
    vo_name: str | None
    start_date: str
    end_date: str
    n_jobs: int = 0
    cpu_time: float = 0.0
    wall_time: float = 0.0


class Query(msgspec.Struct, frozen=True):
    """The arguments of a query; `end` is exclusive; empty sets mean all."""

    machines: frozenset[str]
    users: frozenset[str]
    vos: frozenset[str]
    start: date
    end: date
    resolution: str

    def matches(self, record: UsageRecord) -> bool:
        """Whether a record is of these machines, users, and VOs."""
        return (
            record.machine in self.machines
            and (not self.users or record.user in self.users)
            and (not self.vos or record.vo in self.vos)
        )


def answer_query(text: str, rights: frozenset[str], records: Iterable[UsageRecord]) -> Response:
    """The answer to `query?text`. Raises `QueryError`."""
    query = parse_query(text)
    if "query:all" not in rights:  # facts on receivers: LUTS 3.8.1 denies what `query:machine_name=` should allow
        raise QueryError(500, "Query not allowed for given context")
    return Response(200, msgspec.json.encode(usage(query, records)), "application/json")


def answer_custom_query(text: str, rights: frozenset[str], records: Iterable[UsageRecord]) -> Response:
    """The answer to `customquery/usage-publisher?text`: whole seconds by user, VO and day. Raises `QueryError`."""
    arguments = parse_qs(text, keep_blank_values=True, max_num_fields=1000)
    if arguments.keys() != _CUSTOM_ARGUMENTS:
        raise QueryError(500, "Query field not understood/allowed, or missing")
    machine = arguments["machine_name"][0]
    group = f"customquery:querygroup={CUSTOM_QUERY}"
    if not rights & {"customquery:all", f"customquery:query={CUSTOM_QUERY}", group, f"{group}/{machine}"}:
        raise QueryError(403, "CustomQuery not allowed for given context")
    query = parse_query(f"{text}&time_resolution=day")
    by_group: defaultdict[tuple[str, str | None, str | None], list[UsageRecord]] = defaultdict(list)
    for day, record in _matching(query, records):
        vo = None if record.vo is not None and record.vo.startswith("/") else record.vo
        by_group[day.isoformat(), record.user, vo].append(record)
    lines = [
        {
            "machine_name": machine, "start_date": day, "end_date": day, "user_identity": user, "vo_name": vo,
            "n_jobs": len(members), "cpu_s": sum(map(_cpu_s, members)), "wall_s": sum(map(_wall_s, members)),
        }
        for (day, user, vo), members in by_group.items()
    ]  # fmt: skip
    return Response(200, msgspec.json.encode(lines), "application/json")


def parse_query(text: str) -> Query:
    """The arguments of a query. Raises `QueryError`."""
    arguments = parse_qs(text, keep_blank_values=True, max_num_fields=1000)
    unknown = sorted(set(arguments) - _ARGUMENTS)
    if unknown:
        raise QueryError(500, f"Invalid query parameter: {', '.join(unknown)}")
    if "machine_name" not in arguments:
        raise QueryError(500, "machine_name must be given")
    resolution = arguments.get("time_resolution", ["collapse"])[-1]
    if resolution not in _RESOLUTIONS:
        raise QueryError(500, f"Invalid time resolution: {resolution}")
    return Query(
        machines=frozenset(arguments["machine_name"]),
        users=frozenset(arguments.get("user_identity", ())),
        vos=frozenset(arguments.get("vo_name", ())),
        start=_date(arguments, "start_date", date(2000, 1, 1)),
        end=_date(arguments, "end_date", datetime.now(UTC).date()),
        resolution=resolution,
    )


def usage(query: Query, records: Iterable[UsageRecord]) -> list[Usage]:
    """Sums by machine, user, VO and, if requested, month or day of the end of the jobs."""
    by_group: defaultdict[tuple[str, str, str, str], list[tuple[date, UsageRecord]]] = defaultdict(list)
    for day, record in _matching(query, records):
        part = {"collapse": "", "month": f"{day:%Y-%m}", "day": day.isoformat()}[query.resolution]
        by_group[record.machine, record.user or "", record.vo or "", part].append((day, record))
    return [_sum(members) for _, members in sorted(by_group.items())]


def _matching(query: Query, records: Iterable[UsageRecord]) -> Iterator[tuple[date, UsageRecord]]:
    """The records that a query selects, each with the day on which it counts."""
    for record in records:
        if query.matches(record):
            end = instant_s(record.end)
            day = datetime.fromtimestamp(instant_s(record.create_time) or 0 if end is None else end, UTC).date()
            if query.start <= day < query.end:
                yield day, record


def answer_monitor(path: str, rights: frozenset[str], registrations: Mapping[tuple[str, str], float]) -> Response:
    """The answer to `monitor/MACHINE[/INSERTER]`; `registrations` are instants by machine and inserter's DN."""
    if "monitor" not in rights:
        return Response(500, b"Monitoring not allowed")
    machine, _, inserter = (unquote(part) for part in path.partition("/"))
    last = [
        instant
        for (of_machine, by), instant in registrations.items()
        if of_machine == machine and inserter in {"", by, by.rpartition("CN=")[2]}
    ]
    epoch = int(time.time() - max(last)) if last else None
    return Response(200, msgspec.json.encode({"registration_epoch": epoch}), "application/json")


def _sum(members: list[tuple[date, UsageRecord]]) -> Usage:
    _, first = members[0]
    days = [day for day, _ in members]
    cpu_h = wall_h = Decimal(0)
    for _, record in members:
        cpu_h += _rounded_h(_cpu_s(record))
        wall_h += _rounded_h(_wall_s(record))
    return Usage(
        first.machine, first.user, first.vo, min(days).isoformat(), max(days).isoformat(),
        len(members), float(cpu_h), float(wall_h),
    )  # fmt: skip


def _cpu_s(record: UsageRecord) -> int:
    return sum(duration_s(text) or 0 for text in record.cpu)


def _wall_s(record: UsageRecord) -> int:
    """Wall time multiplied by processors."""
    wall_s = duration_s(record.wall) if record.wall else None
    return (wall_s or 0) * (record.processors or 1)


def _rounded_h(seconds: float) -> Decimal:
    """Hours with two decimals, as PostgreSQL's `ROUND(seconds / 3600.0, 2)`: half is rounded away from zero."""
    return (Decimal(seconds) / 3600).quantize(Decimal("0.01"), ROUND_HALF_UP)


def _date(arguments: Mapping[str, list[str]], name: str, default: date) -> date:
    if name not in arguments:
        return default
    text = arguments[name][-1]
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise QueryError(500, f"Invalid date: {text}")


SHIPPED_LIMIT_BYTES = 2 * 2**20
"""`client_max_body_size` of the nginx configuration that SGAS ships."""

_PROCESSING_FAILED = b"<html><head><title>Processing Failed</title></head><body><b>Processing Failed</b></body></html>"
_FOREIGN_KEY = 'update or delete on table "usagedata" violates foreign key constraint'


class Row(msgspec.Struct, gc=False):
    """A stored record, and how often it was received, in any version."""

    row_id: int
    received: int
    record: UsageRecord


class HeldRecord(msgspec.Struct, frozen=True):
    """A record as SGAS has it, for tests and reconciliation."""

    row_id: str
    received: int
    global_job_id: str | None
    machine: str
    create_time: str


class _RefusedMessageError(Exception):
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.response = Response(status, body)


class Sgas:
    """One SGAS under `base`.

    `rights` are the words of `sgas.authz` by DN in slash form (None: everybody with a certificate may insert for the
    machines of his domain, query all, and ask the monitor). `check_depth` labels of the certificate's CN must equal
    those of each MachineName; 0 switches that off.
    """

    def __init__(
        self,
        faults: Faults,
        *,
        base: str = "/sgas",
        check_depth: int = 2,
        limit_bytes: int = SHIPPED_LIMIT_BYTES,
        rights: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self._faults = faults
        self.base = base
        self.limit_bytes = limit_bytes
        self.database_down = False
        self.longest_local_id = LONGEST_LOCAL_ID
        self.custom_query_defined = True
        """Whether `sgas.conf` has the custom query `usage-publisher`."""
        self._check_depth = check_depth
        self._rights = None if rights is None else {dn: frozenset(words) for dn, words in rights.items()}
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._clear()

    def _clear(self) -> None:
        self._rows = {}
        self._next_row_id = 1
        self._last_registration: dict[tuple[str, str], float] = {}
        self.posts = self.refused = self.received_bytes = 0

    def reset(self) -> None:
        """Delete everything that was received."""
        with self._lock:
            self._clear()

    def forget(self, record_ids: Iterable[str]) -> int:
        """Delete these records, as if the service was restored from a backup; returns how many it had."""
        with self._lock:
            return sum(self._rows.pop(record_id, None) is not None for record_id in record_ids)

    def holdings(self) -> dict[str, HeldRecord]:
        """The records that SGAS has, by recordId."""
        with self._lock:
            return {
                record_id: HeldRecord(
                    str(row.row_id), row.received, row.record.global_job_id, row.record.machine, row.record.create_time
                )
                for record_id, row in self._rows.items()
            }

    def records(self) -> list[UsageRecord]:
        """The records as stored."""
        with self._lock:
            return [row.record for row in self._rows.values()]

    def stats(self) -> dict[str, int]:
        """Numbers of stored records, of received records with repetitions, of posts, of refused posts, and of bytes."""
        with self._lock:
            return {
                "records": len(self._rows),
                "received": sum(row.received for row in self._rows.values()),
                "posts": self.posts,
                "refused": self.refused,
                "bytes": self.received_bytes,
            }

    def handle(self, request: Request) -> Response:
        """Answer a request under `base`."""
        if request.peer is None:
            return _nginx(400, "No required SSL certificate was sent")
        if request.peer.problem:
            return _nginx(400, "The SSL certificate error")
        return self._answer(request, request.path.removeprefix(self.base))

    def _answer(self, request: Request, path: str) -> Response:
        if path == "":
            return self._services(request)
        if path == "/ur":
            return self._registration(request)
        if request.method == "GET" and (path == "/query" or path.startswith(("/monitor/", "/customquery/"))):
            asked = request.query.encode()
            return with_faults(
                self._faults, "query", lambda: asked, lambda: self._answer_query(request, path), _failure
            )
        return _nginx(404, "No Such Resource")

    def _answer_query(self, request: Request, path: str) -> Response:
        words = self._words(request)
        with self._lock:
            records = [row.record for row in self._rows.values()]
            registrations = dict(self._last_registration)
        try:
            if path == "/query":
                return answer_query(request.query, words, records)
            if path.startswith("/monitor/"):
                return answer_monitor(path.removeprefix("/monitor/"), words, registrations)
            if path == f"/customquery/{CUSTOM_QUERY}" and self.custom_query_defined:
                return answer_custom_query(request.query, words, records)
        except QueryError as error:
            return Response(error.status, str(error).encode())
        return Response(500, b"Query does not exist")

    def _services(self, request: Request) -> Response:
        if request.method != "GET":
            return _nginx(405, "Method Not Allowed")
        host = escape(request.headers.get("host", "localhost"))
        services = {"Registration": "ur", "Query": "query", "Monitor": "monitor", "CustomQuery": "customquery"}
        listed = "".join(
            f"<service><name>{name}</name><href>https://{host}{self.base}/{path}</href></service>"
            for name, path in services.items()
        )
        return Response(200, f"<services>{listed}</services>".encode())

    def _registration(self, request: Request) -> Response:
        if request.method != "POST":
            return _nginx(*((405, "Method Not Allowed") if request.method == "GET" else (501, "Not Implemented")))
        with self._lock:
            self.posts += 1
            self.received_bytes += len(request.body)
        response = with_faults(self._faults, "sgas", lambda: request.body, lambda: self._insert(request), _failure)
        if response.status != 200:
            with self._lock:
                self.refused += 1
        return response

    def _insert(self, request: Request) -> Response:
        if _is_no_multipart(request.headers.get("content-type", ""), request.body):
            return Response(400, b"")
        try:
            self._require_right(request)
            records = [usage_record(values, self.longest_local_id) for values in read(request.body)]
            self._require_machines(request, {record.machine: None for record in records})
            with self._lock:
                rows = self._store(records, _dn(request))
        except _RefusedMessageError as refused:
            return refused.response
        except DatabaseRefusedError as error:
            return Response(500, str(error).encode())
        except (NotUsageRecordsError, ProcessingFailedError):
            return Response(500, _PROCESSING_FAILED)
        return Response(200, msgspec.json.encode(rows))

    def _store(self, records: list[UsageRecord], inserter: str) -> dict[str, str]:
        """Store all of the records or none, in one transaction."""
        staged: dict[str, Row] = {}
        arrived: list[Row] = []
        answer: dict[str, str] = {}
        for record in records:
            if record.refusal is not None:
                raise record.refusal
            row = staged.get(record.record_id) or self._rows.get(record.record_id)
            if row is None or not _is_known(row.record, record):
                if record.refusal_if_new is not None:
                    raise record.refusal_if_new
                if row is not None and row.record.children:
                    raise DatabaseRefusedError(_FOREIGN_KEY)
                row = Row(self._next_row_id, 0 if row is None else row.received, record)
                self._next_row_id += 1
                staged[record.record_id] = row
            arrived.append(row)
            answer[record.record_id] = str(row.row_id)
        self._rows.update(staged)
        for row in arrived:
            row.received += 1
        now = time.time()
        for machine in {record.machine for record in records}:
            self._last_registration[machine, inserter] = now
        return answer

    def _require_right(self, request: Request) -> None:
        """The checks before the body is read."""
        if self.database_down:
            raise _RefusedMessageError(503, b"Database currently unavailable. Please try again later.")
        if not any(word.partition(":")[0] == "jobinsert" for word in self._words(request)):
            dn = _dn(request)
            raise _RefusedMessageError(403, f"Rejecting job usage insert for {dn}. No insert rights.".encode())

    def _require_machines(self, request: Request, machines: Mapping[str, None]) -> None:
        """Refuse a message with a machine that the sender may not insert for; the answer names all of its machines."""
        cn = request.peer.cn if request.peer else ""
        if "." not in cn:
            raise ProcessingFailedError("the name in the certificate is not one of a host")
        words = self._words(request)
        if "jobinsert:all" in words:
            return
        domain = _labels(cn)[-self._check_depth :] if self._check_depth else []
        for machine in machines:
            labels = _labels(machine)
            if f"jobinsert:machine_name={machine}" in words or labels[len(labels) - len(domain) :] == domain:
                continue
            dn, named = _dn(request), ",".join(machines)
            raise _RefusedMessageError(
                406, f"Subject {dn} is not allowed to perform insertion for machines: {named}".encode()
            )

    def _words(self, request: Request) -> frozenset[str]:
        if self._rights is None:
            return frozenset({"jobinsert", "query:all", "customquery:all", "monitor"})
        return self._rights.get(_dn(request), frozenset())


def too_large() -> Response:
    """What nginx says to a body that is larger than `client_max_body_size`."""
    return _nginx(413, "Request Entity Too Large")


def _labels(name: str) -> list[str]:
    return [label for label in name.split(".") if label]


def _is_no_multipart(content_type: str, body: bytes) -> bool:
    """Whether Twisted refuses a body because it is declared as a multipart form and is not one; SGAS ignores the
    type."""
    kind, _, parameters = content_type.partition(";")
    if kind.strip().lower() != "multipart/form-data":
        return False
    boundary = parameters.partition("boundary=")[2].strip(' "')
    return not boundary or not body.lstrip().startswith(f"--{boundary}".encode())


def _is_known(held: UsageRecord, came: UsageRecord) -> bool:
    """Whether SGAS has this record already, and ignores it."""
    if came.global_job_id is None:
        return False
    return came.global_job_id in {held.global_job_id, came.record_id}


def _failure(code: int) -> Response:
    if code == 503:
        return Response(503, b"Database currently unavailable. Please try again later.")
    return Response(500, _PROCESSING_FAILED) if code == 500 else _nginx(code, "Error")


def _nginx(code: int, text: str) -> Response:
    title = f"{code} {text}"
    page = (
        f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n</body>\r\n"
    )
    return Response(code, f"{page}</html>\r\n".encode())


def _dn(request: Request) -> str:
    return request.peer.dn if request.peer else ""
