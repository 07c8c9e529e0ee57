"""Running sacct: its arguments, its environment, and the records it prints, as they come.

No shell, no waiting for ever, no output kept: records stream through bounded memory. An answer counts only if sacct
ended with exit code 0, printed its header and reported no error, because it may print a part and then fail.

sacct prints what users wrote as it is, line feeds included, so a line of its answer is not a record. Two answers are
asked for: `NUMBERS`, the columns that no user can write, and `TEXTS`, the columns that users write, each between ids.
A record of either ends after its last column, wherever line feeds are.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from publisher.errors import SourceFormatError
from publisher.sources.program import lines

_DELIMITER: Final = "\x1f"
_SIGNS: Final = "!#$&*;<>?@^`{|}~"
_SIGNS_DRAWN: Final = 16
COLUMNS: Final = (
    "JobIDRaw", "JobID", "Cluster", "User", "UID", "Group", "GID", "Account", "Partition", "QOS", "Submit", "Eligible",
    "Start", "End", "ElapsedRaw", "Suspended", "TotalCPU", "UserCPU", "SystemCPU", "MaxRSS", "MaxVMSize", "NCPUS",
    "NNodes", "NodeList", "AllocTRES", "ReqTRES", "ReqMem", "TimelimitRaw", "ConsumedEnergyRaw", "ExitCode",
    "DerivedExitCode", "Reservation", "JobName", "Comment", "WCKey", "DBIndex", "State",
)  # fmt: skip
"""The columns of a whole table. The last is never empty and has no line feed, so that every record has a known end."""

FREE_TEXT: Final = ("Account", "JobName", "Comment", "WCKey")
"""Columns that users write: any text where Slurm does not check it against its database, line feeds included."""

NUMBERS: Final = tuple(name for name in COLUMNS if name not in FREE_TEXT)
"""The columns that Slurm, its administrators, and the system's user database write."""

TEXTS: Final = ("JobIDRaw", "Cluster", *FREE_TEXT, "Submit")
"""What users wrote, between what identifies the job: `JobIDRaw`, `Cluster` and `Submit` are unique in slurmdbd."""

MAX_RECORD_BYTES: Final = 4 << 20
"""More than slurmdbd keeps of a job: each text has at most 64 KiB there."""

_EARLIEST: Final = 86_400
"""Zero is not a time for sacct, it would take today's midnight."""
_NOT_FOR_SACCT: Final = ("SACCT_", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURM_BITSTR_LEN")


def new_delimiter() -> str:
    """The separator of the fields of one answer: drawn anew, so that no user can have put it into a text."""
    return _DELIMITER + "".join(secrets.choice(_SIGNS) for _ in range(_SIGNS_DRAWN))


def arguments(program: Path, begin: int, until: int, columns: Sequence[str], delimiter: str) -> list[str]:
    """The command that lists every run that was there between two instants (epoch seconds).

    Without states sacct gives all that ran or waited in between, so all that ended in between. Texts are asked for
    without steps, which have no text of interest.
    """
    return [
        str(program),
        "--allusers",
        "--duplicates",
        "--noconvert",
        "--parsable2",
        *(["--allocations"] if tuple(columns) == TEXTS else []),
        f"--delimiter={delimiter}",
        f"--starttime={_stamp(begin)}",
        f"--endtime={_stamp(until)}",
        f"--format={','.join(columns)}",
    ]


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of sacct: ours, in UTC, times as epoch seconds, and nothing that changes its output."""
    kept = {name: value for name, value in own.items() if not name.startswith(_NOT_FOR_SACCT)}
    return {**kept, "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def records(
    command: list[str], columns: Sequence[str], delimiter: str, environ: Mapping[str, str], silent_s: float
) -> Generator[list[str], None, None]:
    """The records that a command prints, each as its fields; the header before them is checked and left out.

    A record has as many delimiters as it has columns, less one, and ends with the first line feed after them: what a
    text holds, other than the delimiter, cannot end it.

    Raises `SourceError`s: as `lines` does, and for an answer without header or with a record of another number of
    fields. Nothing after that record is given.
    """
    program, by = command[0], delimiter.encode()
    between = len(columns) - 1
    begun: list[bytes] = []
    found = size = 0
    has_header = False
    with closing(lines(command, environ, silent_s)) as printed:
        for line in printed:
            found += line.count(by)
            size += len(line) + 1
            if found < between:
                if size > MAX_RECORD_BYTES or not has_header:
                    break
                begun.append(line)
                continue
            fields = _decoded(b"\n".join([*begun, line]) if begun else line).split(delimiter)
            if has_header:
                if found > between:
                    raise SourceFormatError(
                        f"{program} printed a record of {len(fields)} fields where {len(columns)} were asked for",
                        hint="It is asked again at the next run. If that fails too, run it by hand",
                    )
                yield fields
            elif tuple(fields) != tuple(columns):
                break
            has_header = True
            begun, found, size = [], 0, 0
    if not has_header:
        raise SourceFormatError(f"{program} printed no header of a table", hint="Is this sacct?")
    if begun:
        raise SourceFormatError(f"what {program} printed ends in the middle of a record")


def _decoded(record: bytes) -> str:
    """The text of a record; bytes that are not UTF-8, and NUL, as `\\xNN`."""
    return record.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _stamp(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(max(at, _EARLIEST)))
