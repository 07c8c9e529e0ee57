"""One row of ARC's table AAR and what belongs to it, as a `Job`.

Pure. The sources of the rules are ARC's accounting technical details, tables 4 and 5, and the facts on ARC. Where ARC
writes zero because it does not know (nodes, cores, memory), the job says None. A value that is odd but does no harm is
kept in `extras` under its own name; a row that would make a wrong record is no job: `UnreadableRowError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from formats.identity import arc_record_id
from formats.job import Benchmark, Event, Job, Status, Transfer
from publisher.sources.arc_database import AAR_COLUMNS, SEPARATOR, Row, Sides
from publisher.sources.arc_values import benchmark_of, client_host, epoch_s, hosts_of, unescaped, unsigned

Direction = Literal["download", "upload"]
Extras = dict[str, int | float | str]

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
_ALL_INTEGERS: Final = {int}
_NEVER_NEGATIVE: Final = ("SubmitTime", "EndTime", "UsedWalltime", "UsedCPUUserTime", "UsedCPUKernelTime")
_KNOWN_INFO: Final = (
    "jobname",
    "lrms",
    "clienthost",
    "projectname",
    "systemsoftware",
    "wninstance",
    "nodenames",
    "nodename",
    "localuser",
)
_JOB_ID: Final = re.compile(r"[!-\[\]-~]+")
_LATEST: Final = 253_402_300_799
"""Last second of the year 9999: what is later is no time."""


class UnreadableRowError(ValueError):
    """A row that no job can be made of; the text is the reason, for people."""


class RowReader:
    """Makes jobs of rows. `names` are the tables of names, as `ArcDatabase.names`, and may grow between two calls.

    With `start_from_execution`, a job starts at LRMSSTART, with `end_from_lrms` it ends at LRMSEND, where ARC has seen
    these events; without them, and else, it starts at its submission and ends when it reached its terminal state.
    """

    def __init__(
        self, names: Mapping[str, Mapping[int, Row]], *, start_from_execution: bool = False, end_from_lrms: bool = False
    ) -> None:
        self._names = names
        self._start_from_execution = start_from_execution
        self._end_from_lrms = end_from_lrms
        self._endpoints: dict[int, tuple[str | None, str | None, str]] = {}
        self._texts: dict[tuple[str, int], str | None] = {}

    def job(self, row: Row, sides: Sides) -> Job:
        """The job of a row of table AAR.

        Raises `UnreadableRowError`.
        """
        (
            record_id, job_id, local_id, endpoint_id, queue_id, user_id, vo_id, status_id, exit_code, submit, end,
            nodes, cores, memory, virtual, wall, cpu_user, cpu_kernel, scratch, volume_in, volume_out,
        ) = row  # fmt: skip
        if set(map(type, row[_FIRST_NUMBER:])) != _ALL_INTEGERS:
            raise UnreadableRowError(_not_a_number(row))
        status = STATUSES.get(self._text("Status", status_id) or "")
        if status is None:
            raise UnreadableRowError(f"status {self._text('Status', status_id)!r} is unknown")
        interface, url, id_prefix = self._endpoint(endpoint_id)
        if not isinstance(job_id, str) or not ((job_id.isalnum() and job_id.isascii()) or _JOB_ID.fullmatch(job_id)):
            raise UnreadableRowError("JobID is empty or no printable ASCII text")
        if submit < 0 or end < 0 or wall < 0 or cpu_user < 0 or cpu_kernel < 0:
            raise UnreadableRowError(_negative(row))
        if submit > _LATEST or end > _LATEST:
            raise UnreadableRowError("SubmitTime or EndTime is after the year 9999")
        running = status == "running"
        if not running and not end:
            raise UnreadableRowError(f"status is {status}, but EndTime is 0")

        extras: Extras = {}
        events, at = _events(sides["JobEvents"].get(record_id), extras)
        info, benchmarks = _info(sides["JobExtraInfo"].get(record_id), extras)
        execution_start, execution_end = at.get("LRMSSTART"), at.get("LRMSEND")
        started = submit or None
        if self._start_from_execution and execution_start is not None:
            started = execution_start
        ended = end or None
        if self._end_from_lrms and execution_end is not None and not running:
            ended = execution_end
        fqans = _attributes(sides["AuthTokenAttributes"].get(record_id), extras)
        transfers = _transfers(sides["DataTransfers"].get(record_id), extras)
        environments = _environments(sides["RunTimeEnvironments"].get(record_id))
        known = {key: info.pop(key, None) or None for key in _KNOWN_INFO}
        extras.update(info)
        local_user, _, local_group = (known["localuser"] or "").partition(":")
        return Job(
            record_id=id_prefix + job_id,
            system="arc",
            status=status,
            global_id=job_id,
            local_id=unescaped(str(local_id)) if local_id else None,
            name=known["jobname"],
            user_dn=self._text("Users", user_id),
            local_user=local_user or None,
            local_group=local_group or None,
            vo=self._text("WLCGVOs", vo_id),
            fqans=fqans,
            project=known["projectname"],
            queue=self._text("Queues", queue_id),
            endpoint_url=url,
            endpoint_type=interface,
            client_host=client_host(known["clienthost"] or ""),
            hosts=hosts_of(known["nodenames"] or known["nodename"] or ""),
            nodes=nodes if nodes > 0 else None,
            cores=cores if cores > 0 else None,
            infrastructure="grid",
            lrms=known["lrms"],
            middleware="arc",
            service_class=known["wninstance"],
            system_software=known["systemsoftware"],
            runtime_environments=environments,
            submit=submit or None,
            lrms_submit=at.get("SUBMIT"),
            start=started,
            end=None if running else ended,
            execution_start=execution_start,
            execution_end=execution_end,
            events=events,
            wall_ms=None if running else wall * 1000,
            cpu_ms=None if running else (cpu_user + cpu_kernel) * 1000,
            cpu_user_ms=None if running else cpu_user * 1000,
            cpu_system_ms=None if running else cpu_kernel * 1000,
            memory_rss_kib=memory if memory > 0 else None,
            memory_virtual_kib=virtual if virtual > 0 else None,
            scratch_bytes=None if running else unsigned(scratch),
            stage_in_ms=_between_ms(at.get("PREPARING"), at.get("SUBMIT")),
            stage_out_ms=_between_ms(at.get("FINISHING", execution_end), at.get("FINISHED")),
            stage_in_bytes=None if running else unsigned(volume_in),
            stage_out_bytes=None if running else unsigned(volume_out),
            transfers=transfers,
            exit_code=None if running else _signed_exit_code(exit_code),
            benchmarks=benchmarks,
            extras=extras,
        )

    def _endpoint(self, number: Any) -> tuple[str | None, str | None, str]:
        known = self._endpoints.get(number)
        if known is None:
            row = self._names["Endpoints"].get(number)
            if row is None:
                raise UnreadableRowError(f"Endpoints has no row {number!r}")
            interface, url = (str(value or "") for value in row)
            known = (unescaped(interface) or None, unescaped(url) or None, arc_record_id(url, ""))
            self._endpoints[number] = known
        return known

    def _text(self, table: str, number: Any) -> str | None:
        key = (table, number)
        if key not in self._texts:
            row = self._names[table].get(number)
            if row is None:
                raise UnreadableRowError(f"{table} has no row {number!r}")
            self._texts[key] = unescaped(str(row[0] or "")) or None
        return self._texts[key]


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


def _events(packed: str | None, extras: Extras) -> tuple[tuple[Event, ...], dict[str, int]]:
    # A job that was run again has a state twice: the last one belongs to what is accounted.
    if packed is None:
        return (), {}
    values = packed.split(SEPARATOR)
    kinds = values[::2]
    times = [epoch_s(text) for text in values[1::2]]
    known = [at for at in times if at is not None]
    if len(known) < len(times):
        rows = list(zip(kinds, values[1::2], times, strict=True))
        extras.update((kind, text) for kind, text, at in rows if at is None)
        kinds = [kind for kind, _, at in rows if at is not None]
    return tuple(map(Event, known, kinds)), dict(zip(kinds, known, strict=True))


def _info(packed: str | None, extras: Extras) -> tuple[dict[str, str], tuple[Benchmark, ...]]:
    if packed is None:
        return {}, ()
    values = (unescaped(packed) if "%" in packed else packed).split(SEPARATOR)
    keys, texts = values[::2], values[1::2]
    info = dict(zip(keys, texts, strict=True))
    benchmark = info.pop("benchmark", None)
    if benchmark is None:
        return info, ()
    if keys.count("benchmark") == 1 and (score := benchmark_of(benchmark)) is not None:
        return info, (score,)
    benchmarks: dict[str, Benchmark] = {}
    for key, text in zip(keys, texts, strict=True):
        if key == "benchmark":
            score = benchmark_of(text)
            if score is None:
                extras["benchmark"] = text
            else:
                benchmarks.setdefault(score.type, score)
    return info, tuple(benchmarks.values())


def _attributes(packed: str | None, extras: Extras) -> tuple[str, ...]:
    main: list[str] = []
    others: list[str] = []
    values = unescaped(packed).split(SEPARATOR) if packed is not None else []
    for key, text in zip(values[::2], values[1::2], strict=True):
        if key == "mainfqan":
            main.append(text)
        elif key == "vomsfqan":
            others.append(text)
        else:
            extras[key] = f"{extras[key]}, {text}" if key in extras else text
    return tuple([fqan for fqan in dict.fromkeys(main + others) if fqan])


def _environments(packed: str | None) -> tuple[str, ...]:
    if packed is None:
        return ()
    return tuple([name for name in dict.fromkeys(unescaped(packed).split(SEPARATOR)) if name])


def _transfers(packed: str | None, extras: Extras) -> tuple[Transfer, ...]:
    values = unescaped(packed).split(SEPARATOR) if packed is not None else []
    transfers: list[Transfer] = []
    for kind, url, size, start, end in zip(*(values[column::5] for column in range(5)), strict=True):
        try:
            transfers.append(_transfer(kind, url, int(size), int(start), int(end)))
        except (ValueError, KeyError):
            extras[f"DataTransfers {url}"] = f"{kind} {size} {start} {end}"
    return tuple(transfers)


def _transfer(kind: str, url: str, size: int, start: int, end: int) -> Transfer:
    times = (start if start > 0 else None, end if end > 0 else None)
    return Transfer(_DIRECTIONS[kind], url, unsigned(size), *times, kind == _CACHED)
