"""What receivers and schemas allow, as data: lengths, ranges, patterns, each with its source.

A rule says what happens to a value that does not fit: it is shortened, or omitted, or the record is held. Names and ids
are never shortened, because two could become the same; amounts that are charged are never omitted.

This includes the fields of APEL's text messages, optional and mandatory (facts on formats, 4.2 to 4.6), and what fits
into the server's columns (there, 4.3 and 4.8; facts on receivers, 2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1

_LABEL: Final = r"[a-zA-Z0-9_](?:[a-zA-Z0-9_'-]*[a-zA-Z0-9_])?"
is_host_name = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}").fullmatch
"""Match a host name or an IPv4 address: labels of letters, digits, `_`, and inside also `-` and `'`; no port.

This allows more than the official schemas' domainNameType, which has no labels of one character and no `_`. SGAS
accepts both (facts on receivers, "Seen on the real services"), APEL accepts any text, and neither applies the schema.
"""

Misfit = Literal["shorten", "drop", "hold"]


INDEXED_BYTES: Final = 2692
"""The longest text (bytes of UTF-8) that always fits into a unique index of PostgreSQL: a row of an index has 2,704
bytes, of which 12 are not text. A text that compresses well could be longer; this is not used."""


class TextRule(msgspec.Struct, frozen=True, gc=False):
    """The maximum length of a text, and what happens to a longer one. `field` is the name in the format.

    `longest` is in characters, `longest_bytes` in bytes of UTF-8 (0: any number).
    """

    field: str
    longest: int
    source: str
    too_long: Misfit = "shorten"
    longest_bytes: int = 0

    def excess(self, text: str) -> str:
        """Which limit a text exceeds, such as `longer than 1000`; empty where it fits."""
        if len(text) > self.longest:
            return f"longer than {self.longest}"
        if self.longest_bytes and _utf8_bytes(text) > self.longest_bytes:
            return f"longer than the {self.longest_bytes} bytes of UTF-8 that the column's index takes"
        return ""

    def shortened(self, text: str) -> str:
        """The longest beginning of a text that fits; the text must not contain lone surrogates."""
        cut = text[: self.longest]
        if self.longest_bytes and _utf8_bytes(cut) > self.longest_bytes:
            cut = cut.encode()[: self.longest_bytes].decode(errors="ignore")
        return cut.rstrip()


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class NumberRule(msgspec.Struct, frozen=True, gc=False):
    """The range of a whole number, both ends included, and what happens to a number outside."""

    field: str
    least: int
    largest: int
    source: str
    outside: Literal["drop", "hold"] = "drop"


class NameRule(msgspec.Struct, frozen=True, gc=False):
    """A host name (`is_host_name`), its maximum length, and what happens to any other text."""

    field: str
    longest: int
    source: str
    otherwise: Literal["drop", "hold"] = "drop"


_SGAS = "SGAS column"
_XSD = "official schema"
_APEL = "APEL column"


class SgasRules:
    """OGF-UR as SGAS accepts it (facts on formats, 1.2 and 1.4; facts on receivers, 1)."""

    RECORD_ID: Final = TextRule("RecordIdentity@recordId", 1000, f"{_SGAS}, 1000 characters", "hold", INDEXED_BYTES)
    GLOBAL_JOB_ID: Final = TextRule("GlobalJobId", 1000, f"{_SGAS}, 1000 characters", "drop")
    LOCAL_JOB_ID: Final = TextRule("LocalJobId", 120, "SGAS rewrites the record id of longer ones", "drop")
    LOCAL_USER_ID: Final = TextRule("LocalUserId", 100, f"{_SGAS}, 100 characters", "drop")
    GLOBAL_USER_NAME: Final = TextRule("GlobalUserName", 1000, f"{_SGAS}, 1000 characters", "drop", INDEXED_BYTES)
    VO_TYPE: Final = TextRule("VO@type", 100, f"{_SGAS}, 100 characters", "drop")
    VO_NAME: Final = TextRule("VO/Name", 1000, f"{_SGAS}, 1000 characters", "drop")
    VO_ISSUER: Final = TextRule("VO/Issuer", 1000, f"{_SGAS}, 1000 characters", "drop")
    VO_GROUP: Final = TextRule("VO/Attribute/Group", 100, f"{_SGAS}, 100 characters", "drop")
    VO_ROLE: Final = TextRule("VO/Attribute/Role", 100, f"{_SGAS}, 100 characters", "drop")
    JOB_NAME: Final = TextRule("JobName", 1000, f"{_SGAS}, 1000 characters")
    QUEUE: Final = TextRule("Queue", 200, f"{_SGAS}, 200 characters")
    PROJECT: Final = TextRule("ProjectName", 200, f"{_SGAS}, 200 characters")
    SERVICE_CLASS: Final = TextRule("ServiceLevel", 200, "a tag of a machine's kind; 200 characters are enough")
    RUNTIME_ENVIRONMENT: Final = TextRule("RuntimeEnvironment", 512, f"{_SGAS}, 512 characters")
    TRANSFER_URL: Final = TextRule("FileTransfers/URL", 2500, f"{_SGAS}, 2500 characters", longest_bytes=INDEXED_BYTES)
    RESOURCE: Final = TextRule("ConsumableResource@description", 200, "a resource's name; 200 characters are enough")
    MACHINE_NAME: Final = NameRule("MachineName", 200, f"{_SGAS}, 200 characters", "hold")
    SUBMIT_HOST: Final = NameRule("SubmitHost", 200, f"{_SGAS}, 200 characters")
    HOST: Final = NameRule("Host", 255, f"{_XSD}, 255 characters")
    WALL_S: Final = NumberRule("WallDuration", 0, INT32, f"{_SGAS}, 32 bits", "hold")
    CPU_S: Final = NumberRule("CpuDuration", 0, INT64, f"{_SGAS}, 64 bits", "hold")
    CPU_PART_S: Final = NumberRule("UserTime, KernelTime", 0, INT32, f"{_SGAS}, 32 bits")
    STAGING_S: Final = NumberRule("TimeDuration", 0, INT32, "a duration of staging is not negative")
    NODE_COUNT: Final = NumberRule("NodeCount", 1, 32_767, f"{_XSD}'s positiveInteger and {_SGAS}, 16 bits")
    PROCESSORS: Final = NumberRule("Processors", 1, INT32, f"{_XSD}'s positiveInteger and {_SGAS}, 32 bits", "hold")
    MEMORY_KIB: Final = NumberRule("Memory", 1, INT64 // 1024, f"{_SGAS}, 64 bits of bytes")
    AMOUNT: Final = NumberRule("Swap, Disk, Network", 1, INT64, f"{_XSD}'s positiveInteger, 64 bits")
    EXIT_CODE: Final = NumberRule("ExitCode", -(2**31), INT32, f"{_SGAS}, 32 bits")
    TRANSFER_SIZE: Final = NumberRule("FileTransfers/Size", 0, INT64, f"{_SGAS}, 64 bits")
    PROCESS_ID: Final = NumberRule("ProcessId", -(2**63), INT64, "a process id has 64 bits at most")
    CHARGE: Final = NumberRule("Charge", -(2**31), INT32, f"{_SGAS}, 32 bits")

    @staticmethod
    def rewrites_record_id(local_id: str) -> bool:
        """Whether SGAS drops this LocalJobId and keeps the record under its GlobalJobId instead of its record id."""
        return len(local_id) > SgasRules.LOCAL_JOB_ID.longest or local_id.startswith("/")


class CarRules:
    """EMI CAR 1.2 as the APEL server accepts it (facts on formats, 2; facts on receivers, 2)."""

    RECORD_ID: Final = TextRule("RecordIdentity@recordId", 1000, "the id's length at SGAS, kept for CAR", "hold")
    GLOBAL_JOB_ID: Final = TextRule("GlobalJobId", 1000, "an id's length at SGAS, kept for CAR", "drop")
    LOCAL_JOB_ID: Final = TextRule("LocalJobId", 255, f"{_APEL}, 255 characters", "hold")
    LOCAL_USER_ID: Final = TextRule("LocalUserId", 255, f"{_APEL}, 255 characters", "drop")
    LOCAL_GROUP: Final = TextRule("LocalGroup", 255, f"{_APEL}s for names, 255 characters", "drop")
    GLOBAL_USER_NAME: Final = TextRule("GlobalUserName", 255, f"{_APEL}, 255 characters", "drop")
    GROUP: Final = TextRule("Group", 255, f"{_APEL}, 255 characters", "drop")
    GROUP_ATTRIBUTE: Final = TextRule("GroupAttribute", 255, f"{_APEL}, 255 characters", "drop")
    PROJECT: Final = TextRule("GroupAttribute@type=ProjectName", 255, f"{_APEL}s for names, 255 characters")
    JOB_NAME: Final = TextRule("JobName", 1000, "the name's length at SGAS, kept for CAR")
    QUEUE: Final = TextRule("Queue", 100, f"{_APEL}, 100 characters")
    SITE: Final = TextRule("Site", 255, f"{_APEL}, 255 characters", "hold")
    SUBMIT_HOST: Final = TextRule("SubmitHost", 255, f"{_APEL}, 255 characters", "hold")
    INFRASTRUCTURE: Final = TextRule("Infrastructure@description", 100, f"{_APEL}, 100 characters")
    MIDDLEWARE: Final = TextRule("Middleware", 255, "a name's length at APEL")
    RESOURCE: Final = TextRule("ConsumableResource@description", 255, "a name's length at APEL")
    MACHINE_NAME: Final = NameRule("MachineName", 255, f"{_APEL}, 255 characters", "hold")
    HOST: Final = NameRule("Host", 255, f"{_XSD}, 255 characters")
    WALL_S: Final = NumberRule("WallDuration", 0, INT32, f"{_APEL}, signed 32 bits, not negative", "hold")
    CPU_S: Final = NumberRule("CpuDuration", 0, INT32, f"{_APEL}, signed 32 bits, not negative", "hold")
    CPU_PART_S: Final = NumberRule("CpuDuration@usageType", 0, INT32, "as CpuDuration")
    COUNT: Final = NumberRule("NodeCount", 1, INT32, f"{_XSD}'s positiveInteger and {_APEL}, 32 bits")
    PROCESSORS: Final = NumberRule("Processors", 1, INT32, f"{_XSD}'s positiveInteger and {_APEL}, 32 bits", "hold")
    AMOUNT: Final = NumberRule("Memory, Swap", 1, INT64, f"{_XSD}'s positiveInteger, 64 bits")
    EXIT_STATUS: Final = NumberRule("ExitStatus", -(2**31), INT32, f"{_XSD}'s xsd:int")
    PROCESS_ID: Final = NumberRule("ProcessId", -(2**63), INT64, f"{_XSD}'s xsd:long")
    CHARGE: Final = NumberRule("Charge", -(2**31), INT32, "the range of a charge at SGAS, kept for CAR")


LATEST_END_AFTER_NOW_S: Final = 2 * 86_400
"""APEL refuses a message with a run that ends more than two days after its clock (facts on receivers, 2)."""


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
"""Rules of texts, by key of the message."""

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


Rule = TextRule | NumberRule | NameRule


def _rules() -> Iterator[tuple[str, Rule]]:
    for family, rules in (("sgas", vars(SgasRules)), ("car", vars(CarRules))):
        yield from ((f"{family}:{rule.field}", rule) for rule in rules.values() if isinstance(rule, Rule))
    for family, named in (("apel", TEXTS), ("apel-job", JOB_NUMBERS), ("apel-summary", SUMMARY_NUMBERS)):
        yield from ((f"{family}:{rule.field}", rule) for rule in named.values())


BY_KEY: Final[Mapping[str, Rule]] = dict(_rules())
"""The rules by their keys, such as `car:Site`; a reason is stored with the key of the broken rule."""
_KEYS: Final[Mapping[Rule, str]] = {rule: key for key, rule in BY_KEY.items()}


def key_of(rule: Rule) -> str | None:
    """The key of a rule in `BY_KEY`; None for a rule of an add-on."""
    return _KEYS.get(rule)


class MessageType(msgspec.Struct, frozen=True):
    """The fields of one type of message. `fields` in the order in which they are written; `needed` are those without
    which the server's table refuses the record although the message is read; `scores` contain `{benchmark: value}`."""

    name: str
    shape: Literal["record", "summary", "sync"]
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
    "apel-job", "record", _JOB_KIND, "0.3", _JOB_FIELDS, _JOB_MANDATORY, JOB_NUMBERS, _SCORE, _JOB_IGNORED
)
JOB_04: Final = MessageType(
    "apel-job", "record", _JOB_KIND, "0.4", _without_type(_JOB_FIELDS), _JOB_MANDATORY, JOB_NUMBERS, _SCORE,
    _JOB_IGNORED, _SCORE,
)  # fmt: skip
SUMMARY_02: Final = MessageType(
    "apel-summary", "summary", _SUMMARY_KIND, "0.2", _SUMMARY_FIELDS, _SUMMARY_MANDATORY, SUMMARY_NUMBERS,
    _COUNTS | _SCORE,
)  # fmt: skip
SUMMARY_04: Final = MessageType(
    "apel-summary", "summary", _SUMMARY_KIND, "0.4", _without_type(_SUMMARY_FIELDS), _SUMMARY_MANDATORY,
    SUMMARY_NUMBERS, _COUNTS | _SCORE, scores=_SCORE,
)  # fmt: skip
NORMALISED_03: Final = MessageType(
    "apel-normalised-summary", "summary", _SUMMARY_KIND, "0.3", _NORMALISED_FIELDS, _SUMMARY_MANDATORY | _NORMALISED,
    SUMMARY_NUMBERS, _COUNTS,
)  # fmt: skip
NORMALISED_04: Final = MessageType(
    "apel-normalised-summary", "summary", "APEL-normalised-summary-message", "0.4", _NORMALISED_FIELDS,
    _SUMMARY_MANDATORY | _NORMALISED, SUMMARY_NUMBERS, _COUNTS, scores=_NORMALISED,
)  # fmt: skip
SYNC_01: Final = MessageType(
    "apel-sync", "sync", "APEL-sync-message", "0.1", ("Site", "SubmitHost", "NumberOfJobs", "Month", "Year"),
    frozenset({"Site", "NumberOfJobs", "Month", "Year"}), SUMMARY_NUMBERS, ignored=frozenset(),
)  # fmt: skip

MESSAGE_TYPES: Final = (JOB_03, JOB_04, SUMMARY_02, SUMMARY_04, NORMALISED_03, NORMALISED_04, SYNC_01)


def of_version(types: tuple[MessageType, ...], version: str) -> MessageType:
    """The one of these types with that version (`0.2` or `v0.2`). Raises `ValueError`, naming the existing versions."""
    plain = version.removeprefix("v")
    for known in types:
        if known.version == plain:
            return known
    there_are = ", ".join(known.version for known in types)
    raise ValueError(f"{types[0].name} has no version {version!r}; there are {there_are}")


def type_of(header: str, kind: str, version: str) -> MessageType | None:
    """The type of a message by its header, matched exactly as the server does; None: refused.

    For job and sync messages the version hardly matters; the header line of summaries must be exact (facts on formats,
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
    """A text as the receiver's database compares it in a key: without case and trailing blanks (there, 4.8)."""
    return text.rstrip(" ").lower()
