"""A table that sacct wrote: its columns, the fields of a line, and the run of an allocation's line.

The columns may have any order. Names and comments may contain the delimiter: if a line has more fields than the header
has columns, fields are joined such that every column of a known form has that form. If there are several ways to do so,
the texts concerned are omitted, or the line is refused if one of them matters for accounting. A line with a field that
does not have the form of its column is refused. (The facts on sources, 6.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, Literal, NamedTuple

from formats.identity import run_record_id
from formats.job import Host, Job
from publisher.sources.fields import LineError
from publisher.sources.slurm import values
from publisher.sources.slurm.values import Clock, duration_ms

_MOST_COLUMNS: Final = 256
MOST_EXCESS: Final = 64
"""The most delimiters that the texts of a record may contain."""
_MOST_STEPS: Final = 20_000
_HEADER: Final = re.compile(r"[A-Za-z]+(?P<by>[^A-Za-z0-9 ]{1,8})(?:[A-Za-z]+(?P=by))*(?:[A-Za-z]+)?", re.ASCII)

_ID: Final = r"\d{1,12}(?:_(?:\d{1,9}|\[[^\]|]*\]))?(?:\+\d{1,6})?"
_JOB_ID: Final = re.compile(r"(\d{1,12})(?:_(?:(\d{1,9})|\[[^\]]*\]))?(?:\+(\d{1,6}))?", re.ASCII)
_NOTHING: Final = r"|Unknown|None|NONE|N/A|\(null\)|INVALID"
_TIME: Final = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d|\d{0,12}" + _NOTHING
_SPAN: Final = r"[\d:.-]*|UNLIMITED|Partition_Limit" + _NOTHING
_NUMBER: Final = r"\d*(?:\.\d+)?[KMGTP]?" + _NOTHING
_SIZE: Final = r"\d*(?:\.\d+)?[KMGTP]?[cn]?" + _NOTHING
_RESOURCES: Final = r"(?:[a-z0-9]+(?:/[^=|]*)?=[\w.-]*(?:,[a-z0-9]+(?:/[^=|]*)?=[\w.-]*)*,?)?" + _NOTHING
_FORMS: Final = {
    name: re.compile(form, re.ASCII)
    for names, form in (
        ("jobid jobidraw", _ID + r"(?:\.[\w+]+)?"),
        ("submit eligible start end", _TIME),
        ("totalcpu usercpu systemcpu", r"(?:[\d-]*:[\d:.]*)?" + _NOTHING),
        ("elapsed cputime suspended reserved planned mincpu avecpu timelimit", _SPAN),
        ("elapsedraw cputimeraw ncpus alloccpus nnodes allocnodes reqcpus reqnodes uid gid dbindex ntasks", _NUMBER),
        ("associd qosraw priority", _NUMBER),
        ("state", r"[A-Z_]+\+?(?: by \S+)?"),
        ("exitcode derivedexitcode", r"(?:\d+:\d+)?"),
        ("maxrss maxvmsize reqmem averss avevmsize", _SIZE),
        ("alloctres reqtres", _RESOURCES),
        ("tresusageintot", _RESOURCES.replace(r"[\w.-]*", r"[\w.:-]*")),
        ("nodelist", r"None assigned|\S*"),
        ("cluster", r"[\w.-]*"),
        ("user group account partition qos", r"[^\n]*"),
        ("", r""),
    )
    for name in names.split(" ")
}
_FREE: Final = frozenset(
    {"jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "wckey", "extra", "container"}
)
_TEXTS: Final = _FREE | {"account"}
"""What users write. Slurm takes any account if it does not check accounts; a line feed in one is not read as a part."""
_USED: Final = (
    "jobidraw", "jobid", "cluster", "jobname", "state", "start", "end", "submit", "eligible", "elapsedraw", "elapsed",
    "totalcpu", "usercpu", "systemcpu", "alloccpus", "ncpus", "allocnodes", "nnodes", "nodelist", "alloctres", "user",
    "group", "account", "partition", "exitcode", "maxrss", "maxvmsize", "consumedenergyraw", "allocgres",
)  # fmt: skip
_EXTRAS: Final = (
    "UID", "GID", "QOS", "ReqMem", "ReqCPUS", "ReqTRES", "AllocTRES", "AllocGRES", "TimelimitRaw", "DerivedExitCode",
    "WCKey", "Comment", "AdminComment", "Reservation", "Constraints", "Suspended", "DBIndex", "Flags", "Reason",
)  # fmt: skip
"""Columns kept besides the fields of a job. Command lines and folders are not kept: they may contain secrets."""
_NOT_KEPT: Final = values.UNKNOWN | {"00:00:00"}
_GRES_GPU: Final = re.compile(r"gpu(?::[^,:()]+)?:(\d{1,6})", re.ASCII)
_LARGEST_J: Final = 1e18


class ShiftedError(LineError):
    """The fields of a line are not those of the columns: a user's text may have shifted them, or broken the line."""


class Step(NamedTuple):
    """The usage of a step: largest resident set and virtual memory; CPU time as Slurm added it up, and as it was
    sampled. `is_srun`: started by srun, not Slurm's own (`batch`, `extern`, `interactive`).
    """

    rss_kib: int | None = None
    virtual_kib: int | None = None
    cpu_ms: int | None = None
    user_ms: int | None = None
    system_ms: int | None = None
    is_srun: bool = False
    sampled_cpu_ms: int | None = None
    wall_ms: int | None = None
    cores: int | None = None


_OF_STEP: Final = (
    "maxrss", "maxvmsize", "totalcpu", "usercpu", "systemcpu", "tresusageintot", "elapsedraw", "elapsed", "alloccpus",
    "ncpus",
)  # fmt: skip


class Layout:
    """The columns of a table. `delimiter` separates the fields of a line."""

    def __init__(self, names: Sequence[str], delimiter: str) -> None:
        self.names = tuple(names)
        self.delimiter = delimiter
        self.columns = len(names)
        lower = [name.lower() for name in names]
        at = {name: index for index, name in enumerate(lower)}
        self._id = at.get("jobidraw", at.get("jobid", -1))
        self._start = at.get("start", -1)
        self._pick = itemgetter(*(at.get(name, -1) for name in _USED))
        self._step = itemgetter(*(at.get(name, -1) for name in _OF_STEP))
        self._extras = [(name, at[name.lower()]) for name in _EXTRAS if name.lower() in at]
        self._forms = [None if name in _FREE else _FORMS.get(name) for name in lower]
        self._free = frozenset(index for index, name in enumerate(lower) if name in _FREE)
        self._matter = {index for index, name in enumerate(lower) if name in _USED and name not in _FREE}
        texts = [index for index, name in enumerate(lower) if name in _TEXTS]
        self._first_text = min(texts, default=self.columns)
        self._after_text = self.columns - 1 - max(texts, default=self.columns - 1)
        self._row: re.Pattern[bytes] | Literal[False] | None = None
        self.free_last = names[-1] if lower[-1] in _TEXTS else ""
        """The last column, if it may contain any text, including line feeds."""
        self.missing = [
            name for name, there in (("JobID", self._id), ("Start", at.get("start", -1)), ("End", at.get("end", -1)))
            if there < 0
        ]  # fmt: skip

    @classmethod
    def of(cls, line: str) -> Layout | None:
        """The layout of a header line; None if the line is not a header."""
        match = _HEADER.fullmatch(line) if 5 <= len(line) < 8_192 else None
        if match is None:
            return None
        names = line.split(match["by"])
        lower = {name.lower() for name in names}
        if len(names) > _MOST_COLUMNS or not lower & {"jobid", "jobidraw"} or len(lower) < len(names):
            return None
        return cls(names, match["by"])

    @property
    def header(self) -> str:
        """The header line."""
        return self.delimiter.join(self.names)

    def fields(self, parts: list[str]) -> list[str]:
        """The fields of a line that was split into at least as many parts as there are columns.

        Texts that can be separated in several ways are omitted; one more field names their columns. Raises `LineError`
        if that concerns a field that matters for accounting.
        """
        excess = len(parts) - self.columns
        if excess == 0:
            return parts
        if excess < 0 or excess > MOST_EXCESS or not self._free:
            raise ShiftedError(f"{len(parts)} fields, but the header has {self.columns}")
        readings: list[list[str]] = []
        self._put_together(parts, [], 0, excess, readings, [_MOST_STEPS])
        if not readings:
            raise ShiftedError(f"{len(parts)} fields, but the header has {self.columns}, and no way to join them fits")
        first = readings[0]
        differ = {at for reading in readings[1:] for at in range(self.columns) if reading[at] != first[at]}
        if not differ:
            return first
        if differ & self._matter:
            raise LineError("a name or comment contains the delimiter, and the fields can be separated in several ways")
        known = ["" if at in differ else field for at, field in enumerate(first)]
        return [*known, ", ".join(self.names[at] for at in sorted(differ))]

    def fits(self, fields: Sequence[str]) -> bool:
        """Whether each field has the form of its column, if that is known."""
        return self._fit(fields[: self.columns], self._forms)

    def check(self, fields: Sequence[str]) -> None:
        """Raises `LineError`, naming the column, for the first field that does not have the form of its column;
        `ShiftedError` if it is the id, or several do not.
        """
        wrong = [
            at
            for at, (form, field) in enumerate(zip(self._forms, fields, strict=False))
            if form is not None and form.fullmatch(field) is None
        ]
        if wrong:
            error = ShiftedError if len(wrong) > 1 or self._id in wrong else LineError
            raise error(
                f"{self.names[wrong[0]]} does not have its form: a text that contains the delimiter may have shifted "
                "the columns"
            )

    def is_row(self, line: bytes, fields: Sequence[str]) -> bool:
        """Whether each field of a line, with as many fields as columns, has the form of its column."""
        if self._row is None:
            self._row = _row_form(self.names, self.delimiter)
        return self._row.fullmatch(line) is not None if self._row else self.fits(fields)

    def begins(self, line: bytes) -> bool:
        """Whether a line that is not a record is the beginning of one, up to a place in a text of a user, with an id
        before the first.

        It may have more fields than the header has columns, since such a text may have delimiters.
        """
        parts = line.decode("utf-8", "backslashreplace").split(self.delimiter)
        if not self._id < self._first_text < len(parts) or (len(parts) >= self.columns and self.free_last):
            return False
        return self._begins_so(parts)

    def is_rest(self, line: bytes) -> bool:
        """Whether a line that is not a record ends as one, and does not begin so."""
        parts = line.decode("utf-8", "backslashreplace").split(self.delimiter)
        return self.ends(line) and not (len(parts) > self._first_text and self._begins_so(parts))

    def _begins_so(self, parts: Sequence[str]) -> bool:
        before = self._first_text
        return self._fit(parts[:before], self._forms[:before]) and parts[self._id] != ""

    def ends(self, line: bytes) -> bool:
        """Whether a line ends as a record does, after the last text. False for a table that ends with a text."""
        last = self._after_text
        parts = line.decode("utf-8", "backslashreplace").split(self.delimiter)
        return 0 < last < len(parts) and self._fit(parts[-last:], self._forms[-last:])

    @staticmethod
    def _fit(fields: Sequence[str], forms: Sequence[re.Pattern[str] | None]) -> bool:
        return all(form is None or form.fullmatch(field) for form, field in zip(forms, fields, strict=True))

    def _put_together(
        self, parts: list[str], taken: list[str], at: int, excess: int, readings: list[list[str]], left: list[int]
    ) -> None:
        """Append every way to make the fields of the columns from `len(taken)` on from the parts from `at` on."""
        taken = list(taken)
        while len(taken) < self.columns:
            left[0] -= 1
            if left[0] < 0:
                raise LineError("a name or comment contains the delimiter too often")
            column = len(taken)
            if excess and column in self._free:
                for more in range(excess + 1):
                    joined = self.delimiter.join(parts[at : at + more + 1])
                    self._put_together(parts, [*taken, joined], at + more + 1, excess - more, readings, left)
                return
            form = self._forms[column]
            if form is not None and form.fullmatch(parts[at]) is None:
                return
            taken.append(parts[at])
            at += 1
        if excess == 0:
            readings.append(taken)

    def job_id(self, fields: Sequence[str]) -> str:
        """The id of the allocation or step of a line."""
        return fields[self._id]

    def start(self, fields: Sequence[str], clock: Clock) -> int | None:
        """When the allocation or step of a line began. Raises `LineError`."""
        return clock.instant(fields[self._start])

    def step(self, fields: Sequence[str]) -> Step:
        """What a step used. Raises `LineError`."""
        rss, virtual, total, user, system, usage, elapsed_raw, elapsed, alloc_cpus, ncpus = self._step((*fields, ""))
        total_ms = duration_ms(total)
        sampled_ms = values.sampled_cpu_ms(usage) if usage else None
        rss_kib, virtual_kib, is_srun = (
            values.size_kib(rss),
            values.size_kib(virtual),
            fields[self._id][-1:].isdecimal(),
        )
        if total_ms and (sampled_ms is None or sampled_ms <= total_ms):  # nearly always
            return Step(rss_kib, virtual_kib, total_ms, duration_ms(user), duration_ms(system), is_srun)
        wall_s = values.count(elapsed_raw)
        return Step(
            rss_kib,
            virtual_kib,
            total_ms,
            duration_ms(user),
            duration_ms(system),
            is_srun,
            sampled_ms,
            duration_ms(elapsed) if wall_s is None else wall_s * 1000,
            values.count(alloc_cpus or ncpus),
        )

    def job(self, fields: list[str], clock: Clock, cluster: str) -> Job | None:
        """The run of an allocation's line; None: it never started. `cluster` is used if the column is missing.

        `fields` ends with an empty field, which stands for every missing column. Raises `LineError`.
        """
        (
            raw, shown, own_cluster, name, state, start_text, end_text, submit, eligible, elapsed_raw, elapsed,
            total, user_cpu, system_cpu, alloc_cpus, ncpus, alloc_nodes, nnodes, node_list, tres, user,
            group, account, partition, exit_code, rss, virtual, energy, gres,
        ) = self._pick(fields)  # fmt: skip
        number, array, task, offset = _ids(raw, shown)
        unfinished, ended = values.meaning(state) if state else (end_text in values.UNKNOWN, "completed")
        wall_ms = _whole(elapsed_raw) * 1000 if elapsed_raw else duration_ms(elapsed) if elapsed else None
        submitted = clock.instant(submit)
        start, end = clock.span(start_text, end_text, None if wall_ms is None else wall_ms // 1000, submitted)
        if end is None and not unfinished:
            # Its end decides its month: guessed, it could be added to one that was sent.
            raise LineError("a finished job has no end")
        # It got no node: cancelled while it waited, it may have a start all the same, and would be a job without usage.
        if start is None or (node_list and not wall_ms and node_list in values.NO_NODES):
            return None
        if "[" in number:
            raise LineError("a line of several array tasks has a start")
        if end is None:
            wall_ms = None
        elif end < start:
            raise LineError(f"ends at {end}, before its start at {start}")
        elif wall_ms is None:
            wall_ms = (end - start) * 1000
        if submitted is not None and submitted > start:
            before_resize = values.time_before_resize_s(start, submitted, end)
            start += before_resize
            wall_ms = None if wall_ms is None else max(0, wall_ms - before_resize * 1000)
        cores = values.count(alloc_cpus or ncpus)
        if cores is None and tres:
            cores = values.tres_count(tres, "cpu")
        hosts = _hosts(node_list, cores)
        node_count = values.count(alloc_nodes or nnodes)
        code, signal = _exit(exit_code) if exit_code else (None, None)
        user_ms, system_ms = duration_ms(user_cpu), duration_ms(system_cpu)
        cpu_ms = duration_ms(total)
        if cpu_ms is None and user_ms is not None and system_ms is not None:
            cpu_ms = user_ms + system_ms
        extras: dict[str, int | float | str] = {
            key: value for key, index in self._extras if (value := fields[index]) not in _NOT_KEPT
        }
        if len(fields) > self.columns + 1:
            extras["ambiguous_columns"] = fields[self.columns]
        if offset is not None:
            extras["het_job_id"] = shown.partition("+")[0]
            extras["het_offset"] = offset
        where = own_cluster or cluster
        return Job(
            record_id=f"{_prefix(where)}{number}/{start}",
            system="slurm",
            status="running" if end is None else ended,
            local_id=number,
            name=name or None,
            array_id=array,
            array_task=task,
            local_user=user or None,
            local_group=group or None,
            account=account or None,
            cluster=where or None,
            queue=partition or None,
            hosts=hosts or (),
            nodes=node_count or (len(hosts) if hosts else None),
            cores=cores or None,
            slots=cores or None,
            gpus=values.gpus(tres) if "gres" in tres else _old_gpus(gres) if gres else None,
            submit=submitted,
            eligible=clock.instant(eligible),
            start=start,
            end=end,
            wall_ms=wall_ms,
            cpu_ms=cpu_ms,
            cpu_user_ms=user_ms,
            cpu_system_ms=system_ms,
            memory_rss_kib=values.size_kib(rss) if rss else None,
            memory_virtual_kib=values.size_kib(virtual) if virtual else None,
            energy_j=_joules(energy) if energy else None,
            exit_code=code,
            exit_signal=signal,
            end_reason=state if state and state != "COMPLETED" and end is not None else None,
            extras=extras if hosts is not None else {**extras, "NodeList": node_list},
        )


@lru_cache(maxsize=16)
def _row_form(names: tuple[str, ...], delimiter: str) -> re.Pattern[bytes] | Literal[False]:
    """The forms of all columns as one expression, so that a line is matched once. False for a delimiter of several
    characters.
    """
    if len(delimiter.encode()) > 1:
        return False
    by = re.escape(delimiter)
    forms: list[str] = []
    for name in names:
        known = None if name.lower() in _FREE else _FORMS.get(name.lower())
        form = r"[^\n]*" if known is None else known.pattern
        for anything, but in (
            (r"[^\n]", rf"[^\n{by}]"),
            (r"\S", rf"[^\s{by}]"),
            (r"[^\]|]", rf"[^\]{by}]"),
            ("[^=|]", f"[^={by}]"),
        ):
            form = form.replace(anything, but)
        forms.append(f"(?:{form})")
    return re.compile(by.join(forms).encode())


@lru_cache(maxsize=64)
def _prefix(cluster: str) -> str:
    """The beginning of the record ids of a cluster (`run_record_id`); job ids need no escaping."""
    return run_record_id("slurm", cluster, "0", 0).removesuffix("0/0")


def _ids(raw: str, shown: str) -> tuple[str, str | None, int | None, int | None]:
    """The id of the run, its array and task, and its place in a heterogeneous job."""
    if shown == raw or not shown:
        if not (raw.isdecimal() and len(raw) <= 12 and raw.isascii()):
            match = _JOB_ID.fullmatch(raw)
            if match is None:
                raise LineError("the job id has an unknown form")
            return raw, match[1] if match[2] else None, _task(match[2]), _task(match[3])
        return raw, None, None, None
    match = _JOB_ID.fullmatch(shown)
    if match is None or (raw and _JOB_ID.fullmatch(raw) is None):
        raise LineError("the job id has an unknown form")
    return raw or shown, match[1] if match[2] else None, _task(match[2]), _task(match[3])


def _task(text: str | None) -> int | None:
    return None if text is None else int(text)


def _whole(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 11):
        raise LineError("the elapsed time is not a number of seconds")
    return int(text)


@lru_cache(maxsize=4_096)
def _hosts(node_list: str, cores: int | None) -> tuple[Host, ...] | None:
    """The hosts of a list of nodes; None: the list is not understood. A single host has all the cores."""
    names = values.nodes(node_list)
    if names is None:
        return None
    if len(names) == 1:
        return (Host(names[0], cores),)
    return tuple([Host(name) for name in names])


@lru_cache(maxsize=1_024)
def _exit(text: str) -> tuple[int | None, int | None]:
    """Code and signal of `code:signal`; a run that a signal ended has no code."""
    code, _, signal = text.partition(":")
    number, by = values.count(code), values.count(signal)
    if number is None or by is None:
        raise LineError("the exit code is not of the form code:signal")
    return (None if by and not number else number), by or None


def _joules(text: str) -> float | None:
    """Energy; None: Slurm writes zero, or the largest number, if nothing was measured."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < _LARGEST_J else None


def _old_gpus(gres: str) -> int | None:
    """GPUs of AllocGRES, which Slurm had before TRES: `gpu:2`, `gpu:k80:4`."""
    counts = [int(number) for number in _GRES_GPU.findall(gres)]
    return sum(counts) if counts else None
