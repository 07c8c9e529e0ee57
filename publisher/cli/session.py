"""The options for all commands, and the publisher that a command uses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from publisher.api import Publisher


class Session(msgspec.Struct):
    """The options for all commands."""

    config: Path | None = None
    json: bool = False
    verbose: bool = False
    quiet: bool = False

    def publisher(self, *, read_only: bool = False) -> Publisher:
        """The publisher of the configuration, with progress and messages as the options require."""
        from publisher.api import Publisher  # noqa: PLC0415 - after --help, which must be quick
        from publisher.cli.progress import observer  # noqa: PLC0415
        from publisher.cli.signals import wait, watch_for_stop  # noqa: PLC0415
        from publisher.publish.context import Tools  # noqa: PLC0415

        watch = observer(verbose=self.verbose, quiet=self.quiet or self.json, terminal=sys.stderr.isatty())
        tools = Tools(observer=watch, sleep=wait, stopping=watch_for_stop())
        return Publisher.from_file(self.config, tools, read_only=read_only)


session = Session()
