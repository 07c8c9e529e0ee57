"""Write, read, and check the utilization of a site as a message: JSON (version `json`, the default) or CSV (`csv`).

Both have site, interval, size of the bins, the requested measure, and every bin. Instants are ISO 8601 UTC; numbers are
written so that they are read back exactly. In CSV every row repeats the values common to all.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from formats.base import Format, InspectedRecord, InspectedText, Violation
from formats.csv_text import csv_line
from formats.text import date_time, read_date_time
from formats.utilization.measure import Bin, Bins
from formats.view import View

Measure = Literal["queue", "cpu"]

VERSIONS: Final = ("json", "csv")
_COMMON: Final = ("site", "start", "stop", "bin_s", "measure")
_FIELDS: Final = Bin.__struct_fields__
_COLUMNS: Final = (*_COMMON, "bin_start", *_FIELDS[1:])
CSV_BEGINS: Final = ",".join(_COMMON) + ",bin_start,"
"""How the CSV form begins."""
_SOURCE: Final = "DQS accounting manual"


class UtilizationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Utilization of a site from `start` to `stop` (exclusive), epoch seconds, in bins of `bin_s` seconds."""

    site: str
    start: int
    stop: int
    bin_s: int
    measure: Measure
    bins: tuple[Bin, ...]


_LONG: Final = -1.2345678901234567e-300
_WIDEST: Final = Bin(0, 2**31, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, _LONG, 2**63)
"""The most characters of a written bin."""


class NotAReportError(ValueError):
    """The bytes are not a utilization report; the message has the reason."""


class UtilizationFormat:
    """The format `utilization`, bound to a view. Raises ValueError for a version that it does not have."""

    name = "utilization"

    def __init__(self, view: View) -> None:
        if view.version and view.version not in VERSIONS:
            raise ValueError(f"utilization has no version {view.version!r}; there are {', '.join(VERSIONS)}")
        self._csv = view.version == "csv"
        self.content_type = "text/csv; charset=utf-8" if self._csv else "application/json"

    def message(self, report: UtilizationReport) -> bytes:
        """The report as it is sent. The interval must be within the years 1 to 9999."""
        return _to_csv(report) if self._csv else in_json(report)

    def bounds(self, report: UtilizationReport) -> tuple[int, int]:
        """The most bytes of a message besides the bins, for a report like this one, and the most for each bin."""
        one, two = (len(self.message(msgspec.structs.replace(report, bins=(_WIDEST,) * count))) for count in (1, 2))
        return one - (two - one), two - one


def _common(report: UtilizationReport) -> list[Any]:
    return [report.site, date_time(report.start), date_time(report.stop), report.bin_s, report.measure]


def _values(one: Bin) -> tuple[Any, ...]:
    return (date_time(one.start), *msgspec.structs.astuple(one)[1:])


def builtins(report: UtilizationReport) -> dict[str, Any]:
    """The content of the JSON form, as plain values."""
    bins = [dict(zip(_FIELDS, _values(one), strict=True)) for one in report.bins]
    return {**dict(zip(_COMMON, _common(report), strict=True)), "bins": bins}


def in_json(report: UtilizationReport) -> bytes:
    """The JSON form."""
    return json.dumps(builtins(report), indent=1, allow_nan=False).encode("ascii") + b"\n"


def _to_csv(report: UtilizationReport) -> bytes:
    common = _common(report)
    rows = (_COLUMNS, *((*common, *_values(one)) for one in report.bins))
    return "".join(map(csv_line, rows)).encode("utf-8", "backslashreplace")


# --- reading back


class _ReadBin(msgspec.Struct, frozen=True):
    start: str
    inside_s: int
    queue: float
    cpu_user: float
    cpu_system: float
    slots: float
    queue_mean: float
    cpu_user_mean: float
    cpu_system_mean: float
    slots_mean: float
    jobs: int


class _ReadReport(msgspec.Struct, frozen=True):
    site: str
    start: str
    stop: str
    bin_s: int
    measure: Measure
    bins: list[_ReadBin]


def read_report(payload: bytes) -> UtilizationReport:
    """The report in these bytes, of either form. Raises `NotAReportError`."""
    try:
        if payload.lstrip()[:1] == b"{":
            return _report(msgspec.json.decode(payload, type=_ReadReport))
        return _report(_rows(payload.decode("utf-8")))
    except (ValueError, OverflowError, RecursionError, csv.Error) as error:  # msgspec's errors are ValueErrors
        raise NotAReportError(f"not a utilization report: {error}") from None


def _rows(text: str) -> _ReadReport:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    if tuple(next(rows, ())) != _COLUMNS:
        raise ValueError(f"the first row should be {','.join(_COLUMNS)}")
    common: list[str] | None = None
    bins = []
    for number, row in enumerate(rows, 2):
        if len(row) != len(_COLUMNS):
            raise ValueError(f"row {number} has {len(row)} columns, not {len(_COLUMNS)}")
        if common is not None and row[: len(_COMMON)] != common:
            raise ValueError(f"row {number} is of another report than the one before")
        common = row[: len(_COMMON)]
        bins.append(dict(zip(_FIELDS, row[len(_COMMON) :], strict=True)))
    if common is None:
        raise ValueError("no row has a bin")
    return msgspec.convert({**dict(zip(_COMMON, common, strict=True)), "bins": bins}, _ReadReport, strict=False)


def _report(read: _ReadReport) -> UtilizationReport:
    bins = tuple(Bin(read_date_time(one.start), *msgspec.structs.astuple(one)[1:]) for one in read.bins)
    return UtilizationReport(
        site=read.site,
        start=read_date_time(read.start),
        stop=read_date_time(read.stop),
        bin_s=read.bin_s,
        measure=read.measure,
        bins=bins,
    )


# --- rules


def inspected(text: str) -> InspectedText | None:
    """See `Format.inspected`: a record is a bin, named by its begin."""
    if not text.lstrip().startswith(("{", CSV_BEGINS)):
        return None
    report = read_report(text.encode())
    records = [
        InspectedRecord(number, date_time(one.start), None, {name: str(value) for name, value in fields.items()})
        for number, (one, fields) in enumerate(zip(report.bins, builtins(report)["bins"], strict=True), 1)
    ]
    return InspectedText(records, check_report(report))


def check_report(report: UtilizationReport) -> list[Violation]:
    """The rules that a report breaks; records are its bins, from 1."""
    try:
        bins = Bins(report.start, report.stop, report.bin_s)
    except ValueError as error:
        return [Violation("error", 0, "bins", str(error), _SOURCE)]
    violations = [] if report.site else [Violation("error", 0, "site", "is empty", _SOURCE)]
    if len(report.bins) != bins.count:
        rule = f"{len(report.bins)} bins; the interval has {bins.count}"
        return [*violations, Violation("error", 0, "bins", rule, _SOURCE)]
    for number, (one, edge) in enumerate(zip(report.bins, bins.edges(), strict=True), 1):
        violations += [
            Violation("error", number, field, rule, _SOURCE) for field, rule in _wrong(one, edge, report.bin_s)
        ]
    return violations


def _wrong(one: Bin, edge: tuple[int, int], size_s: int) -> Iterator[tuple[str, str]]:
    start, inside_s = edge
    if one.start != start:
        yield "start", f"should be {date_time(start)}"
    if one.inside_s != inside_s:
        yield "inside_s", f"should be {inside_s}"
    if one.jobs < 0:
        yield "jobs", "is negative"
    for name in ("queue", "cpu_user", "cpu_system", "slots"):
        value, mean = getattr(one, name), getattr(one, f"{name}_mean")
        if not (math.isfinite(value) and value >= 0):
            yield name, "should be a number that is not negative"
        elif not math.isclose(mean * inside_s, value * size_s, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{name}_mean", f"does not agree with {name}"
    if one.queue_mean > one.jobs * (1 + 1e-9):
        yield "queue", "is more than the jobs could have used"


FORMAT: Final = Format(
    name=UtilizationFormat.name,
    title="utilization report",
    shape="report",
    make=UtilizationFormat,
    key="period",
    content_type="application/json",
    versions=VERSIONS,
    is_readable=True,
    inspected=inspected,
)
