"""Running sacct: its arguments, its environment, and the records it prints, as they come.

No shell, no waiting for ever, no output kept: records stream through bounded memory. An answer counts only if sacct
ended with exit code 0, printed its header and reported no error, because it may print a part and then fail.

sacct prints what users wrote as it is, line feeds included, so a line of its answer is not a record. Two answers are
asked for: `NUMBERS`, the columns that no user can write, and `TEXTS`, the columns that users write, each between ids.
A record of either ends after its last column, wherever line feeds are.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Final

from publisher.errors import SourceBusyError, SourceError, SourceFormatError, SourceMissingError

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

MAX_LINE_BYTES: Final = 1 << 20
MAX_RECORD_BYTES: Final = 4 << 20
"""More than slurmdbd keeps of a job: each text has at most 64 KiB there."""

_BLOCK: Final = 1 << 18
_EARLIEST: Final = 86_400
"""Zero is not a time for sacct, it would take today's midnight."""
_MESSAGE_BYTES: Final = 4_096
_GRACE_S: Final = 5.0
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


def lines(command: list[str], environ: Mapping[str, str], silent_s: float) -> Generator[bytes, None, None]:
    """The lines that a command prints, without line feeds; the last one only if it has one.

    Raises `SourceError`s: the program is missing, prints nothing for `silent_s` seconds, fails, or reports an error.
    The program is ended when the iterator is closed.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - a list of arguments, the program from the configuration
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(environ),
            start_new_session=True, cwd="/",
        )  # fmt: skip
    except FileNotFoundError as error:
        raise SourceMissingError(
            f"{command[0]}: there is no such program", hint="Look at the path of the source"
        ) from error
    except OSError as error:
        raise SourceError(f"{command[0]}: cannot be run: {error.strerror or error}") from error
    said: list[bytes] = []
    try:
        yield from _split(_blocks(process, said, silent_s), command[0])
        code = process.wait(timeout=silent_s)
    except subprocess.TimeoutExpired as error:
        raise _silent(command[0], silent_s) from error
    finally:
        _end(process)
    message = b"".join(said)[:_MESSAGE_BYTES].decode(errors="replace").strip()
    if code != 0:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        raise SourceError(
            f"{command[0]} {how}: {_one_line(message)}", hint="Run it by hand as the user of the publisher"
        )
    if "error:" in message or "fatal:" in message:
        raise SourceError(
            f"{command[0]} reported an error, so its answer may be a part: {_one_line(message)}",
            hint="Run it by hand as the user of the publisher",
        )


def _stamp(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(max(at, _EARLIEST)))


def _one_line(message: str) -> str:
    return " / ".join(message.split("\n"))[:500] or "it said nothing"


def _silent(program: str, silent_s: float) -> SourceBusyError:
    return SourceBusyError(
        f"{program} printed nothing for {silent_s:g} s and was ended", hint="Look at slurmdbd; it is tried again"
    )


def _blocks(process: subprocess.Popen[bytes], said: list[bytes], silent_s: float) -> Iterator[bytes]:
    """What the process prints; what it says on standard error is put into `said`, the beginning of it."""
    out, err = process.stdout, process.stderr
    if out is None or err is None:
        raise SourceError("the pipes of sacct are missing")
    with selectors.DefaultSelector() as waiting:
        waiting.register(out, selectors.EVENT_READ)
        waiting.register(err, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(silent_s)
            if not ready:
                raise _silent(str(process.args[0] if isinstance(process.args, list) else process.args), silent_s)
            for key, _ in ready:
                stream: IO[bytes] = key.fileobj  # type: ignore[assignment] # registered above
                data = os.read(stream.fileno(), _BLOCK)
                if not data:
                    waiting.unregister(stream)
                elif stream is err:
                    if sum(map(len, said)) < _MESSAGE_BYTES:
                        said.append(data)
                else:
                    yield data


def _split(blocks: Iterator[bytes], program: str) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > MAX_LINE_BYTES:
            raise SourceFormatError(f"{program} printed a line of more than {MAX_LINE_BYTES} bytes")
    if rest:
        raise SourceFormatError(f"what {program} printed ends in the middle of a line")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started, and let go of its pipes."""
    for stop, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        if process.poll() is not None:
            break
        _signal(process, stop)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _signal(process: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended in between
        os.killpg(process.pid, stop)
