"""Running sacct: its arguments, its environment, and the lines it prints, as they come.

No shell, no waiting for ever, no output kept: lines stream through bounded memory. A run counts only if sacct ended
with exit code 0, printed its header and told of no error, because it may print a part and then fail.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from publisher.errors import SourceBusyError, SourceError, SourceFormatError, SourceMissingError

_DELIMITER: Final = "\x1f"
_SIGNS: Final = "!#$&*;<>?@^`{|}~"
_SIGNS_DRAWN: Final = 6
COLUMNS: Final = (
    "JobIDRaw", "JobID", "Cluster", "User", "UID", "Group", "GID", "Account", "Partition", "QOS", "Submit", "Eligible",
    "Start", "End", "ElapsedRaw", "Suspended", "TotalCPU", "UserCPU", "SystemCPU", "MaxRSS", "MaxVMSize", "NCPUS",
    "NNodes", "NodeList", "AllocTRES", "ReqTRES", "ReqMem", "TimelimitRaw", "ConsumedEnergyRaw", "ExitCode",
    "DerivedExitCode", "Reservation", "JobName", "Comment", "WCKey", "DBIndex", "State",
)  # fmt: skip
"""What is asked for. The last is never empty and holds no line feed, so that every record has a known end."""

MAX_LINE_BYTES: Final = 1 << 20

_BLOCK: Final = 1 << 18
_EARLIEST: Final = 86_400
"""Zero is no time for sacct, it would take today's midnight."""
_MESSAGE_BYTES: Final = 4_096
_GRACE_S: Final = 5.0
_NOT_FOR_SACCT: Final = ("SACCT_", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURM_BITSTR_LEN")


def new_delimiter() -> str:
    """What stands between the fields of one answer: drawn anew, so that no job name can have been made to hold it.

    A name may hold line feeds, and with a delimiter known before also whole lines of runs that never were.
    """
    return _DELIMITER + "".join(secrets.choice(_SIGNS) for _ in range(_SIGNS_DRAWN))


def arguments(program: Path, begin: int, until: int) -> list[str]:
    """The command that lists every run that was there between two instants (epoch seconds), each with its steps.

    Without states sacct gives all that ran or waited in between, so all that ended in between.
    """
    return [
        str(program),
        "--allusers",
        "--duplicates",
        "--noconvert",
        "--parsable2",
        f"--delimiter={new_delimiter()}",
        f"--starttime={_stamp(begin)}",
        f"--endtime={_stamp(until)}",
        f"--format={','.join(COLUMNS)}",
    ]


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of sacct: ours, in UTC, times as epoch seconds, and nothing that changes its output."""
    kept = {name: value for name, value in own.items() if not name.startswith(_NOT_FOR_SACCT)}
    return {**kept, "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def lines(command: list[str], environ: Mapping[str, str], silent_s: float) -> Generator[bytes, None, None]:
    """The lines that a command prints, without line feeds; the last one only if it has one.

    Raises `SourceError`s: the program is missing, prints nothing for `silent_s` seconds, fails, or tells of an error.
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
            f"{command[0]} told of an error, so what it printed may be a part: {_one_line(message)}",
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
