"""Sources: the accounting files and databases of batch systems, one module for each kind.

The `type` of a source in the configuration names its kind. `publisher.config.sources.SOURCE_KINDS` lists the kinds of
this program with the modules to import, so that only those in use are imported; installed packages add theirs by an
entry point in the group `usage_publisher.sources`. Both are called with the name of the source and its settings.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from publisher import plugins
from publisher.config.sources import SOURCE_KINDS, SourceSettings
from publisher.errors import ConfigError
from publisher.sources.base import Source
from publisher.sources.plugin import AddedSource
from publisher.text import unknown_name

if TYPE_CHECKING:  # processes that read in the background load neither
    from publisher.config.schema import Config
    from publisher.finding import Finding

_MOST_LOOKED_AT: Final = 50
"""The number of files of a folder that are looked at to recognise it."""


def make_source(name: str, settings: SourceSettings) -> Source:
    """The source of the configuration's table `[sources.NAME]`.

    Raises `ConfigError` for an unknown type, naming those that are known, and for an add-on that cannot be loaded.
    """
    make: Callable[[str, SourceSettings], Source] | None
    if settings.type in SOURCE_KINDS:
        make = _imported(SOURCE_KINDS[settings.type].factory)
    else:
        make = plugins.load(plugins.SOURCES, settings.type, key=f"sources.{name}.type")
    if make is None:
        raise ConfigError(
            unknown_name("type of source", settings.type, known_kinds()),
            key=f"sources.{name}.type",
            hint="Install the add-on that has it",
        )
    return make(name, settings) if settings.type in SOURCE_KINDS else AddedSource(name, settings, make)


def _imported(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    return cast("Callable[..., Any]", getattr(import_module(module), attribute))


def overlaps(config: Config, name: str, other: str) -> Iterator[Finding]:
    """What the settings show of jobs that a source of this name has, and another one too."""
    kind = SOURCE_KINDS.get(config.sources[name].type)
    if kind is not None and kind.overlaps:
        yield from _imported(kind.overlaps)(config, name, other)


def known_kinds() -> list[str]:
    """All types of sources, in order."""
    return sorted({*SOURCE_KINDS, *plugins.names(plugins.SOURCES)})


def recognised(place: Path) -> tuple[str, ...]:
    """The types of source that a path may have, from its name and content; empty: it is not recognised."""
    from publisher.sources.logs.sniff import looks_like  # noqa: PLC0415 - many patterns, which few commands need

    kinds = SOURCE_KINDS.values()
    for kind in kinds:
        if place.name == kind.program or any(place.name == name or (place / name).exists() for name in kind.databases):
            return (kind.name,)
    if place.is_file() and os.access(place, os.X_OK):
        return tuple(kind.name for kind in kinds if kind.program)
    files = sorted(place.iterdir(), reverse=True) if place.is_dir() else [place]
    for file in files[:_MOST_LOOKED_AT]:
        with contextlib.suppress(OSError):
            if not file.is_file():
                continue
            with file.open("rb") as lines:
                log_kind = looks_like([lines.readline(2**16) for _ in range(20)])
            if known := tuple(kind.name for kind in kinds if log_kind in kind.logs):
                return known
    return ()
