"""Running a program that prints accounting data: no shell, with a time-out, as a stream of lines through bounded
memory.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections.abc import Generator, Iterator, Mapping
from typing import IO, Final

from publisher.errors import SourceBusyError, SourceError, SourceFormatError, SourceMissingError

MAX_LINE_BYTES: Final = 1 << 20
SILENT_S: Final = 600.0
"""How long a program may print nothing: a database may take minutes to answer for a busy month."""

_BLOCK: Final = 1 << 18
_MESSAGE_BYTES: Final = 4_096
_GRACE_S: Final = 5.0


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
            f"{command[0]}: this program does not exist", hint="Correct `path` of the source"
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
            f"{command[0]} reported an error, so its answer may be incomplete: {_one_line(message)}",
            hint="Run it by hand as the user of the publisher",
        )


def _one_line(message: str) -> str:
    return " / ".join(message.split("\n"))[:500] or "without a message"


def _silent(program: str, silent_s: float) -> SourceBusyError:
    return SourceBusyError(
        f"{program} printed nothing for {silent_s:g} s and was ended",
        hint="The next run tries again. If it fails too, check the service that the program asks",
    )


def _blocks(process: subprocess.Popen[bytes], said: list[bytes], silent_s: float) -> Iterator[bytes]:
    """The output of the process; the beginning of its standard error goes into `said`."""
    out, err = process.stdout, process.stderr
    if out is None or err is None:
        raise SourceError("the pipes of the program are missing")
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
    """End the process and its children, and close its pipes."""
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
    with contextlib.suppress(ProcessLookupError):  # it ended in the meantime
        os.killpg(process.pid, stop)
