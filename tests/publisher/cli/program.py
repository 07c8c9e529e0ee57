"""The real command in a separate process, with a site in a folder: an ARC database, folders as targets."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

from publisher.cli.main import main

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
        return {**kept, "HOME": str(self.folder), "USAGE_PUBLISHER_CONFIG": str(self.config), "COLUMNS": "500"}

    def __call__(self, *arguments: str | Path, answers: str | None = None, **variables: str) -> Done:
        """Run a command to its end. `answers` is its standard input; without, there is none."""
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
