"""The other side of a source: what the batch system's own program says that some jobs used in all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from publisher.errors import SourceMissingError
from publisher.sources.base import Window
from publisher.sources.program import lines

_SILENT_S: Final = 600.0
"""A program that adds up prints nothing until it has."""


class ToolSums(msgspec.Struct, frozen=True):
    """What a program says of the runs that ended in a window; None: it does not say. Milliseconds.

    `cpu_within_ms`: by how much the CPU time of a run may differ, because the program adds up finer parts.
    """

    tool: str
    jobs: int | None = None
    wall_ms: int | None = None
    core_ms: int | None = None
    cpu_ms: int | None = None
    cpu_within_ms: int = 0


@runtime_checkable
class HasTool(Protocol):
    """What a source has besides whose batch system has such a program."""

    def tool_sums(self, window: Window) -> ToolSums | None:
        """What the program says; None: there is none.

        Raises `SourceError` where it is missing, fails, or is not understood.
        """
        ...


def run(program: str, *arguments: str) -> Iterator[str]:
    """The lines that a program of the search path prints, in the C locale and UTC. Raises `SourceError`s."""
    found = shutil.which(program)
    if found is None:
        raise SourceMissingError(f"{program} is not installed here", hint="Omit --with-tool, or install it")
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    for line in lines([found, *arguments], environment, _SILENT_S):
        yield line.decode(errors="replace")


def uncompressed(files: Sequence[Path], program: str) -> Sequence[Path]:
    """These files. Raises `SourceError` where the program cannot read one of them."""
    for file in files:
        with file.open("rb") as opened:
            head = opened.read(6)
        if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
            raise SourceMissingError(f"{program} cannot read {file}", hint="It is compressed; compare a later month")
    return files
