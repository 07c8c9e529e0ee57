"""One row of ARC's table AAR and its side rows, as a `Job`.

Pure. The rules come from ARC's accounting technical details, tables 4 and 5, and the facts on ARC. A zero that ARC
writes for an unknown value (nodes, cores, memory) becomes None. An unusual value that does no harm is kept in `extras`
under its own name; a row that would make a wrong record is an `UnreadableRowError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, Literal, TypeVar

import msgspec

from formats.identity import arc_record_id
from formats.job import Benchmark, Events, Job, Status, Transfer, kinds_text
from publisher.sources.arc.database import AAR_COLUMNS, SEPARATOR, Row, Sides
from publisher.sources.arc.values import benchmarks_of, client_host, epoch_s, epochs_s, hosts_of, unescaped, unsigned
from publisher.sources.limits import IDENTITY_CHARACTERS, LimitError, bounded, require_short

RUN_VERSION: Final = 1
"""The version of the run that is made of a row. Raise it with every change after which the same row makes another run,
here or in a module that is used here: then rows that an earlier version stored are read again.
"""

_GROUPS: Final = "wlcg.groups"
_ISSUERS: Final = ("https://", "http://")

_T = TypeVar("_T")
Direction = Literal["download", "upload"]
Extras = dict[str, int | float | str]
_Pick = Callable[[Sequence[Any]], tuple[Any, ...]]

STATUSES: Final[Mapping[str, Status]] = {
    "completed": "completed",
    "failed": "failed",
    "aborted": "aborted",
    "in-progress": "running",
}
_CACHED: Final = "11"
_DIRECTIONS: Final[Mapping[str, Direction]] = {"10": "download", _CACHED: "download", "20": "upload"}
_FIRST_NUMBER: Final = AAR_COLUMNS.index("ExitCode")
_NUMBERS: Final = AAR_COLUMNS[_FIRST_NUMBER:]
_ALL_INTEGERS: Final = (int,) * len(_NUMBERS)
_NEVER_NEGATIVE: Final = ("SubmitTime", "EndTime", "UsedWalltime", "UsedCPUUserTime", "UsedCPUKernelTime")
_JOB_ID: Final = re.compile(r"[!-\[\]-~]+")
_JOB_ID_AT: Final = AAR_COLUMNS.index("JobID")
_ENDPOINT_AT: Final = AAR_COLUMNS.index("EndpointID")
_LATEST: Final = 253_402_300_799
"""The last second of the year 9999: larger values are not times."""

_LONGEST_S: Final = 10**12
_LARGEST: Final = 2**63
_SMALLEST: Final = -_LARGEST
"""Values beyond these cannot be stored, and ARC's databases cannot contain them."""


_EVENTS: Final = ("PREPARING", "SUBMIT", "LRMSSTART", "LRMSEND", "FINISHING", "FINISHED")
"""The events whose times are fields of a record."""
_NO_TIMES: Final = (None,) * len(_EVENTS)
_BENCHMARK: Final = "benchmark"
_INFO: Final = (
    *("jobname", "projectname", "lrms", "nodenames", "nodename", "clienthost", "wninstance", "systemsoftware"),
    "localuser",
)
"""Other keys that are fields of a record."""


class UnreadableRowError(ValueError):
    """A row of which no job can be made; the text is the reason, for people."""


class RowReader:
    """Makes jobs of rows. `names` are the tables of names, as `ArcDatabase.names`, and may grow between two calls.

    With `start_from_execution` a job starts at LRMSSTART, with `end_from_lrms` it ends at LRMSEND, if ARC has these
    events. Otherwise it starts at its submission and ends when it reached its terminal state. A job in progress starts
    at LRMSSTART, or has not started.
    """

    def __init__(
        self,
        names: Mapping[str, Mapping[int, Row]],
        *,
        start_from_execution: bool = False,
        end_from_lrms: bool = False,
        has_token_groups: bool = False,
    ) -> None:
        self._has_token_groups = has_token_groups
        self._start_from_execution = start_from_execution
        self._end_from_lrms = end_from_lrms
        self._endpoints = _NameTable("Endpoints", names["Endpoints"], _endpoint)
        self._statuses = _NameTable("Status", names["Status"], _status)
        self._users = _NameTable("Users", names["Users"], _text)
        self._vos = _NameTable("WLCGVOs", names["WLCGVOs"], _text)
        self._queues = _NameTable("Queues", names["Queues"], _text)

    def record_id(self, row: Row) -> str | None:
        """The record id of the job of a row; None: no job can be made of it."""
        if not _is_job_id(row[_JOB_ID_AT]):
            return None
        try:
            prefix = self._endpoints[row[_ENDPOINT_AT]][2]
        except UnreadableRowError:
            return None
        return prefix + str(row[_JOB_ID_AT]) if prefix.isprintable() else None

    def job(self, row: Row, sides: Sides) -> Job:
        """The job of a row of table AAR.

        Raises `UnreadableRowError`.
        """
        (
            record_id, job_id, local_id, endpoint_id, queue_id, user_id, vo_id, status_id, exit_code, submit, end,
            nodes, cores, memory, virtual, wall, cpu_user, cpu_kernel, scratch, volume_in, volume_out,
        ) = row  # fmt: skip
        if tuple(map(type, row[_FIRST_NUMBER:])) != _ALL_INTEGERS:
            raise UnreadableRowError(_not_a_number(row))
        status = self._statuses[status_id]
        interface, url, id_prefix = self._endpoints[endpoint_id]
        if not _is_job_id(job_id):
            raise UnreadableRowError("JobID is empty, or not printable ASCII text")
        if submit < 0 or end < 0 or wall < 0 or cpu_user < 0 or cpu_kernel < 0:
            raise UnreadableRowError(_negative(row))
        if submit > _LATEST or end > _LATEST:
            raise UnreadableRowError("SubmitTime or EndTime is after the year 9999")
        # Added up, one damaged number would falsify the total of all jobs of its group.
        if wall > _LONGEST_S or cpu_user > _LONGEST_S or cpu_kernel > _LONGEST_S:
            raise UnreadableRowError("UsedWalltime, UsedCPUUserTime or UsedCPUKernelTime is larger than possible")
        running = status == "running"
        # An end of 0 would put the job into January 1970.
        if not running and not end:
            raise UnreadableRowError(f"status is {status}, but EndTime is 0")

        extras: Extras = {}
        events, (preparing, lrms_submit, execution_start, execution_end, finishing, at_end) = _events(
            sides["JobEvents"].get(record_id), extras
        )
        info_row = sides["JobExtraInfo"].get(record_id)
        keys, info = _info(info_row)
        benchmarks = _benchmarks(keys, info)
        started = submit or None
        if running or (self._start_from_execution and execution_start is not None):
            started = execution_start  # an accepted job that has not started holds no cores
        ended = end or None
        if self._end_from_lrms and execution_end is not None and not running:
            ended = execution_end
        attributes = _text_of(sides["AuthTokenAttributes"].get(record_id))
        transferred = _text_of(sides["DataTransfers"].get(record_id))
        environments = _text_of(sides["RunTimeEnvironments"].get(record_id))
        fqans, tokens = _attributes(attributes)
        if tokens:
            extras.update(tokens)
        transfers = _transfers(transferred, extras)
        for key, place in keys.others:
            extras[key] = info[place]
        name, project, lrms, nodenames, nodename, client, service_class, system_software, local = keys.pick(info)
        local_user, _, local_group = (local or "").partition(":")
        local_id = _local_id(local_id)
        characters = len(job_id) + len(local_id or "") + len(info_row[2] if info_row else "")
        characters += len(attributes or "") + len(transferred or "") + len(environments or "")
        read_job = Job(
            id_prefix + job_id,
            "arc",
            status,
            False,  # slave
            self._users[user_id],
            None,  # token_subject
            None,  # token_issuer
            self._vos[vo_id],
            None,  # vo_issuer
            fqans,
            None,  # cluster
            self._queues[queue_id],
            url,
            interface,
            nodes if nodes > 0 else None,
            cores if cores > 0 else None,
            None,  # slots
            "grid",
            lrms or None,
            "arc",  # middleware
            None,  # middleware_version
            benchmarks,
            hosts_of(nodenames or nodename or ""),
            local_user or None,
            local_group or None,
            project or None,
            None,  # account
            None,  # department
            job_id,  # global_id
            local_id,
            name or None,
            0,  # run
            None,  # array_id
            None,  # array_task
            None,  # parallel_environment
            client_host(client) if client else None,
            None,  # gpus
            service_class or None,
            system_software or None,
            _environments(environments),
            submit or None,
            None,  # eligible
            lrms_submit,
            started,
            None if running else ended,
            execution_start,
            execution_end,
            events,
            None if running else wall * 1000,
            None if running else (cpu_user + cpu_kernel) * 1000,
            None if running else cpu_user * 1000,
            None if running else cpu_kernel * 1000,
            memory if memory > 0 else None,
            virtual if virtual > 0 else None,
            None,  # swap_kib
            None if running else unsigned(scratch),
            None,  # energy_j
            _between_ms(preparing, lrms_submit),
            _between_ms(finishing if finishing is not None else execution_end, at_end),
            None if running else unsigned(volume_in),
            None if running else unsigned(volume_out),
            transfers,
            None,  # charge
            (),  # process_ids
            None if running else _signed_exit_code(exit_code),
            None,  # exit_signal
            None,  # end_reason
            extras,
        )
        if self._has_token_groups:
            read_job = _with_token(read_job)
        if characters <= IDENTITY_CHARACTERS:  # nearly always
            return read_job
        return _bounded(read_job)


def _with_token(job: Job) -> Job:
    """The run with issuer and groups of its token. ARC names the user of a token `ISSUER/SUBJECT`; the subject of a
    certificate is never of this form."""
    issuer, slash, _ = (job.user_dn or "").rpartition("/")
    groups = (group.strip() for group in str(job.extras.get(_GROUPS, "")).split(","))
    return msgspec.structs.replace(
        job,
        token_issuer=issuer if slash and issuer.startswith(_ISSUERS) else None,
        token_groups=tuple(dict.fromkeys(filter(None, groups))) or None,
    )


class _NameTable(dict[Any, _T]):
    """The meaning of the rows of a table of names, by their ID; each is made once."""

    def __init__(self, table: str, rows: Mapping[int, Row], meaning: Callable[[Row], _T]) -> None:
        super().__init__()
        self._table, self._rows, self._meaning = table, rows, meaning

    def __missing__(self, number: Any) -> _T:
        row = self._rows.get(number)
        if row is None:
            raise UnreadableRowError(f"{self._table} has no row {number!r}")
        meaning = self[number] = self._meaning(row)
        return meaning


def _is_job_id(value: Any) -> bool:
    return isinstance(value, str) and bool((value.isalnum() and value.isascii()) or _JOB_ID.fullmatch(value))


def _local_id(value: Any) -> str | None:
    text = unescaped(str(value)) if value else None
    if text is not None and "\0" in text:
        raise UnreadableRowError("LocalJobID contains NUL, which cannot be stored")
    return text


def _bounded(job: Job) -> Job:
    try:
        return bounded(job)
    except LimitError as error:
        raise UnreadableRowError(str(error)) from None


def _text(row: Row) -> str | None:
    text = unescaped(str(row[0] or ""))
    _require_short(text)
    return text or None


def _require_short(text: str) -> None:
    try:
        require_short("a name of a user, VO, queue or endpoint", text)
    except LimitError as error:
        raise UnreadableRowError(str(error)) from None


def _status(row: Row) -> Status:
    status = STATUSES.get(_text(row) or "")
    if status is None:
        # Guessed, a word of a later ARC could send a job that never ran.
        raise UnreadableRowError(f"status {_text(row)!r} is unknown")
    return status


def _endpoint(row: Row) -> tuple[str | None, str | None, str]:
    """Interface and URL, and the beginning of the record ids of its jobs."""
    interface, url = (str(value or "") for value in row)
    _require_short(interface)
    _require_short(url)
    return unescaped(interface) or None, unescaped(url) or None, arc_record_id(url, "")


def _not_a_number(row: Row) -> str:
    bad = [name for name, value in zip(_NUMBERS, row[_FIRST_NUMBER:], strict=True) if type(value) is not int]
    return f"{', '.join(bad)} is not a whole number"


def _negative(row: Row) -> str:
    bad = [name for name, value in zip(AAR_COLUMNS, row, strict=True) if name in _NEVER_NEGATIVE and value < 0]
    return f"{', '.join(bad)} is negative"


def _signed_exit_code(code: int) -> int:
    # ARC keeps it in an unsigned int: -1 is stored as 4294967295.
    return code - 2**32 if 2**31 <= code < 2**32 else code


def _between_ms(start: int | None, end: int | None) -> int | None:
    return (end - start) * 1000 if start is not None and end is not None and end >= start else None


def _text_of(row: Row | None) -> str | None:
    """The values of a side table whose columns are read as one text."""
    return None if row is None else row[1]


def _picker(keys: Sequence[str], picked: Sequence[str]) -> _Pick:
    """Gives the last value of each picked key, from the values of these keys followed by a None."""
    places = {key: place for place, key in enumerate(keys)}
    return itemgetter(*(places.get(key, -1) for key in picked))


@lru_cache(maxsize=4096)
def _kinds(packed: str) -> tuple[tuple[str, ...], str, _Pick]:
    kinds = tuple(packed.split(SEPARATOR))
    return kinds, kinds_text(kinds), _picker(kinds, _EVENTS)


def _events(row: Row | None, extras: Extras) -> tuple[Events | None, tuple[int | None, ...]]:
    """The events, and the times of those in `_EVENTS`.

    A job that was run again has a state twice: the last one belongs to the accounted run.
    """
    if row is None:
        return None, _NO_TIMES
    _, packed, texts, _ = row
    kinds, text_of_kinds, pick = _kinds(packed)
    times = epochs_s(texts, len(kinds))
    if times is None:
        rows = [(kind, text, epoch_s(text)) for kind, text in zip(kinds, texts.split(SEPARATOR), strict=True)]
        extras.update((kind, text) for kind, text, at in rows if at is None)
        kinds = tuple([kind for kind, _, at in rows if at is not None])
        times = [at for _, _, at in rows if at is not None]
        text_of_kinds, pick = kinds_text(kinds), _picker(kinds, _EVENTS)
    return (Events(text_of_kinds, tuple(times)) if times else None), pick([*times, None])


class _Keys:
    """The places of a list of keys of JobExtraInfo. Cached, since few lists are different."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.pick = _picker(keys, _INFO)
        self.scores = [place for place, key in enumerate(keys) if key == _BENCHMARK]
        known = {*_INFO, _BENCHMARK}
        self.others = [(key, place) for place, key in enumerate(keys) if key not in known]


@lru_cache(maxsize=4096)
def _keys(packed: str) -> _Keys:
    return _Keys(unescaped(packed).split(SEPARATOR))


_NO_KEYS: Final = _Keys(())


def _info(row: Row | None) -> tuple[_Keys, Sequence[Any]]:
    """The keys, and their values followed by a None."""
    if row is None:
        return _NO_KEYS, (None,)
    _, packed, texts, _ = row
    values: list[str | None] = [*(unescaped(texts) if "%" in texts else texts).split(SEPARATOR), None]
    return _keys(packed), values


def _benchmarks(keys: _Keys, info: Sequence[Any]) -> tuple[Benchmark, ...]:
    if len(keys.scores) == 1:  # nearly always
        return benchmarks_of(info[keys.scores[0]])
    benchmarks: dict[str, Benchmark] = {}
    for score in [score for place in keys.scores for score in benchmarks_of(info[place])]:
        benchmarks.setdefault(score.type, score)
    return tuple(benchmarks.values())


@lru_cache(maxsize=4096)
def _attributes(packed: str | None) -> tuple[tuple[str, ...], Extras]:
    """The FQANs, and the other attributes of the token. Cached, since few users have many jobs."""
    main: list[str] = []
    others: list[str] = []
    more: Extras = {}
    values = unescaped(packed).split(SEPARATOR) if packed is not None else []
    for key, text in zip(values[::2], values[1::2], strict=True):
        if key == "mainfqan":
            main.append(text)
        elif key == "vomsfqan":
            others.append(text)
        else:
            more[key] = f"{more[key]}, {text}" if key in more else text
    return tuple([fqan for fqan in dict.fromkeys(main + others) if fqan]), more


@lru_cache(maxsize=4096)
def _environments(packed: str | None) -> tuple[str, ...]:
    if packed is None:
        return ()
    return tuple([name for name in dict.fromkeys(unescaped(packed).split(SEPARATOR)) if name])


def _transfers(packed: str | None, extras: Extras) -> tuple[Transfer, ...]:
    if packed is None:
        return ()
    values = (unescaped(packed) if "%" in packed else packed).split(SEPARATOR)
    transfers: list[Transfer] = []
    for at in range(0, len(values), 5):
        kind, url, size, start, end = values[at : at + 5]
        try:
            begun, ended, volume = int(start), int(end), int(size)
            direction = _DIRECTIONS[kind]
        except (ValueError, KeyError):
            direction = None
        if direction is not None and _SMALLEST <= volume < _LARGEST and begun < _LARGEST and ended < _LARGEST:
            begin, finish = begun if begun > 0 else None, ended if ended > 0 else None
            transfers.append(Transfer(direction, url, unsigned(volume), begin, finish, kind == _CACHED))
        else:
            extras[f"DataTransfers {url}"] = f"{kind} {size} {start} {end}"
    return tuple(transfers)
