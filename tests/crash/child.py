"""A process that collects and publishes with the library, and kills itself, or asks itself to stop, at its n-th event.

    python -m tests.crash.child CONFIG COMMAND STEP SIGNAL

COMMAND: collect, publish, run, republish. STEP: number of the event, from 0; -1: live. SIGNAL: KILL or TERM. It prints
every event, so that a run with -1 tells how many there are.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from publisher.api import Publisher
from publisher.cli.signals import told_to_stop, wait
from publisher.observe.events import Event
from publisher.pipeline.tools import Tools
from publisher.sources.base import Window

NOW = 1_795_200_000
FROM, UNTIL = 1_785_000_000, 1_800_000_000


def main(config: str, command: str, step: int, signal_name: str) -> None:
    """Run the command."""
    count = 0

    def observe(event: Event) -> None:
        nonlocal count
        print(type(event).__name__, flush=True)
        if count == step:
            os.kill(os.getpid(), signal.Signals[f"SIG{signal_name}"])
            wait(30)  # until the main thread has seen it
        count += 1

    tools = Tools(lambda: NOW, observe, sleep=wait, stopping=told_to_stop())
    with Publisher.from_file(Path(config), tools) as publisher:
        if command in {"collect", "run"}:
            publisher.collect()
        if command in {"publish", "run"}:
            publisher.publish()
        if command == "republish":
            publisher.republish("spool", Window(FROM, UNTIL))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
