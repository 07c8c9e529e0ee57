"""What SGAS tells of what it holds: sums by machine, user, VO and day, and when it last took records of a machine.

There is no way to ask SGAS for a record. Its `query` gives numbers of jobs with CPU and wall hours, wall multiplied by
processors, summed up some 20 s after an insert (the facts on receivers, section 1). The shipped view rounds the hours
of each of its rows, which hold one record or more, to 0.01 h before they are summed: a sum of n records is right within
n x 18 s. The first day is left out by some versions and not by others, so a day more is asked for, and what was not
asked for is dropped. A service that cannot answer (no plug-in, no right, a version whose query always fails, numbers
that are not numbers) is `Untold`, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from formats.month import SECONDS_A_DAY
from publisher.targets import answers
from publisher.targets.base import DaySum, Unauthorised, Untold
from publisher.transport import Failure, Reply

_HOUR_S: Final = 3600
_ROW_ROUNDING_S: Final = 0.01 * _HOUR_S / 2
"""By how much the shipped view may change the wall or CPU time of a record."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{0,40})?(?:[eE][-+]?[0-9]{1,2})?", re.ASCII)
_MOST: Final = 10**12
"""Jobs of a day, hours of a day, and seconds since a registration: more of them is not an answer."""
_WITHOUT_RIGHT: Final = "this name needs the right `query` for the machine, or `query:all`, in the sgas.authz of SGAS"
_NO_QUERY: Final = "the service has no such address: its query plug-in is not configured"
_FAILS: Final = "the service fails at it, as LUTS 3.8.1 does at every query"

Ask = Callable[[str], Reply | Failure]
"""GET of an address below the base URL."""


class _Line(msgspec.Struct):
    """A line of the answer. Databases write sums as numbers or as text."""

    machine_name: str
    start_date: str
    end_date: str
    n_jobs: int | float | str
    user_identity: str | None = None
    vo_name: str | None = None
    cpu_time: int | float | str | None = None
    wall_time: int | float | str | None = None


class _Monitor(msgspec.Struct):
    registration_epoch: int | float


def usage(ask: Ask, machine: str, first_day: int, behind_day: int) -> list[DaySum] | Untold:
    """What is held of a machine for the days from `first_day` until `behind_day` (exclusive), counted from 1970.

    An answer that is too large is asked for in halves.
    """
    arguments = {
        "machine_name": machine,
        "start_date": _date(first_day - 1).isoformat(),
        "end_date": _date(behind_day).isoformat(),
        "time_resolution": "day",
    }
    reply = ask(f"/query?{urlencode(arguments)}")
    if isinstance(reply, Failure) and reply.kind == "too-large" and behind_day - first_day > 1:
        middle = (first_day + behind_day) // 2
        parts = [usage(ask, machine, *half) for half in ((first_day, middle), (middle, behind_day))]
        refused = next((part for part in parts if isinstance(part, Untold)), None)
        return refused or [line for part in parts if not isinstance(part, Untold) for line in part]
    if isinstance(reply, Failure) or reply.status != 200:
        return untold(reply)
    try:
        lines = [_day_sum(line) for line in msgspec.json.decode(reply.body, type=list[_Line])]
    except (msgspec.MsgspecError, ValueError) as error:
        return Untold(f"the answer to a query cannot be read: {error}")
    return [line for line in lines if line.machine == machine and first_day <= line.day < behind_day]


def last_registration_s(ask: Ask, machine: str) -> float | Untold | None:
    """Seconds since the service last took records of a machine; None: it never did."""
    reply = ask(f"/monitor/{quote(machine, safe='')}")
    if isinstance(reply, Reply) and reply.status == 404:
        return None
    if isinstance(reply, Failure) or reply.status != 200:
        return untold(reply)
    try:
        told = msgspec.json.decode(reply.body, type=_Monitor | None)
        return None if told is None else _number("registration_epoch", told.registration_epoch)
    except (msgspec.MsgspecError, ValueError) as error:  # null: LUTS 3.8.1 about a machine that it does not know
        return Untold(f"the answer of the monitor cannot be read: {error}")


def untold(reply: Reply | Failure) -> Untold:
    """Why an answer tells nothing."""
    if isinstance(reply, Failure):
        outcome = answers.of_failure(reply)
        return Untold(getattr(outcome, "answer", ""), unauthorised=isinstance(outcome, Unauthorised))
    said = answers.describe(reply)
    if reply.status == 403:
        return Untold(f"{said} ({_WITHOUT_RIGHT})", unauthorised=True)
    if reply.status == 404:
        return Untold(f"{said} ({_NO_QUERY})")
    if reply.status == 500:
        return Untold(f"{said} ({_FAILS})")
    return Untold(said, unauthorised=reply.status in {401, 407} or answers.refuses_certificate(reply))


def _day_sum(line: _Line) -> DaySum:
    if line.start_date != line.end_date:
        raise ValueError(f"a line from {line.start_date} to {line.end_date} where days were asked for")
    day = int(datetime.fromisoformat(line.start_date).replace(tzinfo=UTC).timestamp()) // SECONDS_A_DAY
    own = f"{line.machine_name}:"  # how SGAS names those of whom it knows no grid identity
    jobs = _number("n_jobs", line.n_jobs)
    if jobs < 0 or not jobs.is_integer():
        raise ValueError(f"n_jobs: {line.n_jobs!r} is not a number of jobs")
    return DaySum(
        line.machine_name,
        _named(line.user_identity, own),
        _named(line.vo_name, own),
        day,
        int(jobs),
        _number("wall_time", line.wall_time or 0) * _HOUR_S,
        _number("cpu_time", line.cpu_time or 0) * _HOUR_S,
        jobs * _ROW_ROUNDING_S,
    )


def _number(name: str, value: float | str) -> float:
    """A number of an answer. Raises `ValueError` for text that is not one, such as `inf`, and for one out of bounds."""
    text = str(value)
    number = float(text) if _NUMBER.fullmatch(text) else _MOST
    if not -_MOST < number < _MOST:
        raise ValueError(f"{name}: {text[:40]!r} is not a number, or is out of bounds")
    return number


def _named(name: str | None, own: str) -> str:
    return "" if name is None or name.startswith(own) else name


def _date(day: int) -> date:
    return datetime.fromtimestamp(day * SECONDS_A_DAY, UTC).date()
