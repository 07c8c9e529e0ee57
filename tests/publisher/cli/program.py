"""The real command in a separate process, with a site in a folder: an ARC database, folders as targets.

A process is forked from one that has loaded the program (`tests.publisher.cli.forked`), unless it is started to be left
at work or its variables concern the interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

from publisher.cli.main import main
from tests.publisher.cli.forked import Forks

COMMAND: Final = (sys.executable, "-m", "publisher.cli")
BASE: Final = """\
[site]
name = "EXAMPLE-SITE"

[store]
url = "sqlite:///store.db"
"""
SOURCE: Final = """
[sources.ce1]
type = "arc"
path = "accounting.db"
benchmark = { type = "HEPscore23", value = 14.2 }
complete_since = "2026-09-01"
"""
FILES: Final = """
[targets.files]
type = "directory"
path = "files"
layout = "files"
records = "ogf-ur"
"""
SUMMARIES: Final = """
[targets.summaries]
type = "directory"
path = "summaries"
records = "apel-summary"
"""
CHARGES_BY_HOUR: Final = """
[charges]
timezone = "Europe/Oslo"
[[charges.prices]]
resource = "cores"
price = "0.03"
hours = "06-22"
[[charges.prices]]
resource = "cores"
price = "0.02"
[[charges.prices]]
resource = "memory"
price = "0.001"
"""
WHOLE: Final = BASE + SOURCE + FILES + SUMMARIES


class Done:
    """What a command left: its exit code, its data and its messages."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def object(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def ok(self) -> Done:
        """Itself, if all was done."""
        assert self.code == 0, (self.code, self.out, self.err)
        return self


_until_the_end: Final = contextlib.ExitStack()
atexit.register(_until_the_end.close)


@functools.cache
def _forks(_python_path: str | None) -> Forks:
    """The process from which commands are forked, started with the first of them."""
    return _until_the_end.enter_context(Forks())


def run_command(
    arguments: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str],
    *,
    stdout: int | None = None,
    stderr: int | None = None,
    answers: bytes = b"",
    encoding: str = "utf-8",
) -> Done:
    """Run a command to its end in a forked process; streams that are not given are read afterwards."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(answers)
        given.seek(0)
        streams = (
            given.fileno(),
            out.fileno() if stdout is None else stdout,
            err.fileno() if stderr is None else stderr,
        )
        words = [*map(str, arguments)]
        try:
            code = _forks(os.environ.get("PYTHONPATH")).run(words, folder, environment, streams)
        except BaseException:  # such as the time limit of a test: the next command would get the answer of this one
            _forks.cache_clear()
            raise
        if code is None:  # by another thread of the test
            code = subprocess.run(
                [*COMMAND, *words], cwd=folder, env=dict(environment), check=False, stdin=given, stdout=streams[1],
                stderr=streams[2],
            ).returncode  # fmt: skip
        out.seek(0)
        err.seek(0)
        return Done(code, out.read().decode(encoding), err.read().decode(encoding))


class Program:
    """The command in a folder, with the configuration there. Its environment contains nothing of the caller's."""

    def __init__(self, folder: Path, text: str = WHOLE) -> None:
        self.folder = folder
        self.config = folder / "publisher.toml"
        self.configure(text)

    def configure(self, text: str) -> None:
        """Write the configuration."""
        self.config.write_text(text, encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the process."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
        kept["TMPDIR"] = tempfile.gettempdir()
        return {**kept, "HOME": str(self.folder), "USAGE_PUBLISHER_CONFIG": str(self.config), "COLUMNS": "500"}

    def __call__(self, *arguments: str | Path, answers: str | None = None, **variables: str) -> Done:
        """Run a command to its end. `answers` is its standard input; without, there is none."""
        if not any(name.startswith("PYTHON") for name in variables):
            environment = self.environment | variables
            return run_command(arguments, self.folder, environment, answers=(answers or "").encode())
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)], cwd=self.folder, env=self.environment | variables, check=False,
            stdin=subprocess.DEVNULL if answers is None else None, input=None if answers is None else answers.encode(),
            capture_output=True, timeout=120,
        )  # fmt: skip
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Begin a command and leave it at work."""
        return subprocess.Popen(
            [*COMMAND, *arguments], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the store, read past the program."""
        connection = sqlite3.connect(self.folder / "store.db")
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def change_store(self, statement: str, *values: object) -> None:
        """Change the store past the program, as a disk does."""
        connection = sqlite3.connect(self.folder / "store.db", isolation_level=None)
        try:
            assert connection.execute(statement, values).rowcount
        finally:
            connection.close()

    def change_database(self, statement: str, *values: object) -> None:
        """Let ARC write something else."""
        connection = sqlite3.connect(self.folder / "accounting.db", isolation_level=None)
        try:
            assert connection.execute(statement, values).rowcount
        finally:
            connection.close()

    def copy(self, folder: Path, kind: type[Program] | None = None) -> Program:
        """A copy of the site in another folder; `kind`: how its commands run, by default as here."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return (kind or type(self))(folder, self.config.read_text(encoding="utf-8"))


class Inside(Program):
    """The command in this process, which saves its start: where what a command does is the point, and no process is."""

    def __call__(self, *arguments: str | Path, answers: str | None = None, **variables: str) -> Done:
        """Run a command to its end, like a separate process."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
        out, err = streams
        with (
            _nothing_left_behind(),
            mock.patch.dict(os.environ, self.environment | variables, clear=True),
            mock.patch.multiple(sys, argv=["usage-publisher", *map(str, arguments)], stdin=io.StringIO(answers or "")),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code: object = 0
            try:
                main()
            except SystemExit as left:
                code = left.code
        assert isinstance(code, int)
        texts = [stream.detach().getvalue().decode() for stream in streams]  # type: ignore[attr-defined]
        return Done(code, *texts)


@contextlib.contextmanager
def _nothing_left_behind() -> Iterator[None]:
    """What a command sets for its process is as it was afterwards."""
    mask = os.umask(0o022)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        os.umask(mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
