"""The columns in which a service has a record, as read from a message: what evidence can be compared with.

Names of columns are those of the evidence (`publisher.reconcile.evidence_files`); texts are as sent, empty if the
service stores its word for a missing value. Instants are epoch seconds.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, TypeAlias

import msgspec

from formats.calendar import Month
from formats.identity import run_record_id
from formats.rules import compared

Value: TypeAlias = str | int

RECORD_COLUMNS: Final = (
    "site", "submit_host", "machine", "queue", "local_user", "user", "vo", "vo_group", "vo_role", "project",
    "infrastructure", "description", "start", "nodes", "processors", "benchmark", "score_milli", "memory_kib",
    "memory_virtual_kib", "components", "meta",
)  # fmt: skip
"""Every column of any format beside ids, end, wall time, and CPU time. `score_milli`: a score in thousandths;
`components`, `meta`: of records of AUDITOR, as texts."""

MISSING: Final = "none"
"""A missing value, as compared: services store NULL, an empty text, or `None`."""


class RecordColumns(msgspec.Struct, frozen=True, gc=False):
    """What a service stores of a record.

    `local_key`, `local_id`: of a job record at APEL (see the function); empty for services that know records by id.
    """

    record_id: str
    end: int | None
    wall_ms: int | None
    cpu_ms: int | None
    columns: dict[str, Value] = {}
    local_key: str = ""
    local_id: str = ""


def local_key(site: str, local_id: str, end: int | None) -> str:
    """The key of a job record at APEL: site, LocalJobId, and end, as its database compares them."""
    return run_record_id("apel", compared(site), compared(local_id), end)


def comparable(value: Value | None) -> Value:
    """A value as databases compare it: without case and trailing blanks; `MISSING` for each word for a missing one."""
    if isinstance(value, int):
        return value
    text = compared(value or "")
    return MISSING if text in {"", "null"} else text


class TotalColumns(msgspec.Struct, frozen=True):
    """What a service stores of a total: the fields of its key without the month, as `comparable`, and its sums.

    Sums are in seconds, None where unknown; `normalised_*`: times the score of the benchmark, as the service computes
    them. `earliest` and `latest`: of the ends, epoch seconds. `amounts`: exact amounts by name, without zeros, for
    services that store these. `jobs` is 0 if the service does not store their number.
    """

    month: Month
    fields: dict[str, Value]
    jobs: int
    wall_s: float | None = None
    cpu_s: float | None = None
    normalised_wall_s: float | None = None
    normalised_cpu_s: float | None = None
    earliest: int | None = None
    latest: int | None = None
    amounts: dict[str, Decimal] = {}


TOTAL_DIMENSIONS: Final = (
    "site", "submit_host", "vo", "vo_group", "vo_role", "user", "infrastructure", "nodes", "processors", "benchmark",
    "score_milli",
)  # fmt: skip
"""The fields by which evidence of groups of jobs is read from files."""
