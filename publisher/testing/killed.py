"""A process that publishes, and kills itself at an event: `python -m publisher.testing.killed TABLE NOW STEP`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from publisher.api import Publisher
from publisher.config import file
from publisher.events import Event
from publisher.publish.context import Tools


def main(table: Path, now: int, step: int) -> None:
    """Publish at a time (epoch seconds) with a configuration in JSON; die at the event with this number (from 0)."""
    count = 0

    def observe(_event: Event) -> None:
        nonlocal count
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    config = file.parse(json.loads(table.read_bytes()), table)
    with Publisher(config, Tools(clock=lambda: now, observer=observe)) as publisher:
        publisher.publish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
