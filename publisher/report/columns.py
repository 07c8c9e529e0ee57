"""Stored runs as record batches with the columns of a part, with null where nothing is known.

Only the fields that the columns need are decoded. What all runs of a class share, with the additions of the
configuration and of the grid log, is joined when the columns are read (`publisher.report.tables`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from formats.ending import ending_of
from formats.identity import UnknownEncodingError, encode
from formats.job import Events, Host, Job
from publisher.encoded_run import class_values, unpack
from publisher.messages.entries import RESERVATION, complex_items
from publisher.messages.run_energy import millijoules
from publisher.report.archive import (
    CORE_NUMBERS,
    CPU_UNKNOWN,
    MEMORY_UNKNOWN,
    STAGED_UNKNOWN,
    VIRTUAL_UNKNOWN,
)
from publisher.report.column_files import CLASS_ID, PART_ID, PART_SCHEMA, RUN_ID
from publisher.report.integers import BOUND, UNKNOWN, Ints
from publisher.sources.dqs import SEVERAL_LINES, without_slaves
from publisher.sources.pbs import values as pbs_values
from publisher.sources.slurm import values as slurm_values
from publisher.store.classes import classes_by_id, decode
from publisher.store.report_queries import Rows

_NUMBER_FIELDS: Final = (
    "start", "end", "execution_start", "execution_end", "submit", "eligible", "run", "wall_ms", "cpu_ms", "cpu_user_ms",
    "cpu_system_ms", "slots", "cores", "gpus", "memory_rss_kib", "memory_virtual_kib", "stage_in_bytes",
    "stage_out_bytes",
)  # fmt: skip
_WORD_FIELDS: Final = {
    "group": "local_group", "user": "local_user", "project": "project", "account": "account",
    "department": "department", "pe": "parallel_environment", "queue": "queue", "status": "status",
    "cluster": "cluster", "task": "array_task", "placed": "hosts",
}  # fmt: skip
"""Fields with few different values, by their columns."""
_NAME_FIELDS: Final = ("local_id", "name", "global_id", "array_id")
_MILLION: Final = 1_000_000


class SlimExtras(msgspec.Struct, frozen=True, gc=False):
    """The extras of a source that reports use. Another source, such as an add-on, may have anything by these names."""

    complex: int | float | str = ""
    category: int | float | str = ""
    mem: int | float | str | None = None
    io: int | float | str | None = None
    iow: int | float | str | None = None
    pe_tasks: int | float | str = ""
    dqs_job_name: int | float | str = ""
    arid: int | float | str = 0
    Reservation: int | float | str = ""
    resvID: int | float | str = ""  # noqa: N815 - as PBS spells it
    resvname: int | float | str = ""
    rsvId: int | float | str = ""  # noqa: N815 - as LSF spells it
    ReqTRES: int | float | str = ""
    ReqMem: int | float | str = ""
    RequestMemory: int | float | str = ""
    asked_mem: int | float | str = msgspec.field(name="Resource_List.mem", default="")


_TYPES: Final[dict[str, tuple[Any, Any]]] = {
    "hosts": (tuple[Host, ...], ()),
    "extras": (SlimExtras, SlimExtras()),
    "events": (Events | None, None),
    "core_numbers": (tuple[str, ...], ()),
}
"""Types and defaults of fields that are not numbers or texts."""
_ENDING_FIELDS: Final = ("system", "status", "end_reason")
_FIELDS: Final = (*_NUMBER_FIELDS, *_WORD_FIELDS.values(), *_NAME_FIELDS, *_ENDING_FIELDS, "energy_j", *_TYPES)
_SKIPPED: Final = frozenset({"fqans", "benchmarks", "runtime_environments", "transfers", "process_ids"})


def _slim() -> Any:
    """A run with the fields of `Job` until the last that is needed. Lists and mappings before it are skipped; to
    skip a number or a text would take as long as to decode it.
    """
    fields = msgspec.structs.fields(Job)
    last = max(place for place, field in enumerate(fields) if field.name in _FIELDS)
    columns: list[tuple[str, Any, Any]] = []
    for field in fields[: last + 1]:
        if field.name in _TYPES:
            columns.append((field.name, *_TYPES[field.name]))
        elif field.name in _SKIPPED:
            columns.append((field.name, msgspec.Raw, msgspec.Raw()))
        else:
            columns.append((field.name, field.type, "" if field.required else field.default))
    return msgspec.defstruct("Slim", columns, frozen=True, gc=False, array_like=True)


_Slim: Final = _slim()


def slim_of(job: Any) -> Any:
    """The slim run of a whole job."""
    fields = {field: value for field in _FIELDS if (value := getattr(job, field)) is not None}
    fields["extras"] = msgspec.convert(fields["extras"], SlimExtras)
    return _Slim(**fields)


def batch_of(
    runs: Sequence[Any], ids: Sequence[tuple[int, int]], now: int | None = None,
    metered: Mapping[int, tuple[int, int]] = MappingProxyType({}),
) -> Any:  # fmt: skip
    """A record batch of slim runs that have ended, with the ids of each and of its class; `metered`: by the ids of
    runs, millijoules and who measured them.

    With `now`, also of those that are still running, up to then. Runs without times are left out.
    """
    raw, extras = _Raw(runs), _Extras(runs)
    start, stop = _times(raw, now)
    has_times = (start != UNKNOWN) & (stop != UNKNOWN)
    if now is None:
        has_times &= raw["end"] != UNKNOWN
    else:  # attempts to start that failed have no end either
        has_times &= (raw["end"] != UNKNOWN) | np.array([run.status == "running" for run in runs], np.bool_)
    columns = _names(runs) | _words(runs) | extras.words()
    for name, values in {**_numbers(raw, extras, start, stop), **_ids(ids), **_metered(ids, metered)}.items():
        columns[name] = pa.array(values, PART_SCHEMA.field(name).type, mask=values == UNKNOWN)
    batch = pa.record_batch([columns[name] for name in PART_SCHEMA.names], schema=PART_SCHEMA)
    return batch if has_times.all() else batch.filter(pa.array(has_times))


def _metered(ids: Sequence[tuple[int, int]], metered: Mapping[int, tuple[int, int]]) -> dict[str, Ints]:
    energy_mj, method = _pairs(metered.get(run_id, (UNKNOWN, UNKNOWN)) for run_id, _ in ids)
    return {"metered_mj": energy_mj, "metered_by": method}


def _ids(ids: Sequence[tuple[int, int]]) -> dict[str, Ints]:
    of_run, of_class = _pairs(ids)
    return {RUN_ID: of_run, CLASS_ID: of_class, PART_ID: np.zeros(len(ids), np.int64)}


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Pairs as two columns."""
    first, second = np.fromiter(chain.from_iterable(pairs), np.int64).reshape(-1, 2).T
    return first, second


def _names(runs: Sequence[Any]) -> dict[str, Any]:
    """Columns of texts that hardly ever repeat."""
    columns: dict[str, list[str | None]] = {name: [getattr(run, name) for run in runs] for name in _NAME_FIELDS}
    columns["events"] = [_json(run.events) if run.events else None for run in runs]
    columns[CORE_NUMBERS] = [_json(run.core_numbers) if run.core_numbers else None for run in runs]
    return {name: pa.array(_all_unicode(texts), pa.string()) for name, texts in columns.items()}


def _words(runs: Sequence[Any]) -> dict[str, Any]:
    """Columns of texts of which there are few."""
    columns = {name: _coded(map(attrgetter(field), runs), _text_of(name)) for name, field in _WORD_FIELDS.items()}
    columns["ending"] = _coded(map(attrgetter(*_ENDING_FIELDS), runs), lambda found: ending_of(*found))
    return columns


def _text_of(name: str) -> Callable[[Any], str | None]:
    if name == "placed":
        return lambda hosts: _json(hosts) if hosts else None
    if name == "task":
        return lambda task: None if task is None else str(task)
    return lambda value: str(value) if value else None


def _complexes(found: tuple[Any, Any]) -> str | None:
    return ",".join(complex_items(*found)) or None


def _reservations(found: tuple[Any, ...]) -> str | None:
    return ",".join(str(each) for each in found if each) or None


def _numbered(values: Iterable[Any]) -> tuple[list[Any], Ints]:
    """The different values, and of each value its place among these."""
    places: dict[Any, int] = {}
    codes = np.array([places.setdefault(value, len(places)) for value in values], np.int64)
    return list(places), codes


def _coded(values: Iterable[Any], text_of: Callable[[Any], str | None], at: Any = slice(None)) -> Any:
    """A dictionary array of the texts of values, or of those at these places."""
    different, of_each = _numbered(values)
    codes = of_each[at].astype(np.int32)
    texts = [text_of(value) for value in different]
    silent = np.array([text is None for text in texts], np.bool_)
    words = pa.array([_unicode(text) or "" for text in texts], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=silent[codes]), words)


def _json(value: Any) -> str:
    return _encode(value).decode()


_encode: Final = msgspec.json.Encoder().encode


def _all_unicode(texts: list[str | None]) -> list[str | None]:
    return texts if "".join(filter(None, texts)).isascii() else list(map(_unicode, texts))


def _unicode(text: str | None) -> str | None:
    """Text for Parquet: bytes of the source that are not UTF-8 become escapes."""
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


class _Raw:
    """The number fields of slim runs as columns."""

    def __init__(self, runs: Sequence[Any]) -> None:
        self.runs = runs
        self._columns: dict[str, Ints] = {}
        cells = _none_to_unknown(chain.from_iterable(map(attrgetter(*_NUMBER_FIELDS), runs)))
        with suppress(OverflowError):  # converted one by one, below
            table = np.fromiter(cells, np.int64, len(cells)).reshape(-1, len(_NUMBER_FIELDS))
            self._columns = dict(zip(_NUMBER_FIELDS, np.ascontiguousarray(table.T), strict=True))

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

    def mapped(self, field: str, number: Callable[[Any], int]) -> Ints:
        """A number for each value of a field that is none; of equal values it is computed once."""
        different, at = _numbered(map(attrgetter(field), self.runs))
        return np.fromiter(map(number, different), np.int64, len(different))[at]


class _Extras:
    """The extras of slim runs. Most runs of a source have the same, or none: what is made of them is made once."""

    def __init__(self, runs: Sequence[Any]) -> None:
        self._runs = runs
        self._different, self._at = _numbered(map(attrgetter("extras"), runs))

    def mapped(self, number: Callable[[SlimExtras], int]) -> Ints:
        """A number for each run."""
        return np.fromiter(map(number, self._different), np.int64, len(self._different))[self._at]

    def words(self) -> dict[str, Any]:
        """Columns of texts."""
        job_names = pa.array([_unicode(str(one.dqs_job_name)) or None for one in self._different], pa.string())
        return {
            "dqs_job_name": job_names.take(pa.array(self._at)),
            "complex": _coded(map(attrgetter("complex", "category"), self._different), _complexes, self._at),
            "reservation": _coded(map(attrgetter(*RESERVATION), self._different), _reservations, self._at),
        }

    def memories_asked(self) -> Ints:
        """The memory that each run asked for, in KiB, or UNKNOWN."""
        if not any(map(any, map(_asked, self._different))):
            return np.full(len(self._runs), UNKNOWN, np.int64)
        return np.fromiter(map(_memory_asked_kib, self._runs), np.int64, len(self._runs))


def _none_to_unknown(values: Iterable[int | None]) -> list[int]:
    return [UNKNOWN if value is None else value for value in values]


def _numbers(raw: _Raw, extras: _Extras, start: Ints, stop: Ints) -> dict[str, Ints]:
    wall_ms = np.where(raw["wall_ms"] == UNKNOWN, np.maximum(stop - start, 0) * 1000, raw["wall_ms"])
    slots = _zero_for_unknown(raw["slots"])
    slots = np.where(slots == 0, _zero_for_unknown(raw["cores"]), slots)
    user_ms, system_ms, cpu_ms = _cpu(raw)
    return {
        "start": start,
        "stop": stop,
        "end": raw["end"],
        "submit": raw["submit"],
        "eligible": raw["eligible"],
        "run": raw["run"],
        "user_ms": user_ms,
        "system_ms": system_ms,
        "cpu_ms": cpu_ms,
        "wall_ms": wall_ms,
        "tasks_wall_ms": wall_ms + extras.mapped(lambda one: _tasks_ms(one.pe_tasks)),
        "slots": np.where(slots == 0, 1, slots),
        "gpus": _gpus(raw),
        "memory_kib": _zero_for_unknown(raw["memory_rss_kib"]),
        "virtual_kib": _zero_for_unknown(raw["memory_virtual_kib"]),
        "memory_asked_kib": extras.memories_asked(),
        "stage_in_bytes": _zero_for_unknown(raw["stage_in_bytes"]),
        "stage_out_bytes": _zero_for_unknown(raw["stage_out_bytes"]),
        "mem_ugb_s": extras.mapped(lambda one: _millionths(one.mem)),
        "io_ugb": extras.mapped(lambda one: _millionths(one.io)),
        "iow_us": extras.mapped(lambda one: _millionths(one.iow)),
        "energy_mj": raw.mapped("energy_j", _energy_mj),
        "incomplete": _incomplete(raw),
    }


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


def _cpu(raw: _Raw) -> tuple[Ints, Ints, Ints]:
    """User, system, and all CPU time. What the source does not divide counts as user time."""
    whole, user, system = raw["cpu_ms"], raw["cpu_user_ms"], raw["cpu_system_ms"]
    unsplit = (user == UNKNOWN) & (system == UNKNOWN)
    split_user = np.where(unsplit, _zero_for_unknown(whole), _zero_for_unknown(user))
    split_system = np.where(unsplit, 0, _zero_for_unknown(system))
    return split_user, split_system, np.where(whole == UNKNOWN, split_user + split_system, whole)


def _incomplete(raw: _Raw) -> Ints:
    cpu = (raw["cpu_ms"] == UNKNOWN) & ((raw["cpu_user_ms"] == UNKNOWN) | (raw["cpu_system_ms"] == UNKNOWN))
    memory, virtual = raw["memory_rss_kib"] == UNKNOWN, raw["memory_virtual_kib"] == UNKNOWN
    staged = (raw["stage_in_bytes"] == UNKNOWN) & (raw["stage_out_bytes"] == UNKNOWN)
    bits: Ints = CPU_UNKNOWN * cpu.astype(np.int64) + MEMORY_UNKNOWN * memory + VIRTUAL_UNKNOWN * virtual
    bits += STAGED_UNKNOWN * staged
    return bits


def _gpus(raw: _Raw) -> Ints:
    whole = _zero_for_unknown(raw["gpus"])
    return np.maximum(whole, raw.mapped("hosts", lambda hosts: sum(host.gpus or 0 for host in hosts)))


def _energy_mj(energy_j: Any) -> int:
    energy_mj = millijoules(energy_j)
    return UNKNOWN if energy_mj is None else energy_mj


def _millionths(value: float | str | None) -> int:
    return round(value * _MILLION) if isinstance(value, int | float) and abs(value) < 1e12 else UNKNOWN


def _memory_asked_kib(run: Any) -> int:
    """The memory that a run asked for on all its hosts: of Slurm, PBS, and TORQUE, and of HTCondor.

    LSF's unit is a setting of the site, and Grid Engine's resources mean what the site defines: theirs is unknown.
    """
    extras = run.extras
    asked: int | None = None
    if extras.ReqTRES or extras.ReqMem:
        asked = _memory_asked_of_slurm(str(extras.ReqTRES), str(extras.ReqMem), run.slots or 0, len(run.hosts))
    elif extras.asked_mem:
        asked = pbs_values.memory_kib(str(extras.asked_mem))
    elif _MEBIBYTES.fullmatch(str(extras.RequestMemory)):
        asked = int(extras.RequestMemory) * 1024
    return asked if asked is not None and 0 < asked < BOUND else UNKNOWN


_asked: Final = attrgetter("ReqTRES", "ReqMem", "asked_mem", "RequestMemory")
_MEBIBYTES: Final = re.compile(r"\d{1,12}", re.ASCII)


@lru_cache(maxsize=4096)
def _memory_asked_of_slurm(resources: str, memory: str, slots: int, hosts: int) -> int | None:
    """In `ReqTRES` of the whole job; `ReqMem` was by node (4Gn) or by core (4Gc) before Slurm 21.08."""
    for item in resources.split(","):
        if item.startswith("mem="):
            return slurm_values.size_kib(item.removeprefix("mem="))
    size = slurm_values.size_kib(memory)
    times = {"n": hosts, "c": slots}.get(memory[-1:], 1)
    return None if size is None else size * times


class _SlaveTask(msgspec.Struct, frozen=True, array_like=True):
    """The first fields of a slave's record, as the Grid Engine source stores it."""

    task: str
    host: str
    start: int
    end: int


_tasks: Final = msgspec.json.Decoder(list[_SlaveTask])


def _tasks_ms(written: float | str) -> int:
    """Wall time of the tasks of a tightly integrated job, without the master's; 0 if it is not a list of them."""
    if not written:
        return 0
    try:
        tasks = _tasks.decode(str(written))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return 0
    return sum(max(task.end - task.start, 0) * 1000 for task in tasks)


_KNOWN_BYTES: Final = 16 << 20
"""How much of classes is kept, encoded: a hundred thousand common ones."""
_ARRAY: Final = b"\xdd"
"""MessagePack's marker of an array whose length follows in four bytes."""


class SlimDecoder:
    """Decodes stored runs with what their classes share."""

    def __init__(self, *, with_slaves: bool, most_bytes: int = _KNOWN_BYTES) -> None:
        """`with_slaves`: there may be runs of DQS, of which the slaves are left out. `most_bytes`: of the classes that
        are kept, encoded."""
        self._most_bytes = most_bytes
        self._with_slaves = with_slaves
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[_Slim])  # type: ignore[valid-type]
        self._known_bytes = 0
        self._facts: dict[int, bytes] = {}
        self._values: dict[int, dict[str, Any]] = {}
        """By class, the values that its runs do not store themselves, as fields of slim runs."""

    def learn(self, connection: Connection, page: Rows) -> None:
        """Read what the runs of a page share with their classes, where it is not known. Where nearly each run has a
        class of its own, because no other ran on the same hosts, earlier ones are forgotten."""
        if self._known_bytes > self._most_bytes:
            self._known_bytes = 0
            self._facts.clear()
            self._values.clear()
        unknown = {class_id for _, class_id, _ in page} - self._facts.keys()
        for known in classes_by_id(connection, sorted(unknown)) if unknown else ():
            self._facts[known.id] = facts = encode(known.facts)
            self._known_bytes += len(facts)
            values = class_values(facts)
            self._values[known.id] = {field: values[field] for field in _FIELDS if field in values}

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
            jobs = self._decoder.decode(b"".join([_ARRAY, len(packed).to_bytes(4, "big"), *packed]))
        except (UnknownEncodingError, msgspec.DecodeError, UnicodeDecodeError):
            return [slim_of(without_slaves(self._whole(row))) for row in page]  # raises: says which run is wrong
        runs = [
            msgspec.structs.replace(run, **values) if values else run for run, values in zip(jobs, own, strict=True)
        ]
        if self._with_slaves:
            for place, one in enumerate(packed):
                if SEVERAL_LINES in one:
                    runs[place] = slim_of(without_slaves(self._whole(page[place])))
        return runs

    def _whole(self, row: tuple[int, int, bytes]) -> Job:
        run_id, class_id, blob = row
        return decode(blob, self._facts[class_id], f"number {run_id}")
