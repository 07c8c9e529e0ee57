"""Recognising the kind of a log, so that a path with the wrong type is reported once, not as a million unreadable
lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

KINDS: Final = {
    "gridengine": "a Grid Engine accounting file",
    "gridengine-jsonl": "a Grid Engine accounting file of JSON lines",
    "gridengine-reporting": "a Grid Engine reporting file",
    "torque": "a TORQUE or PBS accounting log",
    "dqs": "a DQS act_file",
    "dqs-stat": "a DQS stat_file",
    "slurm": "output of Slurm's sacct",
    "slurm-jobcomp": "a Slurm job completion log",
    "slurm-json": "JSON output of Slurm's sacct",
    "htcondor": "an HTCondor history file",
    "htcondor-json": "output of condor_history -json",
    "htcondor-xml": "output of condor_history -xml",
    "apel-condor": "an HTCondor log for APEL",
    "lsf": "an LSF lsb.acct",
    "blah": "a BLAH log",
    "sqlite": "an SQLite database, as ARC's accounting.db is",
    "xml": "an XML document",
    "binary": "binary data",
}
"""The kinds of log, and their names in messages."""

_SQLITE: Final = b"SQLite format 3\0"
_N: Final = rb"-?\d+(?:\.\d+)?"
_LINES: Final = (
    ("gridengine", re.compile(rb"(?:[^:]*:){5}\d+:[^:]*:-?\d+:(?:" + _N + rb":){23}")),
    ("gridengine-reporting", re.compile(rb"\d{9,}:(?:acct|job_log|new_job|host|queue|sharelog):")),
    ("dqs", re.compile(rb"(?:[^:]*:){2}\d+:(?:[^:]*:){5}(?:\d+:){22}\d+\s*$")),
    ("dqs-stat", re.compile(rb"\d{9,10}:[^:]+:[^:]+:\d+:\d+:\d+:[^:]*:[acdehmqrstuwx]*\s*$")),
    ("torque", re.compile(rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];")),
    ("lsf", re.compile(rb'"[A-Z_]{4,30}" "\d')),
    ("blah", re.compile(rb'"timestamp=')),
    ("slurm-jobcomp", re.compile(rb"JobId=\d+ ")),
    (
        "slurm",
        re.compile(rb"(?:[A-Za-z]+\|)*Job(?:ID|IDRaw)(?:\||\s*$)|\d+(?:_\d+|_\[[^|]*\])?(?:\.\w+)?(?:\|[^|]*){5}"),
    ),
    ("apel-condor", re.compile(rb"(?:[^|\s#]*#)?\d+\.\d+(?:_[^|]*|#\d+)?\|[^|]*\|\d")),
    ("htcondor", re.compile(rb"\*\*\* (?:Offset|ProcId)|(?:ClusterId|ProcId|GlobalJobId|MyType|Owner) = ")),
    ("xml", re.compile(rb"\s*<(?:\?xml|!DOCTYPE|[a-z]+[ >])")),
)
_JSONL: Final = re.compile(rb'\s*\{.*"job_number"\s*:')
_DOCUMENTS: Final = (
    ("gridengine-jsonl", re.compile(rb'\{[^\n]*"job_number"\s*:')),
    ("slurm-json", re.compile(rb'\{\s*"(?:meta|jobs|plugin|errors|warnings)"\s*:')),
    ("htcondor-json", re.compile(rb'[\[\s,]*\{(?s:.*)"(?:ClusterId|ProcId|GlobalJobId|MyType|JobUniverse)"\s*:')),
    ("htcondor-xml", re.compile(rb"<(?s:.*)classads>")),
)
"""The first characters of a file that is read as a whole, not line by line."""

_BYTES: Final = 4096


def looks_like(first_lines: Sequence[bytes]) -> str | None:
    """The kind (a key of `KINDS`) that most of the first lines of a file have; None: unknown."""
    if first_lines and first_lines[0].startswith(_SQLITE):
        return "sqlite"  # its other lines are binary
    if document := document_kind(b"\n".join(first_lines)[:_BYTES]):
        return document
    votes: dict[str, int] = {}
    for line in first_lines:
        if kind := _line_kind(line[:_BYTES]):
            votes[kind] = votes.get(kind, 0) + 1
    return max(votes, key=lambda kind: votes[kind]) if votes else None


def document_kind(head: bytes) -> str | None:
    """The kind of a document of JSON or XML with this beginning; None: unknown."""
    head = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return next((kind for kind, pattern in _DOCUMENTS if pattern.match(head)), None)


def _line_kind(line: bytes) -> str | None:
    for kind, pattern in _LINES:
        if pattern.match(line):
            return kind
    if _JSONL.match(line):
        return "gridengine-jsonl"
    return "binary" if b"\0" in line else None
