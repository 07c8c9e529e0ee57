"""A process that publishes, and kills itself at an event: `python -m publisher.testing.killed TABLE NOW STEP`. With a
fourth argument, targets too have the time NOW."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from publisher.api import Publisher
from publisher.config import file
from publisher.events import Event
from publisher.publish.context import Tools
from publisher.targets import make_target
from publisher.targets.base import Target
from publisher.targets.identity import TargetContext


def main(table: Path, now: int, step: int, *, keeps_time: bool) -> None:
    """Publish at a time (epoch seconds) with a configuration in JSON; die at the event with this number (from 0)."""
    count = 0

    def made(name: str, settings: Any, context: TargetContext) -> Target:
        return make_target(
            name, settings, msgspec.structs.replace(context, clock=lambda: now) if keeps_time else context
        )

    def observe(_event: Event) -> None:
        nonlocal count
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    config = file.parse(json.loads(table.read_bytes()), table)
    with Publisher(config, Tools(clock=lambda: now, observer=observe, make_target=made)) as publisher:
        publisher.publish()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), keeps_time=len(sys.argv) > 4)
