"""Processes that collect and publish with the library, and kill or interrupt themselves at a step.

    python -m tests.crash.child

is a fork server: it has loaded everything, and forks a process for each line of JSON that it reads, a `ChildTask`; it
answers with a line, an `ProcessEnding`, when that process has ended. A step is an event that the program reports, a
statement to its store, or anything that it writes: a statement that changes something, a file created, renamed, or
removed. A task with step -1 is not killed; its ending names every step, and so gives their number. Writes that Python
does not see, such as the pages of a backup, are stopped by a limit on the size of files: the system ends the process in
the middle of the write that exceeds it.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import msgspec

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.targets.base import Target
    from publisher.targets.identity import TargetContext

NOW = 1_795_200_000
FROM, UNTIL = 1_785_000_000, 1_800_000_000
ROOT = Path(__file__).parents[2]

Keeping = Literal["purge", "forget", "export", "import", "copy", "backup"]
"""What looks after the store as a whole."""
Command = Literal["collect", "publish", "run", "republish", "open"] | Keeping
Unit = Literal["event", "statement", "write"]
PSEUDONYM: Final = "/CN=erased somebody"
_READS: Final = ("SELECT", "PRAGMA", "BEGIN")
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_FILES: Final = frozenset({"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"})


class ChildTask(msgspec.Struct, frozen=True):
    """What a process is to do, and at which step it gets which signal. The target sent to again is `spool`.

    `what`: for `purge` a month, for `forget` a person, else a place to write to or read from. `most_bytes`: no file may
    become larger; what would is an error or, where it `dies` of it, the end of the process.
    """

    config: str
    command: Command
    step: int = -1
    unit: Unit = "event"
    signal_name: str = "KILL"
    what: str = ""
    form: str = "json-lines"
    most_bytes: int = 0
    dies: bool = False


class ProcessEnding(msgspec.Struct, frozen=True):
    """How it ended: the exit code (negative: by that signal), its steps, and what it said last."""

    code: int
    steps: list[str]
    said: str


class ForkServer:
    """The other side of it. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.child"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a process with threads should not be forked
        )  # fmt: skip

    def run(self, task: ChildTask) -> ProcessEnding:
        """Have a process do this; back when it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=ProcessEnding)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate(timeout=60)


def _copy(publisher: Publisher, task: ChildTask) -> None:
    from publisher.maintenance import copy_store

    copy_store(publisher.config.store.url, task.what, 1, lambda _table: None)


def _purge(publisher: Publisher, task: ChildTask) -> None:
    from formats.calendar import month_numbered

    publisher.maintenance.purge(month_numbered(int(task.what)))


_KEEPING: Mapping[str, Callable[[Publisher, ChildTask], object]] = {
    "purge": _purge,
    "forget": lambda publisher, task: publisher.maintenance.forget(task.what, PSEUDONYM),
    "export": lambda publisher, task: publisher.maintenance.export(Path(task.what), task.form),
    "import": lambda publisher, task: publisher.import_store(Path(task.what)),
    "copy": _copy,
    "backup": lambda publisher, task: publisher.maintenance.backup(Path(task.what)),
}


def _make_hasty_target(name: str, settings: Any, context: TargetContext) -> Target:
    """A real target that waits for an answer a moment only, once the process is interrupted: tests wait for it."""
    from publisher.security.exchange import Timing
    from publisher.targets import make_target

    return make_target(name, settings, msgspec.structs.replace(context, timing=Timing(grace_s=0.3)))


def _watch_files(folder: str, step: Callable[[str], None]) -> None:
    """Have everything that is done to files in a folder be a step, before it is done."""

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "open":
            path, _mode, flags = arguments
            if flags & _WRITING and str(path).startswith(folder):
                step(f"open {Path(path).name}")
        elif name in _FILES and os.fsdecode(arguments[0]).startswith(folder):
            step(f"{name} {Path(os.fsdecode(arguments[0])).name}")

    sys.addaudithook(hook)


def live(task: ChildTask) -> None:
    """What the process does."""
    from sqlalchemy import Engine
    from sqlalchemy import event as engine_event

    from publisher.api import Publisher
    from publisher.cli.signals import wait, watch_for_stop
    from publisher.publish.context import Tools
    from publisher.sources.base import Window

    count = 0

    def step(name: str) -> None:
        nonlocal count
        print(name, flush=True)
        if count == task.step:
            os.kill(os.getpid(), signal.Signals[f"SIG{task.signal_name}"])
            wait(30)  # until the main thread has seen it
        count += 1

    def statement(_connection: Any, _cursor: Any, text: str, *_rest: Any) -> None:
        if task.unit == "statement" or not text.lstrip().startswith(_READS):
            step(" ".join(text.split()[:3]))

    if task.unit != "event":
        engine_event.listen(Engine, "before_cursor_execute", statement)
        engine_event.listen(Engine, "commit", lambda _connection: step("COMMIT"))
    if task.unit == "write":
        _watch_files(str(Path(task.config).parent), step)
    if task.most_bytes:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (task.most_bytes, task.most_bytes))
        if task.dies:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    tools = Tools(
        lambda: NOW,
        lambda event: step(type(event).__name__) if task.unit == "event" else None,
        sleep=wait,
        stopping=watch_for_stop(),
        make_target=_make_hasty_target,
    )
    with Publisher.from_file(Path(task.config), tools) as publisher:
        if task.command == "open":
            publisher.status()
        if task.command in {"collect", "run"}:
            publisher.collect()
        if task.command in {"publish", "run"}:
            publisher.publish()
        if task.command == "republish":
            publisher.republish("spool", Window(FROM, UNTIL))
        if task.command in _KEEPING:
            _KEEPING[task.command](publisher, task)


def run_forked(task: ChildTask) -> ProcessEnding:
    """Fork a process that does a task, and wait until it has ended."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                live(task)
                code = 0
            except BaseException:  # noqa: BLE001 - it is reported, and the process ends
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        steps = out.read().decode().splitlines()
        return ProcessEnding(os.waitstatus_to_exitcode(status), steps, err.read().decode()[-4000:])


def main() -> None:
    """The fork_server."""
    import alembic.command
    import alembic.config  # noqa: F401 - loaded for all children

    from tests.publisher.cli.forked import load_program

    load_program()
    gc.freeze()
    for line in sys.stdin.buffer:
        ending = run_forked(msgspec.json.decode(line, type=ChildTask))
        sys.stdout.buffer.write(msgspec.json.encode(ending) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
