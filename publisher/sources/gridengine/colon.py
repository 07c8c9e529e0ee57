"""Grid Engine's colon format: SGE 6.x, Son of Grid Engine, Open and Univa Grid Engine, OCS with old_accounting.

Pure. Nothing in a line is escaped. The first 39 fields are fixed. The category after them may contain colons; its end
is found by the fields that follow: a number, a PE task id, a number. Univa's fields come after those and may contain
colons too, so nothing is counted from the right. (The facts on sources, 1.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, TypeVar, cast

import msgspec

from formats.job import Job
from publisher.sources.gridengine.jobs import (
    LARGEST,
    NONE,
    RUSAGE,
    Cluster,
    Extras,
    Figure,
    Number,
    Slave,
    none_if_none,
    outcome,
    seconds_and_unit,
    storable,
)

_T = TypeVar("_T")
_Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
_Numbers = tuple[
    _Count, Figure, _Count, _Count, _Count, _Count, _Count,  # job, priority, submission, start, end, failed, exit
    Figure, Figure, Figure, Figure, Figure, Figure, Figure, Figure, Figure,
    Figure, Figure, Figure, Figure, Figure, Figure, Figure, Figure, Figure,  # the 18 of getrusage
    _Count, _Count, Figure, Figure, Figure,  # slots, task, cpu, mem, io
    Figure, Figure, _Count, _Count,  # iow, maxvmem, arid, ar_submission_time
]  # fmt: skip
"""The numbers of a record, in the order of its fields."""

_numbers = msgspec.json.Decoder(_Numbers)
"""A line's numbers are read as a JSON array, which is several times faster than one by one."""

FEWEST_FIELDS: Final = 43
FEWEST_TAIL: Final = 3
"""The least number of colons in the end of a record that a line feed cut off: iow, pe_taskid, and maxvmem."""
_CATEGORY: Final = 39
_HEAD: Final = (5, *range(7, 31), *range(34, 39))
"""The numbers before the category."""
_FIGURES: Final = frozenset({1, *range(7, 25), 27, 28, 29, 30, 31})
_AS_NUMBERS: Final = frozenset({27, 31})
_PE_TASK: Final = re.compile(r"\d+\.\S+", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,25}(?:\.\d{1,25})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_RECORD_NUMBERS: Final = 20
"""So many numbers in a row are the middle of another record; no category or command line has them."""


_NOTHING_MORE: Final = (0, None, None)


class ColonError(ValueError):
    """A line is not a record of the colon format; the message is the reason."""


class CutColonError(ColonError):
    """The line does not end as a record does, or not in one way only: a line feed in a user's text may have broken the
    record."""


class ColonValueError(ColonError):
    """The line has the form of a record, and a value that no record has. A user who can write such a line can write one
    with a possible value as well, so nothing about the lines near it follows."""


def is_rest(line: str) -> bool:
    """Whether a line that is not a record ends as one does. It may begin in any way: a user may have written that."""
    return _ends_as_record(line.rstrip("\r").split(":"))


def _ends_as_record(fields: list[str]) -> bool:
    """Whether iow, pe_taskid, and maxvmem are the last fields but for those that later versions added."""
    return any(
        _is_tail(fields, at) and (at + 3 == len(fields) or all(map(_NUMBER.fullmatch, fields[at + 3 : at + 5])))
        for at in range(1, len(fields) - 2)
        if at + 4 != len(fields) and _NUMBER.fullmatch(fields[at + 1]) is None  # else figures would look like a tail
    )


def parse_record(line: str, cluster: Cluster) -> Job | Slave | None:
    """The outcome of a line without its line feed: see `outcome`. Raises `ColonError`."""
    more: list[str] = []
    numbers: _Numbers | None = None
    if line.count(":") == 44:  # nearly always; the 24 numbers in the middle need no splitting
        first = line.split(":", 7)
        last = first[7].rsplit(":", 14)
        if last[11] == "NONE":
            own = f"{last[10]},{last[12]},{last[13]},{last[14]}"
            numbers = _quickly(f"{first[5]},{last[0].replace(':', ',')},{','.join(last[4:9])},{own}")
    if numbers is None:
        first, last, more, numbers = _carefully(line.split(":"))
    job_number, priority, submitted, started, ended, failed, exit_status = numbers[:7]
    slots, task, cpu, mem, io, iow, maxvmem, arid, reserved = numbers[25:]
    if started and ended < started:
        raise ColonValueError("the job ends before it starts" if ended else "the job started and has no end")
    if not 0 <= cpu <= LARGEST:
        raise ColonValueError("the CPU time is negative, or larger than possible")
    extras: Extras = dict(zip(RUSAGE, numbers[7:25]))  # noqa: B905 - both have 18 by their types
    extras["mem"] = mem
    extras["io"] = io
    extras["iow"] = iow
    extras["priority"] = priority
    extras["failed"] = failed
    if last[9] not in NONE:
        extras["category"] = last[9]
    if arid:
        extras["arid"] = arid
        extras["ar_submission_time"] = seconds_and_unit(reserved)[0]
    start, unit = seconds_and_unit(started)
    maxrss, client_host, deleted_by = _univa(more, extras) if more else _NOTHING_MORE
    return outcome(
        cluster, job_number, task, submitted // unit if started else seconds_and_unit(submitted)[0], start,
        ended // unit, (ended - started) * 1000 // unit, int(cpu * 1000 + 0.5), failed, exit_status, slots,
        first[1], "" if last[11] == "NONE" else last[11], maxvmem, maxrss, extras,
        first[3], first[2], first[4], first[6], first[0],
        none_if_none(last[1]), none_if_none(last[2]), none_if_none(last[3]), client_host, deleted_by,
    )  # fmt: skip


def _quickly(numbers: str) -> _Numbers | None:
    """The numbers of a record, if each is valid and spelled as in JSON."""
    try:
        fields: _Numbers = _numbers.decode(f"[{numbers}]")
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return fields


def _carefully(fields: list[str]) -> tuple[list[str], list[str], list[str], _Numbers]:
    """The fields before the numbers, those after them from project on (with one in front), Univa's, and the numbers.

    Raises `ColonError`, which names the invalid field. A measured figure out of all bounds (a counter that wrapped) is
    kept as text, so that the job is not lost.
    """
    if len(fields) < FEWEST_FIELDS:
        error = ColonError if _ends_as_record(fields) else CutColonError
        raise error(f"a record has at least {FEWEST_FIELDS} fields, this line has {len(fields)}")
    if len(fields) > 60 and _glued(fields[39:]):
        # A full disk glues a record to one that it cut off; where all is there up to the category, a user may have.
        error = CutColonError if _has_head(fields) else ColonError
        raise error("two records are in one line")
    numbers: _Numbers | None = None
    tail = 40
    if len(fields) > 45 and fields[41] == "NONE":
        numbers = _quickly(",".join(_numbers_of(fields, 40)))
    if numbers is None:
        tail = _tail(fields)
        if len(fields) - tail == 3:
            fields = [*fields, "0", "0"]  # the formats before 6.2 had no advance reservations
        kept: list[int | float | str] = []
        for index, place in enumerate(_numbers_of(range(len(fields)), tail)):
            value = _number(fields[place], place)
            if index not in _FIGURES and (not isinstance(value, int) or not 0 <= value <= LARGEST):
                error = ColonValueError if isinstance(value, int) else ColonError
                raise error(f"field {place + 1} should be a whole number that is not negative")
            kept.append(value if index in _AS_NUMBERS else storable(value))
        numbers = cast("_Numbers", tuple(kept))  # figures out of bounds are text, which only extras use
    last = [*fields[30:39], ":".join(fields[39:tail]), *fields[tail : tail + 5]]
    return fields[:7], last, fields[tail + 5 :], numbers


def _has_head(fields: list[str]) -> bool:
    return all(_NUMBER.fullmatch(fields[place].strip()) for place in _HEAD)


def _tail(fields: list[str]) -> int:
    """The index of the end of the category. Raises `ColonError`.

    Where all before the category is valid, what is wrong is in that text of a user, and a line feed in it may have
    broken the record, however the line ends: records of other users that follow may be his.
    """
    for place in _HEAD:
        _number(fields[place], place)
    tails = [at for at in range(40, len(fields) - 2) if _is_tail(fields, at)]
    if not tails:
        raise CutColonError("after the category there should be iow, pe_taskid and maxvmem")
    if len(tails) > 1:
        raise CutColonError("iow, pe_taskid and maxvmem occur more than once: a user's text contains them")
    (tail,) = tails
    if tail > _CATEGORY + 1 and not fields[_CATEGORY].startswith("-"):
        raise CutColonError("the category does not begin with an option: a name or account contains colons")
    if len(fields) - tail == 4:
        raise CutColonError("the line is cut short after arid")
    return tail


def _numbers_of(fields: Sequence[_T], tail: int) -> list[_T]:
    """The numbers of a record whose category ends before `tail`, in the order of `_Numbers`."""
    return [fields[5], *fields[7:31], *fields[34:39], fields[tail], *fields[tail + 2 : tail + 5]]


def _number(text: str, place: int) -> Number:
    text = text.strip()
    if _NUMBER.fullmatch(text) is None:
        raise ColonError(f"field {place + 1} should be a number")
    return float(text) if "." in text or "e" in text.lower() else int(text)


def _is_tail(fields: list[str], at: int) -> bool:
    """Whether iow, pe_taskid, and maxvmem are at an index."""
    task = fields[at + 1]
    return (
        (task in ("NONE", "") or _PE_TASK.fullmatch(task) is not None)
        and _NUMBER.fullmatch(fields[at]) is not None
        and _NUMBER.fullmatch(fields[at + 2].rstrip("\r")) is not None
    )


def _univa(more: list[str], extras: Extras) -> tuple[Number, str | None, str | None]:
    """Largest resident set (bytes), submit host, and who deleted the job, from the fields of Open and Univa Grid
    Engine.

    Job class from 8.1 on, the rest from 8.2 on; values without a field in `Job` are put into the extras.
    """
    if (job_class := none_if_none(more[0].rstrip("\r"))) is not None:
        extras["job_class"] = job_class
    if len(more) < 6:
        return _NOTHING_MORE
    deleted_by, maxrss, maxpss, submit_host = more[1:5]
    if _NUMBER.fullmatch(maxrss) is None or _NUMBER.fullmatch(maxpss) is None:
        return _NOTHING_MORE
    if (deleter := none_if_none(deleted_by)) is not None:
        extras["deleted_by"] = deleter
    resident = _number(maxrss, 47)
    extras["maxrss"] = storable(resident)
    extras["maxpss"] = storable(_number(maxpss, 48))
    if (folder := none_if_none(more[5].rstrip("\r"))) is not None:
        extras["cwd"] = folder
    if len(more) > 6 and (command := none_if_none(more[6].rstrip("\r"))) is not None:
        extras["submit_cmd_line"] = command
    return resident, none_if_none(submit_host), deleter


def _glued(fields: list[str]) -> bool:
    run = 0
    for text in fields:
        run = run + 1 if _NUMBER.fullmatch(text) is not None else 0
        if run >= _RECORD_NUMBERS:
            return True
    return False
