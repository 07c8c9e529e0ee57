"""The sums that a batch system's own program (`qacct`, `sacct`, `arcctl`) gives for the runs that a source read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from publisher.errors import SourceMissingError
from publisher.sources.base import Window
from publisher.sources.program import SILENT_S, lines


class ToolSums(msgspec.Struct, frozen=True):
    """Sums over the runs that ended in a window; None: the program does not print this sum. Milliseconds.

    `cpu_within_ms`: by how much the CPU time of a run may differ, because the program adds up smaller units.
    """

    tool: str
    jobs: int | None = None
    wall_ms: int | None = None
    core_ms: int | None = None
    cpu_ms: int | None = None
    cpu_within_ms: int = 0


@runtime_checkable
class HasTool(Protocol):
    """A source whose batch system has such a program."""

    def tool_sums(self, window: Window, clusters: Collection[str], /) -> ToolSums | None:
        """The sums that the program gives; None: there is none. `clusters`: the clusters of the runs that were read.

        Raises `SourceError` if the program is missing or fails, or if its output is not understood.
        """
        ...


def program(name: str) -> str:
    """The path of a program of the search path. Raises `SourceMissingError`."""
    path = shutil.which(name)
    if path is None:
        raise SourceMissingError(f"{name} is not installed here", hint="Omit --with-tool, or install it")
    return path


def run(name: str, *arguments: str) -> Iterator[str]:
    """The lines that a program of the search path prints, in the C locale and UTC. Raises `SourceError`s."""
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    for line in lines([program(name), *arguments], environment, SILENT_S):
        yield line.decode(errors="replace")


def uncompressed(files: Sequence[Path], name: str) -> Sequence[Path]:
    """These files. Raises `SourceError` if the program cannot read one of them."""
    for file in files:
        with file.open("rb") as opened:
            head = opened.read(6)
        if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
            raise SourceMissingError(f"{name} cannot read {file}", hint="It is compressed; compare a later month")
    return files
