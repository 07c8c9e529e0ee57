"""Why records of ours differ from those of another publisher: what is known of it, field by field.

The defects are those of the facts on formats, 5.1 (ARC), 5.2 (APEL client) and 5.3 (BaRT). A difference that is not
listed here is one to look into before the move.
"""

from __future__ import annotations

import re
from typing import Final

from formats.apel_text import is_null
from formats.xml_text import read_date_time, read_duration_ms

_REASONS: Final = tuple(
    (re.compile(field), reason)
    for field, reason in (
        (r"RecordIdentity@recordId", "each publisher has record ids of its own; only those of ARC are kept here"),
        (r"JobIdentity/GlobalJobId", "not every publisher tells one"),
        (
            r"(UserIdentity/)?(VO\b.*|GroupAttribute.*|VOGroup|VORole|FQAN)",
            "spelling of VO groups and roles: `vo_spelling`",
        ),
        (r"SubmitHost.*", "spelling of the computing element: `submit_host`"),
        (r"Memory.*|Swap.*|Network.*|Disk.*", "zero is not known, and `virtual` is no type of the standard"),
        (r"NodeCount|Processors", "what was granted is read; zero is not known"),
        (r"Host.*", "ARC publishes none, BaRT joins all into one"),
        (r"TimeInstant.*|TimeDuration.*|SubmitTime", "more times are told here"),
        (r"(Start|End)Time", "which event counts: `start_time` and `end_time` of the source"),
        (r"ServiceLevel.*", "the benchmark: others send HEPSPEC 1.0 or none where it is missing"),
        (r"Infrastructure.*|Middleware.*|LoggerName.*|UsageRecord@.*", "names the publishing program"),
        (
            r"UserTime|KernelTime|ExitCode|ExitStatus|Status.*|Queue.*|ProjectName|RuntimeEnvironment.*|FileTransfers.*",
            "left out by others",
        ),
        (r"(Earliest|Latest)EndTime", "others cut a month elsewhere"),
    )
)


def reason_of(field: str, before: str | None, after: str | None) -> str:
    """Why a field differs, as far as is known; empty where it is not. `before`: the other publisher's value."""
    if before is not None and after is not None and "%" in before and before != after:
        return "ARC writes %27 for an apostrophe and %23 for a number sign, and sends them so"
    for pattern, reason in _REASONS:
        if pattern.fullmatch(field):
            return reason
    return ""


def same_value(one: str, other: str) -> bool:
    """Whether two values mean the same: durations, instants, numbers and nothing may be written in several ways."""
    if one == other or (is_null(one) and is_null(other)):
        return True
    for read in (read_duration_ms, read_date_time, float):
        try:
            return read(one) == read(other)
        except ValueError:
            continue
    return False
