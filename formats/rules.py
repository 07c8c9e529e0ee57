"""What receivers and schemas allow, as data: lengths, ranges, patterns, each with its source.

A rule says what happens to a value that does not fit: it is shortened, left out, or the record is held. Names and
identities are never shortened, lest two of them fall together; amounts that are charged for are never left out.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1

_LABEL: Final = r"[a-zA-Z0-9_](?:[a-zA-Z0-9_'-]*[a-zA-Z0-9_])?"
is_host_name = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}").fullmatch
"""Match a host name or an IPv4 address: labels of letters, digits, `_`, and inside also `-` and `'`; no port.

Wider than the official schemas' domainNameType, which knows no label of one character and no `_`. SGAS takes both
(facts on receivers, "Seen on the real services"), APEL takes any text, and neither applies the schema.
"""

Misfit = Literal["shorten", "drop", "hold"]


INDEXED_BYTES: Final = 2692
"""The longest text of UTF-8 that PostgreSQL puts into a unique index whatever it is: a row of an index has 2,704 bytes,
12 of them around the text. A text that compresses well may be longer; that is not relied on."""


class TextRule(msgspec.Struct, frozen=True, gc=False):
    """A text's greatest length, and what happens to a longer one. `field` is the name in the format.

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
        """The beginning of a text that fits; the text must be free of lone surrogates."""
        cut = text[: self.longest]
        if self.longest_bytes and _utf8_bytes(cut) > self.longest_bytes:
            cut = cut.encode()[: self.longest_bytes].decode(errors="ignore")
        return cut.rstrip()


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class NumberRule(msgspec.Struct, frozen=True, gc=False):
    """A whole number's range, both ends included, and what happens outside."""

    field: str
    least: int
    largest: int
    source: str
    outside: Literal["drop", "hold"] = "drop"


class NameRule(msgspec.Struct, frozen=True, gc=False):
    """A host name (`is_host_name`), its greatest length, and what happens to another text."""

    field: str
    longest: int
    source: str
    otherwise: Literal["drop", "hold"] = "drop"


_SGAS = "SGAS column"
_XSD = "official schema"
_APEL = "APEL column"


class SgasRules:
    """OGF-UR as SGAS takes it (facts on formats, 1.2 and 1.4; facts on receivers, 1)."""

    RECORD_ID: Final = TextRule("RecordIdentity@recordId", 1000, f"{_SGAS}, 1000 characters", "hold")
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
    """EMI CAR 1.2 as the APEL server takes it (facts on formats, 2; facts on receivers, 2)."""

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
