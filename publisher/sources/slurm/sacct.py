"""Running sacct: its arguments, its environment, its records as a stream, and its sums.

No shell is used, a time-out applies, and memory is bounded. An answer counts only if sacct ended with exit code 0,
printed its header, and reported no error, because it may print a part and then fail.

sacct prints what users wrote unchanged, line feeds included, so a line of its answer is not a record. It is asked
twice: for `NUMBERS`, the columns that no user can write, and for `TEXTS`, the columns that users write, each between
ids. A record ends after its last column, wherever line feeds are.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from publisher.errors import SourceFormatError
from publisher.sources.base import Window
from publisher.sources.fields import LineError
from publisher.sources.program import SILENT_S, lines
from publisher.sources.slurm.values import NO_NODES, UNKNOWN, duration_ms, time_before_resize_s
from publisher.sources.tool import ToolSums

_DELIMITER: Final = "\x1f"
_SIGNS: Final = "!#$&*;<>?@^`{|}~"
_SIGNS_DRAWN: Final = 16
COLUMNS: Final = (
    "JobIDRaw", "JobID", "Cluster", "User", "UID", "Group", "GID", "Account", "Partition", "QOS", "Submit", "Eligible",
    "Start", "End", "ElapsedRaw", "Suspended", "TotalCPU", "UserCPU", "SystemCPU", "TRESUsageInTot", "MaxRSS",
    "MaxVMSize", "NCPUS", "NNodes", "NodeList", "AllocTRES", "ReqTRES", "ReqMem", "TimelimitRaw", "ConsumedEnergyRaw",
    "ExitCode", "DerivedExitCode", "Reservation", "JobName", "Comment", "WCKey", "DBIndex", "State",
)  # fmt: skip
"""The columns of a complete table. The last is never empty and has no line feed, so that the end of every record is
known.
"""

FREE_TEXT: Final = ("Account", "JobName", "Comment", "WCKey")
"""Columns that users write: any text, line feeds included, unless Slurm checks it against its database."""

NUMBERS: Final = tuple(name for name in COLUMNS if name not in FREE_TEXT)
"""The columns that Slurm, its administrators, and the system's user database write."""

TEXTS: Final = ("JobIDRaw", "Cluster", *FREE_TEXT, "Submit")
"""The texts of users, between the columns that identify the job: `JobIDRaw`, `Cluster`, and `Submit` are unique in
slurmdbd.
"""

_SUMS: Final = (
    "JobIDRaw", "NodeList", "NCPUS", "Submit", "Start", "End", "ElapsedRaw", "CPUTimeRAW", "TotalCPU", "State",
)  # fmt: skip
"""What sacct itself says that a run used. `CPUTimeRAW` is its elapsed time times its CPUs; `TotalCPU` is the sum of its
steps, and 0 if sacct is asked for allocations only."""

LONGEST_WINDOW_S: Final = 7 * 86_400
"""The longest time for which sacct is asked at once, so that an answer does not grow with the years."""

MAX_RECORD_BYTES: Final = 4 << 20
"""More than slurmdbd keeps of a job: each text has at most 64 KiB there."""

_EARLIEST: Final = 86_400
"""The earliest time sacct is asked for: it takes zero as midnight of today."""
_NOT_FOR_SACCT: Final = ("SACCT_", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURM_BITSTR_LEN")


def new_delimiter() -> str:
    """A random separator of the fields of one answer, so that no user can have put it into a text."""
    return _DELIMITER + "".join(secrets.choice(_SIGNS) for _ in range(_SIGNS_DRAWN))


def arguments(
    program: Path | str, begin: int, until: int, columns: Sequence[str], delimiter: str, clusters: Collection[str] = ()
) -> list[str]:
    """The command that lists every run that waited or ran at some time between two instants (epoch seconds).

    Without states sacct lists all that waited or ran in between, hence all that ended in between. Texts are asked for
    without steps, whose texts are not used. `clusters`: the clusters to ask for; empty: the local one.
    """
    return [
        str(program),
        "--allusers",
        "--duplicates",
        "--noconvert",
        "--parsable2",
        *(["--allocations"] if tuple(columns) == TEXTS else []),
        *([f"--clusters={','.join(sorted(clusters))}"] if clusters else []),
        f"--delimiter={delimiter}",
        f"--starttime={_stamp(begin)}",
        f"--endtime={_stamp(until)}",
        f"--format={','.join(columns)}",
    ]


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of sacct: that of this process, with UTC, times as epoch seconds, and without settings that
    change its output.
    """
    kept = {name: value for name, value in own.items() if not name.startswith(_NOT_FOR_SACCT)}
    return {**kept, "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def records(
    command: list[str], columns: Sequence[str], delimiter: str, environ: Mapping[str, str], silent_s: float
) -> Generator[list[str], None, None]:
    """The records that a command prints, each as its fields; the header before them is checked and omitted.

    A record has one delimiter less than columns, and ends with the first line feed after them: a text without the
    delimiter cannot end it.

    Raises `SourceError`s: as `lines` does, and for an answer without a header or a record with another number of
    fields. Nothing after that record is given.
    """
    program, by = command[0], delimiter.encode()
    between = len(columns) - 1
    begun: list[bytes] = []
    separators = size = 0
    has_header = False
    with closing(lines(command, environ, silent_s)) as printed:
        for line in printed:
            separators += line.count(by)
            size += len(line) + 1
            if separators < between:
                if size > MAX_RECORD_BYTES or not has_header:
                    break
                begun.append(line)
                continue
            fields = _decoded(b"\n".join([*begun, line]) if begun else line).split(delimiter)
            if has_header:
                if separators > between:
                    raise SourceFormatError(
                        f"{program} printed a record of {len(fields)} fields where {len(columns)} were asked for",
                        hint="The next run asks again. If that fails too, run it by hand",
                    )
                yield fields
            elif tuple(fields) != tuple(columns):
                break
            has_header = True
            begun, separators, size = [], 0, 0
    if not has_header:
        raise SourceFormatError(f"{program} did not print the header of a table", hint="Check that `path` is sacct")
    if begun:
        raise SourceFormatError(f"what {program} printed ends in the middle of a record")


def sacct_sums(program: Path | str, window: Window, clusters: Collection[str], environ: Mapping[str, str]) -> ToolSums:
    """The sums of sacct's own `ElapsedRaw`, `CPUTimeRAW`, and `TotalCPU` over the runs that ended in a window.

    An allocation of sacct is one run: an array task, a part of a heterogeneous job, each run of a requeued job, and
    each size of a resized job. Raises `SourceError`s.
    """
    begin, end = window.from_ or 0, int(time.time()) if window.until is None else window.until
    by = new_delimiter()
    runs = wall_s = core_s = cpu_ms = 0
    while begin < end:
        until = min(end, begin + LONGEST_WINDOW_S) if begin else end
        command = arguments(program, begin, until, _SUMS, by, clusters)
        with closing(records(command, _SUMS, by, environment(environ), SILENT_S)) as printed:
            for fields in printed:
                try:
                    run = _amounts(fields, Window(begin, until))
                except (LineError, ValueError) as error:
                    raise SourceFormatError(
                        f"{program} printed a value that is not understood: {error}",
                        hint=f"The record: {'|'.join(fields)[:200]}",
                    ) from error
                if run is not None:
                    runs, wall_s, core_s, cpu_ms = runs + 1, wall_s + run[0], core_s + run[1], cpu_ms + run[2]
        begin = until
    return ToolSums("sacct", runs, wall_s * 1000, core_s * 1000, cpu_ms)


def _amounts(fields: Sequence[str], window: Window) -> tuple[int, int, int] | None:
    """Wall time and core time (s) and CPU time (ms) of an allocation that ended in a window; None: it is not one.

    Raises `LineError` or `ValueError`.
    """
    number, nodes, cores, submit, start, end, elapsed, core_time, cpu_time, _ = fields
    if "." in number or start in UNKNOWN or end in UNKNOWN or (elapsed == "0" and nodes in NO_NODES):
        return None
    if not window.holds(int(end)):
        return None
    before_resize = time_before_resize_s(int(start), None if submit in UNKNOWN else int(submit), int(end))
    wall_s, core_s = int(elapsed) - before_resize, int(core_time) - before_resize * int(cores)
    return wall_s, core_s, duration_ms(cpu_time) or 0


def _decoded(record: bytes) -> str:
    """The text of a record; NUL and bytes that are not UTF-8 as `\\xNN`."""
    return record.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _stamp(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(max(at, _EARLIEST)))
