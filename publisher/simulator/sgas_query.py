"""What SGAS tells of what it holds: `query` with sums per machine, user and VO, and `monitor` (facts on receivers, 1).

Hours are rounded as by the view that LUTS ships: those of each row to 0.01 h, before they are summed. Here a row is a
record; the real service aggregates alike records into one, some 20 s after an insert, and this one at once.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from urllib.parse import parse_qs, unquote

import msgspec

from publisher.simulator.iso import duration_s, instant_s
from publisher.simulator.server import Response
from publisher.simulator.sgas_records import UsageRecord

_ARGUMENTS = frozenset({"machine_name", "user_identity", "vo_name", "start_date", "end_date", "time_resolution"})
_RESOLUTIONS = frozenset({"collapse", "month", "day"})
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class QueryError(ValueError):
    """A query that is refused, with the status of the answer."""

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
    """What is asked for; `end` is exclusive; empty sets mean all."""

    machines: frozenset[str]
    users: frozenset[str]
    vos: frozenset[str]
    start: date
    end: date
    resolution: str

    def wants(self, record: UsageRecord) -> bool:
        """Whether a record is of the machines, users and VOs."""
        return (
            record.machine in self.machines
            and (not self.users or record.user in self.users)
            and (not self.vos or record.vo in self.vos)
        )


def answer_query(text: str, rights: frozenset[str], records: Iterable[UsageRecord]) -> Response:
    """The answer to `query?text`. Raises `QueryError`."""
    query = parse_query(text)
    allowed = "query:all" in rights or all(f"query:machine_name={machine}" in rights for machine in query.machines)
    if not allowed:
        raise QueryError(403, "Query not allowed for given context")
    return Response(200, msgspec.json.encode(usage(query, records)), "application/json")


def parse_query(text: str) -> Query:
    """The arguments of a query. Raises `QueryError` with 400."""
    arguments = parse_qs(text, keep_blank_values=True, max_num_fields=1000)
    unknown = sorted(set(arguments) - _ARGUMENTS)
    if unknown:
        raise QueryError(400, f"Invalid query parameter: {', '.join(unknown)}")
    if "machine_name" not in arguments:
        raise QueryError(400, "machine_name must be given")
    resolution = arguments.get("time_resolution", ["collapse"])[-1]
    if resolution not in _RESOLUTIONS:
        raise QueryError(400, f"Invalid time resolution: {resolution}")
    return Query(
        machines=frozenset(arguments["machine_name"]),
        users=frozenset(arguments.get("user_identity", ())),
        vos=frozenset(arguments.get("vo_name", ())),
        start=_date(arguments, "start_date", date(2000, 1, 1)),
        end=_date(arguments, "end_date", datetime.now(UTC).date()),
        resolution=resolution,
    )


def usage(query: Query, records: Iterable[UsageRecord]) -> list[Usage]:
    """Sums per machine, user, VO and, where asked, month or day of the jobs' end."""
    found: defaultdict[tuple[str, str, str, str], list[tuple[date, UsageRecord]]] = defaultdict(list)
    for record in records:
        if not query.wants(record):
            continue
        end = instant_s(record.end)
        day = datetime.fromtimestamp(instant_s(record.create_time) or 0 if end is None else end, UTC).date()
        if query.start <= day < query.end:
            part = {"collapse": "", "month": f"{day:%Y-%m}", "day": day.isoformat()}[query.resolution]
            found[record.machine, record.user or "", record.vo or "", part].append((day, record))
    return [_sum(members) for _, members in sorted(found.items())]


def answer_monitor(path: str, registrations: Mapping[tuple[str, str], float]) -> Response:
    """The answer to `monitor/MACHINE[/INSERTER]`; `registrations` are instants by machine and inserter's DN."""
    machine, _, inserter = (unquote(part) for part in path.partition("/"))
    last = [
        instant
        for (of_machine, by), instant in registrations.items()
        if of_machine == machine and inserter in {"", by, by.rpartition("CN=")[2]}
    ]
    if not last:
        return Response(404, b"No such machine")
    return Response(200, msgspec.json.encode({"registration_epoch": int(time.time() - max(last))}), "application/json")


def _sum(members: list[tuple[date, UsageRecord]]) -> Usage:
    _, first = members[0]
    days = [day for day, _ in members]
    cpu_h = wall_h = Decimal(0)
    for _, record in members:
        cpu_h += _rounded_h(sum(duration_s(text) or 0 for text in record.cpu))
        wall_s = duration_s(record.wall) if record.wall else None
        wall_h += _rounded_h((wall_s or 0) * (record.processors or 1))
    return Usage(
        first.machine, first.user, first.vo, min(days).isoformat(), max(days).isoformat(),
        len(members), float(cpu_h), float(wall_h),
    )  # fmt: skip


def _rounded_h(seconds: float) -> Decimal:
    """Hours with two decimals, as PostgreSQL's `ROUND(seconds / 3600.0, 2)`: half of the last one away from zero."""
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
    raise QueryError(400, f"Invalid date: {text}")
