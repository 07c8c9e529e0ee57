"""Stored runs as the columns of a `Frame`: only the requested columns, many runs at a time.

Only the fields that the columns need are decoded (`slim`). What all runs of a class share, with the additions of the
configuration and of the grid log, is joined to the columns when they are read (`publisher.report.tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import isnan
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from sqlalchemy import Connection

from formats.identity import UnknownEncodingError, encode
from formats.job import Events, Host, Job
from publisher.encoded_run import class_values, unpack
from publisher.job_ids import JobIds
from publisher.messages.entries import RESERVATION, complex_items
from publisher.report.column_tally import Ints
from publisher.report.frame import (
    CPU_UNKNOWN,
    MEMORY_UNKNOWN,
    NUMBERS,
    OBJECTS,
    STAGED_UNKNOWN,
    UNKNOWN,
    VIRTUAL_UNKNOWN,
    WORDS,
    Coding,
    Frame,
)
from publisher.sources.dqs import SEVERAL_LINES, without_slaves
from publisher.store.classes import classes_by_id, decode
from publisher.store.report_queries import Rows

_NUMBER_FIELDS: Final = {
    "start": ("start", "end", "execution_start", "execution_end", "wall_ms", "submit"),
    "stop": ("end", "execution_end"),
    "end": ("end",),
    "submit": ("submit",),
    "eligible": ("eligible",),
    "run": ("run",),
    "user_ms": ("cpu_ms", "cpu_user_ms", "cpu_system_ms"),
    "system_ms": ("cpu_ms", "cpu_user_ms", "cpu_system_ms"),
    "cpu_ms": ("cpu_ms", "cpu_user_ms", "cpu_system_ms"),
    "wall_ms": ("wall_ms",),
    "tasks_wall_ms": ("wall_ms", "extras"),
    "slots": ("slots", "cores"),
    "gpus": ("gpus", "hosts"),
    "incomplete": (
        "cpu_ms", "cpu_user_ms", "cpu_system_ms", "memory_rss_kib", "memory_virtual_kib", "stage_in_bytes",
        "stage_out_bytes",
    ),
    "stage_in_bytes": ("stage_in_bytes",),
    "stage_out_bytes": ("stage_out_bytes",),
    "memory_kib": ("memory_rss_kib",),
    "virtual_kib": ("memory_virtual_kib",),
    "mem_ugb_s": ("extras",),
    "io_ugb": ("extras",),
    "iow_us": ("extras",),
    "energy_mj": ("energy_j",),
}  # fmt: skip
_AMOUNT_FIELDS: Final = {
    "memory_kib": "memory_rss_kib",
    "virtual_kib": "memory_virtual_kib",
    "stage_in_bytes": "stage_in_bytes",
    "stage_out_bytes": "stage_out_bytes",
}
"""Columns of amounts that are 0 where they are unknown."""
_WORD_FIELDS: Final = {
    "host": ("hosts",),
    "placed": ("hosts",),
    "complex": ("extras",),
    "group": ("local_group",),
    "user": ("local_user",),
    "project": ("project",),
    "account": ("account",),
    "department": ("department",),
    "pe": ("parallel_environment",),
    "task": ("array_task",),
    "queue": ("queue",),
    "status": ("status",),
    "cluster": ("cluster",),
    "reservation": ("extras",),
    "slots": ("slots", "cores"),
}
_OBJECT_FIELDS: Final = {
    "job": ("local_id", "name", "global_id", "array_id", "array_task", "cluster", "extras"),
    "events": ("events", "local_id"),
    "core_numbers": ("core_numbers",),
}
_MILLION: Final = 1_000_000
_MOST_J: Final = 4_000_000_000_000_000
"""More than a thousand GWh."""


class SlimExtras(msgspec.Struct, frozen=True, gc=False):
    """The extras of a source that reports use."""

    complex: str = ""
    category: str = ""
    mem: int | float | str | None = None
    io: int | float | str | None = None
    iow: int | float | str | None = None
    pe_tasks: str = ""
    dqs_job_name: str = ""
    arid: int | float | str = 0
    Reservation: int | float | str = ""
    resvID: int | float | str = ""  # noqa: N815 - as PBS spells it
    resvname: int | float | str = ""
    rsvId: int | float | str = ""  # noqa: N815 - as LSF spells it


_TYPES: Final[dict[str, tuple[Any, Any]]] = {
    "hosts": (tuple[Host, ...], ()),
    "extras": (SlimExtras, SlimExtras()),
    "events": (Events | None, None),
    "core_numbers": (tuple[str, ...], ()),
}
"""Types and defaults of fields that are not numbers or texts."""
_FLOATS: Final = frozenset({"energy_j"})
_NESTED: Final = frozenset({*_TYPES, "fqans", "benchmarks", "runtime_environments", "transfers", "process_ids"})


def _slim(requested: Collection[str]) -> type[msgspec.Struct]:
    """A run with the fields of `Job` until the last that is requested. Lists and mappings before it are skipped; to
    skip a number or a text would take as long as to decode it.
    """
    fields = msgspec.structs.fields(Job)
    last = max(place for place, field in enumerate(fields) if field.name in requested)
    columns: list[tuple[str, Any, Any]] = []
    for field in fields[: last + 1]:
        if field.name not in _NESTED:
            columns.append((field.name, field.type, "" if field.required else field.default))
        elif field.name in requested:
            columns.append((field.name, *_TYPES[field.name]))
        else:
            columns.append((field.name, msgspec.Raw, msgspec.Raw()))
    return msgspec.defstruct("Slim", columns, frozen=True, gc=False, array_like=True)


OF_CLASS: Final = ("source", "vo", "dn")
"""Columns of words that the runs of a class share."""
OWN_COLUMNS: Final = (NUMBERS | WORDS | OBJECTS) - frozenset(OF_CLASS)
"""Columns that are made of a run alone: `user` without the name of the class, ids without the prefix of the source."""


class ColumnMaker:
    """Makes frames of slim runs; holds the codings."""

    def __init__(self, requested: frozenset[str], *, running: bool = False, second_names: bool = True) -> None:
        """`running`: frames will be made with a `now`. `second_names`: there may be runs of DQS, whose jobs have a
        second name in their extras; decoding it takes a fifth of a report's time."""
        if unknown := requested - OWN_COLUMNS:
            raise ValueError(f"no such column: {', '.join(sorted(unknown))}")
        self.requested = requested | {"start", "stop"}
        needed = {**_NUMBER_FIELDS, **_WORD_FIELDS, **_OBJECT_FIELDS}
        always = ["status"] if running else []
        if not second_names:
            needed["job"] = tuple(field for field in needed["job"] if field != "extras")
        fields = sorted({*always, *(field for name in self.requested for field in needed.get(name, ()))})
        self.slim = _slim(fields)
        self._fields = fields
        of_numbers = {field for name in self.requested & NUMBERS for field in _NUMBER_FIELDS.get(name, ())}
        self._numbers = sorted(of_numbers - _NESTED - _FLOATS)
        self.codings = {name: Coding(_words_of(name)) for name in self.requested & WORDS}

    def slim_of(self, job: Any) -> Any:
        """The slim run of a whole job."""
        given = {field: value for field in self._fields if (value := getattr(job, field)) is not None}
        if "extras" in given:
            given["extras"] = msgspec.convert(given["extras"], SlimExtras)
        return self.slim(**given)

    def slim_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the values that slim runs have."""
        return {field: values[field] for field in self._fields if field in values}

    def frame(self, runs: Sequence[Any], now: int | None, more: Mapping[str, Sequence[int]] | None = None) -> Frame:
        """A frame of runs; `now` replaces a missing end.

        A run without times is left out. `more`: further columns of numbers.
        """
        raw = _Raw(runs, self._numbers)
        start, stop = _times(raw, now)
        numbers: dict[str, Ints] = {"start": start, "stop": stop}
        for name in self.requested & NUMBERS - {"start", "stop"}:
            numbers[name] = _number(name, raw, numbers)
        for name, values in (more or {}).items():
            numbers[name] = np.array(values, np.int64)
        codes = {name: self._codes(name, runs) for name in self.requested & WORDS}
        objects = {name: self._objects(name, runs) for name in self.requested & OBJECTS}
        known = (start != UNKNOWN) & (stop != UNKNOWN)
        if now is not None:  # attempts to start that failed have no end either
            known &= (raw["end"] != UNKNOWN) | np.array([run.status == "running" for run in runs], np.bool_)
        return Frame(len(runs), numbers, codes, objects).where(known)

    def _codes(self, name: str, runs: Sequence[Any]) -> Ints:
        code = self.codings[name].code
        if name == "complex":
            codes = [code[run.extras.complex, run.extras.category] for run in runs]
        elif name == "reservation":
            codes = [code[_reservation(run.extras)] for run in runs]
        elif name == "slots":
            codes = [code[slots] for slots in _number("slots", _Raw(runs), {}).tolist()]
        else:
            codes = [code[value] for value in map(attrgetter(_WORD_FIELDS[name][0]), runs)]
        return np.array(codes, np.int64)

    def _objects(self, name: str, runs: Sequence[Any]) -> list[Any]:
        if name != "job":
            return [getattr(run, name) for run in runs]
        found = []
        has_second = "extras" in self._fields
        for run in runs:
            local_id, name, global_id, array_id, task, cluster = _named(run)
            second = (run.extras.dqs_job_name or None) if has_second else None
            ids = (local_id, name, global_id, array_id, task, cluster, second)
            found.append(tuple.__new__(JobIds, ids))  # a third of the time of calling it
        return found


class _Raw:
    """The fields of slim runs as columns."""

    def __init__(self, runs: Sequence[Any], numbers: Sequence[str] = ()) -> None:
        """`numbers` are fields that are converted at once: two or more, since `start` and `stop` need as many."""
        self.runs = runs
        self._columns: dict[str, Ints] = {}
        if numbers:
            cells = _none_to_unknown(chain.from_iterable(map(attrgetter(*numbers), runs)))
            with suppress(OverflowError):  # converted one by one, below
                table = np.fromiter(cells, np.int64, len(runs) * len(numbers)).reshape(-1, len(numbers))
                self._columns = dict(zip(numbers, np.ascontiguousarray(table.T), strict=True))

    def __getitem__(self, field: str) -> Ints:
        if field not in self._columns:
            values = _none_to_unknown(map(attrgetter(field), self.runs))
            try:
                self._columns[field] = np.fromiter(values, np.int64, len(self.runs))
            except OverflowError:  # impossible, and larger than 64 bits
                most = (1 << 62) - 1
                bounded = (value if value == UNKNOWN else max(-most, min(most, value)) for value in values)
                self._columns[field] = np.fromiter(bounded, np.int64, len(self.runs))
        return self._columns[field]

    def of_extras(self, number: Callable[[SlimExtras], int]) -> Ints:
        return np.fromiter((number(run.extras) for run in self.runs), np.int64, len(self.runs))


def _none_to_unknown(values: Iterable[int | None]) -> list[int]:
    return [UNKNOWN if value is None else value for value in values]


def _number(name: str, raw: _Raw, numbers: dict[str, Ints]) -> Ints:
    if name == "slots":
        slots = _zero_for_unknown(raw["slots"])
        slots = np.where(slots == 0, _zero_for_unknown(raw["cores"]), slots)
        return np.where(slots == 0, 1, slots)
    if name in {"user_ms", "system_ms", "cpu_ms"}:
        return _cpu(name, raw)
    if name in {"wall_ms", "tasks_wall_ms"}:
        wall_ms = raw["wall_ms"]
        length_s = np.maximum(numbers["stop"] - numbers["start"], 0)
        wall_ms = np.where(wall_ms == UNKNOWN, length_s * 1000, wall_ms)
        return wall_ms if name == "wall_ms" else wall_ms + raw.of_extras(lambda extras: _tasks_ms(extras.pe_tasks))
    if name in _COMPUTED:
        return _COMPUTED[name](raw)
    if name in {"mem_ugb_s", "io_ugb", "iow_us"}:
        get = attrgetter({"mem_ugb_s": "mem", "io_ugb": "io", "iow_us": "iow"}[name])
        return raw.of_extras(lambda extras: _millionths(get(extras)))
    field = _AMOUNT_FIELDS.get(name)
    return _zero_for_unknown(raw[field]) if field is not None else raw[name]


def _times(raw: _Raw, now: int | None) -> tuple[Ints, Ints]:
    """When the payloads ran, as in `publisher.messages.entries`, or UNKNOWN."""
    stop = np.where(raw["execution_end"] != UNKNOWN, raw["execution_end"], raw["end"])
    if now is not None:
        stop = np.where(stop == UNKNOWN, now, stop)
    wall_ms = raw["wall_ms"]
    counted_back = np.where((wall_ms == UNKNOWN) | (stop == UNKNOWN), UNKNOWN, stop - wall_ms // 1000)
    start = np.where(raw["start"] != UNKNOWN, raw["start"], counted_back)
    start = np.where(start == raw["submit"], np.maximum(start, counted_back), start)
    return np.where(raw["execution_start"] != UNKNOWN, raw["execution_start"], start), stop


def _zero_for_unknown(column: Ints) -> Ints:
    return np.where(column == UNKNOWN, 0, column)


def _cpu(name: str, raw: _Raw) -> Ints:
    """CPU time that the source does not divide counts as user time."""
    whole, user, system = raw["cpu_ms"], raw["cpu_user_ms"], raw["cpu_system_ms"]
    unsplit = (user == UNKNOWN) & (system == UNKNOWN)
    split_user = np.where(unsplit, _zero_for_unknown(whole), _zero_for_unknown(user))
    split_system = np.where(unsplit, 0, _zero_for_unknown(system))
    if name == "cpu_ms":
        return np.where(whole == UNKNOWN, split_user + split_system, whole)
    return split_user if name == "user_ms" else split_system


def _incomplete(raw: _Raw) -> Ints:
    cpu = (raw["cpu_ms"] == UNKNOWN) & ((raw["cpu_user_ms"] == UNKNOWN) | (raw["cpu_system_ms"] == UNKNOWN))
    memory, virtual = raw["memory_rss_kib"] == UNKNOWN, raw["memory_virtual_kib"] == UNKNOWN
    staged = (raw["stage_in_bytes"] == UNKNOWN) & (raw["stage_out_bytes"] == UNKNOWN)
    bits: Ints = CPU_UNKNOWN * cpu.astype(np.int64) + MEMORY_UNKNOWN * memory + VIRTUAL_UNKNOWN * virtual
    bits += STAGED_UNKNOWN * staged
    return bits


def _gpus(raw: _Raw) -> Ints:
    whole = _zero_for_unknown(raw["gpus"])
    by_host = np.fromiter((sum(host.gpus or 0 for host in run.hosts) for run in raw.runs), np.int64, len(raw.runs))
    return np.maximum(whole, by_host)


def _energy(raw: _Raw) -> Ints:
    return np.fromiter((_millijoules(run.energy_j) for run in raw.runs), np.int64, len(raw.runs))


def _millijoules(joules: float | None) -> int:
    """Whole millijoules; what no run can use becomes the largest number, which views leave out."""
    if joules is None or isnan(joules):
        return UNKNOWN
    return round(max(-_MOST_J, min(_MOST_J, joules)) * 1000)


_COMPUTED: Final[Mapping[str, Callable[[_Raw], Ints]]] = {
    "gpus": _gpus, "incomplete": _incomplete, "energy_mj": _energy,
}  # fmt: skip


def _millionths(value: float | str | None) -> int:
    return round(value * _MILLION) if isinstance(value, int | float) and abs(value) < 1e12 else UNKNOWN


class _SlaveTask(msgspec.Struct, frozen=True, array_like=True):
    """The first fields of a slave's record, as the Grid Engine source stores it."""

    task: str
    host: str
    start: int
    end: int


_tasks: Final = msgspec.json.Decoder(list[_SlaveTask])


def _tasks_ms(text: str) -> int:
    """Wall time of the tasks of a tightly integrated job, without the master's."""
    return sum(max(task.end - task.start, 0) * 1000 for task in _tasks.decode(text)) if text else 0


_reservation: Final = attrgetter(*RESERVATION)
_named: Final = attrgetter("local_id", "name", "global_id", "array_id", "array_task", "cluster")


def _words_of(name: str) -> Callable[[Any], tuple[str, ...]]:
    if name in {"host", "placed"}:
        return lambda hosts: tuple(host.name for host in hosts if host.name)
    if name == "complex":
        return lambda complexes: complex_items(*complexes)
    if name == "reservation":
        return lambda found: tuple(str(each) for each in found if each)
    if name == "task":
        return lambda task: () if task is None else (str(task),)
    return lambda value: (str(value),) if value else ()


_ARRAY: Final = b"\xdd"
"""MessagePack's marker of an array whose length follows in four bytes."""


class SlimDecoder:
    """Decodes stored runs with what their classes share."""

    def __init__(self, maker: ColumnMaker, *, with_slaves: bool) -> None:
        self._maker = maker
        self._with_slaves = with_slaves
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[maker.slim])  # type: ignore[name-defined]
        self._facts: dict[int, bytes] = {}
        self._values: dict[int, dict[str, Any]] = {}
        """By class, the values that its runs do not store themselves, as fields of slim runs."""

    def unknown(self, page: Rows) -> set[int]:
        """The classes of a page that were not read yet."""
        return {class_id for _, class_id, _ in page} - self._facts.keys()

    def learn(self, connection: Connection, class_ids: set[int]) -> None:
        """Read what runs of these classes share."""
        for known in classes_by_id(connection, sorted(class_ids)):
            self._facts[known.id] = encode(known.facts)
            self._values[known.id] = self._maker.slim_values(class_values(self._facts[known.id]))

    def decoded(self, page: Rows) -> list[Any]:
        """The slim runs of a page whose classes were read; runs of DQS without their slaves.

        Raises the errors of `publisher.store.classes`. All runs are decoded at once, as one array.
        """
        packed, own = [], []
        try:
            for _, class_id, blob in page:
                left_to_class, one = unpack(blob)
                packed.append(one)
                own.append(self._values[class_id] if left_to_class else None)
            found = self._decoder.decode(b"".join([_ARRAY, len(packed).to_bytes(4, "big"), *packed]))
        except (UnknownEncodingError, msgspec.DecodeError, UnicodeDecodeError):
            return [
                self._maker.slim_of(without_slaves(self._whole(row))) for row in page
            ]  # raises an error that says which run is wrong
        runs = [
            msgspec.structs.replace(run, **values) if values else run for run, values in zip(found, own, strict=True)
        ]
        if self._with_slaves:
            for place, one in enumerate(packed):
                if SEVERAL_LINES in one:
                    runs[place] = self._maker.slim_of(without_slaves(self._whole(page[place])))
        return runs

    def _whole(self, row: tuple[int, int, bytes]) -> Job:
        run_id, class_id, blob = row
        return decode(blob, self._facts[class_id], f"number {run_id}")
