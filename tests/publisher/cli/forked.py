"""Commands in separate processes without their start: each is forked from a process that has loaded the whole program.

    python -m tests.publisher.cli.forked DESCRIPTOR

is that process. It reads a `ForkedCommand` and three streams from the socket with this number, forks a process that
runs the command as `python -m publisher.cli` would, and answers with its exit code. What depends on the start of the
interpreter, such as the variables that it reads, and how the program is loaded, needs a real start.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

import msgspec

from publisher.cli import start
from tests.generators.arc_database import load

ROOT: Final = Path(__file__).parents[3]
_SKIPPED: Final = ("publisher.cli.__main__", "publisher.simulator.__main__")
_THREADED: Final = ("distributed", "duckdb", "pyarrow")
"""They start threads as soon as they are loaded, which a forked process does not have."""
_LARGEST: Final = 1 << 17


class Missing:
    """A finder in whose process these packages are not installed."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Raises `ModuleNotFoundError` for them; other finders look for the rest."""
        if name.partition(".")[0] in self._packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class ForkedCommand(msgspec.Struct, frozen=True):
    """A command line, and where it is called."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    umask: int


class Forks:
    """The other side of it, for one command at a time. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.publisher.cli.forked", str(theirs.fileno())],
                cwd=ROOT, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a process with threads should not be forked
            )  # fmt: skip
        self._lock = threading.Lock()

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], streams: tuple[int, int, int]
    ) -> int | None:
        """The exit code of a command with these descriptors as its streams; None where another one is at work."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            umask = os.umask(0)
            os.umask(umask)
            command = ForkedCommand(list(arguments), str(folder), dict(environment), umask)
            socket.send_fds(self._ours, [msgspec.json.encode(command)], streams)
            return int(self._ours.recv(16))
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ours.close()
        self._process.wait(60)


def load_program() -> None:
    """Load the modules of the program, so that no command has to, but those that need a library with threads, or an
    extra that is not installed."""
    missing = Missing(_THREADED)
    sys.meta_path.insert(0, missing)
    for package in ("formats", "publisher"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if module.name not in _SKIPPED and ".migrations." not in module.name:
                with suppress(ImportError):
                    importlib.import_module(module.name)
    _run_commands()
    sys.meta_path.remove(missing)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot be forked"


def _run_commands() -> None:
    """Do once what a process does at its first time only, such as to compile the statements of SQL and what checks
    settings."""
    from tests.publisher.cli.program import Inside

    with tempfile.TemporaryDirectory() as folder:
        site = Inside(Path(folder))
        load(ROOT / "fixtures" / "arc" / "accounting.sql", site.folder / "accounting.db")
        for words in (("run",), ("status",), ("jobs",), ("records", "list", "--state", "held"), ("check",)):
            site(*words)


def _become(command: ForkedCommand, streams: Sequence[int]) -> None:
    """Be the process of a command, as if it had been started."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(command.folder)
    os.umask(command.umask)
    os.environ.clear()
    os.environ.update(command.environment)
    time.tzset()
    sys.argv = [str(ROOT / "publisher" / "cli" / "__main__.py"), *command.arguments]
    encoding = command.environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r")), encoding)
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w")), encoding, line_buffering=os.isatty(1)
    )
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), encoding, "backslashreplace", line_buffering=True
    )
    gc.enable()


def _live() -> NoReturn:
    """Run the command, and end without taking all modules apart, which takes longer than most commands."""
    code: object = 1
    try:
        start.main()
    except SystemExit as left:
        code = left.code or 0
    except BaseException:  # noqa: BLE001 - as the interpreter does, which is not there to do it
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)


def main() -> None:
    """Fork a process for each command."""
    load_program()
    gc.disable()
    gc.freeze()
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        content, streams, _flags, _address = socket.recv_fds(control, _LARGEST, 3)
        if not content:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            control.close()
            _become(msgspec.json.decode(content, type=ForkedCommand), streams)
            _live()
        for descriptor in streams:
            os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        control.send(str(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    main()
