"""What SGAS stores of one record, and the values for which it refuses the message (facts on formats, 1.4; on receivers,
1).

Its program fails at some values (`ProcessingFailedError`: HTML without a reason), or its database does
(`DatabaseRefusedError`: the message of PostgreSQL): while it parses the message, after it checked that the sender may
insert, or only for a record that it does not have. Values that it cannot parse and does not need become NULL without a
message; here they are parsed when they are queried (`publisher.simulator.sgas`). Measured with LUTS 3.8.1 and
PostgreSQL 15.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from formats.check.sgas_times import YEARS_NOT_STORED, duration_s, instant, is_common_duration, is_common_instant
from publisher.simulator.sgas_records import EMPTY, Leaf, Values

_LONGEST: Final = {
    "recordId": 1000, "GlobalJobId": 1000, "JobName": 1000, "LocalUserId": 100, "GlobalUserName": 1000, "Status": 100,
    "Queue": 200, "ProjectName": 200, "SubmitHost": 200, "MachineName": 200, "RuntimeEnvironment": 512,
    "TransferURL": 2500, "Vo": 100, "VoName": 1000, "VoIssuer": 1000, "VoGroup": 100, "VoRole": 100,
}  # fmt: skip
_SHORTEST_LIMIT: Final = min(_LONGEST.values())
_ONLY_WITH_VO: Final = frozenset({"VoName", "VoIssuer"})
_NEVER_EMPTY: Final = frozenset(
    {"StartTime", "EndTime", "SubmitTime", "WallDuration", "CpuDuration", "UserTime", "KernelTime", "NodeCount",
     "Processors", "Memory", "Charge", "ExitCode", "MajorPageFaults", "TransferSize", "TransferStartTime",
     "TransferEndTime", "TransferBypassCache", "TransferRetrievedFromCache"}
)  # fmt: skip
_SMALLINT, _INT, _BIGINT = 2**15, 2**31, 2**63
LONGEST_LOCAL_ID: Final = 120
"""Of LUTS' master branch; in the released 3.8.1 it is 40. For a longer LocalJobId SGAS makes another record id."""
_LONGEST_HOST: Final = 2700
_LARGEST_INDEXED: Final = 2692
"""Largest size of a text in an index of PostgreSQL, as stored: compressed, if that saves a quarter."""
_UNIQUE: Final = {
    "GlobalUserName": "globalusername_global_user_name_key",
    "Host": "host_host_key",
    "TransferURL": "jobtransferurl_url_key",
    "recordId": "usagedata_record_id_key",
}
"""Columns whose texts can be too long for their index, and the name of the index."""

_UNIT_BYTES: Final = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB"))}
_UNITS_OF_BITS: Final = frozenset({"b", "Kb", "Mb", "Gb", "Tb", "Pb", "Eb"})
"""SGAS converts them to fractions, which a column of integers refuses even for whole values."""
_MEMORY_METRICS: Final = frozenset({"total", "average", "min", "max"})
_NO_FUNCTION: Final = "function urcreate(unknown, ..., bigint, ...) does not exist"
"""PostgreSQL's message for a number that is too large for an integer."""


class ProcessingFailedError(ValueError):
    """The program of SGAS fails at the data. The text is only in the log of the service."""


class DatabaseRefusedError(ValueError):
    """PostgreSQL refuses the row; SGAS returns its message."""


class UsageRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as stored.

    Durations and instants stay as sent until they are queried; `children`: it has runtime environments or transfers, so
    that its row cannot be deleted. `refusal`: why SGAS fails at it if the sender may insert. `refusal_if_new`: why
    PostgreSQL cannot store it, which does not matter if it has the record.
    """

    record_id: str
    global_job_id: str | None
    local_job_id: str | None
    create_time: str
    machine: str
    user: str | None
    vo: str | None
    status: str | None
    start: str | None
    end: str | None
    wall: str | None
    cpu: tuple[str, ...]
    node_count: int | None
    processors: int | None
    children: bool
    refusal: ProcessingFailedError | DatabaseRefusedError | None
    refusal_if_new: DatabaseRefusedError | None


class _InsertProblems:
    """What SGAS fails at in a record: the first problem of each kind."""

    def __init__(self) -> None:
        self.always: ProcessingFailedError | DatabaseRefusedError | None = None
        self.if_new: DatabaseRefusedError | None = None

    def by_program(self, text: str) -> None:
        """The program fails before it queries the database."""
        if not isinstance(self.always, ProcessingFailedError):
            self.always = ProcessingFailedError(text)

    def by_arguments(self, text: str) -> None:
        """The database refuses the query."""
        self.always = self.always or DatabaseRefusedError(text)

    def by_table(self, text: str) -> None:
        """The database refuses the row."""
        self.if_new = self.if_new or DatabaseRefusedError(text)


def usage_record(record: Values, longest_local_id: int = LONGEST_LOCAL_ID) -> UsageRecord:
    """A row from the values of a record. Raises `ProcessingFailedError` for what SGAS cannot parse."""
    values, many = record
    refusals = _InsertProblems()
    cpu: tuple[str, ...] = ()
    children = False
    of_vo: list[Leaf] = []
    of_transfers: list[Leaf] = []
    for leaf in many:
        slot, text, attributes = leaf
        if not text and slot in _NEVER_EMPTY:
            raise ProcessingFailedError(f"empty {slot}")
        if slot == "CpuDuration":
            cpu = (*cpu, text)
        elif slot == "Memory":
            _memory(text, attributes, refusals)
        elif slot == "RuntimeEnvironment":
            children = True
            _fits(slot, text, refusals)
            if not text:
                refusals.by_table('null value in column "runtime_environment" violates not-null constraint')
        elif slot[0] == "V":
            of_vo.append(leaf)
        elif slot != EMPTY:
            of_transfers.append(leaf)
        elif text in _NEVER_EMPTY:
            raise ProcessingFailedError(f"empty {text}")
    if of_vo:
        _vo(values, of_vo, refusals)
    if of_transfers:
        children |= _transfers(of_transfers, refusals)
    _durations(values, cpu, refusals)
    for slot in ("StartTime", "EndTime", "SubmitTime"):
        _time(values.get(slot, ""), refusals)
    return _row(values, cpu, refusals, longest_local_id, children=children)


def _row(
    values: dict[str, str], cpu: tuple[str, ...], refusals: _InsertProblems, longest_local_id: int, *, children: bool
) -> UsageRecord:
    get = values.get
    create_time, machine = get("createTime", ""), get("MachineName")
    if not machine:
        raise ProcessingFailedError("no MachineName")
    record_id, global_job_id, local_job_id = _identity(values, machine, create_time, refusals, longest_local_id)
    nodes, processors = _whole(get("NodeCount")), _whole(get("Processors"))
    if "Processors" not in values:
        nodes, processors = None, nodes
    _fits_integer((nodes, processors, _whole(get("MajorPageFaults"))), refusals)
    if nodes is not None and not -_SMALLINT <= nodes < _SMALLINT:
        refusals.by_table("smallint out of range")
    if "Charge" in values:
        _charge(values["Charge"], refusals)
    if "ExitCode" in values and _whole(values["ExitCode"]) is None:
        refusals.by_program("ExitCode is not an integer")
    if len(max(values.values(), key=len)) > _SHORTEST_LIMIT:
        for slot, text in values.items():
            if slot not in _ONLY_WITH_VO or get("VoName"):
                _fits(slot, text, refusals)
    return UsageRecord(
        record_id, global_job_id, local_job_id, create_time, machine, get("GlobalUserName") or None,
        get("VoName") or None, get("Status") or None, get("StartTime"), get("EndTime"), get("WallDuration"), cpu,
        nodes, processors, children, refusals.always, refusals.if_new,
    )  # fmt: skip


def _identity(
    values: dict[str, str], machine: str, create_time: str, refusals: _InsertProblems, longest_local_id: int
) -> tuple[str, str | None, str | None]:
    """Record id, GlobalJobId, LocalJobId. For some LocalJobIds SGAS makes another record id."""
    created = _instant(create_time)
    if created is None:
        refusals.by_table('null value in column "create_time" of relation "usagedata" violates not-null constraint')
    elif created.year in YEARS_NOT_STORED:
        refusals.by_arguments("date/time field value out of range")
    record_id, global_job_id, local_job_id = values.get("recordId"), values.get("GlobalJobId"), values.get("LocalJobId")
    if local_job_id == "":
        refusals.by_program("empty LocalJobId")
    elif local_job_id is not None and (len(local_job_id) > longest_local_id or local_job_id[0] == "/"):
        local_job_id, record_id = None, global_job_id or None
        if global_job_id is None and created is None:
            refusals.by_program("no record id can be made")
        elif global_job_id is None:
            record_id = f"{machine}:{created:%Y %m %d %H:%M:%S}"
    if record_id is None:
        refusals.by_arguments('null value in column "record_id" of relation "usagedata" violates not-null constraint')
    return record_id or "", global_job_id or None, local_job_id


def _fits(slot: str, text: str, refusals: _InsertProblems) -> None:
    longest = _LONGEST.get(slot)
    if longest is not None and len(text) > longest:
        refusals.by_table(f"value too long for type character varying({longest})")
    if slot in _UNIQUE and len(text) > _LARGEST_INDEXED // 4:
        indexed = text[: _LONGEST_HOST - 1].encode() if slot == "Host" else text.encode()
        if len(indexed) > _LARGEST_INDEXED and not _compresses(indexed):
            size = (len(indexed) + 12 + 7) // 8 * 8
            refusals.by_table(f'index row size {size} exceeds btree version 4 maximum 2704 for index "{_UNIQUE[slot]}"')


def _compresses(text: bytes) -> bool:
    """Whether PostgreSQL stores it in fewer bytes. It finds only repetitions, like zlib with a fixed code."""
    packer = zlib.compressobj(strategy=zlib.Z_FIXED)
    packed = len(packer.compress(text) + packer.flush())
    return packed < len(text) * 3 / 4 and packed <= _LARGEST_INDEXED


def _memory(text: str, attributes: tuple[tuple[str, str], ...], refusals: _InsertProblems) -> None:
    amount = _whole(text)
    given = dict(attributes)
    unit = given.get("storageUnit", "B")
    factor = _UNIT_BYTES.get(unit, 1)
    if given.get("metric", "total") not in _MEMORY_METRICS:
        refusals.by_arguments("'SgasMemory' object has no attribute 'metric'")
    if amount is None:
        refusals.by_arguments("unsupported operand type(s) for *: 'NoneType' and 'int'")
    elif unit in _UNITS_OF_BITS:
        refusals.by_arguments(f'invalid input syntax for type bigint: "{amount}" in bits')
    elif not -_BIGINT <= amount * factor < _BIGINT:
        refusals.by_arguments(f'value "{amount * factor}" is out of range for type bigint')


def _vo(values: dict[str, str], leaves: Sequence[Leaf], refusals: _InsertProblems) -> None:
    """Of several VOs the last type and the last attributes count; nothing is stored of a VO without a name."""
    if not values.get("VoName") or max(len(text) for _, text, _ in leaves) <= _SHORTEST_LIMIT:
        return
    kind, is_first = "", True
    attributes: list[dict[str, str]] = []
    for slot, text, _ in leaves:
        if slot == "Vo":
            kind, is_first = text, True
        elif slot == "VoAttribute":
            attributes = [{}] if is_first else [*attributes, {}]
            is_first = False
        else:
            attributes[-1][slot] = text
    _fits("Vo", kind, refusals)
    for attribute in attributes:
        for slot, text in attribute.items():
            _fits(slot, text, refusals)


def _transfers(leaves: Sequence[Leaf], refusals: _InsertProblems) -> bool:
    """Whether rows of transfers come with the record. One without a known child is left out; alone it is an error."""
    ways: dict[str, list[dict[str, str]]] = {}
    for slot, text, _ in leaves:
        if slot in {"TransferDownload", "TransferUpload"}:
            transfers = ways.setdefault(slot, [])
            current: dict[str, str] = {}
            if text:
                transfers.append(current)
        else:
            current[slot] = text
    for transfers in ways.values():
        if not transfers:
            refusals.by_table("lower bound of FOR loop cannot be null")
        for transfer in transfers:
            _transfer(transfer, refusals)
    return any(ways.values())


def _transfer(transfer: dict[str, str], refusals: _InsertProblems) -> None:
    url, size = transfer.get("TransferURL"), _whole(transfer.get("TransferSize"))
    if not url:
        refusals.by_table('null value in column "url" of relation "jobtransferurl" violates not-null constraint')
    else:
        _fits("TransferURL", url, refusals)
    if size is not None and not -_BIGINT <= size < _BIGINT:
        refusals.by_table(f'value "{size}" is out of range for type bigint')
    for slot in ("TransferStartTime", "TransferEndTime"):
        if slot in transfer and _is_unwritable(transfer[slot]):
            refusals.by_table("date/time field value out of range")


def _whole(text: str | None) -> int | None:
    """An integer; None for what is absent or cannot be parsed."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _fits_integer(numbers: Iterable[int | None], refusals: _InsertProblems) -> None:
    if any(number is not None and not -_INT <= number < _INT for number in numbers):
        refusals.by_arguments(_NO_FUNCTION)


def _charge(text: str, refusals: _InsertProblems) -> None:
    try:
        _fits_integer([int(float(text))], refusals)
    except (ValueError, OverflowError):
        refusals.by_program("Charge is not a number")


def _durations(values: dict[str, str], cpu: tuple[str, ...], refusals: _InsertProblems) -> None:
    """CpuDuration is a bigint, which no duration that can be read exceeds; the others are integers."""
    try:
        for slot in ("WallDuration", "UserTime", "KernelTime"):
            text = values.get(slot)
            if text is not None and not is_common_duration(text):
                _fits_integer([duration_s(text)], refusals)
        of_cpu = [0 if is_common_duration(text) else duration_s(text) for text in cpu]
    except OverflowError as error:
        raise ProcessingFailedError("a duration is out of bounds") from error
    if len(of_cpu) > 1 and None in of_cpu:
        raise ProcessingFailedError("a CpuDuration of several cannot be read")


def _time(text: str, refusals: _InsertProblems) -> None:
    if not is_common_instant(text) and _is_unwritable(text):
        refusals.by_arguments("date/time field value out of range")


def _is_unwritable(text: str) -> bool:
    at = _instant(text)
    return at is not None and at.year in YEARS_NOT_STORED


def _instant(text: str) -> datetime | None:
    try:
        return instant(text)
    except OverflowError as error:
        raise ProcessingFailedError("an instant is out of bounds") from error
