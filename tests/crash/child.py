"""Processes that collect and publish with the library, and kill themselves, or tell themselves to stop, at a step.

    python -m tests.crash.child

is a nursery: it has loaded everything, and bears a process for each line of JSON that it reads, a `Task`; it answers
with a line, a `Fate`, when that process has ended. A step is an event that the program tells, or a statement to its
store. A task with step -1 lives; its fate names every step, so that it tells how many there are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

NOW = 1_795_200_000
FROM, UNTIL = 1_785_000_000, 1_800_000_000
ROOT = Path(__file__).parents[2]

Command = Literal["collect", "publish", "run", "republish", "open"]
Unit = Literal["event", "statement"]


class Task(msgspec.Struct, frozen=True):
    """What a process is to do, and at which step it gets which signal. The target sent to again is `spool`."""

    config: str
    command: Command
    step: int = -1
    unit: Unit = "event"
    signal_name: str = "KILL"


class Fate(msgspec.Struct, frozen=True):
    """How it ended: the exit code (negative: by that signal), its steps, and what it said last."""

    code: int
    steps: list[str]
    said: str


class Nursery:
    """The other side of it. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.child"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, task: Task) -> Fate:
        """Have a process do this; back when it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Fate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.communicate(timeout=60)


def live(task: Task) -> None:
    """What the process does."""
    from sqlalchemy import Engine
    from sqlalchemy import event as engine_event

    from publisher.api import Publisher
    from publisher.cli.signals import told_to_stop, wait
    from publisher.pipeline.tools import Tools
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
        step(" ".join(text.split()[:3]))

    if task.unit == "statement":
        engine_event.listen(Engine, "before_cursor_execute", statement)
        engine_event.listen(Engine, "commit", lambda _connection: step("COMMIT"))
    tools = Tools(
        lambda: NOW,
        lambda event: step(type(event).__name__) if task.unit == "event" else None,
        sleep=wait,
        stopping=told_to_stop(),
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


def bear(task: Task) -> Fate:
    """One process from birth to death."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                live(task)
                code = 0
            except BaseException:  # noqa: BLE001 - it is told, and the process ends
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        steps = out.read().decode().splitlines()
        return Fate(os.waitstatus_to_exitcode(status), steps, err.read().decode()[-4000:])


def main() -> None:
    """The nursery."""
    import alembic.command
    import alembic.config  # noqa: F401 - loaded for all children

    import publisher.api
    import publisher.pipeline.deliver
    import publisher.pipeline.republish
    import publisher.transport

    publisher.transport._GRACE_S = 0.3  # several seconds, for those who wait for a test
    for line in sys.stdin.buffer:
        fate = bear(msgspec.json.decode(line, type=Task))
        sys.stdout.buffer.write(msgspec.json.encode(fate) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
