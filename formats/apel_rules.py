"""Rules of the APEL receiver for text messages, as data, each with its source.

What each message type may and must hold (facts on formats, 4.2 to 4.6), and what fits into the server's columns
(there, 4.3 and 4.8; facts on receivers, 2). Names are never shortened, lest two of them fall together.
"""

from __future__ import annotations

from typing import Final

import msgspec

from formats.rules import INT32, INT64, NumberRule, TextRule

_COLUMN: Final = "APEL column"
_INT: Final = "APEL's procedure takes signed 32 bits, its columns no negative value"
_BIGINT: Final = "APEL's procedure takes signed 64 bits, its columns no negative value"
_EPOCH: Final = "seconds of the epoch in 32 bits; nothing later ends before the server's clock"


TEXTS: Final = {
    rule.field: rule
    for rule in (
        TextRule("Site", 255, f"{_COLUMN}, 255 characters", "hold"),
        TextRule("SubmitHost", 255, f"{_COLUMN}, 255 characters", "hold"),
        TextRule("LocalJobId", 255, f"{_COLUMN}, 255 characters", "hold"),
        TextRule("MachineName", 255, f"{_COLUMN}, 255 characters", "drop"),
        TextRule("LocalUserId", 255, f"{_COLUMN}, 255 characters", "drop"),
        TextRule("GlobalUserName", 255, f"{_COLUMN}, 255 characters", "drop"),
        TextRule("FQAN", 255, f"{_COLUMN}, 255 characters", "drop"),
        TextRule("VO", 255, f"{_COLUMN}, 255 characters", "drop"),
        TextRule("VOGroup", 255, f"{_COLUMN}, 255 characters", "drop"),
        TextRule("VORole", 255, f"{_COLUMN}, 255 characters", "drop"),
        TextRule("Queue", 100, f"{_COLUMN}, 100 characters", "shorten"),
        TextRule("InfrastructureDescription", 100, f"{_COLUMN}, 100 characters", "shorten"),
        TextRule("InfrastructureType", 20, f"{_COLUMN}, 20 characters", "drop"),
        TextRule("Infrastructure", 20, f"{_COLUMN}, 20 characters", "drop"),
        TextRule("ServiceLevelType", 50, f"{_COLUMN}, 50 characters", "hold"),
    )
}
"""By key of the message."""

JOB_NUMBERS: Final = {
    rule.field: rule
    for rule in (
        NumberRule("WallDuration", 0, INT32, _INT, "hold"),
        NumberRule("CpuDuration", 0, INT32, _INT, "hold"),
        NumberRule("StartTime", 0, INT32, _EPOCH, "hold"),
        NumberRule("EndTime", 0, INT32, _EPOCH, "hold"),
        NumberRule("Processors", 0, INT32, _INT, "hold"),
        NumberRule("NodeCount", 0, INT32, _INT, "drop"),
        NumberRule("MemoryReal", 0, INT32, f"{_INT}; KB", "drop"),
        NumberRule("MemoryVirtual", 0, INT32, f"{_INT}; KB", "drop"),
    )
}
"""Whole numbers of a job record, and of the jobs of a summary."""

SUMMARY_NUMBERS: Final = {
    rule.field: rule
    for rule in (
        NumberRule("Month", 1, 12, "a month of the calendar", "hold"),
        NumberRule("Year", 1, 9999, "a year of the server's calendar", "hold"),
        NumberRule("NodeCount", 0, INT32, f"{_INT}; NOT NULL", "drop"),
        NumberRule("Processors", 0, INT32, f"{_INT}; NOT NULL", "hold"),
        NumberRule("WallDuration", 0, INT64, _BIGINT, "hold"),
        NumberRule("CpuDuration", 0, INT64, _BIGINT, "hold"),
        NumberRule("NormalisedWallDuration", 0, INT64, _BIGINT, "hold"),
        NumberRule("NormalisedCpuDuration", 0, INT64, _BIGINT, "hold"),
        NumberRule("NumberOfJobs", 0, INT32, _INT, "hold"),
        NumberRule("EarliestEndTime", 0, INT32, _EPOCH, "hold"),
        NumberRule("LatestEndTime", 0, INT32, _EPOCH, "hold"),
    )
}
"""Whole numbers of a summary and of a sync record."""


class MessageType(msgspec.Struct, frozen=True):
    """What one type of message holds. `fields` in the order they are written; `needed` are those without which the
    server's table refuses the record although the message is read; `scores` hold `{benchmark: value}`."""

    name: str
    kind: str
    version: str
    fields: tuple[str, ...]
    mandatory: frozenset[str]
    numbers: dict[str, NumberRule]
    needed: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset({"UpdateTime"})
    scores: frozenset[str] = frozenset()


_PLACE_AND_WHO: Final = ("Site", "Month", "Year", "GlobalUserName", "VO", "VOGroup", "VORole", "SubmitHost")
_JOB_FIELDS: Final = (
    "Site", "SubmitHost", "MachineName", "Queue", "LocalJobId", "LocalUserId", "GlobalUserName", "FQAN", "VO",
    "VOGroup", "VORole", "WallDuration", "CpuDuration", "Processors", "NodeCount", "StartTime", "EndTime",
    "InfrastructureDescription", "InfrastructureType", "MemoryReal", "MemoryVirtual", "ServiceLevelType",
    "ServiceLevel",
)  # fmt: skip
_SUMMARY_FIELDS: Final = (
    *_PLACE_AND_WHO, "InfrastructureType", "InfrastructureDescription", "ServiceLevelType", "ServiceLevel", "NodeCount",
    "Processors", "EarliestEndTime", "LatestEndTime", "WallDuration", "CpuDuration", "NumberOfJobs",
)  # fmt: skip
_NORMALISED_FIELDS: Final = (
    *_PLACE_AND_WHO, "Infrastructure", "InfrastructureDescription", "NodeCount", "Processors", "EarliestEndTime",
    "LatestEndTime", "WallDuration", "CpuDuration", "NormalisedWallDuration", "NormalisedCpuDuration", "NumberOfJobs",
)  # fmt: skip
_JOB_MANDATORY: Final = frozenset({"Site", "LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime"})
_SUMMARY_MANDATORY: Final = frozenset({"Site", "Month", "Year", "WallDuration", "CpuDuration", "NumberOfJobs"})
_NORMALISED: Final = frozenset({"NormalisedWallDuration", "NormalisedCpuDuration"})
_COUNTS: Final = frozenset({"NodeCount", "Processors"})
_SCORE: Final = frozenset({"ServiceLevel"})
_JOB_IGNORED: Final = frozenset({"UpdateTime", "SubmitHostType"})
_JOB_KIND: Final = "APEL-individual-job-message"
_SUMMARY_KIND: Final = "APEL-summary-job-message"


def _without_type(fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(field for field in fields if field != "ServiceLevelType")


JOB_03: Final = MessageType(
    "apel-job", _JOB_KIND, "0.3", _JOB_FIELDS, _JOB_MANDATORY, JOB_NUMBERS, _SCORE, _JOB_IGNORED
)
JOB_04: Final = MessageType(
    "apel-job", _JOB_KIND, "0.4", _without_type(_JOB_FIELDS), _JOB_MANDATORY, JOB_NUMBERS, _SCORE, _JOB_IGNORED, _SCORE
)
SUMMARY_02: Final = MessageType(
    "apel-summary", _SUMMARY_KIND, "0.2", _SUMMARY_FIELDS, _SUMMARY_MANDATORY, SUMMARY_NUMBERS, _COUNTS | _SCORE
)
SUMMARY_04: Final = MessageType(
    "apel-summary", _SUMMARY_KIND, "0.4", _without_type(_SUMMARY_FIELDS), _SUMMARY_MANDATORY, SUMMARY_NUMBERS,
    _COUNTS | _SCORE, scores=_SCORE,
)  # fmt: skip
NORMALISED_03: Final = MessageType(
    "apel-normalised-summary", _SUMMARY_KIND, "0.3", _NORMALISED_FIELDS, _SUMMARY_MANDATORY | _NORMALISED,
    SUMMARY_NUMBERS, _COUNTS,
)  # fmt: skip
NORMALISED_04: Final = MessageType(
    "apel-normalised-summary", "APEL-normalised-summary-message", "0.4", _NORMALISED_FIELDS,
    _SUMMARY_MANDATORY | _NORMALISED, SUMMARY_NUMBERS, _COUNTS, scores=_NORMALISED,
)  # fmt: skip
SYNC_01: Final = MessageType(
    "apel-sync", "APEL-sync-message", "0.1", ("Site", "SubmitHost", "NumberOfJobs", "Month", "Year"),
    frozenset({"Site", "NumberOfJobs", "Month", "Year"}), SUMMARY_NUMBERS, ignored=frozenset(),
)  # fmt: skip

MESSAGE_TYPES: Final = (JOB_03, JOB_04, SUMMARY_02, SUMMARY_04, NORMALISED_03, NORMALISED_04, SYNC_01)


def of_version(types: tuple[MessageType, ...], version: str) -> MessageType:
    """The type of these with that version (`0.2` or `v0.2`). Raises `ValueError` that names those there are."""
    wanted = version.removeprefix("v")
    for known in types:
        if known.version == wanted:
            return known
    there_are = ", ".join(known.version for known in types)
    raise ValueError(f"{types[0].name} has no version {version!r}; there are {there_are}")


def type_of(header: str, kind: str, version: str) -> MessageType | None:
    """The type of a message by its header, matched as loosely and as strictly as the server does; None: refused.

    Of job and sync messages the version hardly counts; the header line of summaries must be exact (facts on formats,
    4.2).
    """
    if kind == JOB_03.kind:
        return JOB_04 if version == "v0.4" else JOB_03
    if kind == SYNC_01.kind:
        return SYNC_01
    for known in (SUMMARY_02, SUMMARY_04, NORMALISED_03, NORMALISED_04):
        if header == f"{known.kind}: v{known.version}":
            return known
    return None


def compared(text: str) -> str:
    """A text as the receiver's database compares it in a key: case and trailing blanks do not count (there, 4.8)."""
    return text.rstrip(" ").lower()
